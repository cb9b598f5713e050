//! The words of the language with their meaning, read from `docs/tile-language.md`: its paragraphs that begin with a form in bold, and
//! the rows of its tables about arithmetic and types.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use tilewright_tile::{Word, words};

use crate::scan::{Kind, scan};

/// The reference of the language.
const TEXT: &str = include_str!("../tile-language.md");

/// Sections whose tables are about words.
const TABLES: [&str; 3] = ["Numbers known when", "Element types", "Arithmetic"];

/// The longest part of a paragraph that is shown, in bytes.
const LONGEST: usize = 1500;

/// Words whose paragraph, if there is one, is about something else, with a form and a sentence.
const OTHERS: &[(&str, &str, &str)] = &[
    (
        "kernel",
        "kernel name(a: f16[m, k], …) grid(…) threads(…) { … }",
        "What one block of threads does, tile by tile.",
    ),
    ("size", "size m = 1024, n = 1024", "Sizes are known at launch; the numbers are their defaults."),
    (
        "const",
        "const BM = 64, BN = 2 * BM",
        "Constants are known when the kernel is compiled; the numbers are their defaults.",
    ),
    ("cluster", "cluster(p, q)", "Blocks of a cluster, neighbours along x, along one mode or two."),
    ("let", "let row = block.x * BM", "Names integers, each to the end of the block around."),
    (
        "warpgroup",
        "warpgroup name(n) registers(r) { … }",
        "A role: statements of n warpgroups of 128 threads of the block, beside those of the other roles.",
    ),
    (
        "produce",
        "produce p { … }",
        "The next free stage of a pipeline, which this role fills; at the end it is full once the copies have arrived.",
    ),
    (
        "consume",
        "consume p { … }",
        "The next full stage of a pipeline, which this role reads; at the end it is free.",
    ),
    ("else", "} else { … }", "The other side of an `if`."),
    (
        "while",
        "for i in lo..hi while condition { … }",
        "The loop ends at the first round at whose beginning the condition does not hold.",
    ),
    ("in", "for i in lo..hi { … }", "Stands between a loop's counter and its range."),
    ("block", "block.x, block.y, block.z", "The coordinate of this block in the grid."),
    ("reverse", "scan(r, sum, axis, reverse)", "From the last element to the first."),
    ("async", "copy.async(src, dst), gemm.async(c, a, b)", "A copy or a product that a later wait covers."),
    ("ceil_div", "ceil_div(a, b)", "The quotient of integers, rounded up."),
    ("layout", "layout = ((4,8),(2,2)):((32,1),(16,8))", "Pins the layout of a tensor."),
    ("inf", "inf, -inf", "Infinity."),
    ("_", "v[_, i]", "Keeps a mode, as `:` does."),
    ("return", "return a + b", "The value of a function; its last statement."),
    ("drain", "} drain { … }", "What is left of the last tile of a loop with `previous`."),
];

/// The documentation of a word: forms and sentences, as Markdown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Forms, such as `copy(src, dst)`.
    pub forms: Vec<String>,
    /// The text.
    pub text: String,
}

impl Entry {
    /// As Markdown.
    pub fn markdown(&self) -> String {
        format!("```tile\n{}\n```\n{}", self.forms.join("\n"), self.text)
    }
}

/// The entries of a word, in the order of the reference.
pub fn entries(word: &str) -> &'static [Entry] {
    static ALL: OnceLock<BTreeMap<String, Vec<Entry>>> = OnceLock::new();
    ALL.get_or_init(|| read(TEXT)).get(word).map_or(&[], Vec::as_slice)
}

fn read(text: &str) -> BTreeMap<String, Vec<Entry>> {
    let mut all: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
    for (word, form, sentence) in OTHERS {
        let entry = Entry { forms: vec![(*form).to_string()], text: (*sentence).to_string() };
        all.entry((*word).to_string()).or_default().push(entry);
    }
    let mut section = "";
    let mut fenced = false;
    for paragraph in text.split("\n\n") {
        let was_fenced = fenced;
        fenced ^= paragraph.matches("```").count() % 2 == 1;
        if let Some(title) = paragraph.trim_start().strip_prefix("## ") {
            section = title.lines().next().unwrap_or_default().trim();
        }
        if !was_fenced && paragraph.trim_start().starts_with("**`") {
            statement(paragraph.trim_start(), &mut all);
        }
        if !was_fenced && TABLES.contains(&section) {
            paragraph.lines().filter(|line| line.starts_with("| ")).for_each(|line| row(line, &mut all));
        }
    }
    all
}

/// A paragraph that begins with forms in bold.
fn statement(paragraph: &str, all: &mut BTreeMap<String, Vec<Entry>>) {
    let mut forms = Vec::new();
    let mut rest = paragraph;
    while let Some(form) = rest.strip_prefix("**`") {
        let Some((form, behind)) = form.split_once("`**") else { break };
        forms.push(form.to_string());
        let behind = behind.trim_start_matches([',', ' ', '\n']);
        rest = behind;
        // `, with the same operations.` belongs to the text.
        if !behind.starts_with("**`") {
            break;
        }
    }
    let entry = Entry { text: shortened(&plain(rest)), forms };
    for word in entry.forms.iter().flat_map(|form| heads(form)) {
        let of = all.entry(word).or_default();
        if !of.contains(&entry) {
            of.push(entry.clone());
        }
    }
}

/// The words of the language that a form is about.
fn heads(form: &str) -> Vec<String> {
    let tokens = scan(form);
    let text = |i: usize| tokens.get(i).map_or("", |token| &form[token.range.clone()]);
    let about = |i: &usize| {
        let known = words().find(|(known, _)| *known == text(*i));
        match known {
            Some((_, Word::Declaration | Word::Block | Word::Call | Word::Value)) => true,
            Some((_, Word::Function)) => *i == 0 && text(1) == "(",
            Some((_, Word::Type | Word::Future)) | None => {
                *i == 0 && matches!(text(0), "fn" | "use" | "space")
            }
            Some((_, Word::Other)) => *i == 0,
        }
    };
    (0..tokens.len())
        .filter(|i| tokens[*i].kind == Kind::Word)
        .filter(about)
        .map(|i| text(i).to_string())
        .collect()
}

/// A row of a table whose first cell has words as code.
fn row(line: &str, all: &mut BTreeMap<String, Vec<Entry>>) {
    // `\|` is no end of a cell.
    let line = line.replace("\\|", "\u{1}");
    let cells: Vec<String> = line
        .trim_matches('|')
        .split('|')
        .map(|c| plain(&c.replace('\u{1}', "|")).trim().to_string())
        .collect();
    let Some((first, others)) = cells.split_first() else { return };
    let forms: Vec<String> = first.split('`').skip(1).step_by(2).map(str::to_string).collect();
    let text = others.iter().filter(|cell| !cell.is_empty()).cloned().collect::<Vec<_>>().join(" — ");
    for form in &forms {
        let word: String = form.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let known = words().find(|(known, _)| *known == word);
        for word in form
            .split(' ')
            .filter(|part| words().any(|(known, _)| known == *part))
            .map(str::to_string)
            .chain(known.map(|_| word.clone()))
        {
            let named = first.replace('`', "");
            let entry = Entry { forms: vec![named], text: text.clone() };
            let of = all.entry(word).or_default();
            if !of.contains(&entry) {
                of.push(entry);
            }
        }
    }
}

/// A text without links, whose targets are in the reference.
fn plain(text: &str) -> String {
    let (mut found, mut rest) = (String::new(), text);
    while let Some((before, link)) = rest.split_once('[') {
        let linked = link.split_once("](").and_then(|(label, target)| Some((label, target.split_once(')')?)));
        match linked {
            Some((label, (target, behind)))
                if !label.contains(['[', ']', '\n']) && !target.contains(['\n', ' ']) =>
            {
                found += before;
                found += label;
                rest = behind;
            }
            _ => {
                found += before;
                found.push('[');
                rest = link;
            }
        }
    }
    found + rest
}

/// The beginning of a text, to the end of a sentence.
fn shortened(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_string();
    }
    let mut end = LONGEST;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let end = text[..end].rfind(". ").map_or(end, |at| at + 1);
    format!("{} …", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_language_has_an_entry() {
        let without: Vec<&str> = words()
            .filter(|(_, word)| *word != Word::Future)
            .map(|(text, _)| text)
            .filter(|text| entries(text).is_empty())
            .collect();
        assert!(without.is_empty(), "{without:?}");
        assert!(["fn", "use", "space"].iter().all(|word| !entries(word).is_empty()));
    }

    #[test]
    fn a_statement_has_its_paragraphs_and_a_function_its_rows() {
        assert_eq!(entries("fill")[0].forms, ["fill(t, 0.0)"]);
        assert!(entries("fill")[0].text.starts_with("Every element of a register tensor"));
        assert!(entries("copy").len() > 3);
        assert!(entries("exp").iter().any(|entry| entry.text.contains("2^-22.5 |y|")));
        assert!(entries("cast")[0].text.contains("as Element types says"));
    }
}
