//! A whole layer of experts by the launches of its plan, from logits or experts to the sums of tokens, on interpreter and simulator beside plain loops in
//! f64; and the choices of the plan.

use std::collections::BTreeMap;

use crate::common::{Launch, Tensors, close, random};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::gemm_weights::StoredWeights;
use tilewright_kernels::moe::{
    self, MoeError, MoeLaunch, MoeLayer, MoePlan, MoeReduction, MoeRoutingConfig, MoeWeights,
};
use tilewright_kernels::operator;
use tilewright_machine::{Arch, DType};
use tilewright_tile::{Program, SymbolKind};

/// The program of a launch, whose tensors have the layer's names and whose sizes have names of their own.
fn program_of(launch: &MoeLaunch, number: usize) -> (Program, Vec<(String, i64)>) {
    let given: Vec<(&str, &str)> =
        launch.parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut program = (operator(launch.operator).unwrap().programs)(&given).unwrap().remove(launch.program);
    for param in &mut program.params {
        if let Some((_, name)) = launch.tensors.iter().find(|(own, _)| *own == param.name) {
            param.name = name.to_string();
        }
    }
    let mut sizes = Vec::new();
    for symbol in program.symbols.iter_mut().filter(|symbol| matches!(symbol.kind, SymbolKind::Size(_))) {
        let (_, value) = launch
            .sizes
            .iter()
            .find(|(name, _)| *name == symbol.name)
            .unwrap_or_else(|| panic!("{launch:?}: {}", symbol.name));
        symbol.name = format!("{}_{number}", symbol.name);
        sizes.push((symbol.name.clone(), *value));
    }
    assert_eq!(sizes.len(), launch.sizes.len(), "{launch:?}");
    (program, sizes)
}

/// The results of a layer in f64, but for what is rounded between its launches.
struct Reference<'a> {
    layer: &'a MoeLayer,
    x: &'a [f64],
    w13: &'a [f64],
    w2: &'a [f64],
    /// The scales of blocks of both, if there are any.
    s13: &'a [f64],
    s2: &'a [f64],
}

impl Reference<'_> {
    /// A number as it is between launches.
    fn round(&self, x: f64) -> f64 {
        self.layer.dtype.decode(self.layer.dtype.encode(x))
    }

    /// The row of activations that a product has, which may be rounded to 8 bits by blocks.
    fn rounded(&self, row: &[f64]) -> Vec<f64> {
        let (dtype, most, each) = match self.layer.weights {
            MoeWeights::Same | MoeWeights::Few { .. } => return row.to_vec(),
            MoeWeights::Fp8Blocks => (DType::E4M3, 448.0, 128),
            MoeWeights::Rows(DType::I8) => (DType::I8, 127.0, row.len()),
            MoeWeights::Rows(dtype) => (dtype, 448.0, row.len()),
        };
        let block = |block: &[f64]| {
            let scale = block.iter().map(|x| x.abs()).fold(0.0, f64::max).max(1e-30) / most;
            block.iter().map(|x| dtype.decode(dtype.encode(x / scale)) * scale).collect::<Vec<f64>>()
        };
        row.chunks(each).flat_map(block).collect()
    }

    /// The product of a row with row `j` of the matrix of an expert, of `n` rows, and the sum of its magnitudes.
    fn dot(&self, row: &[f64], (w, s): (&[f64], &[f64]), [expert, j, n]: [usize; 3]) -> [f64; 2] {
        let k = row.len();
        let (deep, wide) = (k.div_ceil(128), n.div_ceil(128));
        let product = |l: usize| {
            let scale = s.get((expert * wide + j / 128) * deep + l / 128).copied().unwrap_or(1.0);
            row[l] * w[(expert * n + j) * k + l] * scale
        };
        (0..k).map(product).fold([0.0; 2], |[sum, size], x| [sum + x, size + x.abs()])
    }

    /// The results of tokens, and the sums of the magnitudes of what is added.
    fn results(&self, ids: &[i64], weights: &[f64], map: Option<&[i64]>) -> (Vec<f64>, Vec<f64>) {
        let [hidden, between, k] =
            [self.layer.hidden, self.layer.intermediate, self.layer.k].map(|n| n as usize);
        let (mut y, mut magnitudes) = (Vec::new(), Vec::new());
        for (token, x) in self.x.chunks(hidden).enumerate() {
            let (mut sums, mut sizes) = (vec![0.0; hidden], vec![0.0; hidden]);
            let x = self.rounded(x);
            for place in token * k..(token + 1) * k {
                let id = map.map_or(ids[place], |map| map[ids[place] as usize]);
                let Ok(expert) = usize::try_from(id) else { continue };
                let up = |j: usize| self.dot(&x, (self.w13, self.s13), [expert, j, 2 * between])[0];
                let unit = |i: usize| {
                    let (gate, up) = (up(i), up(between + i));
                    // Products of weights with scales leave their sums in memory, others their gated units.
                    let gated = |gate: f64, up: f64| gate / (1.0 + (-gate).exp()) * up;
                    match self.layer.weights {
                        MoeWeights::Same => self.round(gated(gate, up)),
                        MoeWeights::Fp8Blocks | MoeWeights::Rows(_) => {
                            gated(self.round(gate), self.round(up))
                        }
                        MoeWeights::Few { .. } => self.round(gated(self.round(gate), self.round(up))),
                    }
                };
                let h = self.rounded(&(0..between).map(unit).collect::<Vec<f64>>());
                for i in 0..hidden {
                    let [sum, size] = self.dot(&h, (self.w2, self.s2), [expert, i, hidden]);
                    sums[i] += weights[place] * self.round(sum);
                    sizes[i] += weights[place].abs() * size;
                }
            }
            y.extend(sums);
            magnitudes.extend(sizes);
        }
        (y, magnitudes)
    }
}

/// The experts of tokens.
#[derive(Clone, Copy, Debug)]
enum Given {
    Logits,
    /// Any experts.
    Random,
    /// The first experts, which all tokens have.
    Same,
}

/// The matrices of all experts: as launches read them, with their scales, and as numbers.
struct Matrices {
    stored: Vec<f64>,
    scales: Vec<f64>,
    plain: Vec<f64>,
}

/// Matrices of so many rows and columns.
fn matrices(layer: &MoeLayer, rng: &mut ChaCha8Rng, [n, k]: [i64; 2]) -> Matrices {
    let deep = |n: i64| (n + 127) / 128;
    match layer.weights {
        MoeWeights::Same => {
            let plain = random(rng, layer.dtype, layer.experts * n * k);
            Matrices { stored: plain.clone(), scales: Vec::new(), plain }
        }
        MoeWeights::Fp8Blocks => {
            let plain = random(rng, DType::E4M3, layer.experts * n * k);
            let scales = random(rng, DType::F32, layer.experts * deep(n) * deep(k));
            Matrices { stored: plain.clone(), scales, plain }
        }
        MoeWeights::Rows(dtype) => {
            let stored = random(rng, dtype, layer.experts * n * k);
            // Integers are large.
            let size = if dtype == DType::I8 { 1.0 / 128.0 } else { 1.0 };
            let scales: Vec<f64> =
                random(rng, DType::F32, layer.experts * n).iter().map(|s| s * size).collect();
            let plain = stored.iter().enumerate().map(|(at, x)| x * scales[at / k as usize]).collect();
            Matrices { stored, scales, plain }
        }
        MoeWeights::Few { dtype, group } => {
            let order = StoredWeights::new(dtype, group);
            let (size, width) = ([n as usize, k as usize], group.unwrap_or(k) as usize);
            let groups = size[1].div_ceil(width);
            let stored = random(rng, dtype, layer.experts * order.count(size) as i64);
            let scales = random(rng, layer.dtype, layer.experts * groups as i64 * n);
            let experts = stored.chunks(order.count(size)).zip(scales.chunks(groups * size[0]));
            let plain = experts.flat_map(|(stored, scales)| {
                let codes = order.unpack(stored, size);
                let scale = |at: usize| scales[at % size[1] / width * size[0] + at / size[1]];
                codes.into_iter().enumerate().map(|(at, code)| code * scale(at)).collect::<Vec<f64>>()
            });
            let plain = plain.collect();
            Matrices { stored, scales, plain }
        }
    }
}

fn check(layer: &MoeLayer, tokens: i64, how: Given, seeds: &[u64]) {
    check_plan(layer, tokens, how, seeds, layer.plan(tokens, 4).unwrap());
}

fn check_plan(layer: &MoeLayer, tokens: i64, how: Given, seeds: &[u64], plan: MoePlan) {
    let mut rng = ChaCha8Rng::seed_from_u64(tokens as u64);
    let MoeLayer { hidden, intermediate, experts, k, .. } = *layer;
    let all = layer.all_experts.unwrap_or(experts);
    let blocks = layer.weights == MoeWeights::Fp8Blocks;
    let rounds = blocks || matches!(layer.weights, MoeWeights::Rows(_));
    let x = random(&mut rng, layer.dtype, tokens * hidden);
    let w13 = matrices(layer, &mut rng, [2 * intermediate, hidden]);
    let w2 = matrices(layer, &mut rng, [hidden, intermediate]);
    let logits = random(&mut rng, DType::F32, tokens * all);
    let map: Vec<i64> =
        (0..all).map(|id| if id % 2 == 1 && id / 2 < experts { id / 2 } else { -1 }).collect();
    let map = layer.all_experts.map(|_| map);
    let (ids, weights) = match (&layer.routing, how) {
        (Some(routing), _) => {
            let routed = moe::route(routing, &logits, &[], 1.0);
            (routed.ids, routed.weights)
        }
        (None, Given::Same) => {
            ((0..tokens * k).map(|place| place % k).collect(), random(&mut rng, DType::F32, tokens * k))
        }
        (None, _) => (
            (0..tokens * k).map(|_| rng.random_range(0..all)).collect(),
            random(&mut rng, DType::F32, tokens * k),
        ),
    };
    let launches: Vec<(Program, Vec<(String, i64)>)> =
        plan.launches.iter().enumerate().map(|(i, launch)| program_of(launch, i)).collect();
    let programs: Vec<Program> = launches.iter().map(|(program, _)| program.clone()).collect();
    let sizes: Vec<(&str, i64)> =
        launches.iter().flat_map(|(_, sizes)| sizes).map(|(name, value)| (name.as_str(), *value)).collect();
    let floats = |numbers: &[i64]| numbers.iter().map(|number| *number as f64).collect::<Vec<f64>>();
    // The numbers of weights of a few bits have their scales.
    let scales = |of: &Matrices| if blocks { of.scales.clone() } else { Vec::new() };
    let (s13, s2) = (scales(&w13), scales(&w2));
    let reference = Reference { layer, x: &x, w13: &w13.plain, w2: &w2.plain, s13: &s13, s2: &s2 };
    let (exact, magnitudes) = reference.results(&ids, &weights, map.as_deref());
    let mut given: Tensors = [("x", x.clone()), ("w13", w13.stored.clone()), ("w2", w2.stored.clone())]
        .map(|(name, values)| (name.to_string(), values))
        .into();
    if layer.weights != MoeWeights::Same {
        given.extend([("s13".into(), w13.scales.clone()), ("s2".into(), w2.scales.clone())]);
    }
    if layer.routing.is_some() {
        given.insert("logits".into(), logits);
    } else {
        given.insert("ids".into(), floats(&ids));
        given.insert("weights".into(), weights);
    }
    if let Some(map) = &map {
        given.insert("map".into(), floats(map));
    }
    let named: BTreeMap<&str, &[i64]> =
        plan.workspace.iter().map(|tensor| (tensor.name, &tensor.shape[..])).collect();
    let launch = Launch { programs: &programs, sizes: &sizes, scalars: &[] };
    let (simulated, interpreted, _) = launch.run(Arch::SM_90A, seeds, &given);
    for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
        for (name, shape) in &named {
            assert_eq!(results[*name].len() as i64, shape.iter().product::<i64>(), "{name}");
        }
        for name in results.keys().filter(|name| !given.contains_key(*name) && *name != "y") {
            assert!(named.contains_key(name.as_str()), "{name} is not in the workspace");
        }
        // Values between are rounded where theirs may lie on the other side of a tie.
        let epsilon = layer.dtype.epsilon();
        let of_sums = if rounds { DType::E4M3.epsilon() } else { 2.0 * epsilon };
        let bound = |(y, sum): (&f64, &f64)| 2.0 * epsilon * y.abs() + of_sums * sum + 1e-3 * epsilon;
        let bound: Vec<f64> = exact.iter().zip(&magnitudes).map(bound).collect();
        let squares = |of: &mut dyn Iterator<Item = f64>| of.map(|x| x * x).sum::<f64>().sqrt();
        let off = squares(&mut exact.iter().zip(&results["y"]).map(|(y, actual)| y - actual));
        let norm = squares(&mut exact.iter().copied());
        assert!(off <= if rounds { 0.02 } else { 0.01 } * norm, "{who}: {off} of {norm}");
        close(&format!("{who} at {tokens} tokens, {how:?}, of {layer:?}"), &results["y"], &exact, &bound);
    }
}

fn small() -> MoeLayer {
    MoeLayer {
        dtype: DType::F16,
        weights: MoeWeights::Same,
        hidden: 136,
        intermediate: 72,
        experts: 8,
        all_experts: None,
        k: 2,
        routing: None,
        reduction: MoeReduction::Ordered,
    }
}

#[test]
fn layers_are_right_at_edges() {
    let routed = MoeLayer { routing: Some(MoeRoutingConfig::default()), ..small() };
    let elsewhere = MoeLayer { experts: 3, all_experts: Some(9), k: 3, dtype: DType::BF16, ..small() };
    check(&small(), 1, Given::Random, &[1, 2]);
    check(&small(), 17, Given::Same, &[1]);
    check(&routed, 40, Given::Logits, &[1]);
    check(&elsewhere, 1, Given::Random, &[1]);
    check(&elsewhere, 30, Given::Random, &[1]);
    check(&elsewhere, 5, Given::Same, &[1, 2]);
}

#[test]
fn layers_of_scaled_blocks_are_right() {
    let layer = MoeLayer {
        weights: MoeWeights::Fp8Blocks,
        dtype: DType::BF16,
        hidden: 144,
        intermediate: 80,
        ..small()
    };
    let elsewhere = MoeLayer { experts: 3, all_experts: Some(9), k: 3, ..layer.clone() };
    check(&layer, 1, Given::Random, &[1]);
    check(&layer, 40, Given::Same, &[1]);
    check(&elsewhere, 13, Given::Random, &[1, 2]);
}

#[test]
fn layers_of_weights_of_a_few_bits_are_right() {
    let few = MoeWeights::Few { dtype: DType::I4, group: Some(64) };
    let layer = MoeLayer { weights: few, ..small() };
    let bytes = MoeWeights::Few { dtype: DType::E4M3, group: None };
    let elsewhere =
        MoeLayer { weights: bytes, dtype: DType::BF16, experts: 3, all_experts: Some(9), k: 3, ..small() };
    check(&layer, 1, Given::Random, &[1]);
    check(&layer, 40, Given::Same, &[1]);
    check(&elsewhere, 13, Given::Random, &[1, 2]);
}

#[test]
fn layers_with_scales_of_rows_are_right() {
    let layer = MoeLayer { weights: MoeWeights::Rows(DType::E4M3), hidden: 144, intermediate: 80, ..small() };
    let elsewhere = MoeLayer {
        weights: MoeWeights::Rows(DType::I8),
        dtype: DType::BF16,
        experts: 3,
        all_experts: Some(9),
        k: 3,
        ..layer.clone()
    };
    check(&layer, 1, Given::Random, &[1]);
    check(&layer, 40, Given::Same, &[1]);
    check(&elsewhere, 13, Given::Random, &[1, 2]);
}

/// The second product adds its rows to those of tokens, in an open order.
#[test]
fn layers_whose_results_are_added_as_they_leave_are_right() {
    let added = MoeLayer { reduction: MoeReduction::Added(DType::F32), ..small() };
    let here = MoeReduction::Added(DType::BF16);
    let elsewhere =
        MoeLayer { experts: 3, all_experts: Some(9), k: 3, dtype: DType::BF16, reduction: here, ..small() };
    let few = MoeWeights::Few { dtype: DType::I4, group: Some(64) };
    let few = MoeLayer { weights: few, reduction: MoeReduction::Added(DType::F16), ..small() };
    let blocks = MoeLayer { weights: MoeWeights::Fp8Blocks, hidden: 144, intermediate: 80, ..added.clone() };
    let rows = MoeLayer { weights: MoeWeights::Rows(DType::I8), ..blocks.clone() };
    let routed = MoeLayer { routing: Some(MoeRoutingConfig::default()), ..added.clone() };
    check(&routed, 40, Given::Logits, &[1]);
    check(&elsewhere, 30, Given::Random, &[2]);
    check(&few, 13, Given::Same, &[1]);
    check(&blocks, 5, Given::Random, &[1]);
    check(&rows, 40, Given::Random, &[1]);
    let many = MoeLayer { experts: 2, k: 1, hidden: 64, intermediate: 64, ..added };
    check(&many, 600, Given::Random, &[1]);
}

/// The first product of some plans reads rows that were copied into the order of their experts.
#[test]
fn layers_whose_rows_are_copied_ahead_are_right() {
    let few = MoeWeights::Few { dtype: DType::I4, group: Some(64) };
    for layer in [small(), MoeLayer { weights: few, experts: 3, all_experts: Some(9), ..small() }] {
        let plans = layer.plans(30, 4, 1000).unwrap();
        assert_eq!(plans[0], layer.plan(30, 4).unwrap());
        assert!(plans.windows(2).all(|two| two[0].estimate <= two[1].estimate));
        let copies = |plan: &MoePlan| plan.launches.iter().any(|launch| launch.operator == "moe_gather");
        let copied = plans.into_iter().find(copies).unwrap();
        check_plan(&layer, 30, Given::Random, &[1], copied);
    }
}

/// More tokens than one block sorts, some of which have tiles of rows that are not columns.
#[test]
fn layers_of_many_tokens_are_right() {
    let one = MoeLayer { experts: 2, k: 1, hidden: 64, intermediate: 64, ..small() };
    check(&one, 600, Given::Random, &[1]);
}

fn deepseek() -> MoeLayer {
    MoeLayer {
        dtype: DType::BF16,
        weights: MoeWeights::Same,
        hidden: 7168,
        intermediate: 256,
        experts: 256,
        all_experts: None,
        k: 8,
        routing: None,
        reduction: MoeReduction::Ordered,
    }
}

fn mixtral() -> MoeLayer {
    MoeLayer { hidden: 4096, intermediate: 14336, experts: 8, k: 2, ..deepseek() }
}

/// A parameter of a launch.
fn parameter<'a>(plan: &'a MoePlan, launch: usize, name: &str) -> &'a str {
    let launches: Vec<&MoeLaunch> =
        plan.launches.iter().filter(|launch| launch.operator == "gemm_hopper").collect();
    launches[launch].parameters.iter().find(|(own, _)| *own == name).map_or("default", |(_, value)| value)
}

#[test]
fn few_tokens_have_narrow_tiles_and_many_have_wide_ones() {
    for (layer, tokens, rows) in [
        (deepseek(), 1, 8..=8),
        (deepseek(), 64, 8..=16),
        (deepseek(), 1024, 32..=96),
        (deepseek(), 4096, 128..=192),
        (mixtral(), 1, 8..=8),
        (mixtral(), 64, 16..=32),
        (mixtral(), 4096, 128..=256),
    ] {
        let plan = layer.plan(tokens, 132).unwrap();
        for product in [0, 1] {
            let swapped = parameter(&plan, product, "swap") == "true";
            let (field, usual) = if swapped { ("bn", "256") } else { ("bm", "128") };
            let tile = parameter(&plan, product, field);
            let tile: i64 = if tile == "default" { usual } else { tile }.parse().unwrap();
            assert!(rows.contains(&tile), "{layer:?}, {tokens} tokens: {:?}", plan.launches);
        }
    }
}

/// Threads that gather rows slow tensor cores down: where these bound the time, and rows are few beside the products, the rows are copied ahead.
#[test]
fn rows_are_copied_ahead_where_tensor_cores_bound_the_time() {
    let copies = |layer: MoeLayer, tokens: i64| {
        let plan = layer.plan(tokens, 132).unwrap();
        plan.launches.iter().any(|launch| launch.operator == "moe_gather")
    };
    assert!(copies(mixtral(), 1024) && copies(mixtral(), 4096));
    for tokens in [1, 16, 64] {
        assert!(!copies(mixtral(), tokens) && !copies(deepseek(), tokens), "{tokens}");
    }
}

/// Few experts have few tiles: the blocks of a cluster share the steps of each.
#[test]
fn one_token_fills_the_machine() {
    let plan = deepseek().plan(1, 132).unwrap();
    let blocks: i64 = parameter(&plan, 0, "cluster").trim_start_matches('k').parse().unwrap();
    let rows: i64 = if parameter(&plan, 0, "bm") == "64" { 64 } else { 128 };
    assert!(8 * (256 / rows) * blocks >= 64, "{:?}", plan.launches);
    let operators: Vec<&str> = plan.launches.iter().map(|launch| launch.operator).collect();
    assert_eq!(operators, ["moe_sort", "gemm_hopper", "gemm_hopper", "moe_combine"]);
    let many = deepseek().plan(4096, 132).unwrap();
    assert_eq!(many.launches.iter().filter(|launch| launch.operator == "moe_sort").count(), 2);
}

#[test]
fn workspaces_hold_what_launches_hand_on() {
    let layer = MoeLayer { routing: Some(MoeRoutingConfig::default()), ..mixtral() };
    let plan = layer.plan(1000, 132).unwrap();
    let mut end = 0;
    for tensor in &plan.workspace {
        assert!(tensor.offset >= end && tensor.offset % 256 == 0, "{tensor:?}");
        end = tensor.offset + tensor.shape.iter().product::<i64>() * i64::from(tensor.dtype.bits()) / 8;
    }
    assert!(plan.bytes >= end && plan.bytes < end + 256);
    assert_eq!(plan, layer.plan(1000, 132).unwrap());
}

#[test]
fn mistakes_name_what_is_out_of_range() {
    let says = |layer: MoeLayer, tokens: i64, text: &str| {
        let error = layer.plan(tokens, 132).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    says(small(), 0, "`tokens` = 0: must be from 1 to");
    says(MoeLayer { hidden: 100, ..small() }, 1, "`hidden` = 100: must be a multiple of 8");
    let blocks = MoeLayer { weights: MoeWeights::Fp8Blocks, ..small() };
    says(blocks, 1, "`hidden` = 136: must be a multiple of 16");
    says(MoeLayer { all_experts: Some(7), ..small() }, 1, "`all_experts` = 7: must be from 8");
    let routing = MoeRoutingConfig { k: 3, ..MoeRoutingConfig::default() };
    says(MoeLayer { routing: Some(routing), ..small() }, 1, "`routing.k` = 3: must be 2");
    says(MoeLayer { k: 9, ..small() }, 1, "`moe_sort`: `k` = 9: must be from 1 to 8");
    says(MoeLayer { dtype: DType::I32, ..small() }, 1, "no tile of 136 × 72 in i32");
    let few = MoeWeights::Few { dtype: DType::I4, group: Some(64) };
    let added = MoeLayer { weights: few, reduction: MoeReduction::Added(DType::F32), ..small() };
    says(added, 1, "activations in f16 do not add in f32: must be f16");
    assert!(matches!(small().plan(-1, 132), Err(MoeError::Value { field: "tokens", value: -1, .. })));
}
