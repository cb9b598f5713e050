//! Mistakes of the command line, in words that name the argument and what would be right.
//!
//! The parser of arguments knows what it expected. What was meant is found here: an option of another subcommand, a size as an option
//! of its own, a file where a subcommand stands. A command line is proposed only if it is one ([`proposed`]).

use std::ffi::OsString;
use std::sync::OnceLock;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Parser};

use crate::args::Cli;
use crate::messages::{Failure, quoted};

/// Subcommands in the order in which they are proposed.
const ORDER: [&str; 5] = ["run", "compile", "check", "bench", "tune"];

/// Forms that other compilers print, and how one comes to them.
const FORMS: [(&[&str], &str); 3] = [
    (
        &["sass", "cubin", "asm"],
        "`--emit ptx` prints PTX, of which NVIDIA's `ptxas` makes machine code: `ptxas -arch=sm_80 k.ptx -o k.cubin`; `cuobjdump -sass \
         k.cubin` shows it",
    ),
    (
        &["ir", "mlir", "ttir", "llvm", "ttgir"],
        "`--emit core` prints the program behind the passes, `--emit passes` behind each of them",
    ),
    (
        &["layout", "json", "all", "resources"],
        "`--emit layouts` prints layouts and instructions, `--emit report` also the reasons",
    ),
];

/// The command line.
static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// The words of the command line behind the command's name.
pub fn words() -> impl Iterator<Item = &'static OsString> {
    WORDS.get().into_iter().flatten().skip(1)
}

/// The command line, or what is wrong with it. Help and version are printed, and end the process.
pub fn parse(words: Vec<OsString>) -> Result<Cli, Failure> {
    // Of a second command of one process the first words stay: what is parsed are its own.
    let _ = WORDS.set(words.clone());
    Cli::try_parse_from(&words).map_err(|error| {
        if !error.use_stderr() {
            error.exit();
        }
        let given: Vec<String> =
            words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        let given = Given::new(given);
        match given.advice(&error) {
            Some((message, help)) => Failure::usage_with(message, help),
            None => error.exit(),
        }
    })
}

/// The words of a command line.
struct Given {
    words: Vec<String>,
    command: Command,
    /// The place of the subcommand among the words, and its name.
    subcommand: Option<(usize, String)>,
}

/// A text of an error's context.
fn context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    }
}

/// True for a path of a program.
fn is_program(word: &str) -> bool {
    [".tile", ".task", ".core"].iter().any(|ending| word.ends_with(ending))
}

impl Given {
    fn new(words: Vec<String>) -> Self {
        let command = Cli::command();
        let is_subcommand = |word: &&String| command.find_subcommand(word.as_str()).is_some();
        let subcommand = words.iter().position(|word| is_subcommand(&word));
        let subcommand = subcommand.map(|at| (at, words[at].clone()));
        Given { words, command, subcommand }
    }

    /// The message and the remedy of a mistake that is known here.
    fn advice(&self, error: &clap::Error) -> Option<(String, String)> {
        match error.kind() {
            ErrorKind::UnknownArgument => self.unknown(&context(error, ContextKind::InvalidArg)?, error),
            ErrorKind::InvalidSubcommand => {
                Some(self.no_subcommand(&context(error, ContextKind::InvalidSubcommand)?))
            }
            ErrorKind::InvalidValue => self.value(error),
            ErrorKind::ValueValidation => {
                let option = context(error, ContextKind::InvalidArg)?;
                let option = option.split_whitespace().next().unwrap_or_default();
                let value = context(error, ContextKind::InvalidValue)?;
                let why = std::error::Error::source(error)?.to_string();
                let (what, help) = why.split_once("; ").map_or((why.as_str(), None), |(a, b)| (a, Some(b)));
                let help = help.map_or_else(|| self.more(), str::to_string);
                Some((format!("`{option} {value}`: {what}"), help))
            }
            _ => None,
        }
    }

    /// The words that ask for help.
    fn more(&self) -> String {
        match &self.subcommand {
            Some((_, name)) => format!("`tilewright {name} --help` lists its options"),
            None => "`tilewright --help` lists the subcommands".to_string(),
        }
    }

    /// A command line, if it is one.
    fn proposed(&self, words: Vec<String>) -> Option<String> {
        let all = std::iter::once("tilewright").chain(words.iter().map(String::as_str));
        Cli::try_parse_from(all).ok()?;
        let quoted: Vec<String> = words.into_iter().map(quoted).collect();
        Some(format!("tilewright {}", quoted.join(" ")))
    }

    /// An option, or an argument, that is none of the subcommand.
    fn unknown(&self, word: &str, error: &clap::Error) -> Option<(String, String)> {
        if word == "=" {
            return Some(self.spaces());
        }
        let option = word.split('=').next().unwrap_or(word);
        let Some((at, name)) = &self.subcommand else {
            // `tilewright FILE --device sim`: the file is looked at first.
            let file = self.words.iter().find(|word| is_program(word))?;
            return Some(self.no_subcommand(file));
        };
        if !option.starts_with('-') {
            return Some(self.too_many(word, name));
        }
        if self
            .words
            .iter()
            .position(|other| other.split('=').next() == Some(option))
            .is_some_and(|o| o < *at)
        {
            let mut words = self.words.clone();
            let subcommand = words.remove(*at);
            words.insert(0, subcommand);
            let help = self.proposed(words).map_or_else(|| self.more(), |line| format!("`{line}`"));
            return Some((
                format!("`{option}` stands before the subcommand `{name}`, and is an option of it"),
                help,
            ));
        }
        let owners = self.owners(option);
        if let Some(first) = owners.first() {
            let message =
                format!("`{option}` is an option of `tilewright {first}`, and not of `tilewright {name}`");
            return Some((message, self.of_another(option, name, *at, &owners)));
        }
        if let Some(sizes) = self.sizes() {
            let message = format!("`{option}` is no option of `tilewright {name}`");
            return Some((
                message,
                format!("values of sizes, constants and scalars are given with `-p`: `{sizes}`"),
            ));
        }
        let near = context(error, ContextKind::SuggestedArg).or_else(|| self.near(option, name));
        let help = near.map_or_else(|| self.more(), |near| format!("did you mean `{near}`?"));
        Some((format!("`{option}` is no option of `tilewright {name}`"), help))
    }

    /// The long option of a subcommand that is nearest to one.
    fn near(&self, option: &str, name: &str) -> Option<String> {
        let subcommand = self.command.find_subcommand(name)?;
        let long: Vec<&str> = subcommand.get_arguments().filter_map(clap::Arg::get_long).collect();
        tilewright::tile::nearest(option.trim_start_matches('-'), long).map(|long| format!("--{long}"))
    }

    /// The subcommands that have an option.
    fn owners(&self, option: &str) -> Vec<String> {
        let has = |command: &&Command| {
            command.get_arguments().any(|arg| {
                let long = arg.get_long().is_some_and(|long| option.strip_prefix("--") == Some(long));
                let short = arg.get_short().is_some_and(|short| option == format!("-{short}"));
                !arg.is_hide_set() && (long || short)
            })
        };
        let mut owners: Vec<String> =
            self.command.get_subcommands().filter(has).map(|c| c.get_name().to_string()).collect();
        owners.sort_by_key(|name| ORDER.iter().position(|known| known == name).unwrap_or(ORDER.len()));
        owners
    }

    /// The remedy for an option of another subcommand: that subcommand with all that was given.
    fn of_another(&self, option: &str, name: &str, at: usize, owners: &[String]) -> String {
        let besides = match (name, option) {
            ("compile", "--device") => {
                "; or leave `--device` out: `compile` runs nothing, and `--arch` names what it compiles for"
            }
            ("run", "-o" | "--output") => {
                "; of `run`, `--output y=y.npy` writes the elements of the output `y`"
            }
            _ => "",
        };
        let line = owners.iter().find_map(|owner| {
            let mut words = self.words.clone();
            words[at].clone_from(owner);
            let ptx = words.windows(2).any(|pair| pair[0] == "-o" && pair[1].ends_with(".ptx"));
            if owner == "compile" && ptx && !words.iter().any(|word| word.starts_with("--emit")) {
                words.extend(["--emit".to_string(), "ptx".to_string()]);
            }
            self.proposed(words)
        });
        match (line, owners.first()) {
            (Some(line), _) => format!("`{line}`{besides}"),
            (None, Some(owner)) => format!("`tilewright {owner} --help` says how it is used{besides}"),
            (None, None) => self.more(),
        }
    }

    /// `-p m=64 -p n=64` for `-m 64 --n=64`: unknown options with integers behind them.
    fn sizes(&self) -> Option<String> {
        let (_, name) = self.subcommand.as_ref()?;
        let subcommand = self.command.find_subcommand(name)?;
        if !subcommand.get_arguments().any(|arg| arg.get_short() == Some('p')) {
            return None;
        }
        let mut sizes = Vec::new();
        for (i, word) in self.words.iter().enumerate() {
            let (option, value) = match word.split_once('=') {
                Some((option, value)) => (option, Some(value)),
                None => (word.as_str(), self.words.get(i + 1).map(String::as_str)),
            };
            let value = value.filter(|value| value.parse::<f64>().is_ok());
            if let (Some(name), Some(value)) = (option.strip_prefix('-'), value) {
                let name = name.trim_start_matches('-');
                if !name.is_empty() && self.owners(option).is_empty() {
                    sizes.push(format!("-p {name}={value}"));
                }
            }
        }
        (!sizes.is_empty()).then(|| sizes.join(" "))
    }

    /// `-p m = 64`
    fn spaces(&self) -> (String, String) {
        let at = self.words.iter().position(|word| word == "=").unwrap_or_default();
        let before = at.checked_sub(1).and_then(|before| self.words.get(before));
        let help = match (before, self.words.get(at + 1)) {
            (Some(name), Some(value)) => format!("a value is one word: `-p {name}={value}`"),
            _ => "a value is one word: `-p m=64`".to_string(),
        };
        ("`=` stands alone, with spaces around it".to_string(), help)
    }

    /// An argument more than a subcommand takes.
    fn too_many(&self, word: &str, name: &str) -> (String, String) {
        let files: Vec<&String> = self.words.iter().filter(|word| is_program(word)).collect();
        if !is_program(word) || files.len() < 2 {
            return (format!("`{word}` is one argument more than `tilewright {name}` takes"), self.more());
        }
        let message = format!("`tilewright {name}` takes one file, and `{word}` is another");
        let each = files.iter().map(|file| {
            let rest = self.words.iter().filter(|word| !is_program(word) || word == file);
            format!("`tilewright {}`", rest.cloned().map(quoted).collect::<Vec<_>>().join(" "))
        });
        let each: Vec<String> = each.take(2).collect();
        (message, format!("one after the other: {}; `tilewright check` takes several files", each.join(", ")))
    }

    /// A word where a subcommand stands.
    fn no_subcommand(&self, word: &str) -> (String, String) {
        let message = format!("`{word}` is no subcommand");
        if is_program(word) || std::path::Path::new(word).is_file() {
            let with = |subcommand: &str| {
                let words = std::iter::once(subcommand.to_string()).chain(self.words.iter().cloned());
                let line = self.proposed(words.collect());
                line.unwrap_or_else(|| format!("tilewright {subcommand} {}", quoted(word.to_string())))
            };
            let [run, check, compile] = ["run", "check", "compile"].map(with);
            let help = format!(
                "`{run}` runs it and compares it with the interpreter, `{check}` looks for mistakes without a run, `{compile}` shows layouts and \
                 instructions"
            );
            return (message, help);
        }
        let names: Vec<&str> = self.command.get_subcommands().map(Command::get_name).collect();
        let help = match tilewright::tile::nearest(word, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the subcommands are {}", names.join(", ")),
        };
        (message, help)
    }

    /// A word that is none of an option's values.
    fn value(&self, error: &clap::Error) -> Option<(String, String)> {
        let option = context(error, ContextKind::InvalidArg)?;
        let option = option.split_whitespace().next().unwrap_or_default().to_string();
        let value = context(error, ContextKind::InvalidValue)?;
        if value.is_empty() {
            return None;
        }
        let values = match error.get(ContextKind::ValidValue)? {
            ContextValue::Strings(values) => values.clone(),
            _ => return None,
        };
        let message = format!("`{option} {value}`: there is no `{value}`");
        let known = format!("it is one of {}", values.join(", "));
        let form = FORMS.iter().find(|(names, _)| names.contains(&value.to_lowercase().as_str()));
        let help = match form.filter(|_| option == "--emit") {
            Some((_, how)) => (*how).to_string(),
            None => match tilewright::tile::nearest(&value, values.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`? {known}"),
                None => known,
            },
        };
        Some((message, help))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> (String, String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let error = match Cli::try_parse_from(std::iter::once("tilewright").chain(words.iter().copied())) {
            Ok(_) => panic!("`{line}` is right"),
            Err(error) => error,
        };
        let given = Given::new(words.iter().map(|word| (*word).to_string()).collect());
        given.advice(&error).unwrap_or_else(|| panic!("`{line}` is known to nobody:\n{error}"))
    }

    #[test]
    fn what_was_meant_is_proposed() {
        let cases = [
            (
                "run a.tile --emit ptx",
                "option of `tilewright compile`",
                "`tilewright compile a.tile --emit ptx`",
            ),
            (
                "compile a.tile --device sim",
                "`tilewright run`, and not of `tilewright compile`",
                "`tilewright run a.tile --device sim`",
            ),
            (
                "run a.tile -o a.ptx",
                "`-o` is an option of `tilewright compile`",
                "compile a.tile -o a.ptx --emit ptx`",
            ),
            ("a.tile", "`a.tile` is no subcommand", "`tilewright run a.tile`"),
            ("a.tile --device sim", "`a.tile` is no subcommand", "`tilewright run a.tile --device sim`"),
            ("run a.tile --device sim -m 64 -n 64", "`-m` is no option", "`-p m=64 -p n=64`"),
            ("run a.tile --m=64", "`--m` is no option", "`-p m=64`"),
            ("run a.tile -p m = 64", "`=` stands alone", "`-p m=64`"),
            ("run a.tile b.tile --device sim", "`b.tile` is another", "`tilewright run b.tile --device sim`"),
            ("compile a.tile --emit sass", "`--emit sass`", "ptxas -arch"),
            ("compile a.tile --emit leyouts", "`--emit leyouts`", "did you mean `layouts`?"),
            ("run a.tile --seeds 0..10", "`--seeds 0..10`", "`--sim-seed 0 --seeds 10`"),
            (
                "--device sim run a.tile",
                "stands before the subcommand `run`",
                "`tilewright run --device sim a.tile`",
            ),
            ("ran a.tile", "`ran` is no subcommand", "did you mean `run`?"),
            ("run a.tile --devcie sim", "`--devcie` is no option", "`--device`"),
            ("layout 8:1 9:1", "`9:1` is one argument more", "`tilewright layout --help`"),
        ];
        for (line, message, help) in cases {
            let found = said(line);
            assert!(found.0.contains(message), "{line}: {found:?}");
            assert!(found.1.contains(help), "{line}: {found:?}");
        }
    }

    #[test]
    fn every_option_of_another_subcommand_is_named() {
        let command = Cli::command();
        for owner in command.get_subcommands() {
            for option in
                owner.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(clap::Arg::get_long)
            {
                let other = command.find_subcommand("layout").into_iter().flat_map(Command::get_arguments);
                if option == "help"
                    || option == "version"
                    || other.filter_map(clap::Arg::get_long).any(|o| o == option)
                {
                    continue;
                }
                let (message, _) = said(&format!("layout 8:1 --{option}"));
                assert!(message.contains("is an option of `tilewright "), "{option}: {message}");
            }
        }
    }
}
