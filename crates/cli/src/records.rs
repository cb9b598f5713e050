//! `tilewright records`: files of the tuner's records.

use std::process::ExitCode;

use tilewright::tune::{Record, merge, write_lines};

use crate::args::{MergeArgs, RecordsArgs, RecordsCommand};
use crate::messages::{Failure, print};
use crate::tune::failure;

/// Does what the command line asks of files of records.
pub fn records(args: &RecordsArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        RecordsCommand::Merge(args) => merged(args),
    }
}

/// Writes the records of all files to one.
fn merged(args: &MergeArgs) -> Result<ExitCode, Failure> {
    let found = merge(&args.files).map_err(failure)?;
    write_lines(&args.output, &found.records).map_err(failure)?;
    for Record { operator, class, device, configuration, microseconds, .. } in &found.left_out {
        anstream::eprintln!(
            "note: left out: {operator} {class} on {device}: `{configuration}`, {microseconds:.1} µs"
        );
    }
    print(&format!(
        "{} records of {} files in {}, {} left out\n",
        found.records.len(),
        args.files.len(),
        args.output.display(),
        found.left_out.len()
    ))?;
    Ok(ExitCode::SUCCESS)
}
