//! Messages: diagnostics with the lines they are about, and failures with their exit codes.

use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use annotate_snippets::{Level, Renderer};
use indicatif::{ProgressBar, ProgressStyle};
use tilewright::excerpts::{Form, Severity, excerpt};
use tilewright::tile::{Code, Diagnostic, Diagnostics, Sources};

/// Codes of the messages that were rendered, for the hint at the end of the command.
static RENDERED: Mutex<Vec<Code>> = Mutex::new(Vec::new());

/// The codes of the messages that were rendered so far, each once, in their order.
pub fn rendered() -> Vec<Code> {
    RENDERED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Notes that messages have this code.
fn note_code(code: Code) {
    let mut codes = RENDERED.lock().unwrap_or_else(PoisonError::into_inner);
    if !codes.contains(&code) {
        codes.push(code);
    }
}

/// Exit code and message of a command that ends without success.
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// The message.
    pub text: String,
}

impl Failure {
    /// The program is wrong, or its result is.
    pub fn program(text: impl Into<String>) -> Self {
        Failure { code: 1, text: text.into() }
    }

    /// The compiler refuses the program, or fails.
    pub fn refused(sources: &Sources, diagnostics: &Diagnostics) -> Self {
        Failure { code: code_of(diagnostics), text: render(sources, diagnostics) }
    }

    /// The command line is wrong.
    pub fn usage(text: impl std::fmt::Display) -> Self {
        Failure { code: 2, text: error(text) }
    }

    /// The command line is wrong, with the remedy.
    pub fn usage_with(text: impl std::fmt::Display, help: impl std::fmt::Display) -> Self {
        Failure { code: 2, text: error_with(text, help) }
    }

    /// A file cannot be used, with the remedy.
    pub fn program_with(text: impl std::fmt::Display, help: impl std::fmt::Display) -> Self {
        Failure { code: 1, text: error_with(text, help) }
    }

    /// A device is not there, with the remedy.
    pub fn no_device(text: impl std::fmt::Display, help: impl std::fmt::Display) -> Self {
        note_code(Code::NoDevice);
        let title = Level::ERROR.primary_title(text.to_string()).id(Code::NoDevice.name());
        let help = Level::HELP.message(help.to_string());
        Failure { code: 1, text: Renderer::styled().render(&[title.element(help)]) }
    }
}

/// The exit code: 3 for an internal compiler error.
fn code_of(diagnostics: &Diagnostics) -> u8 {
    if diagnostics.any_internal() { 3 } else { 1 }
}

/// Prints results. A reader that has seen enough is no error; anything else that keeps them from being written is.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::program(error(format!("cannot write to standard output: {e}"))))
        }
        _ => Ok(()),
    }
}

/// A one-line error message in the style of the others.
pub fn error(text: impl std::fmt::Display) -> String {
    Renderer::styled().render(&[Level::ERROR
        .primary_title(text.to_string())
        .elements(Vec::<annotate_snippets::Element<'_>>::new())])
}

/// The same with the remedy.
pub fn error_with(text: impl std::fmt::Display, help: impl std::fmt::Display) -> String {
    title_with(Level::ERROR, text, help)
}

/// A message of a level without a place, with the remedy.
pub fn title_with(level: Level<'_>, text: impl std::fmt::Display, help: impl std::fmt::Display) -> String {
    let help = Level::HELP.message(help.to_string());
    Renderer::styled().render(&[level.primary_title(text.to_string()).element(help)])
}

/// A word as a shell reads it.
pub fn quoted(word: String) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word;
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Says on standard error what no one asked for and everyone should know.
pub fn note(text: impl std::fmt::Display) {
    let mut err = anstream::stderr().lock();
    // Nobody can be told that nobody can be told.
    let _ = writeln!(err, "{text}");
}

/// Renders what is wrong with a program beside the lines it is about.
pub fn render(sources: &Sources, diagnostics: &Diagnostics) -> String {
    let rendered: Vec<String> =
        diagnostics.0.iter().map(|d| render_one(sources, d, Severity::Error)).collect();
    rendered.join("\n\n")
}

/// Renders one message beside the lines that it is about, file by file: the message's first.
pub fn render_one(sources: &Sources, diagnostic: &Diagnostic, severity: Severity) -> String {
    note_code(diagnostic.code);
    excerpt(sources, diagnostic, severity, Form::Terminal)
}

/// Failure to write a file or a folder.
pub fn cannot_write(path: &Path, e: impl std::fmt::Display) -> Failure {
    Failure::program(error(format!("cannot write `{}`: {e}", path.display())))
}

/// A progress bar for some things, each with its name.
pub fn bar(things: u64) -> ProgressBar {
    ProgressBar::new(things).with_style(
        ProgressStyle::with_template("{elapsed_precise} {bar:30} {pos}/{len} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

/// Shows on a bar how many are done of how many, and which is next.
pub fn progress(bar: &ProgressBar, done: usize, total: usize, name: &str) {
    bar.set_length(total as u64);
    bar.set_position(done as u64);
    bar.set_message(name.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright::tile::{Origin, Span};

    #[test]
    fn a_mistake_of_the_compiler_has_an_exit_code_of_its_own() {
        let wrong = Diagnostic::new(Code::Unsatisfiable, Origin::Unknown, "no instruction can do this");
        let internal = Diagnostic::internal(Span::new(0, 4), "lowering met a statement without a plan");
        let code = |diagnostics: &[&Diagnostic]| {
            let diagnostics = Diagnostics(diagnostics.iter().map(|d| (*d).clone()).collect());
            Failure::refused(&Sources::new("a.tile", "copy"), &diagnostics).code
        };
        assert_eq!(code(&[&wrong]), 1);
        assert_eq!(code(&[&wrong, &internal]), 3);
        let text = render(&Sources::new("a.tile", "copy"), &internal.into());
        assert!(
            text.contains(
                "internal compiler error: lowering met a statement without a plan; please report it"
            )
        );
    }

    #[test]
    fn a_message_about_a_call_in_rust_shows_its_place() {
        let here = Origin::caller();
        let error = Diagnostic::new(Code::WrongRank, here, "wrong").related(here, "defined here");
        let text = render(&Sources::default(), &error.into());
        let place = here.rust().map(|location| location.to_string()).unwrap_or_default();
        assert_eq!(text.matches(&place).count(), 2, "{text}");
    }
}
