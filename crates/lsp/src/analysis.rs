//! Findings of the compiler about a document: parsed, verified, linted and compiled for the architecture asked for or for several, as `tilewright check` does. Of a task program
//! (`*.task`), the graphs of its mappings are made.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lsp_types::DiagnosticSeverity;
use tilewright_compiler::Options;
use tilewright_compiler::check::{Checked, Fit, USUAL, check};
use tilewright_machine::Arch;
use tilewright_synth::Explanation;
use tilewright_tile::{
    Constants, Diagnostic, Diagnostics, Misread, Origin, Program, Sources, core, parse_library, parse_module,
    read_beside,
};

use crate::outline::Outline;
use crate::paths::normal;

/// A document, and what its analysis needs of the others.
#[derive(Clone, Debug)]
pub struct Job {
    /// The document's path.
    pub path: String,
    /// The version of its text, as the editor counts.
    pub version: i32,
    /// Its text.
    pub text: String,
    /// Texts of all open documents by path: what a `use` reads, saved or not.
    pub open: HashMap<String, String>,
    /// The architecture that refusals and costs are of; without, the least that the program compiles for.
    pub arch: Option<Arch>,
}

/// A message with its weight. Its places are in files.
#[derive(Clone, Debug)]
pub struct Found {
    /// The weight.
    pub severity: DiagnosticSeverity,
    /// The message.
    pub diagnostic: Diagnostic,
}

/// A kernel that the verifier accepts.
#[derive(Debug)]
pub struct Kernel {
    /// The program as it was read.
    pub program: Program,
    /// Findings.
    pub checked: Checked,
    /// The architecture that costs are of, if the kernel compiles for it.
    pub arch: Option<Arch>,
}

impl Kernel {
    /// The compiled kernel that costs are of.
    pub fn compiled(&self) -> Option<(Arch, &tilewright_compiler::Kernel)> {
        let (arch, fit) = self.checked.fits.iter().find(|(arch, _)| Some(*arch) == self.arch)?;
        match fit {
            Fit::Compiles(kernel) => Some((*arch, kernel)),
            Fit::Lacks(_) | Fit::Refused(_) => None,
        }
    }

    /// Its explanation.
    pub fn explanation(&self) -> Option<(Arch, &Explanation)> {
        self.compiled().map(|(arch, kernel)| (arch, &kernel.explanation))
    }
}

/// Findings about one version of a document.
#[derive(Debug, Default)]
pub struct Analysis {
    /// The version.
    pub version: i32,
    /// The text.
    pub text: String,
    /// The texts: the document first, then files that it uses.
    pub sources: Sources,
    /// Messages, in the order in which they were found.
    pub found: Vec<Found>,
    /// The kernels that the verifier accepts.
    pub kernels: Vec<Kernel>,
}

impl Analysis {
    /// Analyses a document. A panic of the compiler is a message about the document.
    pub fn of(job: &Job) -> Analysis {
        let analysed = catch_unwind(AssertUnwindSafe(|| Analysis::unguarded(job)));
        analysed.unwrap_or_else(|_| {
            let internal = Diagnostic::internal(Origin::Unknown, "a stage of the compiler has panicked");
            let found = vec![Found { severity: DiagnosticSeverity::ERROR, diagnostic: internal }];
            let sources = Sources::new(job.path.clone(), job.text.clone());
            Analysis { version: job.version, text: job.text.clone(), sources, found, kernels: Vec::new() }
        })
    }

    /// The same, where a panic is the caller's.
    pub fn unguarded(job: &Job) -> Analysis {
        let mut analysis = Analysis { version: job.version, text: job.text.clone(), ..Analysis::default() };
        if job.path.ends_with(".task") {
            analysis.sources = Sources::new(job.path.clone(), job.text.clone());
            let checked = tilewright_task::parse_file(&analysis.sources)
                .and_then(|program| tilewright_task::check(&program, &Constants::default()));
            analysis.report(checked.err().into_iter().flat_map(|errors| errors.0), DiagnosticSeverity::ERROR);
            return analysis;
        }
        match read(job) {
            Ok((kernels, sources)) => {
                analysis.sources = sources;
                for (program, core) in kernels {
                    analysis.add(program, core.as_ref(), job.arch);
                }
            }
            Err(Misread { diagnostics, sources }) => {
                analysis.sources = sources;
                analysis.report(diagnostics.0, DiagnosticSeverity::ERROR);
            }
        }
        analysis
    }

    fn report(&mut self, diagnostics: impl IntoIterator<Item = Diagnostic>, severity: DiagnosticSeverity) {
        for diagnostic in diagnostics {
            let diagnostic = self.sources.place(diagnostic);
            // Kernels of a file share functions and constants, and mistakes about them.
            if !self.found.iter().any(|found| found.diagnostic.repeats(&diagnostic)) {
                self.found.push(Found { severity, diagnostic });
            }
        }
    }

    /// Checks a kernel.
    fn add(&mut self, program: Program, core: Option<&core::Program>, arch: Option<Arch>) {
        // Each architecture takes the place of this one.
        let options = Options::new(Arch::SM_80).for_sizes(&program, &[]);
        // Its own architecture alone, where there is one.
        let archs = arch.as_ref().map_or(&USUAL[..], std::slice::from_ref);
        match check(&program, core, &options, archs) {
            Err(errors) => self.report(errors.0, DiagnosticSeverity::ERROR),
            Ok(checked) => {
                self.report(checked.warnings.clone(), DiagnosticSeverity::WARNING);
                let refused = match arch {
                    Some(arch) => of_arch(&checked, arch),
                    None => checked.errors(),
                };
                self.report(refused.into_iter().flat_map(|errors| errors.0), DiagnosticSeverity::ERROR);
                let arch = arch.or_else(|| checked.compiled().map(|(arch, _)| arch));
                self.kernels.push(Kernel { program, checked, arch });
            }
        }
    }

    /// True if a file of this path is among its texts, other than the document itself.
    pub fn uses(&self, path: &str) -> bool {
        self.sources.files().skip(1).any(|file| normal(file) == path)
    }
}

/// Mistakes of a program on one architecture.
fn of_arch(checked: &Checked, wanted: Arch) -> Option<Diagnostics> {
    checked.fits.iter().find(|(arch, _)| *arch == wanted).and_then(|(_, fit)| match fit {
        Fit::Compiles(_) => None,
        Fit::Lacks(lacks) => Some(lacks.clone().into()),
        Fit::Refused(refused) => Some(refused.clone()),
    })
}

/// Kernels of a text, with the core program of one that is a core program's, and the texts.
type Read = (Vec<(Program, Option<core::Program>)>, Sources);

fn read(job: &Job) -> Result<Read, Misread> {
    let sources = Sources::new(job.path.clone(), job.text.clone());
    if core::is_core_text(&job.text) {
        let read = core::parse(&job.text)
            .and_then(|program| Ok(((core::check(&program)?).program().clone(), Some(program))));
        return match read {
            Ok(program) => Ok((vec![program], sources)),
            Err(diagnostics) => Err(Misread { diagnostics, sources }),
        };
    }
    let mut reader = |from: &str, name: &str| {
        let folder = std::path::Path::new(from).parent().unwrap_or(std::path::Path::new(""));
        let path = normal(&folder.join(name).display().to_string());
        match job.open.get(&path) {
            Some(text) => Ok((path, text.clone())),
            None => read_beside(from, name),
        }
    };
    if !Outline::of(&job.text).has_kernel() {
        return parse_library(sources, &mut reader).map(|sources| (Vec::new(), sources));
    }
    let module = parse_module(sources, &mut reader)?;
    Ok((module.programs.into_iter().map(|program| (program, None)).collect(), module.sources))
}
