//! Agreement of synthesis and simulator: wavefronts and bank conflicts of every statement.

use tilewright::prelude::*;

/// Compares for a kernel of `blocks` blocks in which the statements that `repeated` names run `rounds` times.
fn counted(source: &str, sizes: &[(&str, i64)], arch: Arch, blocks: u64, (repeated, rounds): (&[&str], u64)) {
    let program = parse(source).unwrap();
    let kernel = compile(&program, &Options::new(arch).for_sizes(&program, sizes)).unwrap();
    let device = open(DeviceChoice::Sim).unwrap();
    let sizes = sizes.iter().map(|(name, value)| (name.to_string(), *value)).collect();
    let outcome =
        check(&kernel, device.as_ref(), &CheckOptions { sizes, ..CheckOptions::default() }).unwrap();
    assert!(outcome.is_right(), "{:?}", outcome.findings);
    let simulated = outcome.report.sim().unwrap();
    let mut compared = 0;
    for note in kernel.explanation.statements.iter().filter(|note| note.wavefronts > 0) {
        let here: Vec<_> = simulated.traffic.iter().filter(|t| t.origin == note.text).collect();
        let wavefronts: u64 = here.iter().map(|t| t.counts.shared_wavefronts).sum();
        let conflicts: u64 = here.iter().map(|t| t.counts.conflicts()).sum();
        let times = blocks * if repeated.contains(&note.text.as_str()) { rounds } else { 1 };
        assert_eq!(wavefronts, u64::from(note.wavefronts) * times, "{}", note.text);
        assert_eq!(conflicts, u64::from(note.bank_conflicts) * times, "{}", note.text);
        compared += 1;
    }
    assert!(compared >= 2, "{}", kernel.explanation);
}

#[test]
fn the_shared_gemm() {
    let source = include_str!("../../../examples/gemm_shared.tile");
    let repeated = ["copy(ga[:, :, ki], sa)", "copy(gb[:, :, ki], sb)", "copy(sa, ra)", "copy(sb, rb)"];
    for arch in [Arch::SM_80, Arch::SM_90A] {
        counted(source, &[("m", 256), ("n", 128), ("k", 96)], arch, 2, (&repeated, 3));
    }
}

#[test]
fn a_transpose_with_a_layout_that_conflicts() {
    // Unswizzled columns: the simulator must see what synthesis says it could not avoid.
    let source = "size m = 64
kernel f(x: f32[m, 32], y: f32[32, m]) grid(ceil_div(m, 32)) threads(32) {
    gx = global_view(x[block.x * 32 :, :], (32, 32) : (e0, e1))
    gy = global_view(y[:, block.x * 32 :], (32, 32) : (e0, e1))
    s = shared_tensor(f32, [32, 32], layout = (32, 32) : (32, 1))
    copy(gx, s)
    syncthreads()
    t = register_tensor(f32, [32, 32])
    copy(transpose(s), t)
    copy(t, gy)
}";
    let program = parse(source).unwrap();
    let kernel = compile(&program, &Options::new(Arch::SM_80).for_sizes(&program, &[])).unwrap();
    let note = kernel.explanation.statements.iter().find(|n| n.text.contains("transpose")).unwrap();
    assert!(note.bank_conflicts > 0, "{}", kernel.explanation);
    counted(source, &[("m", 64)], Arch::SM_80, 2, (&[], 1));
}

#[test]
fn a_condition_that_only_a_vote_takes_is_held_by_no_register() {
    let source = |ahead: &str, between: &str| {
        format!(
            "size m = 64
kernel f(x: f32[m, 64], y: f32[m]) grid(ceil_div(m, 64)) threads(128) {{
    gx = global_view(x[block.x * 64 :, :], (64, 64) : (e0, e1))
    gy = global_view(y[block.x * 64 :], (64) : (e0))
    r = register_tensor(f32, [64, 64])
    copy(gx, r)
    most = register_tensor(f32, [64])
    fill(most, 0.0)
    {ahead}
    above = r > 1.0
    {between}
    if any(above, 1) {{
        found = reduce(r, max, 1)
        most = where(found > 1.0, found, most)
    }}
    copy(most, gy)
}}"
        )
    };
    let instructions = |source: &str| {
        let program = parse(source).unwrap();
        let kernel = compile(&program, &Options::new(Arch::SM_90A)).unwrap();
        kernel.ptx.lines().filter(|line| line.trim_start().starts_with("selp")).count()
    };
    let define = "found = register_tensor(f32, [64])";
    let alone = instructions(&source("", ""));
    assert_eq!(instructions(&source(define, "")), alone);
    assert_eq!(instructions(&source("", define)), alone, "a tensor is defined between");
}
