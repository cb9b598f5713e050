//! `examples/transpose.tile` in Rust: a transpose through shared memory with an elementwise tail.

use tilewright::prelude::*;

/// The program.
pub fn program() -> Result<Program, Diagnostics> {
    let mut t = KernelBuilder::new("transpose");
    let (m, n) = (t.size("m", 1024), t.size("n", 1024));
    let (bm, bn) = (t.constant("BM", 64), t.constant("BN", 64));
    let x = t.tensor("x", F32, [&m, &n]);
    let y = t.tensor("y", F32, [&n, &m]);
    let alpha = t.scalar("alpha", 2.0);
    t.grid([m.ceil_div(&bm), n.ceil_div(&bn)]);
    t.threads(256);

    let (row, column) = (block_x() * &bm, block_y() * &bn);
    let gx = t.global_view("gx", x.from([&row, &column]), [tile(0, &bm), tile(1, &bn)]);
    let gy = t.global_view("gy", y.from([&column, &row]), [tile(0, &bn), tile(1, &bm)]);
    let s = t.shared_tensor("s", F32, [&bm, &bn]);
    t.copy(gx, s);
    t.syncthreads();
    let r = t.register_tensor("r", F32, [&bn, &bm]);
    t.copy(s.transpose(), r);
    let result = t.define("t", alpha * r + r.tanh());
    t.copy(result, gy);
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
