//! Instructions that a program gives as text of PTX: what may stand in such a text.
//!
//! The text is a function of its operands: instructions on registers, of which the last value that the result's register gets is the result.
//! So it can be shared, moved, repeated and left out like any other operation, and what it touches is known: nothing of memory, no other
//! thread, no special register, no label. `$0` stands for the register of the result, `$1`, `$2` and so on for those of the operands
//! (as in LLVM's inline assembly). Further registers are declared in braces: `{ .reg .b32 t; … }`.

use std::fmt;

/// Opcodes of instructions that compute a value of registers and do nothing else (PTX ISA, "Instruction Set"): arithmetic, comparison and
/// selection, logic and shifts, conversion, and the scalar and SIMD video instructions.
const OPCODES: [&str; 77] = [
    "abs",
    "add",
    "addc",
    "and",
    "bfe",
    "bfi",
    "bfind",
    "bmsk",
    "brev",
    "clz",
    "cnot",
    "copysign",
    "cos",
    "cvt",
    "div",
    "dp2a",
    "dp4a",
    "ex2",
    "fma",
    "fns",
    "lg2",
    "lop3",
    "mad",
    "mad24",
    "madc",
    "max",
    "min",
    "mov",
    "mul",
    "mul24",
    "neg",
    "not",
    "or",
    "popc",
    "prmt",
    "rcp",
    "rem",
    "rsqrt",
    "sad",
    "selp",
    "set",
    "setp",
    "shf",
    "shl",
    "shr",
    "sin",
    "slct",
    "sqrt",
    "sub",
    "subc",
    "szext",
    "tanh",
    "testp",
    "vabsdiff",
    "vabsdiff2",
    "vabsdiff4",
    "vadd",
    "vadd2",
    "vadd4",
    "vavrg2",
    "vavrg4",
    "vmad",
    "vmax",
    "vmax2",
    "vmax4",
    "vmin",
    "vmin2",
    "vmin4",
    "vset",
    "vset2",
    "vset4",
    "vshl",
    "vshr",
    "vsub",
    "vsub2",
    "vsub4",
    "xor",
];

/// The reason why a text cannot be the instructions of an `asm`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AsmError {
    /// It has no instruction.
    Empty,
    /// A character that instructions on registers do not have.
    Character(char),
    /// Braces without their match.
    Braces,
    /// An instruction does not end with a semicolon.
    Unended(String),
    /// It does not name the result's register.
    NoResult,
    /// It names an operand that is not given.
    NoOperand(usize),
    /// It does not name an operand that is given.
    Unused(usize),
    /// A declaration outside of braces: the text may stand in a kernel many times.
    Declaration,
    /// An instruction that does more than compute a value of registers.
    Opcode(String),
}

impl fmt::Display for AsmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AsmError::Empty => f.write_str("the text has no instruction"),
            AsmError::Character('%') => f.write_str(
                "the text has a `%`: its operands are all that an `asm` reads, no special registers",
            ),
            AsmError::Character(c) => write!(f, "the text has a `{}`", c.escape_default()),
            AsmError::Braces => f.write_str("braces of the text do not match"),
            AsmError::Unended(text) => write!(f, "`{text}` does not end with a semicolon"),
            AsmError::NoResult => f.write_str("no instruction writes `$0`, the result"),
            AsmError::NoOperand(number) => {
                write!(f, "the text names `${number}`, and there is no such operand")
            }
            AsmError::Unused(number) => write!(f, "the text does not name `${number}`, an operand"),
            AsmError::Declaration => f.write_str("a register is declared outside of braces"),
            AsmError::Opcode(opcode) => {
                write!(
                    f,
                    "`{opcode}` is no instruction that computes a value of registers and does nothing else"
                )
            }
        }
    }
}

impl AsmError {
    /// Advice for the author.
    pub fn help(&self) -> String {
        match self {
            AsmError::Empty | AsmError::NoResult => {
                "`$0` is the result, `$1` the first operand, e.g. `asm(\"add.f32 $0, $1, $2;\", x, y, means = x + y)`"
                    .to_string()
            }
            AsmError::Character('%') => {
                "pass what it needs as an operand; registers of its own are declared without a `%`: \
                 `{ .reg .b32 t; … }`"
                    .to_string()
            }
            AsmError::Character(_) => "write instructions, registers and literals; no comments".to_string(),
            AsmError::Braces => "close each `{` with a `}`".to_string(),
            AsmError::Unended(_) => "every instruction of PTX ends with `;`".to_string(),
            AsmError::NoOperand(_) => "give it behind the text, before `means`".to_string(),
            AsmError::Unused(_) => "leave it out, or use it".to_string(),
            AsmError::Declaration => "write `{ .reg .b32 t; … }`".to_string(),
            AsmError::Opcode(_) => {
                "memory, barriers and other threads are reached by statements of the language alone: an `asm` may be \
                 repeated, moved and left out"
                    .to_string()
            }
        }
    }
}

/// An instruction of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AsmInstruction<'a> {
    /// The predicate that it stands under, `@p` or `@!p`.
    pub guard: Option<&'a str>,
    /// The opcode with its qualifiers.
    pub mnemonic: &'a str,
    /// The operands, as they are written.
    pub operands: Vec<&'a str>,
}

/// A text of a piece of instructions, and a register in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsmPiece<'a> {
    /// Text.
    Text(&'a str),
    /// The register of an operand; that of the result is number 0.
    Register(usize),
}

/// The pieces of a text.
pub fn pieces(text: &str) -> Vec<AsmPiece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let digits = rest[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
        let Ok(number) = rest[at + 1..at + 1 + digits].parse() else { break };
        pieces.extend([AsmPiece::Text(&rest[..at]), AsmPiece::Register(number)]);
        rest = &rest[at + 1 + digits..];
    }
    pieces.push(AsmPiece::Text(rest));
    pieces
}

/// The operands of an instruction: those in braces are one.
fn split(operands: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in operands.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(operands[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(operands[start..].trim());
    found.retain(|operand| !operand.is_empty());
    found
}

/// The instructions of a text of so many operands, without its declarations.
///
/// # Errors
///
/// The first reason why it cannot be the text of an `asm`.
pub fn instructions(text: &str, operands: usize) -> Result<Vec<AsmInstruction<'_>>, AsmError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || " \t$_.,;{}[]<>@!|-+()".contains(c);
    if let Some(c) = text.chars().find(|c| !legal(*c)) {
        return Err(AsmError::Character(c));
    }
    let mut named = vec![false; operands + 1];
    for piece in pieces(text) {
        match piece {
            AsmPiece::Register(number) => *named.get_mut(number).ok_or(AsmError::NoOperand(number))? = true,
            AsmPiece::Text(text) if text.contains('$') => return Err(AsmError::Character('$')),
            AsmPiece::Text(_) => {}
        }
    }
    let mut found = Vec::new();
    let mut depth = 0usize;
    let mut parts = text.split(';').peekable();
    while let Some(part) = parts.next() {
        let mut part = part.trim();
        // Braces around instructions stand where one begins.
        while let Some(brace) = part.chars().next().filter(|c| "{}".contains(*c)) {
            depth = if brace == '{' { depth + 1 } else { depth.checked_sub(1).ok_or(AsmError::Braces)? };
            part = part[1..].trim_start();
        }
        if part.is_empty() {
            continue;
        }
        if parts.peek().is_none() {
            return Err(AsmError::Unended(part.to_string()));
        }
        if part.starts_with(".reg") {
            if depth == 0 {
                return Err(AsmError::Declaration);
            }
            continue;
        }
        let (guard, rest) = match part.strip_prefix('@') {
            Some(_) => {
                let end = part.find(char::is_whitespace).unwrap_or(part.len());
                (Some(&part[..end]), part[end..].trim_start())
            }
            None => (None, part),
        };
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (mnemonic, rest) = rest.split_at(end);
        let opcode = mnemonic.split('.').next().unwrap_or_default();
        if !OPCODES.contains(&opcode) {
            return Err(AsmError::Opcode(mnemonic.to_string()));
        }
        found.push(AsmInstruction { guard, mnemonic, operands: split(rest) });
    }
    if depth != 0 {
        return Err(AsmError::Braces);
    }
    if found.is_empty() {
        return Err(AsmError::Empty);
    }
    let writes = |instruction: &AsmInstruction<'_>| {
        instruction.operands.first().is_some_and(|first| pieces(first).contains(&AsmPiece::Register(0)))
    };
    if !found.iter().any(writes) {
        return Err(AsmError::NoResult);
    }
    match named.iter().position(|named| !named) {
        Some(number) => Err(AsmError::Unused(number)),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_instructions_on_registers() {
        let one = instructions("tanh.approx.f32 $0, $1;", 1).unwrap();
        assert_eq!(one.len(), 1);
        assert_eq!((one[0].mnemonic, &one[0].operands[..]), ("tanh.approx.f32", &["$0", "$1"][..]));
        let text = "{ .reg .b32 t; .reg .pred p; setp.lt.s32 p, $1, 0; mov.b32 t, 3; @p add.s32 t, t, $2; mov.b32 $0, t; }";
        let several = instructions(text, 2).unwrap();
        assert_eq!(several.len(), 4);
        assert_eq!(several[2].guard, Some("@p"));
        assert_eq!(several[2].operands, ["t", "t", "$2"]);
        let halves = instructions("mov.b64 $0, {$1, $2};", 2).unwrap();
        assert_eq!(halves[0].operands, ["$0", "{$1, $2}"]);
    }

    #[test]
    fn what_is_more_than_that_is_refused() {
        let wrong = |text: &str, operands| instructions(text, operands).unwrap_err();
        assert_eq!(wrong("", 0), AsmError::Empty);
        assert_eq!(wrong("mov.u32 $0, %tid.x;", 0), AsmError::Character('%'));
        assert_eq!(wrong("add.f32 $0, $1, $2", 2), AsmError::Unended("add.f32 $0, $1, $2".to_string()));
        assert_eq!(wrong("add.f32 $0, $1, $2;", 1), AsmError::NoOperand(2));
        assert_eq!(wrong("add.f32 $0, $1, $1;", 2), AsmError::Unused(2));
        assert_eq!(wrong("{ .reg .b32 t; mov.b32 t, $1; }", 1), AsmError::NoResult);
        assert_eq!(wrong("{ mov.b32 $0, $1;", 1), AsmError::Braces);
        assert_eq!(wrong(".reg .b32 t; mov.b32 $0, $1;", 1), AsmError::Declaration);
        for text in ["ld.global.b32 $0, [$1];", "bar.sync 0; mov.b32 $0, $1;", "bra done; mov.b32 $0, $1;"] {
            assert!(matches!(wrong(text, 1), AsmError::Opcode(_)), "{text}");
        }
        assert_eq!(wrong("again: mov.b32 $0, $1;", 1), AsmError::Character(':'));
        assert_eq!(wrong("mov.b32 $0, $x;", 0), AsmError::Character('$'));
    }
}
