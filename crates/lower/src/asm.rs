//! Instructions of PTX that a program gives as text. Where every one of them is a row of the machine, the value that a simulator takes is what
//! the rows compute, so that it is compared with the meaning that the author states; otherwise it is that meaning.

use std::collections::BTreeMap;

use tilewright_machine::{RegType, ScalarOp};
use tilewright_simt::{Builder, Operand};
use tilewright_tile::asm::{AsmInstruction, instructions};
use tilewright_tile::{Compute, RoundedAsm};

/// The register that holds a value of a type.
fn register(compute: Compute) -> RegType {
    if compute.bits() == 64 { RegType::B64 } else { RegType::B32 }
}

/// The result of the instructions; `operands` are their meaning and behind it their operands.
pub(crate) fn emit(b: &mut Builder, asm: &RoundedAsm, operands: &[Operand]) -> Operand {
    let Some((means, args)) = operands.split_first() else { return Operand::Imm(0) };
    let result = register(asm.compute);
    let types: Vec<RegType> = asm.computes.iter().map(|compute| register(*compute)).collect();
    let computed = decoded(b, &asm.text, &types, args).filter(|(_, ty)| *ty == result);
    let means = computed.map_or(*means, |(value, _)| value);
    b.asm(&asm.text, result, (types, args.to_vec()), means)
}

/// The literal of an instruction that takes this type.
fn literal(text: &str, ty: RegType) -> Option<Operand> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let float = |prefixes: [&str; 2]| prefixes.iter().find_map(|prefix| digits.strip_prefix(prefix));
    let bits = match (float(["0f", "0F"]), float(["0d", "0D"]), float(["0x", "0X"])) {
        (Some(single), _, _) if ty == RegType::B32 => u64::from_str_radix(single, 16).ok()?,
        (_, Some(double), _) if ty == RegType::B64 => u64::from_str_radix(double, 16).ok()?,
        (None, None, Some(hexadecimal)) => u64::from_str_radix(hexadecimal, 16).ok()?,
        (None, None, None) => digits.parse().ok()?,
        _ => return None,
    };
    let bits = if negative { bits.wrapping_neg() } else { bits };
    Some(Operand::Imm(match ty {
        RegType::Pred => u64::from(bits != 0),
        RegType::B16 => bits & 0xffff,
        RegType::B32 => bits & 0xffff_ffff,
        RegType::B64 => bits,
    }))
}

/// The value of the result by the rows of the instructions; `None` where one is not known.
fn decoded(b: &mut Builder, text: &str, types: &[RegType], args: &[Operand]) -> Option<(Operand, RegType)> {
    let mut registers: BTreeMap<String, (Operand, RegType)> = BTreeMap::new();
    for (number, (arg, ty)) in args.iter().zip(types).enumerate() {
        registers.insert(format!("${}", number + 1), (*arg, *ty));
    }
    for AsmInstruction { guard, mnemonic, operands } in instructions(text, args.len()).ok()? {
        let (dst, sources) = operands.split_first()?;
        if guard.is_some() {
            return None;
        }
        let read = |source: &&str, ty: RegType| match registers.get(*source) {
            Some((value, held)) => (*held == ty).then_some(*value),
            None => literal(source, ty),
        };
        let moved = match mnemonic {
            "mov.b32" | "mov.f32" | "mov.s32" | "mov.u32" => Some(RegType::B32),
            "mov.b64" | "mov.f64" | "mov.s64" | "mov.u64" => Some(RegType::B64),
            _ => None,
        };
        let value = match (moved, sources) {
            (Some(ty), [source]) => (read(source, ty)?, ty),
            _ => {
                let takes = |op: &&ScalarOp| {
                    let row = op.row();
                    row.mnemonic == mnemonic && row.operands.len() == sources.len()
                };
                let op = *ScalarOp::ALL.iter().find(takes)?;
                let row = op.row();
                let values: Option<Vec<Operand>> =
                    sources.iter().zip(row.operands).map(|(source, ty)| read(source, *ty)).collect();
                (b.scalar(op, &values?), row.result)
            }
        };
        registers.insert(dst.to_string(), value);
    }
    registers.remove("$0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_machine::Arch;

    fn of(text: &str, args: &[u64]) -> Option<u64> {
        let mut b = Builder::new("k", Arch::SM_90A, 32);
        let operands: Vec<Operand> = args.iter().map(|bits| Operand::Imm(*bits)).collect();
        match decoded(&mut b, text, &vec![RegType::B32; args.len()], &operands)? {
            (Operand::Imm(bits), RegType::B32) => Some(bits),
            _ => None,
        }
    }

    #[test]
    fn instructions_that_are_rows_are_computed() {
        assert_eq!(of("add.s32 $0, $1, $2;", &[3, 4]), Some(7));
        assert_eq!(of("add.s32 $0, $1, -1;", &[3]), Some(2));
        assert_eq!(of("{ .reg .b32 t; add.s32 t, $1, 0x10; add.s32 $0, t, t; }", &[1]), Some(34));
        // Numbers may be left to the run.
        let (mut b, x) = (Builder::new("k", Arch::SM_90A, 32), Operand::Imm(0x3f80_0000));
        let sum = decoded(&mut b, "add.rn.f32 $0, $1, 0f3F800000;", &[RegType::B32], &[x]);
        assert!(matches!(sum, Some((_, RegType::B32))), "{sum:?}");
        assert_eq!(of("mov.b32 $0, $1;", &[9]), Some(9));
    }

    #[test]
    fn others_are_not() {
        assert_eq!(of("vadd4.s32.s32.s32 $0, $1, $2, $1;", &[3, 4]), None);
        assert_eq!(of("@p add.s32 $0, $1, $1;", &[3]), None);
        assert_eq!(of("mov.b32 $0, {$1, $1};", &[3]), None);
        assert_eq!(of("add.s32 $0, $1, 0d3FF0000000000000;", &[3]), None);
    }
}
