//! `tilewright fmt`: texts in the form that all have.

use std::path::Path;
use std::process::ExitCode;

use tilewright::tile::{Sources, format};

use crate::args::FmtArgs;
use crate::load::read;
use crate::messages::{Failure, cannot_write, error, print};

/// Formats files in place, or says which would change.
///
/// # Errors
///
/// Files that cannot be read or written, and texts whose brackets or characters are wrong: those before are formatted by then.
pub fn fmt(args: &FmtArgs) -> Result<ExitCode, Failure> {
    let mut changes = false;
    for file in &args.files {
        let (path, text) = read(file, "a tile program")?;
        let formatted = format(&text).map_err(|d| Failure::refused(&Sources::new(&path, &text), &d))?;
        let changed = formatted != text;
        if args.check {
            if changed {
                let line = first_difference(&text, &formatted);
                anstream::eprintln!(
                    "{}",
                    error(format!("`{path}` is not formatted: line {line} would change"))
                );
            }
        } else if file == Path::new("-") {
            print(&formatted)?;
        } else if changed {
            std::fs::write(file, &formatted).map_err(|e| cannot_write(file, e))?;
        }
        changes |= changed;
    }
    Ok(if args.check && changes { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The number of the first line that differs, from 1.
fn first_difference(text: &str, formatted: &str) -> usize {
    let same = text.split('\n').zip(formatted.split('\n')).take_while(|(a, b)| a == b).count();
    same + 1
}
