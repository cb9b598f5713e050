//! A launch whose plan is known: no allocation, no lock that another launch holds, one call.
#![allow(unsafe_code, reason = "an allocator that counts, and views of nothing")]

mod common;
#[path = "common/counting.rs"]
mod counting;

use std::sync::mpsc::channel;
use std::time::Duration;

use common::{Turn, view, view_mut};
use counting::ALLOCATED;
use tilewright_launch::{Arg, LaunchOptions, Raw};

const SHAPE: [i64; 2] = [3, 512];

#[test]
fn a_hit_allocates_nothing_and_calls_the_driver_once() {
    let turn = Turn::new();
    let (kernel, stream) = (turn.kernel(), turn.stream());
    let plan = kernel.plan(&SHAPE).unwrap();
    let (x, mut y) = (view(0x1000, &SHAPE), view_mut(0x2000, &SHAPE));
    let raw = [Raw::Ptr(0x1000), Raw::Ptr(0x2000), Raw::F32(2.0)];
    let options = LaunchOptions::new().dependent(true);
    plan.launch(stream, (&x, &mut y, 2.0f32)).unwrap();
    let prepared = plan.prepare_raw(&raw, &options).unwrap();
    turn.stand_in.calls();
    let before = ALLOCATED.get();
    for _ in 0..100 {
        plan.launch(stream, (&x, &mut y, 2.0f32)).unwrap();
        plan.launch_with(stream, [Arg::from(&x), (&mut y).into(), 2.0f32.into()], &options).unwrap();
        kernel.launch(stream, &SHAPE, (&x, &mut y, 2.0f32)).unwrap();
        kernel.plan(&SHAPE).unwrap().launch(stream, (&x, &mut y, 2.0f32)).unwrap();
        // SAFETY: nothing runs.
        unsafe { plan.launch_raw(stream, &raw, &options) }.unwrap();
        // SAFETY: as above.
        unsafe { prepared.enqueue(stream) }.unwrap();
    }
    assert_eq!(ALLOCATED.get() - before, 0);
    let calls = turn.stand_in.calls();
    assert_eq!(calls.len(), 600);
    assert!(calls.iter().all(|call| call.starts_with("cuLaunchKernelEx ")));
}

#[test]
fn a_hit_does_not_wait_for_a_miss() {
    let turn = Turn::new();
    let kernel = turn.kernel();
    let plan = kernel.plan(&SHAPE).unwrap();
    plan.launch(turn.stream(), (&view(0x1000, &SHAPE), &mut view_mut(0x2000, &SHAPE), 2.0f32)).unwrap();
    turn.stand_in.calls();
    // The driver takes its time to encode a map for one thread, in a launch of the same plan.
    turn.stand_in.set("hold cuTensorMapEncodeTiled", 1);
    let (streams, (done, waited)) = ([turn.stream(), turn.stream()], channel());
    std::thread::scope(|scope| {
        let (miss, hit) = ((&plan, streams[0]), (&kernel, streams[1], done));
        scope.spawn(move || {
            let (x, mut y) = (view(0x1000, &SHAPE), view_mut(0x3000, &SHAPE));
            miss.0.launch(miss.1, (&x, &mut y, 2.0f32)).unwrap();
        });
        let mut calls = Vec::new();
        while !calls.iter().any(|call: &String| call.starts_with("cuTensorMapEncodeTiled")) {
            calls.extend(turn.stand_in.calls());
            std::thread::yield_now();
        }
        // Another thread launches by the same plan, and by a new one.
        scope.spawn(move || {
            let (x, mut y) = (view(0x1000, &SHAPE), view_mut(0x2000, &SHAPE));
            hit.0.launch(hit.1, &SHAPE, (&x, &mut y, 2.0f32)).unwrap();
            hit.0.plan(&[8, 256]).unwrap();
            hit.2.send(()).unwrap();
        });
        let result = waited.recv_timeout(Duration::from_secs(20));
        turn.stand_in.set("hold cuTensorMapEncodeTiled", 0);
        result.expect("the hit does not wait");
    });
    let launches = turn.stand_in.calls();
    assert_eq!(
        launches.iter().filter(|call| call.starts_with("cuLaunchKernelEx")).count(),
        2,
        "{launches:?}"
    );
}

#[test]
fn threads_launch_on_their_own_streams_at_once() {
    let turn = Turn::new();
    let kernel = turn.kernel();
    turn.stand_in.calls();
    let streams = [(); 4].map(|()| turn.stream());
    std::thread::scope(|scope| {
        for (number, stream) in streams.into_iter().enumerate() {
            let kernel = &kernel;
            scope.spawn(move || {
                for i in 0..200i64 {
                    let shape = [1 + i % 7, 512];
                    let (x, mut y) =
                        (view(0x1000, &shape), view_mut(0x2000 + 0x1000 * (i as u64 % 5), &shape));
                    kernel.launch(stream, &shape, (&x, &mut y, number as f32)).unwrap();
                }
            });
        }
    });
    let calls = turn.stand_in.calls();
    for (number, stream) in streams.into_iter().enumerate() {
        let of_stream = format!("stream={:#x} ", stream.raw().addr());
        let of_stream: Vec<&String> = calls.iter().filter(|call| call.contains(&of_stream)).collect();
        let factor: String = (number as f32).to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(of_stream.len(), 200);
        assert!(of_stream.iter().all(|call| call.contains(&format!(" {factor} "))));
    }
}

#[test]
fn more_addresses_than_a_plan_keeps_are_right_all_the_same() {
    let turn = Turn::new();
    let plan = turn.kernel().plan(&SHAPE).unwrap();
    let x = view(0x1000, &SHAPE);
    for i in 0..1100u64 {
        let mut y = view_mut(0x10_0000 + 0x1000 * i, &SHAPE);
        plan.launch(turn.stream(), (&x, &mut y, 2.0f32)).unwrap();
    }
    assert_eq!(plan.tensor_maps(), 1024);
    turn.stand_in.calls();
    let last = 0x10_0000 + 0x1000 * 1099u64;
    plan.launch(turn.stream(), (&x, &mut view_mut(last, &SHAPE), 2.0f32)).unwrap();
    let calls = turn.stand_in.calls();
    let address: String = last.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    // Once as the pointer, once in the map.
    assert_eq!(calls.last().unwrap().matches(&address).count(), 2, "{calls:?}");
}
