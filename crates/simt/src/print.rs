//! The text form of a thread-level program, as `--emit simt` shows it: one instruction a line, the tile statement as a
//! comment where it changes.

use std::fmt;

use tilewright_machine::{BulkOp, SumsScaling};

use crate::function::{Address, Factor, Function, Inst, Op, Reg, Special, Value};

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
        Factor::Tensor(address) => address.to_string(),
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
                    let otherwise = match outside {
                        [0, 0] => String::new(),
                        [even, odd] if even == odd => format!(" else {even:#x}"),
                        [even, odd] => format!(" else {even:#x}, {odd:#x}"),
                    };
                    writeln!(f, "{pad}{} = {} {address}{}{otherwise}", regs(dst), row.name, guard(g))?;
                }
                Op::Lookup { row, dst, address, guard: g } => {
                    writeln!(f, "{pad}{dst} = {} {address}{}", row.name, guard(g))?;
                }
                Op::Store { row, src, address, guard: g } => {
                    writeln!(f, "{pad}{} {address}, {}{}", row.name, regs(src), guard(g))?;
                }
                Op::Atomic { row, order, dst, address, operands, guard: g } => {
                    let operands: Vec<String> = operands.iter().map(ToString::to_string).collect();
                    let (order, operands) = (order.spelling(), operands.join(", "));
                    let result = dst.map_or(String::new(), |dst| format!("{dst} = "));
                    writeln!(f, "{pad}{result}{} {order} {address}, {operands}{}", row.name, guard(g))?;
                }
                Op::Await { address, until, operand } => {
                    writeln!(f, "{pad}await {address} {until:?} {operand}")?;
                }
                Op::AsyncCopy { row, dst, src, guard: g } => {
                    writeln!(f, "{pad}{} {dst}, {src}{}", row.name, guard(g))?;
                }
                Op::Matrix { row, regs: r, address } => {
                    writeln!(f, "{pad}{} {} {address}", row.name, regs(r))?
                }
                Op::Mma { row, d, a, b, meta, scales } => {
                    let meta = meta.map_or(String::new(), |meta| format!(", metadata {meta}"));
                    let scales =
                        scales.map_or(String::new(), |[left, right]| format!(", scales {left} and {right}"));
                    writeln!(f, "{pad}{} {}, {}, {}{meta}{scales}", row.name, regs(d), regs(a), regs(b))?
                }
                Op::Shuffle { dst, src, mode, operand } => {
                    writeln!(f, "{pad}{dst} = {} {src}, {operand}", mode.mnemonic())?;
                }
                Op::Wgmma { row, d, a, b, meta, accumulate } => {
                    let (a, b) = (factor(a), factor(b));
                    let meta = meta.map_or(String::new(), |meta| format!(", metadata {meta}"));
                    writeln!(f, "{pad}{} {}, {a}, {b}{meta}, accumulate {accumulate}", row.name, regs(d))?;
                }
                Op::Tcgen05 { row, d, a, b, scales, meta, accumulate } => {
                    let (a, b) = (factor(a), factor(b));
                    let scales =
                        scales.map_or(String::new(), |[left, right]| format!(", scales {left} and {right}"));
                    let meta = meta.map_or(String::new(), |meta| format!(", metadata {meta}"));
                    writeln!(f, "{pad}{} {d}, {a}, {b}{scales}{meta}, accumulate {accumulate}", row.name)?;
                }
                Op::ScaleCopy { chunk, to } => {
                    writeln!(
                        f,
                        "{pad}{} {to}, descriptor({}, {:#x})",
                        SumsScaling::COPY,
                        chunk.low,
                        chunk.high
                    )?;
                }
                Op::TensorCopy { row, regs: r, address } => {
                    writeln!(f, "{pad}{} {} {address}", row.name, regs(r))?
                }
                Op::TensorAllocate { columns, to } => {
                    writeln!(f, "{pad}tcgen05.alloc {to}, {columns} columns")?;
                }
                Op::TensorFree { columns, address } => {
                    writeln!(f, "{pad}tcgen05.dealloc {address}, {columns} columns")?;
                }
                Op::TensorMap { dst, map, number, guard } => {
                    let name = self.function.tensor_maps.get(*map as usize).map_or("?", |m| m.name.as_str());
                    let guard = guard.map_or(String::new(), |guard| format!(" if {guard}"));
                    writeln!(f, "{pad}{dst} = tensor map {number} of {name}{guard}")?;
                }
                Op::Tensor { row, map, one, coords, shared, barrier, multicast, even, hint } => {
                    let name = self.function.tensor_maps.get(*map as usize).map_or("?", |m| m.name.as_str());
                    let name = one.map_or(name.to_string(), |one| format!("{name}[{one}]"));
                    let coords: Vec<String> = coords.iter().map(ToString::to_string).collect();
                    let of_pairs = if *even { " of even blocks" } else { "" };
                    let to = multicast.map_or(String::new(), |m| format!("{of_pairs} multicast {m}"));
                    let hint = hint.map_or(String::new(), |h| format!(" {}", h.name()));
                    let (coords, signal) = (coords.join(", "), signal(barrier));
                    writeln!(f, "{pad}{} {shared}, {name}({coords}){signal}{to}{hint}", row.name)?;
                }
                Op::Bulk { op, shared, other, bytes, barrier } => {
                    let (from, to) = if *op == BulkOp::Load { (other, shared) } else { (shared, other) };
                    writeln!(f, "{pad}{} {to}, {from}, {bytes} bytes{}", op.name(), signal(barrier))?;
                }
                Op::TryCancel { answer, barrier } => {
                    writeln!(f, "{pad}clusterlaunchcontrol.try_cancel {answer}, {barrier}")?;
                }
                Op::Cancelled { dst, answer } => {
                    writeln!(f, "{pad}{dst} = clusterlaunchcontrol.query_cancel {}", regs(answer))?;
                }
                Op::Mbarrier { op, address, operand } => {
                    let operand = if op.has_operand() { format!(", {operand}") } else { String::new() };
                    writeln!(f, "{pad}{} {address}{operand}", op.name())?;
                }
                Op::Elect { dst } => writeln!(f, "{pad}{dst} = elect")?,
                Op::Asm { text, dst, args, means, .. } => {
                    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
                    writeln!(f, "{pad}{dst} = asm({text:?}, {}) means {means}", args.join(", "))?;
                }
                Op::Assert { holds } => writeln!(f, "{pad}assert {holds}")?,
                Op::Print { what, operands } => {
                    let list: Vec<String> = operands.iter().map(ToString::to_string).collect();
                    writeln!(f, "{pad}print s{} {}", what.statement, list.join(", "))?;
                }
                Op::Vote { dst, src } => writeln!(f, "{pad}{dst} = any lane {src}")?,
                Op::Sync(op) => writeln!(f, "{pad}{}", op.spelling())?,
                Op::BarrierSync { id, threads } => writeln!(f, "{pad}bar.sync {id}, {threads}")?,
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
        let params: Vec<String> =
            self.params.iter().map(|p| format!("{}: {}", p.name, p.kind.name())).collect();
        writeln!(
            f,
            "function {}({}) {} threads({}{}){} {{",
            self.name,
            params.join(", "),
            self.arch,
            self.threads,
            if self.resident > 1 { format!(", {}", self.resident) } else { String::new() },
            match (self.cluster, self.pairs) {
                (1, _) => String::new(),
                (blocks, false) => format!(" cluster({blocks})"),
                (blocks, true) => format!(" cluster({blocks}, pairs)"),
            }
        )?;
        for map in &self.tensor_maps {
            let (extents, dtype, swizzle) = (&map.shape.extents, map.shape.dtype, map.shape.swizzle);
            writeln!(f, "    map {}: box {extents:?} of {dtype}, {swizzle}", map.name)?;
        }
        for buffer in &self.shared {
            writeln!(f, "    shared {} at {}: {} bytes", buffer.name, buffer.offset, buffer.bytes)?;
        }
        for buffer in &self.tensor_memory {
            writeln!(
                f,
                "    tensor memory {} at {}: {} columns",
                buffer.name, buffer.column, buffer.columns
            )?;
        }
        for (i, array) in self.arrays.iter().enumerate() {
            writeln!(f, "    registers @{i} {}: {}", array.name, array.registers)?;
        }
        Printer { function: self, last: "" }.block(f, &self.body, 1)?;
        writeln!(f, "}}")
    }
}
