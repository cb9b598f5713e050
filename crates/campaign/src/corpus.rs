//! The programs that people wrote: seeds of mutants, and of deletions.

use std::fs;
use std::path::Path;

use crate::dice::Dice;

/// A program with values for its sizes and constants, small enough to run.
#[derive(Clone, Debug)]
pub struct Seed {
    /// The file, for messages.
    pub name: String,
    /// The text, its sizes and constants replaced by those of one of its cases.
    pub text: String,
    /// The architecture.
    pub arch: String,
}

/// A file of tile programs and the values with which it runs.
#[derive(Clone, Debug)]
struct Source {
    name: String,
    text: String,
    cases: Vec<String>,
    /// True if the file is a test of a program that is wrong; `refused`: of one that the compiler refuses.
    wrong: bool,
    refused: bool,
}

/// Every `*.tile` file of the folders.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    sources: Vec<Source>,
}

impl Corpus {
    /// Reads the examples and text tests of a checkout, and any other folders.
    pub fn read(root: &Path, more: &[String]) -> Corpus {
        let mut corpus = Corpus::default();
        let listed = fs::read_to_string(root.join("tests/examples.txt")).unwrap_or_default();
        let own = ["examples", "tests/run", "tests/wrong", "tests/error", "tests/snapshot"];
        let folders = own.iter().map(|f| root.join(f)).chain(more.iter().map(Into::into));
        for folder in folders {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            let mut paths: Vec<_> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
            paths.sort();
            for path in paths.into_iter().filter(|p| p.extension().is_some_and(|e| e == "tile")) {
                let Ok(text) = fs::read_to_string(&path) else { continue };
                let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_string();
                let mut cases: Vec<String> = text
                    .lines()
                    .filter_map(|l| l.strip_prefix("// run:").or(l.strip_prefix("// options:")))
                    .map(str::to_string)
                    .collect();
                for line in listed.lines() {
                    if let Some((name, case)) = line.split_once(':')
                        && name == stem
                        && folder.ends_with("examples")
                    {
                        cases.push(case.to_string());
                    }
                }
                // A program here is one text with one kernel.
                let kernels = text.lines().filter(|line| line.starts_with("kernel ")).count();
                if kernels > 1 || text.lines().any(|line| line.starts_with("use \"")) {
                    continue;
                }
                let wrong =
                    folder.ends_with("wrong") || folder.ends_with("error") || folder.ends_with("bugs");
                corpus.sources.push(Source {
                    name: path.display().to_string(),
                    text,
                    cases,
                    wrong,
                    refused: folder.ends_with("error"),
                });
            }
        }
        corpus
    }

    /// Number of files.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// One of the programs, with one of its cases.
    pub fn pick(&self, dice: &mut Dice) -> Option<Seed> {
        if self.sources.is_empty() {
            return None;
        }
        let mut source = &self.sources[dice.below(self.sources.len())];
        // Programs that are refused already say little.
        while source.refused && !dice.once_in(12) {
            source = &self.sources[dice.below(self.sources.len())];
        }
        let case = if source.cases.is_empty() { String::new() } else { dice.pick(&source.cases) };
        Some(source.with(&case, dice.once_in(2)))
    }

    /// Every program that is meant to be right, with each of its cases.
    pub fn right(&self) -> Vec<Seed> {
        let all = self.sources.iter().filter(|s| !s.wrong);
        all.flat_map(|s| {
            let none = [String::new()];
            let cases: &[String] = if s.cases.is_empty() { &none } else { &s.cases };
            cases.iter().map(|case| s.with(case, false)).collect::<Vec<_>>()
        })
        .collect()
    }

    /// The program of a seed with its other cases, and with sizes that are none of its cases.
    pub fn others(&self, seed: &Seed) -> Vec<Seed> {
        let of = |source: &&Source| seed.name.starts_with(&format!("{} ", source.name));
        let Some(source) = self.sources.iter().find(of) else { return Vec::new() };
        let own = seed.name[source.name.len()..].trim();
        let mut cases = source.cases.clone();
        let sizes: Vec<String> = source
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("size "))
            .flat_map(|rest| rest.split(','))
            .filter_map(|one| Some(one.split_once('=')?.0.trim().to_string()))
            .collect();
        for value in [64, 128, 192, 256] {
            let all: Vec<String> = sizes.iter().map(|name| format!("{name}={value}")).collect();
            cases.push(format!("{} {own}", all.join(" ")));
        }
        cases.iter().filter(|case| case.trim() != own).map(|case| source.with(case, true)).collect()
    }
}

impl Source {
    /// The program with the values of a case; `shrink`: large sizes that are left become small ones.
    fn with(&self, case: &str, shrink: bool) -> Seed {
        let hopper =
            ["produce", "gemm.async", "cluster", "warpgroup"].iter().any(|word| self.text.contains(word));
        let mut arch = if hopper { "sm_90a" } else { "sm_80" }.to_string();
        let mut values = Vec::new();
        for (name, value) in case.split_whitespace().filter_map(|word| word.split_once('=')) {
            if name == "arch" {
                arch = value.to_string();
            } else {
                values.push((name.to_string(), value.to_string()));
            }
        }
        let text: Vec<String> = self
            .text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .map(|line| {
                if line.starts_with("size ") || line.starts_with("const ") {
                    declared(line, &values, shrink)
                } else {
                    line.to_string()
                }
            })
            .collect();
        Seed { name: format!("{} {case}", self.name), text: text.join("\n") + "\n", arch }
    }
}

/// A line of sizes or constants with other values.
fn declared(line: &str, values: &[(String, String)], shrink: bool) -> String {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let is_size = word == "size";
    let all: Vec<String> = rest
        .split(',')
        .map(|one| {
            let Some((name, old)) = one.split_once('=') else { return one.trim().to_string() };
            let (name, old) = (name.trim(), old.trim());
            let given = values.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
            let large = is_size && old.parse::<i64>().is_ok_and(|v| v > 300);
            let new = match given {
                Some(value) => value,
                None if large && shrink => (64 + old.len() as i64 * 8).to_string(),
                None => old.to_string(),
            };
            format!("{name} = {new}")
        })
        .collect();
    // Expressions with commas of their own stay as they are.
    if rest.contains('(') { line.to_string() } else { format!("{word} {}", all.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_case_take_the_place_of_defaults() {
        let values = vec![("m".to_string(), "17".to_string())];
        assert_eq!(declared("size m = 1024, n = 512", &values, true), "size m = 17, n = 88");
        assert_eq!(declared("const BM = min(64, 32)", &values, true), "const BM = min(64, 32)");
    }

    #[test]
    fn the_programs_of_the_checkout_are_read() {
        let corpus = Corpus::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), &[]);
        assert!(corpus.len() > 150, "{}", corpus.len());
        let wrong = corpus
            .right()
            .into_iter()
            .filter(|s| tilewright::tile::parse(&s.text).is_err())
            .collect::<Vec<_>>();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
