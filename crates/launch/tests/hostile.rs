//! Recipes of whoever wrote them: what `Recipe::check` lets pass makes no panic, and what it refuses is not loaded.

mod common;

use common::{PTX, Turn, recipe};
use proptest::prelude::*;
use tilewright_launch::{
    Bound, Code, DType, Formula, Item, LaunchOptions, Map, Op, ParamKind, Passed, Raw, Recipe, Scalar,
};

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![-2i64..6, any::<i64>(), (0u32..63).prop_map(|bit| 1 << bit), Just(i64::from(i32::MAX))]
}

fn item() -> impl Strategy<Value = Item> {
    let op = prop_oneof![
        Just(Op::Add),
        Just(Op::Sub),
        Just(Op::Mul),
        Just(Op::Div),
        Just(Op::Rem),
        Just(Op::CeilDiv),
        Just(Op::Min),
        Just(Op::Ge),
        Just(Op::Or),
    ];
    prop_oneof![
        number().prop_map(Item::Int),
        (0u32..3).prop_map(Item::Size),
        (0u32..3).prop_map(Item::Counter),
        (0u32..4).prop_map(Item::Block),
        (0u32..4).prop_map(Item::Scalar),
        (0u32..3).prop_map(Item::Element),
        op.prop_map(Item::Op),
    ]
}

/// A formula of items in any order; where they are none, a literal.
fn formula() -> impl Strategy<Value = Formula> {
    proptest::collection::vec(item(), 1..6).prop_map(|items| {
        Formula::new(items.clone())
            .unwrap_or_else(|_| Formula::new(vec![items[0]]).unwrap_or(Formula::int(3)))
    })
}

fn bound() -> impl Strategy<Value = Bound> {
    let what = || "a bound".to_string();
    prop_oneof![
        (formula(), number()).prop_map(move |(formula, reach)| Bound::Fits { what: what(), formula, reach }),
        (formula(), formula(), number(), 0u32..3, 0u32..4).prop_map(
            move |(least, most, beyond, counter, body)| {
                Bound::Range { what: what(), counter, least, most, beyond, body }
            }
        ),
        (formula(), 0u32..3).prop_map(move |(condition, body)| Bound::When { what: what(), condition, body }),
    ]
}

/// A change of one part.
struct Change(Box<dyn Fn(&mut Recipe)>);

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut changed = recipe();
        self.0(&mut changed);
        changed.fmt(f)
    }
}

fn change() -> impl Strategy<Value = Change> {
    fn boxed(change: impl Fn(&mut Recipe) + 'static) -> Change {
        Change(Box::new(change))
    }
    prop_oneof![
        (any::<u32>(), 0u32..20, any::<u32>()).prop_map(|(threads, cluster, shared)| boxed(move |r| {
            (r.threads, r.cluster, r.shared_bytes) = (threads % 2048, cluster, shared % (300 << 10));
        })),
        proptest::collection::vec(formula(), 0..4).prop_map(|grid| boxed(move |r| r.grid.clone_from(&grid))),
        proptest::collection::vec(bound(), 0..6)
            .prop_map(|bounds| boxed(move |r| r.bounds.clone_from(&bounds))),
        (number(), number()).prop_map(|(multiple, most)| boxed(move |r| {
            (r.sizes[0].multiple, r.sizes[0].most) = (multiple, most);
        })),
        number().prop_map(|most| boxed(move |r| r.most_extent = most)),
        (0usize..3, proptest::collection::vec(formula(), 0..10), any::<bool>(), any::<bool>()).prop_map(
            |(param, shape, array, workspace)| boxed(move |r| {
                if let ParamKind::Tensor(tensor) = &mut r.params[param].kind {
                    tensor.strides = shape.iter().rev().cloned().collect();
                    tensor.shape.clone_from(&shape);
                    (tensor.array, tensor.workspace) = (array, workspace);
                }
            })
        ),
        (0u32..4, proptest::collection::vec(0u32..300, 0..7), proptest::collection::vec(formula(), 0..6))
            .prop_map(|(param, extents, strides)| boxed(move |r| {
                let rest = strides.iter().skip(1).cloned().collect();
                r.maps = vec![Map::new(param, DType::F16, extents.clone(), strides.clone(), rest)];
            })),
        (0usize..6, 0u32..4).prop_map(|(at, number)| boxed(move |r| {
            r.passed[at] =
                [Passed::Tensor(number), Passed::Map(number), Passed::Size(number), Passed::Records][at % 4];
        })),
        Just(0).prop_map(|_| boxed(|r| r.params[2].kind = ParamKind::Scalar(Scalar::I32))),
        Just(0).prop_map(|_| boxed(|r| (r.resident, r.records) = (true, Some(u64::MAX)))),
    ]
}

#[test]
fn what_passes_the_check_does_not_panic() {
    let turn = Turn::new();
    let (gpu, stream) = (turn.gpu(), turn.stream());
    let cases = if std::env::var("TILEWRIGHT_EVERY_POINT").is_ok() { 100_000 } else { 3000 };
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let changes = proptest::collection::vec(change(), 1..4);
    let inputs = (changes, number(), number(), any::<u64>());
    proptest!(config, |((changes, m, n, pointer) in inputs)| {
        let mut made = recipe();
        changes.iter().for_each(|change| (change.0)(&mut made));
        let passes = made.check();
        // The stand-in reads as many parameters as the text has, of which none may be missing: only the plan is made.
        #[allow(unsafe_code, reason = "the stand-in runs no code")]
        let loaded = unsafe { gpu.load(&made, Code::Ptx(PTX)) };
        match loaded {
            Err(_) => {}
            Ok(_) if passes.is_err() => prop_assert!(false, "loaded, and refused by the check"),
            Ok(kernel) => {
                if let Ok(plan) = kernel.plan(&[m, n]) {
                    let raw = [Raw::Ptr(pointer), Raw::Ptr(pointer & !255), Raw::F32(0.0)];
                    let _ = plan.prepare_raw(&raw, &LaunchOptions::new());
                    let _ = plan.table(0, &[pointer]);
                    let _ = plan.launch(stream, (0.5f32,));
                }
            }
        }
        turn.stand_in.calls();
    });
}
