//! The text form of a thread-level program, as `--emit simt` shows it: one instruction a line, the tile statement as a
//! comment where it changes.

use std::fmt;

use tilewright_machine::BulkOp;

use crate::function::{Address, Factor, Function, FunctionParamKind, Inst, Op, Reg, Special, Value};

fn regs(regs: &[Reg]) -> String {
    let all: Vec<String> = regs.iter().map(Reg::to_string).collect();
    format!("{{{}}}", all.join(", "))
}

fn guard(guard: &Option<Value>) -> String {
    guard.map_or(String::new(), |g| format!(" if {g}"))
}

fn factor(factor: &Factor) -> String {
    match factor {
        Factor::Registers(r) => regs(r),
        Factor::Shared { descriptor, major } => {
            format!("descriptor({}, {:#x}, {major})", descriptor.low, descriptor.high)
        }
    }
}

fn signal(barrier: &Option<Address>) -> String {
    barrier.map_or(String::new(), |b| format!(" signals {b}"))
}

struct Printer<'a> {
    function: &'a Function,
    /// The text of the last origin.
    last: &'a str,
}

impl Printer<'_> {
    fn block(&mut self, f: &mut fmt::Formatter<'_>, body: &[Inst], depth: usize) -> fmt::Result {
        let pad = "    ".repeat(depth);
        for inst in body {
            let origin = self.function.origin(inst.origin);
            if self.last != origin {
                self.last = origin;
                if !origin.is_empty() {
                    writeln!(f, "{pad}// {origin}")?;
                }
            }
            match &inst.op {
                Op::Special { dst, special } => {
                    let name = match special {
                        Special::ThreadIndex => "thread".to_string(),
                        Special::BlockIndex(axis) => {
                            format!("block.{}", ["x", "y", "z"][usize::from(*axis).min(2)])
                        }
                        Special::SharedBase => "shared".to_string(),
                        Special::ClusterRank => "cluster.rank".to_string(),
                        Special::Clock => "clock".to_string(),
                    };
                    writeln!(f, "{pad}{dst} = {name}")?;
                }
                Op::Param { dst, param } => {
                    let name = self.function.params.get(*param as usize).map_or("?", |p| p.name.as_str());
                    writeln!(f, "{pad}{dst} = param {name}")?;
                }
                Op::Scalar { dst, op, args } => {
                    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
                    writeln!(f, "{pad}{dst} = {} {}", op.row().name, args.join(", "))?;
                }
                Op::ReadReg { dst, src } => writeln!(f, "{pad}{dst} = {src}")?,
                Op::WriteReg { dst, src } => writeln!(f, "{pad}{dst} = {src}")?,
                Op::Load { row, dst, address, guard: g, outside } => {
                    let otherwise = if *outside == 0 { String::new() } else { format!(" else {outside:#x}") };
                    writeln!(f, "{pad}{} = {} {address}{}{otherwise}", regs(dst), row.name, guard(g))?;
                }
                Op::Lookup { row, dst, address, guard: g } => {
                    writeln!(f, "{pad}{dst} = {} {address}{}", row.name, guard(g))?;
                }
                Op::Store { row, src, address, guard: g } => {
                    writeln!(f, "{pad}{} {address}, {}{}", row.name, regs(src), guard(g))?;
                }
                Op::AsyncCopy { row, dst, src, guard: g } => {
                    writeln!(f, "{pad}{} {dst}, {src}{}", row.name, guard(g))?;
                }
                Op::Matrix { row, regs: r, address } => {
                    writeln!(f, "{pad}{} {} {address}", row.name, regs(r))?
                }
                Op::Mma { row, d, a, b } => {
                    writeln!(f, "{pad}{} {}, {}, {}", row.name, regs(d), regs(a), regs(b))?
                }
                Op::Shuffle { dst, src, mode, operand } => {
                    writeln!(f, "{pad}{dst} = {} {src}, {operand}", mode.mnemonic())?;
                }
                Op::Wgmma { row, d, a, b, accumulate } => {
                    let (a, b) = (factor(a), factor(b));
                    writeln!(f, "{pad}{} {}, {a}, {b}, accumulate {accumulate}", row.name, regs(d))?;
                }
                Op::Tensor { row, map, coords, shared, barrier, multicast, hint } => {
                    let name = self.function.tensor_maps.get(*map as usize).map_or("?", |m| m.name.as_str());
                    let coords: Vec<String> = coords.iter().map(ToString::to_string).collect();
                    let to = multicast.map_or(String::new(), |m| format!(" multicast {m}"));
                    let hint = hint.map_or(String::new(), |h| format!(" {}", h.name()));
                    let (coords, signal) = (coords.join(", "), signal(barrier));
                    writeln!(f, "{pad}{} {shared}, {name}({coords}){signal}{to}{hint}", row.name)?;
                }
                Op::Bulk { op, shared, other, bytes, barrier } => {
                    let (from, to) = if *op == BulkOp::Load { (other, shared) } else { (shared, other) };
                    writeln!(f, "{pad}{} {to}, {from}, {bytes} bytes{}", op.name(), signal(barrier))?;
                }
                Op::Mbarrier { op, address, operand } => {
                    let operand = if op.has_operand() { format!(", {operand}") } else { String::new() };
                    writeln!(f, "{pad}{} {address}{operand}", op.name())?;
                }
                Op::Elect { dst } => writeln!(f, "{pad}{dst} = elect")?,
                Op::Sync(op) => writeln!(f, "{pad}{}", op.spelling())?,
                Op::For { counter, lo, hi, step, body } => {
                    writeln!(f, "{pad}for {counter} in {lo}..{hi} step {step} {{")?;
                    self.block(f, body, depth + 1)?;
                    writeln!(f, "{pad}}}")?;
                }
                Op::Break { condition } => writeln!(f, "{pad}break where {condition}")?,
                Op::If { condition, then, otherwise } => {
                    writeln!(f, "{pad}if {condition} {{")?;
                    self.block(f, then, depth + 1)?;
                    if !otherwise.is_empty() {
                        writeln!(f, "{pad}}} else {{")?;
                        self.block(f, otherwise, depth + 1)?;
                    }
                    writeln!(f, "{pad}}}")?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let params: Vec<String> = self
            .params
            .iter()
            .map(|p| {
                let kind = match p.kind {
                    FunctionParamKind::Pointer => "pointer",
                    FunctionParamKind::I32 => "i32",
                    FunctionParamKind::F32 => "f32",
                    FunctionParamKind::TensorMap(_) => "tensor map",
                };
                format!("{}: {kind}", p.name)
            })
            .collect();
        writeln!(
            f,
            "function {}({}) {} threads({}){} {{",
            self.name,
            params.join(", "),
            self.arch,
            self.threads,
            if self.cluster > 1 { format!(" cluster({})", self.cluster) } else { String::new() }
        )?;
        for map in &self.tensor_maps {
            let (extents, dtype, swizzle) = (&map.shape.extents, map.shape.dtype, map.shape.swizzle);
            writeln!(f, "    map {}: box {extents:?} of {dtype}, {swizzle}", map.name)?;
        }
        for buffer in &self.shared {
            writeln!(f, "    shared {} at {}: {} bytes", buffer.name, buffer.offset, buffer.bytes)?;
        }
        for (i, array) in self.arrays.iter().enumerate() {
            writeln!(f, "    registers @{i} {}: {}", array.name, array.registers)?;
        }
        Printer { function: self, last: "" }.block(f, &self.body, 1)?;
        writeln!(f, "}}")
    }
}
