//! Changes of texts: what people mistype, and worse.

use std::sync::LazyLock;

use tilewright::tile::{Word, words};

use crate::dice::Dice;

/// Words that are none of the language by themselves, but mean something in their places.
const SPELLED: [&str; 22] = [
    "copy.async",
    "gemm.async",
    "tiles",
    "dynamic",
    "listed",
    "registers",
    "block.x",
    "block.y",
    "e0",
    "e1",
    "e2",
    "sum",
    "add",
    "multicast",
    "multicast(0)",
    "multicast(1)",
    "pair",
    "any",
    "0",
    "1",
    ":",
    "-",
];

/// Text for a mutant to put anywhere: the words of the language, its calls with and without a number.
static WORDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut all: Vec<String> = SPELLED.iter().map(|text| text.to_string()).collect();
    for (text, word) in words() {
        match word {
            Word::Declaration | Word::Future => {}
            Word::Call => all.extend(["", "()", "(0)", "(1)"].map(|arguments| format!("{text}{arguments}"))),
            _ => all.push(text.to_string()),
        }
    }
    all
});

/// Numbers at which things change.
const NUMBERS: [i64; 22] =
    [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 96, 128, 129, 256];

/// Numbers at which things break.
const EXTREMES: [&str; 10] = [
    "-1",
    "1000",
    "65536",
    "1048576",
    "2147483647",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "99999999999999999999999",
];

/// The tokens of a text; together they are the text.
fn tokens(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let kind = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '_' | '0'..='9' => 1,
        ' ' | '\t' => 2,
        '\n' => 3,
        _ => 4,
    };
    let mut last = 0;
    for c in text.chars() {
        let this = kind(c);
        match all.last_mut() {
            Some(token) if this == last && this < 3 => token.push(c),
            _ => all.push(c.to_string()),
        }
        last = this;
    }
    all
}

fn is_number(token: &str) -> bool {
    token.bytes().all(|b| b.is_ascii_digit())
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Changes a text in one to three places; `other` gives lines to put into it. Most changes leave a text that is still a program.
pub fn mutate(text: &str, other: &str, dice: &mut Dice) -> String {
    let mut text = text.to_string();
    for _ in 0..dice.pick(&[1, 1, 1, 1, 1, 2, 2, 3]) {
        text = match dice.below(20) {
            0..=4 => lines(&text, other, dice),
            5 => stage(&text, dice),
            _ => token(&text, dice),
        };
    }
    text
}

fn lines(text: &str, other: &str, dice: &mut Dice) -> String {
    let mut all: Vec<String> = text.lines().map(str::to_string).collect();
    if all.is_empty() {
        return text.to_string();
    }
    let at = dice.below(all.len());
    match dice.below(9) {
        0..=1 => {
            all.remove(at);
        }
        2 => {
            let copy = all[at].clone();
            all.insert(dice.below(all.len() + 1), copy);
        }
        3..=4 => {
            let to = (at + dice.pick(&[1, 1, 2, 5])).min(all.len() - 1);
            all.swap(at, to);
        }
        5 => {
            let line = all.remove(at);
            all.insert(dice.below(all.len() + 1), line);
        }
        6 => {
            let from: Vec<&str> = other.lines().collect();
            if !from.is_empty() {
                all.insert(at, dice.pick(&from).to_string());
            }
        }
        7 if dice.once_in(3) => {
            // A statement behind an assignment is done for the rows that ask for it.
            let named = |line: &String| line.split_once(" = ").map(|(name, _)| name.trim().to_string());
            let names: Vec<String> = all[..at].iter().filter_map(named).collect();
            if !names.is_empty() {
                let name = dice.pick(&names);
                all[at] = format!("if any({name} > 0.5, {}) {{\n{}\n}}", dice.below(2), all[at]);
            }
        }
        7 => {
            // A statement becomes a loop of it.
            let head = dice.pick(&[
                "for zz in 0..2 {",
                "unroll for zz in 0..3 {",
                "for zz in 0..0 {",
                "unroll(2) for zz in 0..3 {",
                "for zz in 0..4 while zz < 2 {",
                "if block.x > 0 {",
            ]);
            all[at] = format!("{head}\n{}\n}}", all[at]);
        }
        _ => {
            let line = dice.pick(&[
                "syncthreads()",
                "wait_group(0)",
                "commit_group()",
                "wait_gemm(0)",
                "wait_dependencies()",
                "launch_dependents()",
                "break",
                "break if block.x > 0",
            ]);
            all.insert(at, line.to_string());
        }
    }
    all.join("\n") + "\n"
}

/// Changes what roles do to stages: a `produce` or `consume` goes, is done twice, changes its side, or stands elsewhere, also in another role.
fn stage(text: &str, dice: &mut Dice) -> String {
    let mut all: Vec<String> = text.lines().map(str::to_string).collect();
    let begins = |line: &str| ["produce ", "consume "].iter().any(|word| line.trim_start().starts_with(word));
    let starts: Vec<usize> = (0..all.len()).filter(|i| begins(&all[*i])).collect();
    if starts.is_empty() {
        return token(text, dice);
    }
    let start = dice.pick(&starts);
    let mut depth = 0i64;
    let closes = |line: &String| {
        let count = |brace| line.matches(brace).count() as i64;
        depth += count('{') - count('}');
        depth <= 0
    };
    let Some(length) = all[start..].iter().position(closes) else { return token(text, dice) };
    let end = start + length + 1;
    match dice.below(4) {
        0 => {
            all.drain(start..end);
        }
        1 => {
            let copy: Vec<String> = all[start..end].to_vec();
            all.splice(end..end, copy);
        }
        2 => {
            let line = &all[start];
            all[start] = match line.contains("produce ") {
                true => line.replacen("produce ", "consume ", 1),
                false => line.replacen("consume ", "produce ", 1),
            };
        }
        _ => {
            let moved: Vec<String> = all.drain(start..end).collect();
            let to = dice.below(all.len() + 1);
            all.splice(to..to, moved);
        }
    }
    all.join("\n") + "\n"
}

fn token(text: &str, dice: &mut Dice) -> String {
    let mut all = tokens(text);
    let visible: Vec<usize> = (0..all.len()).filter(|i| !all[*i].trim().is_empty()).collect();
    if visible.is_empty() {
        return dice.pick(&WORDS).to_string();
    }
    let of = |test: &dyn Fn(&str) -> bool| -> Vec<usize> {
        visible.iter().copied().filter(|i| test(&all[*i])).collect::<Vec<_>>()
    };
    let is_type = |t: &str| tilewright::machine::DType::ALL.iter().any(|d| d.name() == t);
    let (numbers, words, types) = (of(&is_number), of(&is_word), of(&is_type));
    let at = visible[dice.below(visible.len())];
    match dice.below(24) {
        0..=4 if !numbers.is_empty() => {
            let at = dice.pick(&numbers);
            all[at] = number(&all[at], dice, &values(&all, &numbers));
        }
        5..=10 if !numbers.is_empty() => {
            // Everywhere, so that shapes still fit.
            let old = all[dice.pick(&numbers)].clone();
            let new = number(&old, dice, &values(&all, &numbers));
            everywhere(&mut all, &old, &new);
        }
        11..=13 if !types.is_empty() => {
            let (at, new) = (dice.pick(&types), dice.pick(&tilewright::machine::DType::ALL).name());
            let old = all[at].clone();
            if dice.once_in(3) {
                all[at] = new.to_string();
            } else {
                everywhere(&mut all, &old, new);
            }
        }
        14..=16 if words.len() > 1 => {
            // One name for another.
            let (at, from) = (dice.pick(&words), dice.pick(&words));
            all[at] = all[from].clone();
        }
        17 => {
            let pairs = [
                ("copy", "copy.async"),
                ("sum", "max"),
                ("max", "min"),
                ("+", "-"),
                ("*", "/"),
                ("e0", "e1"),
                ("x", "y"),
                ("tanh", "exp"),
            ];
            let (a, b) = dice.pick(&pairs);
            let either: Vec<usize> = of(&|t| t == a || t == b);
            if !either.is_empty() {
                let at = dice.pick(&either);
                all[at] = if all[at] == a { b } else { a }.to_string();
            }
        }
        18 => {
            all.remove(at);
        }
        19 => all[at] = dice.pick(&WORDS).to_string(),
        20 => all.insert(at, format!(" {} ", dice.pick(&WORDS))),
        21 => {
            let to = visible[dice.below(visible.len())];
            all.swap(at, to);
        }
        _ => {
            let kinds = if dice.once_in(2) { &numbers } else { &words };
            if kinds.len() > 1 {
                let (a, b) = (dice.pick(kinds), dice.pick(kinds));
                all.swap(a, b);
            }
        }
    }
    all.concat()
}

fn values(all: &[String], of: &[usize]) -> Vec<String> {
    of.iter().map(|i| all[*i].clone()).collect()
}

fn everywhere(all: &mut [String], old: &str, new: &str) {
    all.iter_mut().filter(|t| *t == old).for_each(|t| *t = new.to_string());
}

fn number(old: &str, dice: &mut Dice, others: &[String]) -> String {
    let value = old.parse::<i64>().unwrap_or(1);
    match dice.below(10) {
        0 => (value + 1).to_string(),
        1 => (value - 1).max(0).to_string(),
        2 => (value.saturating_mul(2)).to_string(),
        3 => (value / 2).to_string(),
        4..=6 => dice.pick(&NUMBERS).to_string(),
        7..=8 => dice.pick(others),
        _ => dice.pick(&EXTREMES).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_the_text_and_mutants_differ() {
        let text = "size m = 64\nkernel f(x: f16[m, 8]) grid(1) threads(32)\n{\n    r = register_tensor(f16, [8, 8])\n}\n";
        assert_eq!(tokens(text).concat(), text);
        let mut dice = Dice::of(1, 1);
        let different = (0..100).filter(|_| mutate(text, text, &mut dice) != text).count();
        assert!(different > 70, "{different}");
    }

    #[test]
    fn stages_change_as_a_whole() {
        let text = "a\nproduce p {\n    copy(x, s)\n}\nb\n";
        let mut dice = Dice::of(1, 2);
        let found: std::collections::BTreeSet<String> = (0..100).map(|_| stage(text, &mut dice)).collect();
        for expected in [
            "a\nb\n".to_string(),
            text.replace("produce", "consume"),
            text.replace("b\n", "produce p {\n    copy(x, s)\n}\nb\n"),
            "a\nb\nproduce p {\n    copy(x, s)\n}\n".to_string(),
        ] {
            assert!(found.contains(&expected), "{expected}");
        }
    }
}
