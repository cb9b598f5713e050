//! `conv_hopper`: every pass at edge sizes in all executions, filters, strides, padding, groups and epilogues, and what is refused.

use crate::common::{Launch, Tensors, absolute, assemble, bounds, close, ptxas, random};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::conv_hopper::{
    self, ConvSizes, Form, HopperConvConfig, Padding, Pass, PerMode, edge_sizes,
};
use tilewright_kernels::gemm_hopper::{Cluster, Epilogue, Inputs, Part, Schedule};
use tilewright_kernels::model::Model;
use tilewright_kernels::{Chip, ConfigError, operator};
use tilewright_machine::{Arch, DType};

/// One math warpgroup, tiles of 64 × 32 and four blocks: every block takes several tiles.
pub fn small(pass: Pass) -> HopperConvConfig {
    HopperConvConfig { pass, bm: 64, bn: 32, stages: 3, warpgroups: 1, sm_count: 4, ..Default::default() }
}

pub fn each(values: &[i64]) -> PerMode<i64> {
    PerMode::each(values).unwrap()
}

/// Tiles of the next pixels.
pub fn next_pixels(config: HopperConvConfig) -> HopperConvConfig {
    HopperConvConfig { im2col: true, ..config }
}

/// A filter of one tap.
pub fn pointwise(config: HopperConvConfig) -> HopperConvConfig {
    HopperConvConfig { filter: PerMode::all(1), padding: PerMode::all(Padding::both(0)), ..config }
}

/// A forward pass whose modes differ in filter, stride and padding, with a dilation.
pub fn uneven(config: HopperConvConfig) -> HopperConvConfig {
    HopperConvConfig {
        filter: each(&[1, 3]),
        stride: each(&[3, 1]),
        dilation: PerMode::all(2),
        padding: PerMode::each(&[Padding::both(0), Padding { front: 4, back: 1 }]).unwrap(),
        dtype: DType::BF16,
        out: Some(DType::F32),
        ..config
    }
}

/// A data gradient with phases that no tap meets, and with strides and dilations that have a common divisor.
pub fn phases(config: HopperConvConfig) -> HopperConvConfig {
    HopperConvConfig {
        filter: each(&[2, 3]),
        stride: each(&[3, 4]),
        dilation: each(&[2, 2]),
        padding: PerMode::each(&[Padding::both(0), Padding { front: 5, back: 3 }]).unwrap(),
        ..config
    }
}

/// Images of one mode.
pub fn line(padding: Padding, config: HopperConvConfig) -> HopperConvConfig {
    HopperConvConfig { dims: 1, filter: PerMode::all(5), padding: PerMode::all(padding), ..config }
}

/// Frames, padded in front alone.
pub fn causal(config: HopperConvConfig) -> HopperConvConfig {
    let padding = [Padding { front: 2, back: 0 }, Padding::both(1), Padding::both(1)];
    HopperConvConfig { dims: 3, padding: PerMode::each(&padding).unwrap(), ..config }
}

/// The first layer of a network, of few channels.
pub fn stem(config: HopperConvConfig) -> HopperConvConfig {
    HopperConvConfig {
        filter: PerMode::all(7),
        stride: PerMode::all(2),
        padding: PerMode::all(Padding::both(3)),
        pack: Some(4),
        bk: 32,
        ..config
    }
}

/// Interpreter, simulator and plain loops agree.
fn check(config: &HopperConvConfig, sizes: &ConvSizes) {
    check_seeds(config, sizes, &[sizes.c as u64]);
}

/// The same with seeds of the simulator.
pub fn check_seeds(config: &HopperConvConfig, sizes: &ConvSizes, seeds: &[u64]) {
    let mut rng = ChaCha8Rng::seed_from_u64((sizes.c * 7 + sizes.kout) as u64);
    let programs = config.programs().unwrap_or_else(|e| panic!("{config:?}: {e}"));
    let [of_x, of_f, of_y] = sizes.elements(config);
    let out = config.result();
    let mut draw = |dtype: DType, len: i64| random(&mut rng, dtype, len);
    let [x, f, y] = [of_x, of_f, of_y].map(|len| draw(config.dtype, len));
    let (names, factors, length, channels) = match config.pass {
        Pass::Fprop => (["x", "f"], [x, f], of_y, sizes.kout),
        Pass::Dgrad => (["dy", "f"], [y, f], of_x, sizes.c),
        Pass::Wgrad => (["dy", "x"], [y, x], of_f, sizes.c),
    };
    let inputs = Inputs {
        alpha: 0.75,
        col_scale: draw(DType::F32, channels),
        bias: draw(out, channels),
        residual: draw(out, length),
        ..Inputs::default()
    };
    let sums = |factors: [&[f64]; 2]| conv_hopper::reference(config, sizes, factors);
    let exact = sums([&factors[0], &factors[1]]);
    let magnitudes = sums([&absolute(&factors[0]), &absolute(&factors[1])]);
    let finished = conv_hopper::finish(config, &inputs, &exact, channels as usize);
    let depth = magnitudes.iter().fold(0.0f64, |most, sum| most.max(*sum)) as i64 + 64;
    let inner = bounds(DType::F32, 0.0, depth, &exact, &magnitudes);
    let approximate = config.epilogue.has(Part::Gelu) || config.epilogue.has(Part::Silu);
    let rough = if approximate { f64::powi(2.0, -10) } else { f64::powi(2.0, -22) };
    let bound: Vec<f64> = finished
        .iter()
        .zip(&exact)
        .zip(&inner)
        .map(|((v, sum), inner)| {
            let unrounded = 1.13 * inner + (v.abs() + sum.abs() + 2.0) * rough;
            unrounded + (v.abs() + unrounded) * out.epsilon() + 1e-7
        })
        .collect();
    let mut given: Tensors = names.map(str::to_string).into_iter().zip(factors).collect();
    let operands = [
        ("col_scale", inputs.col_scale.clone()),
        ("bias", inputs.bias.clone()),
        ("residual", inputs.residual.clone()),
    ];
    given.extend(operands.map(|(name, values)| (name.to_string(), values)));
    given.retain(|name, _| programs.iter().any(|p| p.params.iter().any(|param| param.name == *name)));
    let named = sizes.named(config);
    let launch = Launch { programs: &programs, sizes: &named, scalars: &[("alpha", inputs.alpha)] };
    let arch = if config.form == Form::Tcgen05 { Arch::SM_100A } else { Arch::SM_90A };
    let (simulated, interpreted, _) = launch.run(arch, seeds, &given);
    let result = ["y", "dx", "df"][config.pass as usize];
    for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
        close(&format!("{who} at {sizes:?} of {config:?}"), &results[result], &finished, &bound);
    }
}

/// Checks a configuration at its edge sizes, or by day at some of them.
fn check_edges(config: HopperConvConfig, some: &[usize]) {
    for (i, sizes) in edge_sizes(&config).iter().enumerate() {
        if some.contains(&i) || std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some() {
            check(&config, sizes);
        }
    }
}

#[test]
fn forward_at_edge_sizes() {
    check_edges(small(Pass::Fprop), &[0, 2, 3]);
}

#[test]
fn strides_and_dilations() {
    let strided = HopperConvConfig { stride: PerMode::all(2), ..small(Pass::Fprop) };
    check_edges(strided, &[1]);
    let pixels = Some(each(&[2, 8, 4]));
    check_edges(HopperConvConfig { pixels, ..uneven(small(Pass::Fprop)) }, &[2]);
}

#[test]
fn one_and_three_modes() {
    check_edges(line(Padding::both(3), small(Pass::Fprop)), &[2]);
    let pixels = Some(each(&[1, 2, 4, 8]));
    check_edges(HopperConvConfig { pixels, ..causal(small(Pass::Fprop)) }, &[1]);
}

#[test]
fn a_filter_of_one_tap_is_a_product() {
    for pass in Pass::ALL {
        check_edges(pointwise(small(pass)), &[2]);
    }
    let strided = HopperConvConfig { stride: PerMode::all(2), ..pointwise(small(Pass::Fprop)) };
    check_edges(strided, &[1]);
    // No place of dx but every second has a tap.
    check_edges(HopperConvConfig { pass: Pass::Dgrad, ..strided }, &[1]);
}

#[test]
fn epilogues() {
    let with =
        |list: &str| HopperConvConfig { epilogue: list.parse::<Epilogue>().unwrap(), ..small(Pass::Fprop) };
    check_edges(with("alpha+bias+gelu+residual"), &[1]);
    check_edges(HopperConvConfig { overlap_epilogue: true, ..with("col_scale+relu") }, &[1]);
    let few = ConvSizes { nb: 2, image: vec![4, 5], c: 40, kout: 24 };
    check(&HopperConvConfig { split: 3, ..with("bias+silu") }, &few);
    check(&HopperConvConfig { pass: Pass::Dgrad, ..with("residual") }, &few);
    check(&HopperConvConfig { pass: Pass::Wgrad, split: 2, ..with("alpha") }, &few);
}

#[test]
fn groups_of_channels() {
    for pass in Pass::ALL {
        check_edges(HopperConvConfig { groups: 3, ..small(pass) }, &[0]);
    }
    let biased = HopperConvConfig { epilogue: "bias".parse().unwrap(), groups: 2, ..small(Pass::Fprop) };
    check(&biased, &ConvSizes { nb: 2, image: vec![3, 5], c: 48, kout: 80 });
}

#[test]
fn clusters_share_factors() {
    for cluster in [Cluster::AlongM(2), Cluster::AlongN(2), Cluster::AlongMn(2, 2)] {
        check_edges(HopperConvConfig { cluster, ..small(Pass::Fprop) }, &[1]);
    }
}

#[test]
fn data_gradients() {
    check_edges(small(Pass::Dgrad), &[0, 3]);
    let strided = HopperConvConfig { stride: PerMode::all(2), ..small(Pass::Dgrad) };
    check_edges(strided, &[2]);
    check_edges(phases(small(Pass::Dgrad)), &[2]);
}

#[test]
fn weight_gradients() {
    check_edges(small(Pass::Wgrad), &[0, 2, 3]);
    let strided =
        HopperConvConfig { stride: PerMode::all(2), split: 3, out: Some(DType::F32), ..small(Pass::Wgrad) };
    check_edges(strided, &[1]);
}

#[test]
fn blocks_share_steps() {
    let shared = |pass| HopperConvConfig { schedule: Schedule::Remainder, sm_count: 5, ..small(pass) };
    check_edges(shared(Pass::Wgrad), &[2]);
    check_edges(shared(Pass::Dgrad), &[1]);
    let residual = "residual".parse().unwrap();
    check_edges(HopperConvConfig { overlap_epilogue: true, epilogue: residual, ..shared(Pass::Fprop) }, &[0]);
}

#[test]
fn few_channels_are_packed() {
    let stem = stem(small(Pass::Fprop));
    check(&stem, &sizes(2, &[13, 17], 3, 24));
    check(&HopperConvConfig { epilogue: "bias+relu".parse().unwrap(), ..stem }, &sizes(1, &[6, 5], 5, 65));
    // Rows longer than a block's tile of the copy.
    check(&stem, &sizes(1, &[3, 301], 1, 8));
    let gradient = HopperConvConfig { pass: Pass::Wgrad, epilogue: "alpha".parse().unwrap(), ..stem };
    check(&gradient, &sizes(2, &[13, 17], 3, 24));
    check(&HopperConvConfig { split: 3, out: Some(DType::F32), ..gradient }, &sizes(3, &[9, 8], 6, 40));
    let causal = [Padding { front: 2, back: 0 }, Padding::both(0), Padding { front: 0, back: 1 }];
    let frames = HopperConvConfig {
        dims: 3,
        filter: each(&[3, 1, 2]),
        padding: PerMode::each(&causal).unwrap(),
        dilation: each(&[2, 1, 1]),
        pack: Some(8),
        dtype: DType::BF16,
        ..small(Pass::Fprop)
    };
    check(&frames, &sizes(2, &[3, 4, 9], 3, 16));
    check(&HopperConvConfig { pass: Pass::Wgrad, ..frames }, &sizes(1, &[4, 3, 9], 11, 16));
    let line = HopperConvConfig {
        dims: 1,
        filter: PerMode::all(33),
        stride: PerMode::all(8),
        padding: PerMode::all(Padding::both(16)),
        pack: Some(1),
        ..small(Pass::Fprop)
    };
    check(&line, &sizes(3, &[500], 1, 16));
}

#[test]
fn random_convolutions() {
    let count = if std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some() { 300 } else { 4 };
    for seed in 0..count {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let dims = rng.random_range(1..=3usize);
        let mut draw = |low: i64, high: i64| rng.random_range(low..=high);
        let mut some = |low: i64, high: i64| each(&(0..dims).map(|_| draw(low, high)).collect::<Vec<_>>());
        let (filter, stride, dilation) = (some(1, 3), some(1, 3), some(1, 2));
        let image = (0..dims).map(|_| draw(1, 9)).collect();
        let padding: Vec<Padding> =
            (0..dims).map(|_| Padding { front: draw(0, 3), back: draw(0, 3) }).collect();
        let pass = Pass::ALL[draw(0, 2) as usize];
        let mut config = HopperConvConfig {
            dims: dims as i64,
            filter,
            stride,
            dilation,
            padding: PerMode::each(&padding).unwrap(),
            bk: [16, 32, 64][draw(0, 2) as usize],
            ..small(pass)
        };
        let mut sizes = ConvSizes { nb: draw(1, 3), image, c: 8 * draw(1, 5), kout: 8 * draw(1, 5) };
        let packed = HopperConvConfig { pack: Some(1 << draw(0, 3)), ..config };
        if packed.validate().is_ok() {
            (config, sizes.c) = (packed, draw(1, 20));
        }
        if sizes.output(&config).is_some() {
            check(&config, &sizes);
        }
    }
}

/// Tiles of the next pixels.
fn folded(pass: Pass) -> HopperConvConfig {
    next_pixels(small(pass))
}

pub fn sizes(nb: i64, image: &[i64], c: i64, kout: i64) -> ConvSizes {
    ConvSizes { nb, image: image.to_vec(), c, kout }
}

#[test]
fn tiles_of_the_next_pixels_cross_rows_and_images() {
    for pass in Pass::ALL {
        // Odd images, of which tiles end anywhere; images of a pixel, many to a tile; one that is smaller than a tile.
        for of in [sizes(3, &[7, 7], 40, 24), sizes(37, &[1, 1], 8, 8), sizes(1, &[5, 3], 64, 16)] {
            check(&folded(pass), &of);
        }
    }
    check(&folded(Pass::Fprop), &sizes(2, &[13, 13], 72, 40));
    check(&folded(Pass::Dgrad), &sizes(2, &[13, 12], 16, 72));
    check(&HopperConvConfig { bk: 128, ..folded(Pass::Wgrad) }, &sizes(2, &[13, 13], 72, 24));
}

#[test]
fn next_pixels_with_strides_dilation_and_padding() {
    for pass in [Pass::Fprop, Pass::Wgrad] {
        let strided = HopperConvConfig { stride: PerMode::all(2), ..folded(pass) };
        check(&strided, &sizes(3, &[7, 8], 24, 16));
        check(&strided, &sizes(2, &[13, 14], 16, 24));
        let uneven = HopperConvConfig {
            filter: each(&[2, 3]),
            stride: each(&[3, 1]),
            dilation: each(&[1, 2]),
            padding: PerMode::each(&[Padding { front: 0, back: 3 }, Padding { front: 4, back: 1 }]).unwrap(),
            dtype: DType::BF16,
            ..folded(pass)
        };
        check(&uneven, &sizes(2, &[9, 7], 24, 8));
    }
    let dilated = HopperConvConfig {
        dilation: PerMode::all(2),
        padding: PerMode::each(&[Padding::both(0), Padding { front: 5, back: 1 }]).unwrap(),
        ..folded(Pass::Dgrad)
    };
    check(&dilated, &sizes(2, &[9, 7], 16, 24));
    // Strides of a filter of one tap, which is no product as it stands.
    let strided = HopperConvConfig { stride: PerMode::all(2), ..pointwise(folded(Pass::Fprop)) };
    check(&strided, &sizes(3, &[7, 7], 24, 16));
}

#[test]
fn next_pixels_of_lines_volumes_and_groups() {
    for pass in Pass::ALL {
        let line = line(Padding { front: 3, back: 1 }, folded(pass));
        check(&line, &sizes(5, &[29], 24, 16));
        check(&causal(folded(pass)), &sizes(2, &[3, 5, 5], 16, 8));
        // Channels of a group are no whole step: those of the next group are none of its own.
        let grouped = HopperConvConfig { groups: 3, ..folded(pass) };
        check(&grouped, &sizes(2, &[7, 5], 3 * 24, 3 * 16));
    }
}

#[test]
fn next_pixels_with_all_that_products_have() {
    let of = sizes(3, &[7, 7], 40, 72);
    for cluster in [Cluster::AlongM(2), Cluster::AlongN(2), Cluster::AlongMn(2, 2)] {
        check(&HopperConvConfig { cluster, ..folded(Pass::Fprop) }, &of);
    }
    // Nine taps of one tile of columns each: the last cluster has a block behind them.
    for cluster in [Cluster::AlongM(2), Cluster::AlongN(2), Cluster::AlongMn(2, 2)] {
        check(&HopperConvConfig { cluster, bn: 64, ..folded(Pass::Wgrad) }, &of);
    }
    let with = |list: &str| HopperConvConfig { epilogue: list.parse().unwrap(), ..folded(Pass::Fprop) };
    check(&HopperConvConfig { overlap_epilogue: true, ..with("bias+relu+residual") }, &of);
    check(&HopperConvConfig { split: 3, ..with("bias+silu") }, &of);
    check(&HopperConvConfig { split: 2, ..folded(Pass::Wgrad) }, &of);
    for pass in Pass::ALL {
        let schedule = Schedule::Remainder;
        check(&HopperConvConfig { schedule, sm_count: 5, ..folded(pass) }, &of);
    }
}

#[test]
fn tiles_of_the_next_pixels_are_as_few_as_can_be() {
    let tuning = operator("conv_hopper").unwrap().tuning.unwrap();
    let sizes = [("nb", 32), ("h", 13), ("w", 13), ("c", 64), ("kout", 256)];
    let sizes = sizes.map(|(name, n)| (name.to_string(), n)).into();
    let given = [("bm", "128"), ("bn", "256"), ("bk", "64"), ("sm_count", "43")];
    let point = |more: &[(&str, &str)]| {
        (tuning.point)(Arch::SM_90A.into(), &sizes, &[&given[..], more].concat()).unwrap()
    };
    // 43 tiles of pixels are one round of blocks, and 49 boxes two.
    let (boxes, pixels) = (point(&[("pixels", "32x2x2")]), point(&[("im2col", "true")]));
    assert!(pixels.estimate < 0.8 * boxes.estimate, "{} and {}", pixels.estimate, boxes.estimate);
    // A tuner tries them around what it has found, too.
    assert!(tuning.secondary.contains(&("im2col", &["false", "true"][..])));
}

/// The choice on an H100 for so many images of as many rows as columns, with so many channels of x and y, beside what is pinned.
fn first(nb: i64, side: i64, channels: i64, given: &[(&str, &str)]) -> Vec<(&'static str, String)> {
    let tuning = operator("conv_hopper").unwrap().tuning.unwrap();
    let sizes = [("nb", nb), ("h", side), ("w", side), ("c", channels), ("kout", channels)];
    let sizes = sizes.map(|(name, n)| (name.to_string(), n)).into();
    let chip = Chip { arch: Arch::SM_90A, model: Model::of_device("NVIDIA H100 80GB HBM3") };
    (tuning.space)(chip, &sizes, given).unwrap().points.swap_remove(0).parameters
}

#[test]
fn the_next_pixels_are_chosen_where_they_are_fewer_tiles() {
    let next = ("im2col", "true".to_string());
    for given in [&[][..], &[("pass", "dgrad")], &[("pass", "wgrad")]] {
        assert!(first(32, 13, 256, given).contains(&next), "{given:?}");
        assert!(first(16, 17, 256, given).contains(&next), "{given:?}");
        // 32 × 32 pixels are as many boxes.
        assert!(!first(32, 32, 256, given).iter().any(|(name, _)| *name == "im2col"), "{given:?}");
    }
    for given in [("im2col", "false"), ("pixels", "32x2x2"), ("stride", "2")] {
        let given = if given.0 == "stride" { vec![("pass", "dgrad"), given] } else { vec![given] };
        assert!(!first(32, 13, 256, &given).contains(&next), "{given:?}");
    }
    // 129 tiles of 96 columns are one round as well, and are not alike: 23.7 µs on an H100, and 19.3 to 19.5 of 128 and 256 columns.
    assert!(!first(32, 13, 256, &[]).contains(&("bn", "96".to_string())));
}

/// On an H100 640 channels of two images of 32 × 32 take 29.2 µs in tiles of 64 × 160 and 36.2 of 128 × 128, and their data gradient 42.8 in tiles of 64 × 192, the last with 64 columns,
/// and 36.1 of 128 × 128; that of 1280 to 640 channels 50.6 in tiles of 128 × 192, the last with 128 columns, and 57.0 of 128 × 160.
#[test]
fn blocks_run_apart_where_tiles_of_columns_are_not_alike() {
    let tuning = operator("conv_hopper").unwrap().tuning.unwrap();
    let chip = Chip { arch: Arch::SM_90A, model: Model::of_device("NVIDIA H100 80GB HBM3") };
    let time = |pass, c: i64, [bm, bn]: [&'static str; 2]| {
        let sizes = [("nb", 2), ("h", 32), ("w", 32), ("c", c), ("kout", 640)];
        let sizes = sizes.map(|(name, n)| (name.to_string(), n)).into();
        let pixels = if bm == "64" { "1x8x8" } else { "1x8x16" };
        let warpgroups = if bm == "64" { "1" } else { "2" };
        let given = [
            ("pass", pass),
            ("pixels", pixels),
            ("bm", bm),
            ("bn", bn),
            ("bk", "64"),
            ("warpgroups", warpgroups),
        ];
        (tuning.point)(chip, &sizes, &given).unwrap().estimate
    };
    let square = ["128", "128"];
    assert!(time("fprop", 640, ["64", "160"]) < 0.9 * time("fprop", 640, square));
    assert!(time("dgrad", 640, ["64", "192"]) > 1.1 * time("dgrad", 640, square));
    assert!(time("dgrad", 1280, ["128", "192"]) < 0.95 * time("dgrad", 1280, ["128", "160"]));
    let chosen = first(2, 32, 640, &[]);
    assert!([("bm", "64"), ("bn", "160")].iter().all(|(name, n)| chosen.contains(&(*name, n.to_string()))));
}

pub fn refused(config: HopperConvConfig, field: &str, text: &str) {
    match config.programs() {
        Err(ConfigError::Value { field: found, wanted, .. }) => {
            assert_eq!(found, field, "{wanted}");
            assert!(wanted.contains(text), "{field}: {wanted}");
        }
        Err(other) => panic!("{field}: {other}"),
        Ok(_) => panic!("{field} was accepted"),
    }
}

#[test]
fn what_is_wrong_is_named() {
    let base = small(Pass::Fprop);
    refused(HopperConvConfig { dims: 4, ..base }, "dims", "from 1 to 3");
    refused(HopperConvConfig { filter: each(&[3, 3, 3]), ..base }, "filter", "or 2, one a mode");
    refused(HopperConvConfig { filter: PerMode::all(0), ..base }, "filter", "from 1 to 1024");
    refused(HopperConvConfig { stride: PerMode::all(9), ..base }, "stride", "from 1 to 8");
    refused(HopperConvConfig { dilation: PerMode::all(0), ..base }, "dilation", "from 1");
    refused(HopperConvConfig { padding: PerMode::all(Padding::both(-1)), ..base }, "padding", "from 0");
    refused(HopperConvConfig { groups: 0, ..base }, "groups", "from 1");
    refused(HopperConvConfig { groups: 2, dims: 3, ..base }, "groups", "5: dims must be 1 or 2");
    refused(HopperConvConfig { groups: 2, split: 2, ..base }, "split", "groups must be 1");
    refused(HopperConvConfig { dtype: DType::F32, ..base }, "dtype", "f16 or bf16");
    refused(HopperConvConfig { pixels: Some(each(&[1, 8, 7])), ..base }, "pixels", "product is bm = 64");
    refused(HopperConvConfig { pixels: Some(each(&[8, 8])), ..base }, "pixels", "3 numbers");
    refused(HopperConvConfig { bm: 96, ..base }, "bm", "multiple of 64");
    refused(HopperConvConfig { bk: 24, ..base }, "bk", "multiple of 16");
    refused(HopperConvConfig { in_flight: 3, ..base }, "in_flight", "fewer than the stages");
    refused(HopperConvConfig { cluster: Cluster::AlongK(2), ..base }, "cluster", "use split");
    refused(
        HopperConvConfig { epilogue: "col_sums".parse().unwrap(), ..base },
        "epilogue",
        "reach beyond images",
    );
    let gradient = HopperConvConfig { stride: PerMode::all(2), ..small(Pass::Dgrad) };
    refused(HopperConvConfig { cluster: Cluster::AlongM(2), ..gradient }, "cluster", "none");
    refused(HopperConvConfig { overlap_epilogue: true, ..gradient }, "overlap_epilogue", "false");
    refused(HopperConvConfig { split: 2, ..gradient }, "split", "must be 1");
    let shared = HopperConvConfig { schedule: Schedule::Remainder, ..base };
    refused(HopperConvConfig { groups: 2, ..shared }, "schedule", "groups must be 1");
    refused(HopperConvConfig { split: 2, ..shared }, "schedule", "split must be 1");
    refused(HopperConvConfig { schedule: Schedule::Remainder, ..gradient }, "schedule", "data_parallel");
    refused(
        HopperConvConfig { epilogue: "bias".parse().unwrap(), ..small(Pass::Wgrad) },
        "epilogue",
        "none but alpha",
    );
    refused(HopperConvConfig { pack: Some(3), ..base }, "pack", "1, 2, 4");
    refused(HopperConvConfig { pack: Some(4), ..base }, "pack", "multiple of 8: windows");
    refused(HopperConvConfig { pack: Some(4), ..gradient }, "pack", "data gradient");
    refused(HopperConvConfig { pack: Some(8), groups: 2, ..base }, "pack", "groups");
    refused(HopperConvConfig { pack: Some(8), dilation: PerMode::all(2), ..base }, "pack", "dilation");
    let next = folded(Pass::Fprop);
    refused(pointwise(next), "im2col", "a product as it stands");
    refused(HopperConvConfig { im2col: true, ..gradient }, "im2col", "taps of their own");
    refused(HopperConvConfig { pack: Some(8), ..next }, "im2col", "boxes read");
    let far = HopperConvConfig { padding: PerMode::all(Padding::both(129)), ..next };
    refused(
        far,
        "im2col",
        "with 4 modes pixels begin and end within -128 to 127 of an image, and taps reach 255",
    );
    refused(HopperConvConfig { filter: PerMode::all(258), ..next }, "im2col", "taps reach 255");
    refused(HopperConvConfig { dims: 3, dilation: PerMode::all(10), ..next }, "im2col", "-16 to 15");
    refused(HopperConvConfig { groups: 18, ..next }, "im2col", "groups too");
    let operator = operator("conv_hopper").unwrap();
    for (name, value) in
        [("pack", "some"), ("pass", "forward"), ("filter", "3x"), ("padding", "1:x"), ("pixels", "1x2x3x4x5")]
    {
        assert!((operator.programs)(&[(name, value)]).is_err(), "{name}={value}");
    }
    let text = "2:0x1x1".parse::<PerMode<Padding>>().unwrap().to_string();
    assert_eq!(text, "2:0x1x1");
}

#[test]
fn a_tile_is_chosen_for_a_layer() {
    let tuning = operator("conv_hopper").unwrap().tuning.unwrap();
    let layer = |side: i64, c: i64, kout: i64| {
        [("nb", 32), ("h", side), ("w", side), ("c", c), ("kout", kout)]
            .map(|(name, n)| (name.to_string(), n))
            .into()
    };
    let best = |sizes, given: &[(&str, &str)]| {
        let space = (tuning.space)(Arch::SM_90A.into(), &sizes, given).unwrap();
        assert!(!space.points.is_empty());
        space.points[0].parameters.clone()
    };
    // Images of 7 × 7 are 25 tiles of the next pixels, and 28 boxes at least: these have no pixel rows that the images lack.
    let next = ("im2col", "true".to_string());
    assert!(best(layer(7, 512, 512), &[]).contains(&next));
    let small = best(layer(7, 512, 512), &[("im2col", "false")]);
    let pixels = small.iter().find(|(name, _)| *name == "pixels").map(|(_, value)| value.as_str());
    let fold: PerMode<i64> = pixels.unwrap().parse().unwrap();
    assert!(fold.given()[0] > 1, "{small:?}");
    for pass in ["fprop", "dgrad", "wgrad"] {
        best(layer(56, 64, 64), &[("pass", pass)]);
        best(layer(56, 128, 128), &[("pass", pass), ("stride", "2")]);
        best(layer(14, 1024, 256), &[("pass", pass), ("filter", "1"), ("padding", "0")]);
        let stem =
            best(layer(224, 3, 64), &[("pass", pass), ("filter", "7"), ("padding", "3"), ("stride", "2")]);
        let packed = stem.iter().any(|(name, value)| *name == "pack" && value == "4");
        assert_eq!(packed, pass != "dgrad", "{stem:?}");
    }
}

#[test]
fn the_defaults_assemble_without_spills() {
    let ptxas = ptxas();
    for pass in Pass::ALL {
        for (name, stride) in [("", 1), ("_strided", 2)] {
            let config = HopperConvConfig { pass, stride: PerMode::all(stride), ..Default::default() };
            let programs = config.programs().unwrap();
            let sizes = ConvSizes { nb: 32, image: vec![56, 56], c: 64, kout: 128 }.named(&config);
            let launch = Launch { programs: &programs, sizes: &sizes, scalars: &[] };
            for kernel in launch.kernels(Arch::SM_90A) {
                // A box with a stride is one copy; of a factor whose channels are the tile's rows or columns, one each 64.
                let copies = kernel.ptx.matches("cp.async.bulk.tensor.4d.shared::cluster").count();
                let expected = match pass {
                    Pass::Fprop => 2,
                    Pass::Dgrad => 3,
                    Pass::Wgrad => 4,
                };
                assert_eq!(copies, expected, "{pass}{name}");
                let Some(ptxas) = &ptxas else { continue };
                let spills = assemble(ptxas, &format!("conv_{pass}{name}"), &kernel, Arch::SM_90A);
                assert_eq!(spills, 0, "{pass}{name}");
            }
        }
    }
}
