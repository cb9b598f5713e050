//! The kernels hold what they measure, and all of them run on the simulator.

use super::*;
use tilewright_runtime::SimDevice;

#[test]
fn each_body_has_its_instruction_once_a_step() {
    for arch in Arch::ALL {
        for [short, long] in programs(arch) {
            let count = |p: &Program| {
                tilewright_simt::verify(&p.function).unwrap();
                let ptx = tilewright_ptx::print(&p.function);
                let starts = |line: &&str| line.trim_start().starts_with(&format!("{} ", p.mnemonic));
                ptx.lines().filter(starts).count() as u32
            };
            assert_eq!(count(&long) - count(&short), long.count - short.count, "{}", long.name);
        }
    }
}

#[test]
fn every_entry_has_a_recipe_or_is_known_to_have_none() {
    let recipes = recipes(Arch::SM_90A);
    let without: Vec<_> = OpKey::all(Arch::SM_90A)
        .into_iter()
        .filter(|key| recipes.iter().all(|r| r.key != *key))
        .map(|key| key.to_string())
        .collect();
    let issued =
        ["bar.sync", "wait", "mbarrier", "barrier.cluster", "fence.proxy.async", "fence.proxy.async.global"];
    let peers = ["ld.shared::cluster.v4.b32", "ld.shared::cluster.v2.b32", "ld.shared::cluster.b32"];
    let others = ["fma.f16x2", "imad.wide", "extend.i64", "cvt.f8"];
    assert_eq!(without, [&peers[..], &others, &issued, &["tma.add"]].concat());
}

#[test]
fn every_kernel_runs_on_the_simulator_and_gives_a_figure() {
    let device = SimDevice::default();
    let mut seen = Vec::new();
    let found = calibrate(&device, &Config::quick(), |_, _, name| seen.push(name.to_string())).unwrap();
    let failed: Vec<_> = found.failures.iter().map(|(name, message)| format!("{name}: {message}")).collect();
    assert_eq!(failed, ["clock_mhz, launch_us: the simulator has no clock"]);
    assert!(seen.len() >= recipes(Arch::SM_90A).len() + 10);
    // The simulator's model is the table, in whole cycles: what is measured on it must be what it says.
    let entry = |name: &str| {
        let entry = found.timing.entries.iter().find(|e| e.key.to_string() == name).unwrap();
        (number(entry.issue), number(entry.latency))
    };
    assert_eq!(entry("prmt"), ("2".to_string(), "4".to_string()));
    assert_eq!(entry("ldmatrix.x4"), ("4".to_string(), "31".to_string()));
    assert_eq!(entry("mma.m16n8k16.f32.f16"), ("6".to_string(), "24".to_string()));
    assert_eq!(entry("wgmma.n256.f32.f16").0, "129");
    assert_eq!(entry("tma.load").0, "47");
    assert_eq!(number(found.timing.rate(Rate::TmaLoadBytes)), "85.33");
    let text = found.text();
    assert!(text.contains("the simulator's own model") && text.contains("# built in: "), "{text}");
    assert_eq!(text.parse::<Timing>().unwrap().entries.len(), found.timing.entries.len());
}

#[test]
fn a_chase_visits_every_line() {
    let data = chase(64 * LINE);
    let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
    let (mut at, mut seen) = (0, [false; 64]);
    for _ in 0..64 {
        seen[at / LINE] = true;
        at = word(at) as usize * 16;
    }
    assert!(at == 0 && seen.iter().all(|s| *s));
}
