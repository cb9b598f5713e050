//! Any text is a session of the calculator: each line has a value or an error, soon, and a value that prints reads again
//! as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::time::{Duration, Instant};
use tilewright_layout::SwizzledLayout;
use tilewright_layout_calc::{CalcError, MAX_LENGTH, Session, Value, evaluate};
use tilewright_layout_calc::draw::Picture;

/// No expression may take longer than this, with instrumentation and all.
const PATIENCE: Duration = Duration::from_secs(2);
/// So that the time limit of the whole input is one on its expressions.
const LINES: usize = 8;

fn timed(text: &str, f: impl FnOnce() -> Result<Value, CalcError>) -> Result<Value, CalcError> {
    let start = Instant::now();
    let result = f();
    assert!(start.elapsed() < PATIENCE, "took {:?}: {text}", start.elapsed());
    result
}

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let mut session = Session::default();
    for line in text.lines().take(LINES) {
        match timed(line, || session.evaluate(line)) {
            Ok(value) => check(line, &value),
            Err(error) => {
                assert!(error.offset <= line.len().max(MAX_LENGTH), "{error}");
                assert!(!error.kind().is_empty());
            }
        }
    }
});

fn check(line: &str, value: &Value) {
    let printed = value.to_string();
    if !matches!(value, Value::Bool(_) | Value::Text(_)) && printed.len() <= MAX_LENGTH {
        match timed(&printed, || evaluate(&printed)) {
            Ok(again) => assert_eq!(again.to_string(), printed, "{line}"),
            Err(error) => panic!("{line} gives {printed}, which does not read: {error}"),
        }
    }
    let picture = match value {
        Value::Layout(l) if l.size() <= 256 => Picture::offsets(l),
        Value::CoordLayout(l) if l.size() <= 256 => Picture::offsets(l),
        Value::F2Layout(l) if l.size() <= 256 => Picture::offsets(l),
        Value::Linear(l) if l.out_bits() <= 8 => Picture::linear(l),
        Value::Swizzled(l) if l.layout.size() <= 256 => Picture::swizzled_offsets(l),
        _ => return,
    };
    if let Ok(picture) = picture {
        let _ = (picture.text(), picture.svg(), picture.latex());
    }
    if let Value::Layout(l) = value {
        let _ = Picture::thread_values(l, (8, 8)).map(|p| p.text());
        let _ = Picture::banks(&SwizzledLayout::from(l.clone()), 16).map(|p| p.text());
    }
}
