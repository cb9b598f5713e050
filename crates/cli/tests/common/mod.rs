//! The command as the tests run it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Exit code and output of the command.
pub struct Run {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs the command at the root of the repository.
pub fn tilewright(args: &[&str], input: Option<&[u8]>) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tilewright"))
        .args(args)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.unwrap_or_default().to_vec();
    let writer = std::thread::spawn(move || {
        // The command may stop reading early; that is its right.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Run { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// The command must fail with this code and say each of these; it must not panic or colour a pipe.
#[track_caller]
pub fn refused(args: &[&str], input: Option<&[u8]>, code: i32, says: &[&str]) {
    let run = tilewright(args, input);
    assert_eq!(run.code, Some(code), "{args:?}: {}{}", run.out, run.err);
    for text in says {
        assert!(run.err.contains(text), "{args:?} should say `{text}`:\n{}", run.err);
    }
    assert!(!run.err.contains("panicked") && !run.err.contains('\u{1b}'), "{}", run.err);
    assert!(run.err.len() < 4000, "a message of {} bytes", run.err.len());
}
