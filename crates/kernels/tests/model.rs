//! The model of a kernel's time that comes with the kernels: its numbers give the estimates that were fitted with them.

use std::collections::BTreeMap;
use std::path::Path;

use tilewright_kernels::model::{Model, Numbers};
use tilewright_kernels::{Chip, Estimate, Part, Resource, operator};
use tilewright_machine::Arch;

/// Problems of the operators that the model estimates, with parameters that say what is computed.
const PROBLEMS: [(&str, &str, &str); 26] = [
    ("gemm_hopper", "m=4096 n=4096 k=4096", ""),
    ("gemm_hopper", "m=8192 n=8192 k=8192", "dtype=bf16"),
    ("gemm_hopper", "m=1024 n=6144 k=4096", ""),
    ("gemm_hopper", "m=512 n=512 k=16384", ""),
    ("gemm_hopper", "m=16 n=8192 k=8192", ""),
    ("gemm_hopper", "m=128 n=4096 k=14336", ""),
    ("gemm_hopper", "m=1 n=4096 k=4096", ""),
    ("gemm_hopper", "m=8192 n=4 k=8192", "a=m"),
    ("gemm_hopper", "m=4096 n=4096 k=8", ""),
    ("gemm_hopper", "m=4096 n=4090 k=24", ""),
    ("gemm_hopper", "m=2048 n=2048 k=2041", ""),
    ("gemm_hopper", "m=4000 n=4001 k=4004", "b=n"),
    ("gemm_hopper", "m=3000 n=3000 k=3016", ""),
    ("gemm_hopper", "m=4096 n=4096 k=4096", "dtype=e4m3 promote=true"),
    ("gemm_hopper", "m=2048 n=2048 k=2048", "dtype=f32 precision=tf32x3"),
    ("gemm_hopper", "m=2048 n=2048 k=1024", "dtype=f32 complex=true"),
    ("gemm_hopper", "m=4096 n=4096 k=1024", "fill=symmetric"),
    ("gemm_hopper", "m=4096 n=4096 k=4096", "triangular=lower"),
    ("gemm_hopper", "m=4096 n=2048 k=4096", "dual=silu_mul"),
    ("gemm_hopper", "m=512 n=512 k=512 l=32", "batch=packed"),
    ("conv_hopper", "nb=32 h=56 w=56 c=64 kout=64", ""),
    ("conv_hopper", "nb=32 h=14 w=14 c=256 kout=256", "pass=wgrad"),
    ("conv_hopper", "nb=32 h=224 w=224 c=3 kout=64", "filter=7 padding=3 stride=2"),
    ("contraction", "a=64 b=32 c=64 d=32 e=32 f=32", "einsum=eafb,fdec->dcba"),
    ("gemm_fp8_blocks", "m=4096 n=7168 k=2048", ""),
    ("gemm_fp8_blocks", "m=64 n=4096 k=7168", ""),
];

/// Configurations of each that are compared, evenly from the fastest to the slowest.
const EACH: usize = 24;

fn pairs(text: &str) -> Vec<(&str, &str)> {
    text.split_whitespace().filter_map(|pair| pair.split_once('=')).collect()
}

/// Estimates of the built-in model, one a line: operator, sizes, parameters, microseconds.
fn estimates() -> String {
    let mut text = String::new();
    for (name, sizes, given) in PROBLEMS {
        let tuning = operator(name).unwrap().tuning.unwrap();
        let named: BTreeMap<String, i64> =
            pairs(sizes).into_iter().map(|(name, size)| (name.to_string(), size.parse().unwrap())).collect();
        let points = (tuning.space)(Arch::SM_90A.into(), &named, &pairs(given)).unwrap().points;
        assert!(points.len() >= EACH, "{name} {sizes} {given}: {}", points.len());
        for point in points.iter().step_by(points.len() / EACH).take(EACH) {
            let words = point.parameters.iter().map(|(name, value)| format!("{name}={value}"));
            let words = words.collect::<Vec<_>>().join(" ");
            text.push_str(&format!("{name} | {sizes} | {words} | {:.13e}\n", point.estimate));
        }
    }
    text
}

/// The numbers were constants before they were a file; the file's give the same estimates.
#[test]
fn the_built_in_numbers_give_the_estimates_that_were_fitted() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/estimates.txt");
    if std::env::var_os("TILEWRIGHT_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(&path, estimates()).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), PROBLEMS.len() * EACH);
    for line in text.lines() {
        let (point, expected) = point(line, Arch::SM_90A.into());
        let differs = (point.microseconds / expected - 1.0).abs();
        assert!(differs < 1e-12, "{line}: {}", point.microseconds);
    }
}

/// The estimate of a line's configuration, and the one that the line has.
fn point(line: &str, chip: Chip<'_>) -> (Estimate, f64) {
    let [name, sizes, given, expected] = line.split(" | ").collect::<Vec<_>>()[..] else {
        panic!("{line}");
    };
    let tuning = operator(name).unwrap().tuning.unwrap();
    let sizes =
        pairs(sizes).into_iter().map(|(name, size)| (name.to_string(), size.parse().unwrap())).collect();
    let point = (tuning.point)(chip, &sizes, &pairs(given)).unwrap();
    let estimate = (tuning.estimate)(chip, &sizes, &pairs(given)).unwrap();
    assert_eq!(point.estimate, estimate.microseconds, "{line}");
    (estimate, expected.parse().unwrap())
}

/// The parts of an estimate add up to it, and those of a product say what bounds its steps.
#[test]
fn parts_add_up_to_the_estimate() {
    let text = include_str!("data/estimates.txt");
    for line in text.lines() {
        let (estimate, _) = point(line, Arch::SM_90A.into());
        let sum: f64 = estimate.parts.iter().sum();
        assert!((sum / estimate.microseconds - 1.0).abs() < 1e-12, "{line}: {sum}, {estimate:?}");
        assert_eq!(estimate.part(Part::Whole), 0.0, "{line}");
        for part in Part::ALL {
            assert!(estimate.part(part) >= 0.0 || part == Part::Beside, "{line}: {part} {estimate:?}");
        }
        let Some(steps) = estimate.steps else { continue };
        let bound = steps.wanted[steps.bound() as usize];
        assert!(steps.wanted.iter().all(|cycles| *cycles <= bound), "{line}: {steps:?}");
        // Nothing that a step waits for takes longer than the step.
        assert!(bound <= steps.cycles * 1.001 && steps.waves > 0.0, "{line}: {steps:?}");
    }
}

/// Another model gives other estimates: twice the launch is that much later.
#[test]
fn estimates_follow_the_model() {
    let launch = Numbers::ALL.iter().find(|number| number.name == "launch").unwrap();
    let before = Model::built_in().numbers().launch;
    let slow = Model::built_in().clone().with(launch, 2.0 * before, "a test");
    let chip = Chip { arch: Arch::SM_90A, model: &slow };
    for line in include_str!("data/estimates.txt").lines().step_by(7) {
        let ((estimate, expected), part) = (point(line, chip), Part::Launch);
        assert!((estimate.microseconds - expected - before).abs() < 1e-9, "{line}");
        assert_eq!(estimate.part(part), 2.0 * before);
    }
    for (place, part) in Part::ALL.into_iter().enumerate() {
        assert_eq!(part as usize, place);
    }
    for (place, resource) in Resource::ALL.into_iter().enumerate() {
        assert_eq!(resource as usize, place);
    }
}
