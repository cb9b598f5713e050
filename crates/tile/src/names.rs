//! Names: the words of the language.

use std::collections::HashSet;

use tilewright_machine::DType;

use crate::program::{BinaryOp, Notation, Program, StmtKind, UnaryOp};
use crate::statement::PLAIN;

/// A word of the language by its part of speech.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Word {
    /// Begins a declaration around the body.
    Declaration,
    /// Begins a statement that holds others, or `let`.
    Block,
    /// Begins a statement that is a call without a result.
    Call,
    /// A function that stands alone to the right of `t = `.
    Value,
    /// A function of an elementwise expression.
    Function,
    /// An element type.
    Type,
    /// Any other word.
    Other,
    /// Kept for later.
    Future,
}

/// `fn`, `use` and `space` begin a declaration, too, and may be names inside a kernel.
const DECLARATIONS: [&str; 6] = ["size", "const", "kernel", "grid", "threads", "cluster"];
const BLOCKS: [&str; 8] = ["let", "if", "for", "unroll", "warpgroup", "produce", "consume", "in_turn"];
/// Calls with arguments of their own; the others are [`PLAIN`].
const CALLS: [&str; 9] =
    ["copy", "gemm", "assert", "print", "syncthreads", "syncgrid", "arrive", "signal", "wait"];
const VALUES: [&str; 28] = [
    "global_view",
    "register_tensor",
    "shared_tensor",
    "tensor_memory",
    "pipeline",
    "named_barrier",
    "turns",
    "cast",
    "rearrange",
    "transpose",
    "reshape",
    "expand",
    "slice",
    "broadcast",
    "join",
    "split",
    "reduce",
    "scan",
    "argmax",
    "argmin",
    "sort",
    "gather",
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "atomic_exchange",
    "atomic_cas",
    "ticket",
];
/// Functions other than those of [`UnaryOp`] and [`BinaryOp`].
const FUNCTIONS: [&str; 6] = ["index", "where", "bitcast", "f16x2", "bf16x2", "asm"];
const OTHERS: [&str; 12] =
    ["else", "while", "break", "in", "block", "reverse", "async", "ceil_div", "layout", "inf", "_", "return"];
const FUTURE: [&str; 0] = [];

/// Every word of the language, with its part of speech. None is a name of anything else, but for functions, which are known by the parenthesis
/// behind them; and a kernel's own name is exempt, as it never stands where these do.
pub fn words() -> impl Iterator<Item = (&'static str, Word)> {
    fn of(words: &[&'static str], word: Word) -> impl Iterator<Item = (&'static str, Word)> {
        words.iter().map(move |text| (*text, word))
    }
    let unary = UnaryOp::ALL.into_iter().filter(|op| op.is_call()).map(UnaryOp::name);
    let calls = BinaryOp::ALL.into_iter().filter(|op| op.notation() == Notation::Call).map(BinaryOp::name);
    let infix = BinaryOp::ALL.into_iter().filter(|op| op.notation() != Notation::Call).map(BinaryOp::name);
    let signs = infix.filter(|name| is_identifier(name));
    of(&DECLARATIONS, Word::Declaration)
        .chain(of(&BLOCKS, Word::Block))
        .chain(of(&CALLS, Word::Call))
        .chain(PLAIN.iter().map(|plain| (plain.name, Word::Call)))
        .chain(of(&VALUES, Word::Value))
        .chain(unary.chain(calls).map(|name| (name, Word::Function)))
        .chain(signs.chain([UnaryOp::Not.name()]).map(|name| (name, Word::Other)))
        .chain(of(&FUNCTIONS, Word::Function))
        .chain(DType::ALL.into_iter().map(|dtype| (dtype.name(), Word::Type)))
        .chain(of(&OTHERS, Word::Other))
        .chain(of(&FUTURE, Word::Future))
}

/// The words of one part of speech.
pub(crate) fn words_of(word: Word) -> Vec<&'static str> {
    words().filter(|(_, kind)| *kind == word).map(|(text, _)| text).collect()
}

/// The part of speech of a word of the language.
pub(crate) fn word(text: &str) -> Option<Word> {
    words().find(|(known, _)| *known == text).map(|(_, word)| word)
}

/// The number of a name that has the form of a basis element of a stride, such as `e0`.
pub(crate) fn basis(name: &str) -> Option<u32> {
    let digits = name.strip_prefix('e')?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // A number too large for any rank still has the form.
    Some(digits.parse().unwrap_or(u32::MAX))
}

/// True if the word means something in the language already.
pub fn is_reserved(name: &str) -> bool {
    word(name).is_some_and(|word| word != Word::Function) || basis(name).is_some()
}

/// True if the text is a letter or `_`, then letters, digits and `_`, of legal length.
pub(crate) fn is_identifier(name: &str) -> bool {
    name.len() <= crate::lexer::MAX_NAME
        && name.bytes().next().is_some_and(|b| b == b'_' || b.is_ascii_alphabetic())
        && name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric())
}

/// Every name of a program.
pub(crate) fn names_of(program: &Program) -> HashSet<String> {
    let symbols = program.symbols.iter().map(|s| &s.name);
    let params = program.params.iter().map(|p| &p.name);
    let pipelines = program.pipelines.iter().map(|p| &p.name);
    let barriers = program.barriers.iter().map(|b| &b.name);
    let roles = program.body.iter().filter_map(|stmt| match &stmt.kind {
        StmtKind::Role { name, .. } => Some(name),
        _ => None,
    });
    let tensors = program.tensors.iter().map(|t| &t.name);
    symbols.chain(params).chain(tensors).chain(pipelines).chain(barriers).chain(roles).cloned().collect()
}

/// A name that nothing has yet, made of another and a suffix.
pub(crate) fn fresh_name(names: &mut HashSet<String>, of: &str, suffix: &str) -> String {
    // The base is cut so that the name stays a legal one.
    let base: String = of.chars().take(100).collect();
    let name = (0..)
        .map(|i: u64| if i == 0 { format!("{base}_{suffix}") } else { format!("{base}_{suffix}_{i}") })
        .find(|name| !names.contains(name))
        .unwrap_or_default();
    names.insert(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nearest::nearest;

    #[test]
    fn the_nearest_name_is_near() {
        assert_eq!(nearest("rcc", ["rc", "ra", "block"]), Some("rc"));
        assert_eq!(nearest("global_veiw", words().map(|(text, _)| text)), Some("global_view"));
        assert_eq!(nearest("zzz", ["rc", "ra"]), None);
        assert_eq!(nearest("q", ["T"]), None);
    }

    #[test]
    fn each_word_has_one_part_of_speech() {
        let mut seen = std::collections::HashSet::new();
        for (text, word) in words() {
            assert!(seen.insert(text), "{text} is listed twice, again as {word:?}");
            assert!(is_identifier(text), "{text}");
        }
    }

    #[test]
    fn basis_elements_are_reserved() {
        assert_eq!(basis("e12"), Some(12));
        assert_eq!(basis("e"), None);
        assert!(is_reserved("e0") && is_reserved("grid") && !is_reserved("ga"));
    }
}
