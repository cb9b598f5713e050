//! Time of the algebra on the layouts of a matrix multiplication. `scripts/layout-oracle/bench.py` runs the same
//! operations with other implementations.

#![allow(missing_docs)] // criterion's macros make public functions without documentation

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use tilewright_layout::*;

fn layout(text: &str) -> Layout {
    match text.parse() {
        Ok(layout) => layout,
        Err(error) => panic!("{text}: {error}"),
    }
}

/// Measures an operation that has this result.
fn bench<E: std::fmt::Debug>(c: &mut Criterion, name: &str, result: &str, f: impl Fn() -> Result<Layout, E>) {
    assert_eq!(f().map(|l| l.to_string()).ok().as_deref(), Some(result), "{name}");
    c.bench_function(name, |bench| bench.iter(|| black_box(f())));
}

/// The accumulators of mma.m16n8k16: (thread, value) to the coordinate in a tile of 16 × 8.
const ACCUMULATORS: &str = "((4,8),(2,2)):((32,1),(16,8))";

fn algebra(c: &mut Criterion) {
    let [rows, stages] = ["(128,64):(64,1)", "(128,64,3):(64,1,8192)"].map(layout);
    let held = layout(ACCUMULATORS);
    let tile = [Layout::identity(64), Layout::identity(16)];

    let (a, b) = (black_box(layout("(16,8):(8,1)")), black_box(&held));
    bench(c, "compose_tv_tile", "((4,8),(2,2)):((2,8),(1,64))", || compose(&a, b));
    let a = black_box(layout("((4,4),(2,4)):((1,64),(4,16))"));
    bench(c, "compose_tv_split", "((4,(4,2)),(2,2)):((16,(1,64)),(4,128))", || compose(&a, b));
    let (a, b) = (black_box(&rows), black_box(&tile));
    bench(c, "compose_by_mode", "(64,16):(64,1)", || compose_by_mode(a, b));

    let a = black_box(layout("((2,4),(1,8),(4,2)):((1,2),(0,8),(64,256))"));
    bench(c, "coalesce", "512:1", || Ok::<_, LayoutError>(coalesce(&a)));
    let a = black_box(&held);
    bench(c, "right_inverse", "(8,2,2,4):(4,64,32,1)", || Ok::<_, LayoutError>(right_inverse(a)));
    bench(c, "left_inverse", "(8,2,2,4):(4,64,32,1)", || left_inverse(a));
    let a = black_box(&rows);
    bench(c, "right_inverse_rows", "(64,128):(128,1)", || Ok::<_, LayoutError>(right_inverse(a)));
    let a = black_box(layout("(16,(2,4)):(64,(1,8))"));
    bench(c, "complement", "(4,2,8):(2,32,1024)", || complement(&a, black_box(8192)));

    let (a, b) = (black_box(layout("8192:1")), black_box(layout("(64,16):(1,128)")));
    bench(c, "logical_divide", "((64,16),(2,4)):((1,128),(64,2048))", || logical_divide(&a, &b));
    let (a, b) = (black_box(&rows), black_box(&tile));
    bench(c, "zipped_divide", "((64,16),(2,4)):((64,1),(4096,16))", || zipped_divide_by_mode(a, b));
    let a = black_box(&stages);
    let result = "((64,16),(2,4,3)):((64,1),(4096,16,8192))";
    bench(c, "zipped_divide_stages", result, || zipped_divide_by_mode(a, b));

    let (a, b) = (black_box(layout("(8,64):(64,1)")), black_box(layout("(16,2):(1,16)")));
    bench(c, "blocked_product", "((8,16),(64,2)):((64,512),(1,8192))", || blocked_product(&a, &b));
    let b = black_box(layout("(16,3):(1,16)"));
    bench(c, "logical_product", "((8,64),(16,3)):((64,1),(512,8192))", || logical_product(&a, &b));
}

criterion_group!(benches, algebra);
criterion_main!(benches);
