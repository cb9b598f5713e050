//! Time of the algebra on the layouts of a matrix multiplication. `scripts/layout-oracle/bench.py` runs the same
//! operations with other implementations.

use divan::{Bencher, black_box};
use tilewright_layout::*;

fn layout(text: &str) -> Layout {
    match text.parse() {
        Ok(layout) => layout,
        Err(error) => panic!("{text}: {error}"),
    }
}

/// Measures an operation that has this result.
fn measure<E: std::fmt::Debug>(
    bencher: Bencher<'_, '_>,
    result: &str,
    f: impl Fn() -> Result<Layout, E> + Sync,
) {
    assert_eq!(f().map(|l| l.to_string()).ok().as_deref(), Some(result));
    bencher.bench(|| black_box(f()));
}

/// The accumulators of mma.m16n8k16: (thread, value) to the coordinate in a tile of 16 × 8.
const ACCUMULATORS: &str = "((4,8),(2,2)):((32,1),(16,8))";

/// A row-major tile of an operand.
const ROWS: &str = "(128,64):(64,1)";

/// The tile that an instruction takes of [`ROWS`].
fn tile() -> [Layout; 2] {
    [Layout::identity(64), Layout::identity(16)]
}

#[divan::bench]
fn compose_tv_tile(bencher: Bencher<'_, '_>) {
    let (a, b) = (black_box(layout("(16,8):(8,1)")), black_box(layout(ACCUMULATORS)));
    measure(bencher, "((4,8),(2,2)):((2,8),(1,64))", || compose(&a, &b));
}

#[divan::bench]
fn compose_tv_split(bencher: Bencher<'_, '_>) {
    let (a, b) = (black_box(layout("((4,4),(2,4)):((1,64),(4,16))")), black_box(layout(ACCUMULATORS)));
    measure(bencher, "((4,(4,2)),(2,2)):((16,(1,64)),(4,128))", || compose(&a, &b));
}

#[divan::bench(name = "compose_by_mode")]
fn compose_rows_by_mode(bencher: Bencher<'_, '_>) {
    let (a, b) = (black_box(layout(ROWS)), black_box(tile()));
    measure(bencher, "(64,16):(64,1)", || compose_by_mode(&a, &b));
}

#[divan::bench(name = "coalesce")]
fn coalesce_modes(bencher: Bencher<'_, '_>) {
    let a = black_box(layout("((2,4),(1,8),(4,2)):((1,2),(0,8),(64,256))"));
    measure(bencher, "512:1", || Ok::<_, LayoutError>(coalesce(&a)));
}

#[divan::bench(name = "right_inverse")]
fn right_inverse_tv(bencher: Bencher<'_, '_>) {
    let a = black_box(layout(ACCUMULATORS));
    measure(bencher, "(8,2,2,4):(4,64,32,1)", || Ok::<_, LayoutError>(right_inverse(&a)));
}

#[divan::bench(name = "left_inverse")]
fn left_inverse_tv(bencher: Bencher<'_, '_>) {
    let a = black_box(layout(ACCUMULATORS));
    measure(bencher, "(8,2,2,4):(4,64,32,1)", || left_inverse(&a));
}

#[divan::bench]
fn right_inverse_rows(bencher: Bencher<'_, '_>) {
    let a = black_box(layout(ROWS));
    measure(bencher, "(64,128):(128,1)", || Ok::<_, LayoutError>(right_inverse(&a)));
}

#[divan::bench(name = "complement")]
fn complement_of_tile(bencher: Bencher<'_, '_>) {
    let a = black_box(layout("(16,(2,4)):(64,(1,8))"));
    measure(bencher, "(4,2,8):(2,32,1024)", || complement(&a, black_box(8192)));
}

#[divan::bench(name = "logical_divide")]
fn logical_divide_tile(bencher: Bencher<'_, '_>) {
    let (a, b) = (black_box(layout("8192:1")), black_box(layout("(64,16):(1,128)")));
    measure(bencher, "((64,16),(2,4)):((1,128),(64,2048))", || logical_divide(&a, &b));
}

#[divan::bench(name = "zipped_divide")]
fn zipped_divide_rows(bencher: Bencher<'_, '_>) {
    let (a, b) = (black_box(layout(ROWS)), black_box(tile()));
    measure(bencher, "((64,16),(2,4)):((64,1),(4096,16))", || zipped_divide_by_mode(&a, &b));
}

#[divan::bench]
fn zipped_divide_stages(bencher: Bencher<'_, '_>) {
    let (a, b) = (black_box(layout("(128,64,3):(64,1,8192)")), black_box(tile()));
    measure(bencher, "((64,16),(2,4,3)):((64,1),(4096,16,8192))", || zipped_divide_by_mode(&a, &b));
}

#[divan::bench(name = "blocked_product")]
fn blocked_product_tiles(bencher: Bencher<'_, '_>) {
    let (a, b) = (black_box(layout("(8,64):(64,1)")), black_box(layout("(16,2):(1,16)")));
    measure(bencher, "((8,16),(64,2)):((64,512),(1,8192))", || blocked_product(&a, &b));
}

#[divan::bench(name = "logical_product")]
fn logical_product_stages(bencher: Bencher<'_, '_>) {
    let (a, b) = (black_box(layout("(8,64):(64,1)")), black_box(layout("(16,3):(1,16)")));
    measure(bencher, "((8,64),(16,3)):((64,1),(512,8192))", || logical_product(&a, &b));
}

fn main() {
    divan::main();
}
