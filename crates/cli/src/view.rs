//! `tilewright view`: a compiled program as one HTML page.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tilewright::tile::lint;
use tilewright_view::{NotRun, Page, html, simulate};

use crate::args::ViewArgs;
use crate::load::{load_all, timing};
use crate::messages::{Failure, cannot_write, note, print};
use crate::target::target_without_device;
use crate::tune_file::take_record;

/// Writes the page of the kernels of a file.
pub fn view(args: &ViewArgs) -> Result<ExitCode, Failure> {
    let mut all = load_all(&args.program)?;
    let target = target_without_device(&args.program, &all)?;
    target.say();
    take_record(&mut all, &target, args.program.defaults)?;
    let mut page = Page::new(all.first().map(|loaded| loaded.sources.clone()).unwrap_or_default());
    for loaded in &all {
        let mut options = loaded.options(target.arch);
        options.timing = timing(&args.program, target.arch)?;
        let kernel = loaded.compile(&options)?;
        let warnings = lint(&kernel.verified, &loaded.sizes);
        let run = if args.no_run {
            Err(NotRun::Unwanted)
        } else {
            simulate(&kernel, &loaded.sizes, &loaded.scalars)
        };
        page.add(&kernel, &loaded.sizes, &warnings, run);
    }
    let text = if args.json {
        serde_json::to_string(&page).map_err(|e| Failure::program(crate::messages::error(e)))? + "\n"
    } else {
        html(&page)
    };
    let extension = if args.json { "json" } else { "html" };
    let out = args.output.clone().unwrap_or_else(|| default_output(&args.program.file, extension));
    if out == Path::new("-") {
        print(&text)?;
    } else {
        std::fs::write(&out, text).map_err(|e| cannot_write(&out, e))?;
        note(format!("wrote {}", out.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The name of a program with an extension, in this folder; standard output for a program of standard input.
fn default_output(program: &Path, extension: &str) -> PathBuf {
    match program.file_stem() {
        Some(stem) if program != Path::new("-") => Path::new(stem).with_extension(extension),
        _ => PathBuf::from("-"),
    }
}
