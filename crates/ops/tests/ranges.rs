//! Ranges of sizes have finitely many kernels, and a strict library takes every size of a range that is warm.
#![allow(unsafe_code, reason = "packs of nothing")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::{Turn, view, view_mut, workspace};
use proptest::test_runner::{Config, TestRunner};
use tilewright_launch::DType::{BF16, F16};
use tilewright_launch::LaunchOptions;
use tilewright_ops::{Gemm, Problems};
use tilewright_twpack::{OperatorCall, Operators, PackFile};

#[test]
fn a_range_has_finitely_many_kernels_that_rely_on_no_number_of_rows() {
    let turn = Turn::new(80);
    let lib = turn.library();
    let all = lib.specialisations(&Gemm::bf16().n(256).k(200).m(1..=200)).unwrap();
    let classes: BTreeSet<&String> = all.iter().flat_map(|one| &one.classes).collect();
    // 1 to 16, 32, 64, and multiples of 64.
    assert_eq!(classes.len(), 16 + 2 + 3, "{classes:#?}");
    assert!(all.len() < 12, "{all:#?}");
    for one in &all {
        let relied: Vec<(&str, i64)> = one.multiples.iter().map(|(name, of)| (name.as_str(), *of)).collect();
        assert_eq!(relied, [("k", 8), ("n", 8)], "{one}");
    }
    // What is listed is what is compiled, and the same each time.
    assert_eq!(lib.specialisations(&Gemm::bf16().n(256).k(200).m(1..=200)).unwrap(), all);
    let names: Vec<String> = all.iter().flat_map(|one| one.kernels.clone()).collect();
    assert_eq!(
        lib.pack().unwrap().entries().iter().map(|entry| entry.name.clone()).collect::<Vec<_>>(),
        names
    );
    assert!(!turn.stand_in.calls().iter().any(|call| call.starts_with("cuLibraryLoadData")));
    let warm = lib.warm_up(&Gemm::bf16().n(256).k(200).m(1..=200)).unwrap();
    assert_eq!((warm.classes, warm.specialisations, warm.kernels), (21, all.len(), names.len()));
    let loads = turn.stand_in.calls().iter().filter(|call| call.starts_with("cuLibraryLoadData")).count();
    assert_eq!(loads, names.len());
}

#[test]
fn a_strict_library_takes_every_size_of_a_warm_range() {
    let turn = Turn::new(80);
    let lib = turn.library().strict();
    lib.warm_up(&Gemm::bf16().n(256).k(199..=200).m(1..=40)).unwrap();
    lib.warm_up(&Problems::of("rmsnorm").size("m", 1..=100).size("n", 1000..=1024)).unwrap();
    let compiled = lib.pack().unwrap().entries().len();
    let stream = turn.stream();
    let mut runner = TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    let mut memory = workspace(0x100_0000, 1 << 24);
    let memory = std::cell::RefCell::new(&mut memory);
    runner
        .run(&(1i64..=40, 199i64..=200, 1i64..=100, 1000i64..=1024), |(m, k, rows, n)| {
            let (a, b) = (view(0x1000, BF16, &[m, k]), view(0x2000, BF16, &[256, k]));
            let mut c = view_mut(0x4000, BF16, &[m, 256]);
            let mut memory = memory.borrow_mut();
            lib.gemm(stream, &a, &b, &mut c).workspace(&mut memory).run().unwrap();
            let (x, w) = (view(0x1000, F16, &[rows, n]), view(0x2000, F16, &[n]));
            lib.rmsnorm(stream, &x, &w, &mut view_mut(0x4000, F16, &[rows, n])).run().unwrap();
            Ok(())
        })
        .unwrap();
    assert_eq!(lib.pack().unwrap().entries().len(), compiled);
    let calls = turn.stand_in.calls();
    assert_eq!(calls.iter().filter(|call| call.starts_with("cuLibraryLoadData")).count(), compiled);
    // A program without a compiler launches the same of the pack.
    let file = PackFile::open(lib.pack().unwrap().to_bytes().unwrap()).unwrap();
    // SAFETY: nothing runs.
    let operators = unsafe { Operators::new(Arc::new(file), &turn.gpu) };
    for (m, k) in [(1, 199), (16, 200), (17, 200), (40, 199)] {
        let (a, b) = (view(0x1000, BF16, &[m, k]), view(0x2000, BF16, &[256, k]));
        let mut c = view_mut(0x4000, BF16, &[m, 256]);
        let mut memory = memory.borrow_mut();
        turn.stand_in.calls();
        lib.gemm(stream, &a, &b, &mut c).workspace(&mut memory).run().unwrap();
        let expected = turn.work();
        let arguments = [("a", (&a).into()), ("b", (&b).into()), ("c", (&mut c).into())];
        let options = [("dtype", "bf16")];
        let call = OperatorCall::new("gemm", &options, &arguments);
        operators.run(stream, &call, &LaunchOptions::new().workspace(&mut memory)).unwrap();
        let of_function = |calls: Vec<String>| -> Vec<String> {
            calls.iter().map(|call| call.split(" stream=").next().unwrap().to_string()).collect()
        };
        assert_eq!(of_function(turn.work()), of_function(expected), "{m} {k}");
    }
    // What is out of the range is refused.
    let (a, b) = (view(0x1000, BF16, &[200, 200]), view(0x2000, BF16, &[256, 200]));
    let error = lib.gemm(stream, &a, &b, &mut view_mut(0x4000, BF16, &[200, 256])).run().unwrap_err();
    assert!(error.to_string().contains("`gemm` is not warm for m<=256"), "{error}");
}
