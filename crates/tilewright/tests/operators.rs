//! Kernels of `tilewright-ops` on the simulator: those of a class of sizes are right for other sizes of it, with no more divisors than they rely on.
#![allow(unsafe_code, reason = "the stand-in is a driver")]

use tilewright::check::{CheckOptions, check};
use tilewright::compiler::{Options, compile};
use tilewright::kernels::operator;
use tilewright::launch::{Driver, Gpu};
use tilewright::ops::{Library, Problems};
use tilewright::prelude::{DeviceChoice, Sizes, open};
use tilewright::tune::{Candidate, Problem};
use tilewright_stand_in_driver::StandIn;

/// An operator with options, the sizes for which it is chosen, and others of the class.
type Case = (&'static str, &'static [(&'static str, &'static str)], &'static [(&'static str, [i64; 2])]);

const CASES: &[Case] = &[
    // Not for every architecture.
    ("quantise_rows_fp8", &[], &[("m", [3, 3]), ("n", [264, 296])]),
    ("gemm", &[("epilogue", "bias+gelu+residual")], &[("m", [40, 33]), ("n", [72, 120]), ("k", [200, 248])]),
    (
        "gemm",
        &[("dtype", "bf16"), ("out", "f32"), ("split", "2")],
        &[("m", [5, 5]), ("n", [66, 98]), ("k", [333, 331])],
    ),
    ("gemm", &[("batch", "packed")], &[("l", [2, 2]), ("m", [20, 31]), ("n", [64, 64]), ("k", [40, 56])]),
    ("rmsnorm", &[], &[("m", [3, 3]), ("n", [1000, 1016])]),
    ("rmsnorm", &[("dtype", "f32")], &[("m", [17, 32]), ("n", [77, 99])]),
    ("softmax", &[], &[("m", [4, 4]), ("n", [520, 552])]),
    ("rope", &[("d", "64")], &[("t", [5, 5]), ("h", [8, 8])]),
    ("cumsum", &[], &[("m", [2, 2]), ("n", [300, 308])]),
    (
        "attention",
        &[("d", "64"), ("mask", "causal")],
        &[("b", [1, 1]), ("hq", [2, 2]), ("hk", [1, 1]), ("sq", [70, 90]), ("sk", [70, 100])],
    ),
];

#[test]
fn kernels_of_a_class_are_right_for_its_sizes() {
    let stand_in = StandIn::of_this_test();
    // SAFETY: the stand-in has the functions of a driver.
    let driver = unsafe { Driver::open(stand_in.path()) }.unwrap();
    stand_in.make_current(0);
    let device = open(DeviceChoice::Sim).unwrap();
    for (capability, cases) in [(80, &CASES[1..]), (90, &CASES[..4])] {
        stand_in.set("capability", capability);
        let lib = Library::with_store(&Gpu::current_of(driver).unwrap(), None).unwrap();
        for (name, options, sizes) in cases {
            let problems = |at: usize| {
                let with = |all: Problems, (name, value): &(&str, &str)| all.option(*name, *value);
                let all = options.iter().fold(Problems::of(*name), with);
                sizes.iter().fold(all, |all, (size, values)| all.size(*size, values[at]))
            };
            let found = lib.specialisations(&problems(0)).unwrap();
            assert_eq!(found, lib.specialisations(&problems(1)).unwrap(), "{name} {options:?}");
            let one = &found[0];
            let parameters = Candidate::parse(&one.parameters).unwrap();
            for at in [0, 1] {
                let given: Sizes =
                    sizes.iter().map(|(size, values)| ((*size).to_string(), values[at])).collect();
                let problem = Problem::new(one.operator, &given, &parameters.given()).unwrap();
                let launch = (problem.tuning().launch)(lib.arch(), &given, &parameters.given()).unwrap();
                for program in parameters.programs(operator(one.operator).unwrap()).unwrap() {
                    let own = |name: &str| program.sizes().any(|(_, symbol, _)| symbol.name == name);
                    let relied = one.multiples.iter().filter(|(size, _)| own(size)).cloned();
                    let options = Options::new(lib.arch()).with_multiples(relied.collect());
                    let kernel = compile(&program, &options).unwrap();
                    let sizes = launch.sizes.iter().filter(|(size, _)| own(size));
                    let sizes = sizes.map(|(size, value)| (size.clone(), *value)).collect();
                    let outcome =
                        check(&kernel, device.as_ref(), &CheckOptions { sizes, ..CheckOptions::default() })
                            .unwrap();
                    assert!(outcome.is_right(), "{name} {one}: {:?}", outcome.findings);
                }
            }
        }
    }
}
