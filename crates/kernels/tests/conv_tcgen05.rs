//! `conv_hopper` with its sums in tensor memory: every pass in all executions, by boxes and by next pixels, in pairs, its space, and what is refused.

use std::collections::BTreeSet;

use crate::common::{Launch, assemble, crossed, in_turn, ptxas};
use crate::conv_hopper::{
    causal, check_seeds, each, line, next_pixels, phases, pointwise, refused, sizes, small as by_wgmma, stem,
    uneven,
};
use tilewright_kernels::conv_hopper::{ConvSizes, Form, HopperConvConfig, Padding, Pass, PerMode};
use tilewright_kernels::gemm_hopper::{Cluster, Schedule};
use tilewright_kernels::operator;
use tilewright_machine::{Arch, DType};

/// Tiles of 128 × 32 and four blocks.
fn small(pass: Pass) -> HopperConvConfig {
    HopperConvConfig { form: Form::Tcgen05, bm: 128, ..by_wgmma(pass) }
}

/// Tiles of the next pixels.
fn folded(pass: Pass) -> HopperConvConfig {
    next_pixels(small(pass))
}

fn paired(config: HopperConvConfig) -> HopperConvConfig {
    HopperConvConfig { pair: true, cluster: Cluster::AlongM(2), ..config }
}

/// Configurations in which everything that there is to choose is chosen differently once.
fn configs() -> Vec<HopperConvConfig> {
    let epilogue =
        |text: &str, of: HopperConvConfig| HopperConvConfig { epilogue: text.parse().unwrap(), ..of };
    let uneven = uneven(small(Pass::Fprop));
    let phases = phases(small(Pass::Dgrad));
    let cluster = |cluster, of| HopperConvConfig { cluster, ..of };
    let shared = |schedule, of| HopperConvConfig { schedule, sm_count: 5, ..of };
    let of_two = Cluster::AlongMn(2, 2);
    vec![
        small(Pass::Fprop),
        small(Pass::Dgrad),
        small(Pass::Wgrad),
        folded(Pass::Fprop),
        folded(Pass::Dgrad),
        folded(Pass::Wgrad),
        HopperConvConfig { bm: 64, bn: 16, bk: 32, ..small(Pass::Fprop) },
        HopperConvConfig { bm: 64, bn: 48, dtype: DType::BF16, out: Some(DType::F32), ..small(Pass::Wgrad) },
        HopperConvConfig { bn: 256, warpgroups: 2, stages: 2, bk: 32, ..small(Pass::Dgrad) },
        uneven,
        next_pixels(uneven),
        HopperConvConfig { stride: PerMode::all(2), ..small(Pass::Dgrad) },
        phases,
        HopperConvConfig { bn: 192, warpgroups: 2, stages: 3, ..phases },
        HopperConvConfig { stride: PerMode::all(2), ..pointwise(small(Pass::Dgrad)) },
        pointwise(small(Pass::Fprop)),
        paired(pointwise(small(Pass::Wgrad))),
        epilogue("alpha+bias+gelu+residual", small(Pass::Fprop)),
        epilogue(
            "col_scale+relu",
            HopperConvConfig { bn: 160, warpgroups: 2, stages: 3, ..folded(Pass::Dgrad) },
        ),
        epilogue("bias+silu", HopperConvConfig { split: 3, ..small(Pass::Fprop) }),
        epilogue("alpha", HopperConvConfig { split: 2, out: Some(DType::F32), ..small(Pass::Wgrad) }),
        HopperConvConfig { split: 3, ..folded(Pass::Wgrad) },
        // Outputs may be none, as far as the kernel knows.
        HopperConvConfig {
            padding: PerMode::all(Padding::both(0)),
            filter: each(&[1, 2]),
            ..small(Pass::Wgrad)
        },
        HopperConvConfig { stride: PerMode::all(2), split: 2, ..folded(Pass::Wgrad) },
        HopperConvConfig { groups: 3, ..small(Pass::Fprop) },
        HopperConvConfig { groups: 3, ..folded(Pass::Dgrad) },
        HopperConvConfig { groups: 3, ..small(Pass::Wgrad) },
        shared(Schedule::Remainder, small(Pass::Wgrad)),
        shared(Schedule::StreamK, folded(Pass::Fprop)),
        epilogue("residual", shared(Schedule::Remainder, small(Pass::Dgrad))),
        cluster(Cluster::AlongM(2), folded(Pass::Fprop)),
        cluster(Cluster::AlongN(2), HopperConvConfig { dependent: true, ..small(Pass::Dgrad) }),
        cluster(of_two, small(Pass::Fprop)),
        cluster(Cluster::AlongN(2), small(Pass::Wgrad)),
        paired(small(Pass::Fprop)),
        paired(folded(Pass::Fprop)),
        paired(small(Pass::Dgrad)),
        paired(folded(Pass::Dgrad)),
        paired(small(Pass::Wgrad)),
        paired(folded(Pass::Wgrad)),
        paired(HopperConvConfig {
            bn: 256,
            warpgroups: 2,
            stages: 2,
            stride: PerMode::all(2),
            ..folded(Pass::Wgrad)
        }),
        paired(HopperConvConfig {
            bn: 256,
            warpgroups: 2,
            ..epilogue("bias+relu+residual", small(Pass::Fprop))
        }),
        paired(HopperConvConfig { groups: 3, ..small(Pass::Fprop) }),
        paired(HopperConvConfig { split: 2, ..small(Pass::Wgrad) }),
        paired(HopperConvConfig { schedule: Schedule::Remainder, ..folded(Pass::Fprop) }),
        HopperConvConfig { cluster: of_two, ..paired(small(Pass::Fprop)) },
        HopperConvConfig { cluster: of_two, ..paired(folded(Pass::Dgrad)) },
        HopperConvConfig { cluster: of_two, bn: 64, sm_count: 8, ..paired(small(Pass::Wgrad)) },
        HopperConvConfig { cluster: of_two, split: 2, ..paired(folded(Pass::Wgrad)) },
    ]
}

#[test]
fn convolutions_with_sums_in_tensor_memory_are_right_at_edges() {
    let of = |config: &HopperConvConfig| {
        let g = config.groups;
        let all = [
            sizes(3, &[7, 7], g * 40, g * 24),
            sizes(37, &[1, 3], g * 8, g * 72),
            sizes(1, &[13, 12], g * 72, g * 40),
        ];
        all.into_iter().filter(|sizes| sizes.output(config).is_some()).collect::<Vec<_>>()
    };
    for (config, sizes) in crossed(configs(), of, 3) {
        check_seeds(&config, &sizes, &[1, sizes.c as u64]);
    }
}

#[test]
fn lines_volumes_few_channels_and_those_that_tensor_copies_cannot_read() {
    let volume = HopperConvConfig { pixels: Some(each(&[1, 2, 4, 16])), ..causal(small(Pass::Fprop)) };
    let line = line(Padding { front: 3, back: 1 }, small(Pass::Dgrad));
    let stem = stem(small(Pass::Fprop));
    let unaligned = |of: HopperConvConfig| HopperConvConfig {
        load_registers: 56,
        math_registers: 216,
        chunk: Some(8),
        ..of
    };
    let cases: Vec<(HopperConvConfig, ConvSizes)> = vec![
        (volume, sizes(2, &[3, 5, 5], 16, 8)),
        (
            HopperConvConfig { pass: Pass::Wgrad, pixels: None, im2col: true, ..volume },
            sizes(2, &[3, 5, 5], 16, 8),
        ),
        (line, sizes(3, &[300], 24, 16)),
        (paired(HopperConvConfig { pass: Pass::Fprop, ..line }), sizes(5, &[290], 24, 72)),
        (stem, sizes(2, &[13, 17], 3, 24)),
        (paired(stem), sizes(2, &[33, 31], 3, 72)),
        (HopperConvConfig { pass: Pass::Wgrad, split: 3, ..stem }, sizes(2, &[13, 17], 3, 24)),
        (unaligned(small(Pass::Fprop)), sizes(2, &[9, 5], 5, 33)),
        (unaligned(small(Pass::Wgrad)), sizes(2, &[9, 5], 12, 7)),
        (
            unaligned(HopperConvConfig { stride: PerMode::all(2), ..small(Pass::Dgrad) }),
            sizes(1, &[9, 5], 3, 9),
        ),
    ];
    for (config, sizes) in cases {
        check_seeds(&config, &sizes, &[3]);
    }
}

/// The first choices and some others of the space for a layer, of pairs and of blocks alone.
fn some_of_the_space(
    layer: &[(&str, i64)],
    given: &[(&str, &str)],
    count: usize,
) -> Vec<Vec<(&'static str, String)>> {
    let tuning = operator("conv_hopper").unwrap().tuning.unwrap();
    let sizes = layer.iter().map(|(name, n)| (name.to_string(), *n)).collect();
    let points = (tuning.space)(Arch::SM_100A.into(), &sizes, given).unwrap().points;
    assert!(points.len() > 10, "{given:?}: {}", points.len());
    let value = |parameters: &[(&str, String)], name: &str| {
        parameters.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone())
    };
    assert!(points.iter().all(|p| value(&p.parameters, "form").is_some_and(|form| form == "tcgen05")));
    let pair = |parameters: &[(&str, String)]| value(parameters, "pair").is_some();
    let paired: Vec<_> = points.iter().filter(|point| pair(&point.parameters)).collect();
    let phases = given.contains(&("pass", "dgrad")) && given.iter().any(|(name, _)| *name == "stride");
    assert_eq!(paired.is_empty(), phases, "{given:?}");
    let chosen = points.iter().take(1).chain(points.iter().step_by(points.len() / count));
    let paired =
        paired.iter().take(1).copied().chain(paired.iter().step_by(1 + paired.len() / count).copied());
    let mut seen = BTreeSet::new();
    let all = chosen.chain(paired).map(|point| point.parameters.clone());
    all.filter(|parameters| seen.insert(parameters.clone())).collect()
}

#[test]
fn the_space_is_of_sums_in_tensor_memory_and_needs_no_spills() {
    let conv = operator("conv_hopper").unwrap();
    let ptxas = ptxas();
    let layer = [("nb", 32), ("h", 56), ("w", 56), ("c", 128), ("kout", 128)];
    let mut turn = 0;
    for pass in ["fprop", "dgrad", "wgrad"] {
        for more in [None, Some(("stride", "2")), Some(("im2col", "true")), Some(("epilogue", "alpha"))] {
            let given: Vec<(&str, &str)> = [("pass", pass)].into_iter().chain(more).collect();
            if given == [("pass", "dgrad"), ("im2col", "true")] {
                // As without, but for its copies of dy.
                continue;
            }
            for parameters in some_of_the_space(&layer, &given, 4) {
                turn += 1;
                if !in_turn(turn, 4) {
                    continue;
                }
                let given: Vec<(&str, &str)> =
                    parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let programs = (conv.programs)(&given).unwrap();
                let launch = Launch { programs: &programs, sizes: &layer, scalars: &[] };
                let arch = if turn % 8 == 0 { Arch::SM_103A } else { Arch::SM_100A };
                let kernels = launch.kernels(arch);
                assert!(kernels.iter().any(|kernel| kernel.ptx.contains("tcgen05.mma")), "{given:?}");
                assert!(kernels.iter().all(|kernel| !kernel.ptx.contains("wgmma")), "{given:?}");
                let paired = given.contains(&("pair", "true"));
                assert_eq!(kernels.iter().any(|k| k.ptx.contains("cta_group::2")), paired, "{given:?}");
                let Some(ptxas) = &ptxas else { continue };
                for (step, kernel) in kernels.iter().enumerate() {
                    let spilled = assemble(ptxas, &format!("conv_tcgen05_{turn}_{step}"), kernel, arch);
                    assert_eq!(spilled, 0, "{given:?} spills");
                }
            }
        }
    }
}

#[test]
fn architectures_choose_their_form() {
    let tuning = operator("conv_hopper").unwrap().tuning.unwrap();
    let layer = [("nb", 32), ("h", 14), ("w", 14), ("c", 256), ("kout", 256)];
    let layer = layer.map(|(name, n)| (name.to_string(), n)).into();
    let space = |arch: Arch, given: &[(&str, &str)]| (tuning.space)(arch.into(), &layer, given).unwrap();
    let form = |arch| {
        let points = space(arch, &[]).points;
        points[0].parameters.iter().find(|(name, _)| *name == "form").map(|(_, form)| form.clone())
    };
    for arch in [Arch::SM_100A, Arch::SM_103A] {
        assert_eq!(form(arch).as_deref(), Some("tcgen05"), "{arch}");
    }
    assert_eq!(form(Arch::SM_90A), None);
    let none = space(Arch::SM_90A, &[("form", "tcgen05")]);
    assert!(none.points.is_empty() && none.because.is_some_and(|why| why.contains("lacks tcgen05")));
    assert!(space(Arch::SM_120A, &[]).points.is_empty());
}

#[test]
fn what_tensor_memory_does_not_do_is_refused() {
    let base = small(Pass::Fprop);
    refused(HopperConvConfig { bm: 256, warpgroups: 2, ..base }, "bm", "must be 64 or 128");
    refused(HopperConvConfig { bn: 40, ..base }, "bn", "multiple of 16");
    refused(HopperConvConfig { overlap_epilogue: true, ..base }, "overlap_epilogue", "must be false");
    refused(HopperConvConfig { in_flight: 0, ..base }, "in_flight", "must be 1");
    let pair = paired(base);
    refused(HopperConvConfig { form: Form::Wgmma, ..pair }, "pair", "form=tcgen05 alone");
    refused(HopperConvConfig { bm: 64, ..pair }, "pair", "bm=128");
    refused(HopperConvConfig { cluster: Cluster::AlongN(2), ..pair }, "pair", "cluster=m2");
    let strided = HopperConvConfig { stride: PerMode::all(2), ..paired(small(Pass::Dgrad)) };
    refused(strided, "cluster", "must be none");
    assert!(
        base.reject(Arch::SM_90A).is_some_and(|why| why.contains("lacks tcgen05") && why.contains("sm_100a"))
    );
    assert!(by_wgmma(Pass::Fprop).reject(Arch::SM_100A).is_some_and(|why| why.contains("lacks wgmma")));
}
