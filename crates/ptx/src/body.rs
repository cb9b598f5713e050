//! The instructions of a function's body.

use tilewright_machine::{CopyKind, CopyRow, Memory, RegType, ScalarOp};
use tilewright_simt::{Address, Function, Inst, Op, Operand, OriginId, Reg, Special, Value};

use crate::operand::{comment, literal, param, reg, shared_window, vector};

/// Registers of each type that are named so far.
#[derive(Clone, Copy, Default)]
struct Counts {
    pred: u32,
    b16: u32,
    b32: u32,
    b64: u32,
}

impl Counts {
    /// A register that no name was given to yet.
    fn fresh(&mut self, ty: RegType) -> String {
        let (prefix, count) = match ty {
            RegType::Pred => ("%p", &mut self.pred),
            RegType::B16 => ("%h", &mut self.b16),
            RegType::B32 => ("%r", &mut self.b32),
            RegType::B64 => ("%rd", &mut self.b64),
        };
        let name = format!("{prefix}{count}");
        *count += 1;
        name
    }
}

fn mov(ty: RegType) -> &'static str {
    match ty {
        RegType::Pred => "mov.pred",
        RegType::B16 => "mov.b16",
        RegType::B32 => "mov.b32",
        RegType::B64 => "mov.b64",
    }
}

/// A printed body.
pub(crate) struct Body<'a> {
    function: &'a Function,
    /// The register of each value, named where it is defined.
    names: Vec<String>,
    counts: Counts,
    text: String,
    labels: u32,
    origin: OriginId,
}

impl<'a> Body<'a> {
    /// Prints the body of a function.
    pub(crate) fn print(function: &'a Function) -> Self {
        let mut body = Body {
            function,
            names: vec![String::new(); function.values.len()],
            counts: Counts::default(),
            text: String::new(),
            labels: 0,
            origin: OriginId(u32::MAX),
        };
        body.block(&function.body);
        body
    }

    /// The instructions, without the final return.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The registers to declare: type, prefix, count.
    pub(crate) fn registers(&self) -> [(&'static str, &'static str, u32); 4] {
        let Counts { pred, b16, b32, b64 } = self.counts;
        [(".pred", "%p", pred), (".b16", "%h", b16), (".b32", "%r", b32), (".b64", "%rd", b64)]
    }

    fn line(&mut self, instruction: impl AsRef<str>) {
        self.text.push_str("    ");
        self.text.push_str(instruction.as_ref());
        self.text.push_str(";\n");
    }

    fn label(&mut self, name: &str) {
        self.text.push_str(name);
        self.text.push_str(":\n");
    }

    /// A number for the labels of one loop or branch.
    fn label_number(&mut self) -> u32 {
        self.labels += 1;
        self.labels - 1
    }

    fn define(&mut self, value: Value) -> String {
        let name = self.counts.fresh(self.function.type_of(value));
        self.names[value.0 as usize].clone_from(&name);
        name
    }

    fn name(&self, value: Value) -> String {
        self.names[value.0 as usize].clone()
    }

    /// An operand of an instruction that takes literals of 32 and 64 bits there.
    fn operand(&mut self, mnemonic: &str, operand: Operand, ty: RegType) -> String {
        match operand {
            Operand::Value(value) => self.name(value),
            Operand::Imm(_) if matches!(ty, RegType::Pred | RegType::B16) => self.register(operand, ty),
            // Packed halves have no literals.
            Operand::Imm(_) if mnemonic.ends_with("16x2") => self.register(operand, ty),
            Operand::Imm(bits) => literal(mnemonic, ty, bits),
        }
    }

    /// An operand that must be a register.
    fn register(&mut self, operand: Operand, ty: RegType) -> String {
        match operand {
            Operand::Value(value) => self.name(value),
            Operand::Imm(bits) => {
                let scratch = self.counts.fresh(ty);
                self.line(format!("{} {scratch}, {}", mov(ty), literal(mov(ty), ty, bits)));
                scratch
            }
        }
    }

    fn address(&mut self, address: &Address, memory: Memory) -> String {
        let ty = if memory == Memory::Global { RegType::B64 } else { RegType::B32 };
        let base = self.register(address.base, ty);
        match address.offset {
            0 => format!("[{base}]"),
            offset => format!("[{base}+{offset}]"),
        }
    }

    fn guard(&self, guard: Option<Value>) -> String {
        guard.map_or(String::new(), |g| format!("@{} ", self.name(g)))
    }

    fn block(&mut self, body: &[Inst]) {
        for inst in body {
            if self.origin != inst.origin {
                self.origin = inst.origin;
                let origin = self.function.origin(inst.origin);
                if !origin.is_empty() {
                    self.text.push_str(&format!("    // {}\n", comment(origin)));
                }
            }
            self.op(&inst.op);
        }
    }

    fn op(&mut self, op: &Op) {
        match op {
            Op::Special { dst, special } => {
                let source = match special {
                    Special::ThreadIndex => "%tid.x".to_string(),
                    Special::BlockIndex(axis) => {
                        format!("%ctaid.{}", ["x", "y", "z"][usize::from(*axis).min(2)])
                    }
                    Special::SharedBase if self.function.shared_bytes == 0 => "0".to_string(),
                    Special::SharedBase => shared_window(self.function),
                    Special::Clock => "%clock".to_string(),
                };
                let dst = self.define(*dst);
                self.line(format!("mov.u32 {dst}, {source}"));
            }
            Op::Param { dst, param: index } => self.param(*dst, *index),
            Op::Scalar { dst, op, args } => self.scalar(*dst, *op, args),
            Op::ReadReg { dst, src } => {
                let dst = self.define(*dst);
                self.line(format!("mov.b32 {dst}, {}", reg(*src)));
            }
            Op::WriteReg { dst, src } => {
                let src = self.operand("mov.b32", *src, RegType::B32);
                self.line(format!("mov.b32 {}, {src}", reg(*dst)));
            }
            Op::Load { row, dst, address, guard } => {
                if guard.is_some() {
                    for r in dst {
                        self.line(format!("mov.b32 {}, 0", reg(*r)));
                    }
                }
                let address = self.address(address, row.src);
                let guard = self.guard(*guard);
                self.line(format!("{guard}{} {}, {address}", row.mnemonic, vector(dst, false)));
            }
            Op::Store { row, src, address, guard } => {
                let address = self.address(address, row.dst);
                let guard = self.guard(*guard);
                self.line(format!("{guard}{} {address}, {}", row.mnemonic, vector(src, false)));
            }
            Op::AsyncCopy { row, dst, src, guard } => self.async_copy(row, dst, src, *guard),
            Op::Matrix { row, regs, address } => self.matrix(row, regs, address),
            Op::Mma { row, d, a, b } => {
                let [d, a, b] = [d, a, b].map(|regs| vector(regs, true));
                self.line(format!("{} {d}, {a}, {b}, {d}", row.mnemonic));
            }
            Op::Shuffle { dst, src, mode, operand } => {
                let src = self.register(*src, RegType::B32);
                let operand = self.operand(mode.mnemonic(), *operand, RegType::B32);
                let dst = self.define(*dst);
                self.line(format!(
                    "{} {dst}, {src}, {operand}, {}, 0xffffffff",
                    mode.mnemonic(),
                    mode.clamp()
                ));
            }
            Op::Sync(op) => self.line(op.spelling()),
            Op::For { counter, lo, hi, step, body } => self.for_loop(*counter, *lo, *hi, *step, body),
            Op::If { condition, then, otherwise } => self.branch(*condition, then, otherwise),
        }
    }

    fn param(&mut self, dst: Value, index: u32) {
        let source = param(self.function, index);
        let ty = self.function.type_of(dst);
        let dst = self.define(dst);
        if ty == RegType::B64 {
            self.line(format!("ld.param.u64 {dst}, [{source}]"));
            self.line(format!("cvta.to.global.u64 {dst}, {dst}"));
        } else {
            self.line(format!("ld.param.b32 {dst}, [{source}]"));
        }
    }

    fn scalar(&mut self, dst: Value, op: ScalarOp, args: &[Operand]) {
        let row = op.row();
        let literals: Option<Vec<u64>> = args
            .iter()
            .map(|arg| match arg {
                Operand::Imm(bits) => Some(*bits),
                Operand::Value(_) => None,
            })
            .collect();
        // Not every instruction takes a literal as its only operand, and none needs to.
        if let Some(literals) = literals {
            let result = literal(mov(row.result), row.result, (row.eval)(&literals));
            let dst = self.define(dst);
            return self.line(format!("{} {dst}, {result}", mov(row.result)));
        }
        let mut operands = Vec::with_capacity(args.len() + 1);
        for (arg, ty) in args.iter().zip(row.operands) {
            operands.push(self.operand(row.mnemonic, *arg, *ty));
        }
        operands.insert(0, self.define(dst));
        self.line(format!("{} {}", row.mnemonic, operands.join(", ")));
    }

    /// Where the guard is false, the number of source bytes is 0: nothing is read, and zeros are written.
    fn async_copy(&mut self, row: &CopyRow, dst: &Address, src: &Address, guard: Option<Value>) {
        let dst = self.address(dst, Memory::Shared);
        let src = self.address(src, Memory::Global);
        let bytes = row.bytes;
        match guard {
            None => self.line(format!("{} {dst}, {src}, {bytes}", row.mnemonic)),
            Some(guard) => {
                let guard = self.name(guard);
                let size = self.counts.fresh(RegType::B32);
                self.line(format!("{} {size}, {bytes}, 0, {guard}", ScalarOp::Select.row().mnemonic));
                self.line(format!("{} {dst}, {src}, {bytes}, {size}", row.mnemonic));
            }
        }
    }

    fn matrix(&mut self, row: &CopyRow, regs: &[Reg], address: &Address) {
        debug_assert!(matches!(row.kind, CopyKind::Matrix { .. }));
        let address = self.address(address, Memory::Shared);
        let regs = vector(regs, true);
        let operands = if row.dst == Memory::Register {
            format!("{regs}, {address}")
        } else {
            format!("{address}, {regs}")
        };
        self.line(format!("{} {operands}", row.mnemonic));
    }

    /// A loop is tested once before it and then after each round. Branches are plain `bra`, which threads of a warp
    /// may take differently.
    fn for_loop(&mut self, counter: Value, lo: Operand, hi: Operand, step: i32, body: &[Inst]) {
        if let (Operand::Imm(lo), Operand::Imm(hi)) = (lo, hi)
            && lo as i32 >= hi as i32
        {
            return;
        }
        let ge = ScalarOp::GeI32.row().mnemonic;
        let lt = ScalarOp::LtI32.row().mnemonic;
        let add = ScalarOp::AddI32.row().mnemonic;
        let number = self.label_number();
        let (top, end) = (format!("$L{number}_loop"), format!("$L{number}_end"));
        let may_be_empty = !matches!((lo, hi), (Operand::Imm(_), Operand::Imm(_)));
        let hi_text = self.operand(lt, hi, RegType::B32);
        if may_be_empty {
            let lo_text = self.operand(ge, lo, RegType::B32);
            let skip = self.counts.fresh(RegType::Pred);
            self.line(format!("{ge} {skip}, {lo_text}, {hi_text}"));
            self.line(format!("@{skip} bra {end}"));
        }
        // A counter must not wrap on its way past the bound. By steps of one it reaches the bound itself; otherwise
        // the last round is known by `counter >= hi - step`, where the difference saturates.
        let last = match hi {
            Operand::Imm(bits) if (bits as i32).checked_add(step).is_some() => None,
            _ if step == 1 => None,
            Operand::Imm(bits) => Some((bits as i32).saturating_sub(step).to_string()),
            Operand::Value(_) => {
                let last = self.counts.fresh(RegType::B32);
                self.line(format!("sub.sat.s32 {last}, {hi_text}, {step}"));
                Some(last)
            }
        };
        let lo_text = self.operand("mov.b32", lo, RegType::B32);
        let name = self.define(counter);
        self.line(format!("mov.b32 {name}, {lo_text}"));
        self.label(&top);
        self.block(body);
        let again = self.counts.fresh(RegType::Pred);
        if let Some(last) = last {
            self.line(format!("{lt} {again}, {name}, {last}"));
            self.line(format!("{add} {name}, {name}, {step}"));
        } else {
            self.line(format!("{add} {name}, {name}, {step}"));
            self.line(format!("{lt} {again}, {name}, {hi_text}"));
        }
        self.line(format!("@{again} bra {top}"));
        if may_be_empty {
            self.label(&end);
        }
    }

    fn branch(&mut self, condition: Value, then: &[Inst], otherwise: &[Inst]) {
        let condition = self.name(condition);
        let number = self.label_number();
        let (other, end) = (format!("$L{number}_else"), format!("$L{number}_end"));
        if then.is_empty() {
            self.line(format!("@{condition} bra {end}"));
            self.block(otherwise);
        } else if otherwise.is_empty() {
            self.line(format!("@!{condition} bra {end}"));
            self.block(then);
        } else {
            self.line(format!("@!{condition} bra {other}"));
            self.block(then);
            self.line(format!("bra {end}"));
            self.label(&other);
            self.block(otherwise);
        }
        self.label(&end);
    }
}
