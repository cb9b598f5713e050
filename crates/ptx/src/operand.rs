//! The spelling of names and literals.

use tilewright_machine::RegType;
use tilewright_simt::{Function, Reg};

/// The name of the dynamic shared memory.
pub(crate) fn shared_window(function: &Function) -> String {
    format!("{}_smem", function.name)
}

/// The name of a parameter.
pub(crate) fn param(function: &Function, index: u32) -> String {
    format!("{}_param_{index}", function.name)
}

/// The name of a fragment's register.
pub(crate) fn reg(reg: Reg) -> String {
    format!("%a{}_{}", reg.array.0, reg.index)
}

/// Registers as a vector operand; a vector of one is written with braces too if `braces` asks for them.
pub(crate) fn vector(regs: &[Reg], braces: bool) -> String {
    let names: Vec<String> = regs.iter().map(|r| reg(*r)).collect();
    if names.len() == 1 && !braces { names.concat() } else { format!("{{{}}}", names.join(", ")) }
}

/// Text that is safe in a `//` comment.
pub(crate) fn comment(text: &str) -> String {
    text.chars().map(|c| if c == '\n' || c == '\r' || c == '\t' { ' ' } else { c }).map(printable).collect()
}

fn printable(c: char) -> char {
    if (' '..='~').contains(&c) { c } else { '?' }
}

/// The literal with these bits, as an operand of an instruction whose mnemonic ends in the type of its sources.
pub(crate) fn literal(mnemonic: &str, ty: RegType, bits: u64) -> String {
    let source = mnemonic.rsplit('.').next().unwrap_or("");
    match ty {
        RegType::Pred => u64::from(bits != 0).to_string(),
        RegType::B16 => (bits as u16).to_string(),
        RegType::B32 => match source {
            "f32" => format!("0f{:08X}", bits as u32),
            "s32" => (bits as u32 as i32).to_string(),
            _ => unsigned(u64::from(bits as u32)),
        },
        RegType::B64 => match source {
            "f64" => format!("0d{bits:016X}"),
            "s64" => (bits as i64).to_string(),
            _ => unsigned(bits),
        },
    }
}

/// Small numbers in decimal, patterns in hexadecimal.
fn unsigned(bits: u64) -> String {
    if bits < 1 << 16 { bits.to_string() } else { format!("{bits:#x}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_follow_the_type_of_the_sources() {
        let one = u64::from(1f32.to_bits());
        assert_eq!(literal("add.rn.f32", RegType::B32, one), "0f3F800000");
        assert_eq!(literal("selp.b32", RegType::B32, one), "0x3f800000");
        assert_eq!(literal("add.s32", RegType::B32, 0xffff_fff0), "-16");
        assert_eq!(literal("mul.rn.f64", RegType::B64, 1f64.to_bits()), "0d3FF0000000000000");
        assert_eq!(literal("add.s64", RegType::B64, (-16i64) as u64), "-16");
        assert_eq!(literal("shl.b64", RegType::B64, u64::MAX), "0xffffffffffffffff");
        assert_eq!(literal("shl.b64", RegType::B32, 3), "3");
        assert_eq!(literal("mov.pred", RegType::Pred, 1), "1");
    }

    #[test]
    fn comments_stay_on_their_line() {
        assert_eq!(comment("a\nb → c"), "a b ? c");
    }
}
