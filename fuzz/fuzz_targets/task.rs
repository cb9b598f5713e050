//! Any text as a task program: what reads prints as text that reads as the same program, and is verified, and graphs of its mappings are made or refused,
//! without a mistake of the compiler's own.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tilewright_task::{check, parse};

fuzz_target!(|text: &str| {
    let Ok(program) = parse(text) else { return };
    let printed = program.to_string();
    match parse(&printed) {
        Ok(again) => assert_eq!(again.to_string(), printed, "{text}"),
        Err(errors) => panic!("{text} prints as {printed}, which does not read: {errors}"),
    }
    if let Err(errors) = check(&program, &Default::default()) {
        assert!(!errors.any_internal(), "{text}: {errors}");
    }
});
