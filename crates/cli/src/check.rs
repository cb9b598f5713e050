//! `tilewright check`: verifies, lints and compiles for several architectures, without a run. [`compiler::check`] does it, for the language server too;
//! here it is printed, as text or as the JSON of docs/editors.md.

use std::fmt::Write;
use std::process::ExitCode;

use comfy_table::{Table, presets};
use serde_json::{Value, json};
use tilewright::compiler;
use tilewright::compiler::arch_named;
use tilewright::compiler::check::{Checked, Fit, USUAL};
use tilewright::excerpts::{Severity, as_json};
use tilewright::machine::Arch;
use tilewright::task::check as check_tasks;
use tilewright::tile::{Diagnostic, Diagnostics, Misread, Sources};

use crate::args::CheckArgs;
use crate::load::{Asked, Loaded, Unloaded, load_file};
use crate::messages::{Failure, note, print, render, render_one};
use crate::tasks;

/// The version of the JSON: what tools may rely on changes only with it.
const VERSION: u32 = 1;

/// A kernel of a file, or a file whose text has none.
struct Item {
    file: String,
    /// The kernel's name; none of a text that is no program.
    kernel: Option<String>,
    sources: Sources,
    /// Findings; without, the parser or the verifier refuses the text.
    found: Option<Checked>,
    /// The lines for a right task program.
    tasks: Option<String>,
    errors: Vec<Diagnostic>,
}

impl Item {
    fn misread(file: String, misread: Misread) -> Item {
        let Misread { diagnostics, sources } = misread;
        Item { file, kernel: None, sources, found: None, tasks: None, errors: diagnostics.0 }
    }

    fn of_tasks(file: String, loaded: &tasks::Loaded) -> Item {
        let (tasks, errors) = match check_tasks(&loaded.program, &loaded.options.constants) {
            Ok(()) => (Some(tasks::summary(loaded)), Vec::new()),
            Err(errors) => (None, errors.0),
        };
        Item { file, kernel: None, sources: loaded.sources.clone(), found: None, tasks, errors }
    }

    fn of(loaded: Loaded, archs: &[Arch]) -> Item {
        // Each architecture takes the place of this one.
        let options = loaded.options(Arch::SM_80);
        let found = compiler::check::check(&loaded.program, loaded.core.as_ref(), &options, archs);
        let (found, errors) = match found {
            Ok(found) => {
                let errors = found.errors();
                (Some(found), errors)
            }
            Err(errors) => (None, Some(errors)),
        };
        Item {
            kernel: Some(loaded.program.name),
            file: loaded.path,
            sources: loaded.sources,
            found,
            tasks: None,
            errors: errors.map_or_else(Vec::new, |errors| errors.0),
        }
    }

    fn warnings(&self) -> &[Diagnostic] {
        self.found.as_ref().map_or(&[], |found| &found.warnings)
    }

    fn text(&self, denied: bool) -> String {
        let level = if denied { Severity::Error } else { Severity::Warning };
        let warnings = self.warnings().iter();
        let mut text: String = warnings.map(|w| render_one(&self.sources, w, level) + "\n").collect();
        let Some(found) = &self.found else { return text + self.tasks.as_deref().unwrap_or_default() };
        if !self.errors.is_empty() {
            let _ = writeln!(text, "{}", render(&self.sources, &Diagnostics(self.errors.clone())));
        }
        let name = self.kernel.as_deref().unwrap_or_default();
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        for (arch, fit) in &found.fits {
            let resources = match fit {
                Fit::Compiles(kernel) => format!(
                    "{} threads, {} registers a thread for fragments, {} bytes of shared memory a block",
                    kernel.threads(),
                    kernel.explanation.fragment_registers,
                    kernel.shared_bytes()
                ),
                Fit::Lacks(_) | Fit::Refused(_) => {
                    format!("not possible: {}", why(fit).unwrap_or_default())
                }
            };
            table.add_row([format!("{name} for {arch}"), resources]);
        }
        let _ = writeln!(text, "{table}");
        text
    }

    fn diagnostics(&self) -> impl Iterator<Item = Value> {
        let of = move |severity: Severity| move |d: &Diagnostic| self.diagnostic(d, severity);
        self.warnings().iter().map(of(Severity::Warning)).chain(self.errors.iter().map(of(Severity::Error)))
    }

    fn diagnostic(&self, d: &Diagnostic, severity: Severity) -> Value {
        let mut value = as_json(&self.sources, d, severity);
        value["kernel"] = json!(self.kernel);
        value
    }

    fn resources(&self) -> Option<Value> {
        let found = self.found.as_ref()?;
        let fits = found.fits.iter().map(|(arch, fit)| {
            let mut value = json!({ "arch": arch.to_string() });
            match fit {
                Fit::Compiles(kernel) => {
                    value["fragment_registers"] = json!(kernel.explanation.fragment_registers);
                    value["shared_bytes"] = json!(kernel.shared_bytes());
                }
                Fit::Lacks(_) | Fit::Refused(_) => value["refused"] = json!(why(fit)),
            }
            value
        });
        Some(json!({
            "file": self.file,
            "kernel": self.kernel,
            "threads": found.verified.threads(),
            "architectures": fits.collect::<Vec<_>>(),
        }))
    }
}

/// The message for which a program does not compile.
fn why(fit: &Fit) -> Option<&str> {
    match fit {
        Fit::Compiles(_) => None,
        Fit::Lacks(lacks) => Some(&lacks.message),
        Fit::Refused(diagnostics) => diagnostics.0.first().map(|first| first.message.as_str()),
    }
}

/// Checks the kernels of files.
pub fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let named: Result<Vec<Arch>, _> = args.arch.iter().map(|name| arch_named(name)).collect();
    let named = named.map_err(Failure::usage)?;
    let archs = if named.is_empty() { &USUAL[..] } else { &named };
    let mut items = Vec::new();
    for file in &args.files {
        if tasks::is_task(file) {
            let name = file.display().to_string();
            items.push(match tasks::load(file, &args.params) {
                Ok(loaded) => Item::of_tasks(name, &loaded),
                Err(Unloaded::Misread(misread)) => Item::misread(name, misread),
                Err(Unloaded::Failed(failure)) => return Err(failure),
            });
            continue;
        }
        match load_file(file, &Asked::default(), &args.params) {
            Ok(kernels) => items.extend(kernels.into_iter().map(|kernel| Item::of(kernel, archs))),
            Err(Unloaded::Misread(misread)) => items.push(Item::misread(file.display().to_string(), misread)),
            Err(Unloaded::Failed(failure)) => return Err(failure),
        }
    }
    if args.json {
        let diagnostics: Vec<Value> = items.iter().flat_map(Item::diagnostics).collect();
        let kernels: Vec<Value> = items.iter().filter_map(Item::resources).collect();
        print(&format!(
            "{:#}\n",
            json!({ "version": VERSION, "diagnostics": diagnostics, "kernels": kernels })
        ))?;
    } else {
        for item in &items {
            print(&item.text(args.deny_warnings))?;
            if item.found.is_none() && item.tasks.is_none() {
                note(render(&item.sources, &Diagnostics(item.errors.clone())));
            }
        }
    }
    let wrong = |item: &Item| !item.errors.is_empty() || (args.deny_warnings && !item.warnings().is_empty());
    let internal = |item: &Item| Diagnostics(item.errors.clone()).any_internal();
    Ok(match items {
        items if items.iter().any(internal) => ExitCode::from(3),
        items if items.iter().any(wrong) => ExitCode::from(1),
        _ => ExitCode::SUCCESS,
    })
}
