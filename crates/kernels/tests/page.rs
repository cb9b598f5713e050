//! The page of the operators, `docs/operators.md`, is what the table, the programs and the compiler say: `TILEWRIGHT_BLESS=1` writes it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use tilewright_compiler::{Kernel, Options, compile};
use tilewright_kernels::OPERATORS;
use tilewright_kernels::text::{Form, TEXT_OPERATORS, TextOperator};
use tilewright_machine::Arch;
use tilewright_synth::StatementNote;
use tilewright_tile::Program;

const INTRODUCTION: &str = "# The operators, one by one

A test writes this page from the table of the operators, the comments of their programs and the compiler's reports: `TILEWRIGHT_BLESS=1 cargo test
-p tilewright-kernels --test all page::`. [`kernels.md`](kernels.md) has how operators are used and those that are built in Rust.

A report is of the default parameters on sm_90a at the sizes of its heading; `tilewright kernels NAME | tilewright compile - --arch sm_90a --emit report -p …`
prints the whole of it. A row is a copy or a statement in which threads meet: the tensor with what it is copied from and to (G global memory, S
shared memory, R registers), or the statement; the instructions of a thread or warp, and the contiguous bytes at an address in global and in shared memory.
Figures of an H200 are those of [`memory-h200.md`](../bench/memory-h200.md): of a copy of as many bytes, and of the best peer's time.
";

/// The comment at the head of a program, in one line.
fn comment(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("//"));
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

/// A statement's row, if it copies or lets threads meet.
fn row(note: &StatementNote) -> Option<String> {
    let meets = note.shared_calls > 0 || ["mma", "shfl"].iter().any(|word| note.instruction.contains(word));
    let place = match (note.level.as_str(), meets) {
        ("", false) => return None,
        // Expressions within them are long; the word before the parenthesis says what is done.
        ("", true) => {
            let value = note.text.split_once(" = ").map_or(note.text.as_str(), |(_, value)| value);
            format!("{:<12}", value.split('(').next().unwrap_or(value))
        }
        (level, _) => format!("{:<8} {level}", note.tensor),
    };
    let bytes = match (note.global_bytes, note.shared_bytes) {
        (0, 0) => String::new(),
        (global, 0) => format!(", {global} bytes"),
        (0, shared) => format!(", {shared} bytes"),
        (global, shared) => format!(", {global} and {shared} bytes"),
    };
    let conflicts = match note.bank_conflicts {
        0 => String::new(),
        n => format!(", {n} bank conflicts"),
    };
    Some(format!("  {place}  {} × {}{bytes}{conflicts}", note.calls, note.instruction))
}

/// The compact report of a kernel.
fn report(kernel: &Kernel) -> String {
    let mut text = format!(
        "{}: {} threads, {} bytes of shared memory, {} fragment registers a thread\n",
        kernel.function.name,
        kernel.threads(),
        kernel.shared_bytes(),
        kernel.explanation.fragment_registers
    );
    let mut rows: Vec<(String, usize)> = Vec::new();
    for row in kernel.explanation.statements.iter().filter_map(row) {
        match rows.iter_mut().find(|(other, _)| *other == row) {
            Some((_, count)) => *count += 1,
            None => rows.push((row, 1)),
        }
    }
    for (row, count) in rows {
        let times = if count > 1 { format!(", {count} times") } else { String::new() };
        let _ = writeln!(text, "{row}{times}");
    }
    text
}

/// The rows of the table of measurements by operator: of a copy, and the best peer's time over ours.
fn measured() -> BTreeMap<&'static str, Vec<[f64; 2]>> {
    let mut found: BTreeMap<&str, Vec<[f64; 2]>> = BTreeMap::new();
    for line in include_str!("../../../bench/memory-h200.md").lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, _, _, _, copy, _, peer, _] = cells[..] else { continue };
        if let (Ok(copy), Ok(peer)) = (copy.parse(), peer.parse()) {
            found.entry(name).or_default().push([copy, peer]);
        }
    }
    found
}

/// The range of figures: `0.91 to 1.05`.
fn range(figures: impl Iterator<Item = f64> + Clone) -> String {
    let [low, high] = [f64::min, f64::max].map(|f| figures.clone().reduce(f).unwrap_or_default());
    if high - low < 0.005 { format!("{low:.2}") } else { format!("{low:.2} to {high:.2}") }
}

/// The program's choices, as its comment has them, behind the name of the form if there are several.
fn form(operator: &TextOperator, form: &Form) -> String {
    let texts = form.files.iter().zip(form.texts);
    let files: Vec<String> = texts
        .map(|(file, text)| format!("[`{file}`](../crates/kernels/src/text/{file}): {}", comment(text)))
        .collect();
    let name = if operator.forms.len() > 1 { format!("`form={}`, ", form.name) } else { String::new() };
    match files.as_slice() {
        [file] => format!("- {name}{file}\n"),
        several => {
            let several: String = several.iter().map(|file| format!("  - {file}\n")).collect();
            format!("- {name}in turn:\n{several}")
        }
    }
}

/// The text with a small first letter.
fn lowered(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect()
}

/// The parameters with their defaults, in one sentence.
fn parameters(operator: &TextOperator) -> String {
    let types: Vec<String> = operator.types.iter().map(|dtype| format!("`{dtype}`")).collect();
    let all = operator.parameters().into_iter().filter(|parameter| parameter.name != "form");
    let each = all.map(|parameter| match parameter.name {
        "dtype" => format!("`dtype` = {} (of {})", parameter.default, types.join(", ")),
        name => {
            format!("`{name}` = {} ({})", parameter.default, lowered(parameter.about.trim_end_matches('.')))
        }
    });
    format!("Parameters: {}.", each.collect::<Vec<_>>().join("; "))
}

fn kernels(operator: &TextOperator) -> Vec<Kernel> {
    let programs: Vec<Program> = operator.programs(&[]).unwrap();
    let sizes: Vec<(&str, i64)> =
        operator.sizes.iter().map(|(name, _)| *name).zip(operator.large.iter().copied()).collect();
    let compiled =
        |program| compile(program, &Options::new(Arch::SM_90A).for_own_sizes(program, &sizes)).unwrap();
    programs.iter().map(compiled).collect()
}

fn section(operator: &TextOperator, figures: Option<&Vec<[f64; 2]>>) -> String {
    let mut text = format!("\n## `{}`\n\n`{}`\n\n", operator.name, operator.about);
    operator.forms.iter().for_each(|of| text.push_str(&form(operator, of)));
    let _ = writeln!(text, "\n{}", parameters(operator));
    if let Some(figures) = figures {
        let [copy, peer] = [0, 1].map(|i| range(figures.iter().map(move |of| of[i])));
        let cases =
            if figures.len() == 1 { "1 size".to_string() } else { format!("{} sizes", figures.len()) };
        let _ = writeln!(
            text,
            "\nOn an H200, {cases}: {copy} of a copy, the best peer's time {peer} times ours."
        );
    }
    let sizes: Vec<String> = operator
        .sizes
        .iter()
        .zip(operator.large)
        .map(|((name, _), value)| format!("{name} = {value}"))
        .collect();
    let _ = write!(text, "\n{}:\n\n```text\n", sizes.join(", "));
    kernels(operator).iter().for_each(|kernel| text.push_str(&report(kernel)));
    text.push_str("```\n");
    text
}

#[test]
fn the_page_is_what_the_table_and_the_compiler_say() {
    let measured = measured();
    let mut page = INTRODUCTION.to_string();
    for operator in TEXT_OPERATORS {
        page.push_str(&section(operator, measured.get(operator.name)));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operators.md");
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap();
    let stale = there.lines().zip(page.lines()).enumerate().find(|(_, (there, now))| there != now);
    assert!(
        there == page,
        "docs/operators.md is stale ({stale:?}): write it with TILEWRIGHT_BLESS=1 cargo test -p tilewright-kernels --test all page::"
    );
}

#[test]
fn every_operator_is_in_the_table_and_in_the_list_of_small_sizes() {
    let table = include_str!("../../../docs/kernels.md");
    let list = include_str!("../../../tests/operators.txt");
    for operator in OPERATORS {
        let name = operator.name;
        assert!(table.contains(&format!("`{name}`")), "docs/kernels.md lacks {name}");
        let mut lines = list.lines().filter_map(|line| line.split([' ', ':']).next());
        assert!(lines.any(|first| first == name), "tests/operators.txt lacks {name}");
    }
}
