//! `examples/gemm.tile` in Rust: a matrix product through registers alone (Fig. 15 of the Hexcute paper).

use tilewright::prelude::*;

/// The program.
pub fn program() -> Result<Program, Diagnostics> {
    let mut t = KernelBuilder::new("gemm");
    let (m, n, k) = (t.size("m", 1024), t.size("n", 1024), t.size("k", 1024));
    let (bm, bn, bk) = (t.constant("BM", 64), t.constant("BN", 64), t.constant("BK", 16));
    let a = t.tensor("a", F16, [&m, &k]);
    let b = t.tensor("b", F16, [&n, &k]);
    let c = t.tensor("c", F16, [&m, &n]);
    t.grid([m.ceil_div(&bm), n.ceil_div(&bn)]);
    t.threads(128);

    let tiles = k.ceil_div(&bk);
    let rows = |extent| [tile(0, extent), tile(1, &bk), steps(1, &tiles, &bk)];
    let ga = t.global_view("ga", a.from([block_x() * &bm, 0.into()]), rows(&bm));
    let gb = t.global_view("gb", b.from([block_y() * &bn, 0.into()]), rows(&bn));
    let ra = t.register_tensor("ra", F16, [&bm, &bk]);
    let rb = t.register_tensor("rb", F16, [&bn, &bk]);
    let rc = t.register_tensor("rc", F32, [&bm, &bn]);
    t.fill(&rc, 0.0);
    t.for_range("ki", 0, &tiles, |t, ki| {
        t.copy(ga.at(&ki), ra);
        t.copy(gb.at(&ki), rb);
        t.gemm(&rc, ra, rb);
    });
    let rc_f16 = t.cast("rc_f16", rc, F16);
    let sc = t.shared_tensor("sc", F16, [&bm, &bn]);
    t.copy(rc_f16, sc);
    t.syncthreads();
    let rc1 = t.register_tensor("rc1", F16, [&bm, &bn]);
    t.copy(sc, rc1);
    let gc = t.global_view("gc", c.from([block_x() * &bm, block_y() * &bn]), [tile(0, &bm), tile(1, &bn)]);
    t.copy(rc1, gc);
    t.finish()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let program = program()?;
    println!("{program}");
    let device = open(DeviceChoice::Auto)?;
    let options = Options::new(device.arch().unwrap_or(Arch::SM_80)).for_sizes(&program, &[]);
    let kernel = compile(&program, &options)?;
    println!("{}", kernel.explanation);
    let outcome = check(&kernel, device.as_ref(), &CheckOptions::default())?;
    for c in &outcome.comparisons {
        println!("{} on {}: {c}", c.name, device.name());
    }
    if outcome.is_right() { Ok(()) } else { Err(format!("wrong: {outcome:?}").into()) }
}
