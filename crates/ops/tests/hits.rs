//! A call whose launches are ready: no allocation, no lock that another call holds, one call of the driver a launch.
#![allow(unsafe_code, reason = "an allocator that counts")]

mod common;
#[path = "../../launch/tests/common/counting.rs"]
mod counting;

use std::sync::mpsc::channel;
use std::time::Duration;

use common::{Turn, view, view_mut, workspace};
use counting::ALLOCATED;
use tilewright_launch::DType::F16;

#[test]
fn a_hit_allocates_nothing_and_calls_the_driver_once_a_launch() {
    let turn = Turn::new(80);
    let (lib, stream) = (turn.library(), turn.stream());
    let (a, b, bias) =
        (view(0x1000, F16, &[64, 512]), view(0x2000, F16, &[64, 512]), view(0x3000, F16, &[64]));
    let mut c = view_mut(0x4000, F16, &[64, 64]);
    let mut memory = workspace(0x10_0000, 1 << 20);
    let mut run = || {
        lib.gemm(stream, &a, &b, &mut c).alpha(0.5).bias(&bias).gelu().workspace(&mut memory).run().unwrap();
        lib.gemm(stream, &a, &b, &mut c).option("split", 2).workspace(&mut memory).run().unwrap();
        let call = lib.operator("softmax").option("dtype", "f16");
        call.arg("x", &a)
            .arg("y", &mut view_mut(0x5000, F16, &[64, 512]))
            .dependent(true)
            .run(stream)
            .unwrap();
    };
    run();
    turn.stand_in.calls();
    let before = ALLOCATED.get();
    (0..100).for_each(|_| run());
    assert_eq!(ALLOCATED.get() - before, 0);
    let calls = turn.stand_in.calls();
    assert_eq!(calls.len(), 400);
    assert!(calls.iter().all(|call| call.starts_with("cuLaunchKernelEx ")));
}

#[test]
fn what_was_given_before_is_kept_and_what_is_new_is_checked() {
    let turn = Turn::new(80);
    let (lib, stream) = (turn.library(), turn.stream());
    let x = |at| view(at, F16, &[64, 512]);
    let run = |at: u64| lib.softmax(stream, &x(at), &mut view_mut(0x5000, F16, &[64, 512])).run();
    run(0x1000).unwrap();
    turn.stand_in.calls();
    // A number is one of the launch, as an address is.
    let w = view(0x2000, F16, &[512]);
    for eps in [1e-5f32, 1e-6, 1e-5] {
        let y = &mut view_mut(0x5000, F16, &[64, 512]);
        lib.rmsnorm(stream, &x(0x1000), &w, y).eps(eps).run().unwrap();
        let word: String = eps.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(turn.work()[0].contains(&format!(" {word}")));
    }
    // More addresses than are kept: each launch has its own.
    let addresses: Vec<u64> = (1..8000u64).map(|number| 0x10_0000 + number * 0x100).collect();
    addresses.iter().for_each(|at| run(*at).unwrap());
    let work = turn.work();
    assert_eq!(work.len(), addresses.len());
    for (launch, at) in work.iter().zip(&addresses) {
        let word: String = at.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(launch.contains(&word), "{launch}");
    }
    let before = ALLOCATED.get();
    (1..100u64).for_each(|number| run(0x100_0000 + number * 0x100).unwrap());
    assert_eq!(ALLOCATED.get() - before, 0);
    // What is asked for again takes the place of what was used longer ago, and is found from then on.
    let allocated = [0, 1, 2].map(|_| {
        let before = ALLOCATED.get();
        run(0x200_0000).unwrap();
        ALLOCATED.get() - before
    });
    assert!(allocated[0] == 0 && allocated[1] > 0 && allocated[2] == 0, "{allocated:?}");
    turn.stand_in.calls();
    assert!(run(0x1001).unwrap_err().to_string().contains("0x1001"));
    let (read, mut written) = (x(0x5000), view_mut(0x5000, F16, &[64, 512]));
    let call = || lib.operator("softmax").option("dtype", "f16").arg("x", &read);
    call().arg("y", &mut written).run(stream).unwrap();
    let error = call().arg("y", &read).run(stream).unwrap_err().to_string();
    assert!(error.contains("writes `y`"), "{error}");
    assert_eq!(turn.work().len(), 1);
}

#[test]
fn a_hit_does_not_wait_for_a_miss() {
    let turn = Turn::new(80);
    let (lib, streams, done) = (turn.library(), [turn.stream(), turn.stream()], channel());
    let x = view(0x1000, F16, &[64, 512]);
    lib.softmax(streams[0], &x, &mut view_mut(0x2000, F16, &[64, 512])).run().unwrap();
    turn.stand_in.calls();
    // The driver takes its time to load a kernel for one thread.
    turn.stand_in.set("hold cuLibraryLoadData", 1);
    std::thread::scope(|scope| {
        let (lib, x) = (&lib, &x);
        scope.spawn(move || {
            lib.log_softmax(streams[0], x, &mut view_mut(0x3000, F16, &[64, 512])).run().unwrap();
        });
        let mut calls = Vec::new();
        while !calls.iter().any(|call: &String| call.starts_with("cuLibraryLoadData")) {
            calls.extend(turn.stand_in.calls());
            std::thread::yield_now();
        }
        scope.spawn(move || {
            lib.softmax(streams[1], x, &mut view_mut(0x2000, F16, &[64, 512])).run().unwrap();
            done.0.send(()).unwrap();
        });
        let result = done.1.recv_timeout(Duration::from_secs(20));
        turn.stand_in.set("hold cuLibraryLoadData", 0);
        result.expect("the hit does not wait");
    });
    assert_eq!(turn.work().len(), 2);
}

#[test]
fn threads_that_ask_for_the_same_compile_it_once() {
    let turn = Turn::new(80);
    let lib = turn.library();
    let streams = [(); 4].map(|()| turn.stream());
    std::thread::scope(|scope| {
        for stream in streams {
            let lib = &lib;
            scope.spawn(move || {
                for rows in 1..50 {
                    let x = view(0x1000, F16, &[rows, 512]);
                    let mut y = view_mut(0x2000, F16, &[rows, 512]);
                    lib.softmax(stream, &x, &mut y).run().unwrap();
                }
            });
        }
    });
    let calls = turn.stand_in.calls();
    let loads = calls.iter().filter(|call| call.starts_with("cuLibraryLoadData")).count();
    assert_eq!(loads, lib.pack().unwrap().entries().len());
    assert_eq!(calls.iter().filter(|call| call.starts_with("cuLaunch")).count(), 4 * 49);
}
