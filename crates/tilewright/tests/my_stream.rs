//! `docs/my-data-my-stream.md`: its code is that of the example, which is run on the stand-in driver.
#![allow(unsafe_code, reason = "the engine of the example is the test")]

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tempfile::TempDir;
use tilewright::launch::{Driver, Gpu, LaunchError};
use tilewright_stand_in_driver::StandIn;

#[allow(dead_code, reason = "the example has a `main` of its own")]
#[path = "../examples/my_operators.rs"]
mod my_operators;
#[allow(dead_code, reason = "the example has a `main` of its own")]
#[path = "../examples/my_stream.rs"]
mod my_stream;

const PAGE: &str = include_str!("../../../docs/my-data-my-stream.md");
const EXAMPLES: [&str; 4] = [
    include_str!("../examples/my_stream.rs"),
    include_str!("../examples/my_operators.rs"),
    include_str!("../../../examples/packed/build.rs"),
    include_str!("../../../examples/packed/src/main.rs"),
];

/// Lines without what indents them.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_page_shows_the_code_of_the_examples() {
    let examples = EXAMPLES.map(lines);
    let has = |block: &[&str]| examples.iter().any(|text| text.windows(block.len()).any(|w| w == block));
    let blocks: Vec<&str> =
        PAGE.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 5);
    for block in blocks {
        let block = lines(block);
        assert!(has(&block), "in no example: {block:#?}");
    }
}

/// The stand-in, of which tests of one process take turns.
fn turn() -> (MutexGuard<'static, ()>, StandIn, &'static Driver) {
    static TURN: Mutex<()> = Mutex::new(());
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        // SAFETY: tests of this process read the environment only behind this.
        unsafe { std::env::set_var("TILEWRIGHT_CACHE", folder.path()) };
        folder
    });
    let stand_in = StandIn::of_this_test();
    // SAFETY: the stand-in has the functions of a driver.
    let driver = unsafe { Driver::open(stand_in.path()) }.unwrap();
    stand_in.make_current(0);
    stand_in.calls();
    (turn, stand_in, driver)
}

#[test]
fn the_operators_of_the_example_are_warm_for_every_number_of_rows() {
    let (_turn, stand_in, driver) = turn();
    stand_in.set("capability", 80);
    let gpu = Gpu::current_of(driver).unwrap();
    let at = |i: u64| 0x1000 * (i + 1);
    let engine = my_operators::Engine {
        gpu,
        stream: stand_in.stream(false),
        x: at(0),
        weight: at(1),
        bias: at(2),
        hidden: at(3),
        norm: at(4),
        y: at(5),
        workspace: at(6),
    };
    let (lib, warm) = my_operators::library(&engine).unwrap();
    assert_eq!(warm.classes, 18);
    stand_in.calls();
    for m in 1..=64 {
        my_operators::step(&engine, &lib, m).unwrap();
    }
    let calls = stand_in.calls();
    assert!(!calls.iter().any(|call| call.contains("Load")), "{calls:?}");
    let norms = calls.iter().filter(|call| call.contains("function=rmsnorm ")).count();
    assert_eq!(norms, 64);
    assert!(
        my_operators::step(&engine, &lib, 65).unwrap_err().to_string().contains("is not warm for m<=128")
    );
    let reasons = my_operators::reasons(&engine, &lib).unwrap();
    assert!(reasons.contains("epilogue=bias+gelu") && reasons.contains("estimate"), "{reasons}");
    stand_in.set("capability", 90);
}

#[test]
fn the_example_launches_on_the_streams_and_memory_that_it_is_given() {
    let (_turn, stand_in, driver) = turn();
    let (recipe, ptx) = my_stream::compiled().unwrap();
    let stream = stand_in.stream(false);
    let mut engine =
        my_stream::Engine { gpu: Gpu::current_of(driver).unwrap(), stream, x: 0x1000, y: 0x9000, n: 4096 };
    let kernel = my_stream::launches(&engine, &recipe, &ptx).unwrap();
    let calls = stand_in.calls();
    let launches: Vec<&String> = calls.iter().filter(|call| call.starts_with("cuLaunch")).collect();
    let expected = format!(
        "cuLaunchKernelEx grid=32,1,1 block=128,1,1 shared=0 stream={:#x} attributes=[] function=scale params=[\
         0010000000000000 0090000000000000 0000003f 00100000]",
        stream.addr()
    );
    assert_eq!(launches, [&expected; 3]);
    assert!(
        !calls.iter().any(|call| call.starts_with("cuMemAlloc") || call.contains("Synchronize")),
        "{calls:?}"
    );

    engine.stream = stand_in.stream(true);
    my_stream::captured(&engine, &kernel).unwrap();
    assert!(!stand_in.calls().iter().any(|call| call.starts_with("cuLaunch")));
    let error = kernel.plan(&[0]).unwrap_err();
    assert!(matches!(error, LaunchError::Size { .. }));

    for _ in 0..2 {
        assert_eq!(my_stream::kept(&engine.gpu).unwrap().recipe(), &recipe);
    }
}
