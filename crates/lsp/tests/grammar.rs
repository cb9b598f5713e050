//! The TextMate grammar of the extension for Visual Studio Code has every word of the language, each in the scope of its part of speech, and no
//! other. `TILEWRIGHT_BLESS=1` writes the words anew.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tilewright_tile::{Word, words};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../editors/vscode")
}

fn read(name: &str) -> String {
    let path = folder().join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Scopes, each with the words that it has, those beyond [`words`], and what follows them.
type Scope = (&'static str, &'static [Word], &'static [&'static str], &'static str);

const SCOPES: [Scope; 7] = [
    ("keyword.declaration.tile", &[Word::Declaration], &["fn", "use", "space"], ""),
    ("keyword.control.tile", &[Word::Block], &[], ""),
    ("support.function.statement.tile", &[Word::Call], &[], ""),
    ("support.function.value.tile", &[Word::Value], &[], ""),
    ("support.function.elementwise.tile", &[Word::Function], &[], "(?=\\s*\\()"),
    ("storage.type.tile", &[Word::Type], &[], ""),
    ("keyword.other.tile", &[Word::Other, Word::Future], &[], ""),
];

/// The pattern that matches the words of a scope: the longest first, so that none hides another.
fn pattern((_, parts, more, behind): &Scope) -> String {
    let mut found: Vec<&str> =
        words().filter(|(_, word)| parts.contains(word)).map(|(text, _)| text).collect();
    found.extend(*more);
    found.sort_by_key(|text| (std::cmp::Reverse(text.len()), *text));
    format!("\\b(?:{})\\b{behind}", found.join("|"))
}

#[test]
fn the_grammar_has_every_word_of_the_language() {
    let name = "syntaxes/tile.tmLanguage.json";
    let mut text = read(name);
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        let lines = text.lines().map(|line| {
            let scope = SCOPES.iter().find(|scope| line.contains(&format!("{{ \"name\": \"{}\",", scope.0)));
            scope.map_or_else(
                || line.to_string(),
                |scope| {
                    let comma = if line.trim_end().ends_with(',') { "," } else { "" };
                    let pattern = Value::from(pattern(scope));
                    format!("        {{ \"name\": \"{}\", \"match\": {pattern} }}{comma}", scope.0)
                },
            )
        });
        text = lines.collect::<Vec<_>>().join("\n") + "\n";
        fs::write(folder().join(name), &text).unwrap();
    }
    let grammar: Value = serde_json::from_str(&text).unwrap();
    let patterns = grammar["repository"]["words"]["patterns"].as_array().unwrap();
    for scope in &SCOPES {
        let found = patterns
            .iter()
            .find(|p| p["name"] == scope.0)
            .unwrap_or_else(|| panic!("{} is missing", scope.0));
        assert_eq!(found["match"], pattern(scope), "{}: TILEWRIGHT_BLESS=1 writes it anew", scope.0);
    }
    // Every list of patterns that is included is there.
    for include in grammar["patterns"].as_array().unwrap() {
        let name = include["include"].as_str().unwrap().trim_start_matches('#');
        assert!(grammar["repository"][name]["patterns"].is_array(), "{name}");
    }
}

/// The words in quotes of the grammar of tasks, the longest first.
fn words_of_tasks() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tasks.md");
    let page = fs::read_to_string(path).unwrap();
    let rules = page.split("```ebnf\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let without_comments: String =
        rules.split("(*").map(|part| part.split_once("*)").map_or(part, |(_, rest)| rest)).collect();
    let quoted = without_comments.split('"').skip(1).step_by(2);
    let is_word = |text: &&str| text.len() > 1 && text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let mut words: Vec<&str> = quoted.filter(is_word).collect();
    words.sort_by_key(|text| (std::cmp::Reverse(text.len()), *text));
    words.dedup();
    format!("\\b(?:{})\\b", words.join("|"))
}

#[test]
fn the_grammar_of_tasks_has_every_word_of_the_page() {
    let grammar: Value = serde_json::from_str(&read("syntaxes/task.tmLanguage.json")).unwrap();
    let words = &grammar["repository"]["words"]["patterns"][0];
    assert_eq!(words["match"], words_of_tasks());
}

#[test]
fn the_extension_names_files_that_are_there_and_the_architectures_that_there_are() {
    let package: Value = serde_json::from_str(&read("package.json")).unwrap();
    let contributes = &package["contributes"];
    let of = |list: &str, member: &str| -> Vec<&Value> {
        contributes[list].as_array().unwrap().iter().map(|row| &row[member]).collect()
    };
    let files = [vec![&package["main"]], of("languages", "configuration"), of("grammars", "path")];
    for file in files.concat() {
        let file = file.as_str().unwrap();
        assert!(folder().join(file).is_file(), "{file}");
    }
    let _: Value = serde_json::from_str(&read("language-configuration.json")).unwrap();
    let named = contributes["configuration"]["properties"]["tilewright.arch"]["enum"].as_array().unwrap();
    let named: Vec<&str> = named.iter().filter_map(Value::as_str).filter(|name| !name.is_empty()).collect();
    assert_eq!(named, tilewright_machine::Arch::ALL.map(|arch| arch.name()));
    assert_eq!(package["version"], env!("CARGO_PKG_VERSION"));
}
