//! The instructions of a function's body.

mod atomic;
mod reduction;

use tilewright_machine::{
    ACQUIRE_TENSOR_MAP, BulkOp, CacheHint, CopyKind, CopyRow, LaunchControl, Major, MbarrierOp, Memory,
    RegType, ScalarOp, Scaling, Sparsity, SumsScaling, TENSOR_MAP_BYTES, Tcgen05Row, TensorRow, WgmmaRow,
    in_pairs,
};
use tilewright_simt::{
    Address, Factor, Function, FunctionParamKind, Inst, MetadataCells, Op, Operand, OriginId, Reg,
    ScaleBytes, ScaleCells, Special, Value,
};

use crate::lines::Places;
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
    /// The labels behind the loops around, outermost first.
    ends: Vec<String>,
    /// The text of the last instruction's origin.
    origin: &'a str,
    /// The places of origins.
    places: Places<'a>,
    /// The origin whose place the last `.loc` has.
    place: Option<OriginId>,
    /// The register that holds the address of each tensor map.
    maps: Vec<String>,
    /// True until the maps have been asked for.
    maps_unasked: bool,
}

impl<'a> Body<'a> {
    /// Prints the body of a function, with the places of its origins.
    pub(crate) fn print(function: &'a Function, places: Places<'a>) -> Self {
        let mut body = Body {
            function,
            names: vec![String::new(); function.values.len()],
            counts: Counts::default(),
            text: String::new(),
            labels: 0,
            ends: Vec::new(),
            origin: "",
            places,
            place: None,
            maps: vec![String::new(); function.tensor_maps.len()],
            maps_unasked: true,
        };
        body.locate(OriginId(0));
        body.tensor_maps();
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

    /// The addresses of the tensor maps, which lie among the parameters.
    fn tensor_maps(&mut self) {
        for (i, p) in self.function.params.iter().enumerate() {
            if let FunctionParamKind::TensorMap(map) = p.kind {
                let name = self.counts.fresh(RegType::B64);
                self.line(format!("mov.b64 {name}, {}", param(self.function, i as u32)));
                self.line(format!("cvta.param.u64 {name}, {name}"));
                if let Some(slot) = self.maps.get_mut(map as usize) {
                    *slot = name;
                }
            }
            if let FunctionParamKind::TensorMaps(map) = p.kind {
                // The host's address of global memory is a generic one, as tensor copies take it.
                let name = self.counts.fresh(RegType::B64);
                self.line(format!("ld.param.u64 {name}, [{}]", param(self.function, i as u32)));
                if let Some(slot) = self.maps.get_mut(map as usize) {
                    *slot = name;
                }
            }
        }
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
        let around = self.place;
        for inst in body {
            let origin = self.function.origin(inst.origin);
            if self.origin != origin {
                self.origin = origin;
                if !origin.is_empty() {
                    self.text.push_str(&format!("    // {}\n", comment(origin)));
                }
            }
            self.locate(inst.origin);
            self.op(&inst.op);
        }
        // What ends a loop or a branch is its own.
        if let Some(around) = around {
            self.locate(around);
        }
    }

    /// Gives what follows the place of this origin.
    fn locate(&mut self, origin: OriginId) {
        if self.place != Some(origin) {
            self.place = Some(origin);
            self.text.push_str(&self.places.directives(origin));
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
                    Special::ClusterRank => "%cluster_ctarank".to_string(),
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
            Op::Load { row, dst, address, guard, outside } => {
                if guard.is_some() {
                    for (r, outside) in dst.iter().zip(outside.iter().cycle()) {
                        self.line(format!("mov.b32 {}, {outside}", reg(*r)));
                    }
                }
                let address = self.address(address, row.src);
                let guard = self.guard(*guard);
                self.line(format!("{guard}{} {}, {address}", row.mnemonic, vector(dst, false)));
            }
            Op::Lookup { row, dst, address, guard } => {
                let address = self.address(address, row.src);
                let name = self.define(*dst);
                if guard.is_some() {
                    self.line(format!("{} {name}, 0", mov(self.function.type_of(*dst))));
                }
                let guard = self.guard(*guard);
                // Two words of a row are a vector of registers; a pointer is one, and nothing but the host writes it.
                let wide = self.function.type_of(*dst) == RegType::B64;
                let mnemonic = if wide { "ld.global.nc.b64" } else { row.mnemonic };
                self.line(format!("{guard}{mnemonic} {name}, {address}"));
            }
            Op::Atomic { row, order, dst, address, operands, guard } => {
                self.atomic((row, *order), *dst, address, operands, *guard);
            }
            Op::Await { address, until, operand } => self.await_word(address, *until, *operand),
            Op::Store { row, src, address, guard } => self.store(row, src, address, *guard),
            Op::AsyncCopy { row, dst, src, guard } => self.async_copy(row, dst, src, *guard),
            Op::Matrix { row, regs, address } => self.matrix(row, regs, address),
            Op::Mma { row, d, a, b, .. } if row.c.bits() == 64 => {
                let [sums, a, b] = [d, a, b].map(|regs| self.wholes(regs));
                let list = |names: &[String]| format!("{{{}}}", names.join(", "));
                let d_names = list(&sums);
                self.line(format!("{} {d_names}, {}, {}, {d_names}", row.mnemonic, list(&a), list(&b)));
                for (name, halves) in sums.iter().zip(d.chunks(2)) {
                    self.line(format!("mov.b64 {}, {name}", vector(halves, true)));
                }
            }
            Op::Mma { row, d, a, b, meta, scales } => {
                let [d, a, b] = [d, a, b].map(|regs| vector(regs, true));
                let beside = metadata(*meta) + &scaling(*scales);
                self.line(format!("{} {d}, {a}, {b}, {d}{beside}", row.mnemonic));
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
            Op::Wgmma { row, d, a, b, meta, accumulate } => self.wgmma(row, d, (a, b), *meta, *accumulate),
            Op::Tcgen05 { row, d, a, b, scales, meta, accumulate } => {
                self.tcgen05(row, d, (a, b), (*scales, *meta), *accumulate);
            }
            Op::ScaleCopy { chunk, to } => {
                let to = self.address(to, Memory::Tensor);
                let chunk = self.descriptor(chunk.low, chunk.high);
                let mnemonic = self.grouped(SumsScaling::COPY_MNEMONIC);
                self.line(format!("{mnemonic} {to}, {chunk}"));
            }
            Op::TensorCopy { row, regs, address } => {
                let (address, regs) = (self.address(address, Memory::Tensor), vector(regs, true));
                let load = row.dst == Memory::Register;
                let operands = if load { format!("{regs}, {address}") } else { format!("{address}, {regs}") };
                self.line(format!("{} {operands}", row.mnemonic));
            }
            Op::TensorAllocate { columns, to } => {
                let to = self.address(to, Memory::Shared);
                let mnemonic = self.grouped("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32");
                self.line(format!("{mnemonic} {to}, {columns}"));
            }
            Op::TensorFree { columns, address } => {
                let address = self.register(*address, RegType::B32);
                let mnemonic = self.grouped("tcgen05.dealloc.cta_group::1.sync.aligned.b32");
                self.line(format!("{mnemonic} {address}, {columns}"));
            }
            Op::TensorMap { dst, map, number, guard } => {
                let number = self.register(*number, RegType::B32);
                let (name, first) = (self.define(*dst), self.maps[*map as usize].clone());
                self.line(format!("mad.wide.u32 {name}, {number}, {TENSOR_MAP_BYTES}, {first}"));
                let guard = self.guard(*guard);
                self.line(format!("{guard}{ACQUIRE_TENSOR_MAP} [{name}], {TENSOR_MAP_BYTES}"));
            }
            Op::Tensor { row, map, one, coords, shared, barrier, multicast, even, hint } => {
                let map = match one {
                    Some(one) => self.register(*one, RegType::B64),
                    None => self.maps[*map as usize].clone(),
                };
                self.tensor(row, &map, coords, (shared, barrier), multicast.map(|to| (to, *even)), *hint);
            }
            Op::Bulk { op, shared, other, bytes, barrier } => {
                let memory = if *op == BulkOp::Peer { Memory::Shared } else { Memory::Global };
                let (shared, other) = (self.address(shared, Memory::Shared), self.address(other, memory));
                let (to, from) = if *op == BulkOp::Load { (shared, other) } else { (other, shared) };
                let bytes = self.register(*bytes, RegType::B32);
                let signal = match barrier {
                    Some(barrier) => format!(", {}", self.address(barrier, Memory::Shared)),
                    None => String::new(),
                };
                let mnemonic = op.mnemonic_on(self.function.arch);
                self.line(format!("{mnemonic} {to}, {from}, {bytes}{signal}"));
            }
            Op::TryCancel { answer, barrier } => {
                let [answer, barrier] = [answer, barrier].map(|at| self.address(at, Memory::Shared));
                self.line(format!("{} {answer}, {barrier}", LaunchControl::TRY_CANCEL));
            }
            Op::Cancelled { dst, answer } => self.cancelled(*dst, answer),
            Op::Mbarrier { op, address, operand } => self.mbarrier(*op, address, *operand),
            Op::Elect { dst } => {
                let dst = self.define(*dst);
                self.line(format!("elect.sync _|{dst}, 0xffffffff"));
            }
            Op::Asm { text, dst, types, args, .. } => self.asm(text, *dst, types, args),
            // `print` has left them out.
            Op::Assert { .. } | Op::Print { .. } => {}
            Op::Vote { dst, src } => {
                let src = self.register(*src, RegType::Pred);
                let dst = self.define(*dst);
                self.line(format!("vote.sync.any.pred {dst}, {src}, 0xffffffff"));
            }
            Op::Sync(op) => {
                let text = self.grouped(&op.spelling());
                self.line(text);
            }
            Op::BarrierSync { id, threads } => {
                let id = self.register(*id, RegType::B32);
                self.line(format!("bar.sync {id}, {threads}"));
            }
            Op::For { counter, lo, hi, step, body } => self.for_loop(*counter, *lo, *hi, *step, body),
            Op::Break { condition } => {
                let condition = self.name(*condition);
                // The verifier knows that it stands in a loop.
                let end = self.ends.last().cloned().unwrap_or_default();
                self.line(format!("@{condition} bra {end}"));
            }
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
        let literals: Option<Vec<u64>> = args.iter().map(|arg| arg.literal()).collect();
        // Not every instruction takes a literal as its only operand, and none needs to.
        if let Some(literals) = literals {
            let result = literal(mov(row.result), row.result, (row.eval)(&literals));
            let dst = self.define(dst);
            return self.line(format!("{} {dst}, {result}", mov(row.result)));
        }
        let mut operands = Vec::with_capacity(args.len() + 1);
        for (arg, ty) in args.iter().zip(row.operands) {
            // A vector of halves has no literals in it.
            operands.push(match op {
                ScalarOp::JoinB64 => self.register(*arg, *ty),
                _ => self.operand(row.mnemonic, *arg, *ty),
            });
        }
        let dst = self.define(dst);
        // A pair of 4 bits is a register of 8, which nothing else has.
        let pair = match op {
            ScalarOp::E2M1x2FromF32 => Some([
                format!("{} pair, {}", row.mnemonic, operands.join(", ")),
                format!("cvt.u16.u8 {dst}, pair"),
            ]),
            ScalarOp::F16x2FromE2M1x2 => Some([
                format!("cvt.u8.u16 pair, {}", operands.join(", ")),
                format!("{} {dst}, pair", row.mnemonic),
            ]),
            _ => None,
        };
        if let Some([first, second]) = pair {
            self.text.push_str(&format!("    {{ .reg .b8 pair; {first}; {second}; }}\n"));
            return;
        }
        self.line(match op {
            ScalarOp::JoinB64 => format!("{} {dst}, {{{}}}", row.mnemonic, operands.join(", ")),
            ScalarOp::HighB32 => format!("{} {{_, {dst}}}, {}", row.mnemonic, operands.join(", ")),
            _ => format!("{} {dst}, {}", row.mnemonic, operands.join(", ")),
        });
    }

    /// The author's instructions, with registers in the places of `$0`, `$1` and so on.
    fn asm(&mut self, text: &str, dst: Value, types: &[RegType], args: &[Operand]) {
        let mut names = vec![String::new()];
        for (arg, ty) in args.iter().zip(types) {
            names.push(self.register(*arg, *ty));
        }
        names[0] = self.define(dst);
        let mut parts = text.split('$');
        let mut line = parts.next().unwrap_or_default().to_string();
        for part in parts {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let number: Option<usize> = part[..digits].parse().ok();
            line.push_str(number.and_then(|number| names.get(number)).map_or("", String::as_str));
            line.push_str(&part[digits..]);
        }
        self.text.push_str(&format!("    {}\n", comment(&line)));
    }

    /// Emits a `cp.async`. If the guard is false, the number of source bytes is 0: nothing is read, and zeros are written.
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

    /// A register of 64 bits for every two of a fragment's.
    fn wholes(&mut self, regs: &[Reg]) -> Vec<String> {
        let whole = |halves: &[Reg]| {
            let whole = self.counts.fresh(RegType::B64);
            self.line(format!("mov.b64 {whole}, {}", vector(halves, true)));
            whole
        };
        regs.chunks(2).map(whole).collect()
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

    /// The registers of a descriptor: 64 bits from a value and a constant.
    fn descriptor(&mut self, low: Operand, high: u32) -> String {
        let low = self.register(low, RegType::B32);
        let upper = self.register(Operand::Imm(u64::from(high)), RegType::B32);
        let whole = self.counts.fresh(RegType::B64);
        self.line(format!("mov.b64 {whole}, {{{low}, {upper}}}"));
        whole
    }

    fn wgmma(
        &mut self,
        row: &WgmmaRow,
        d: &[Reg],
        (a, b): (&Factor, &Factor),
        meta: Option<Reg>,
        accumulate: Operand,
    ) {
        let mut majors = String::new();
        let mut factors = Vec::new();
        for factor in [a, b] {
            factors.push(match factor {
                Factor::Registers(regs) => vector(regs, true),
                Factor::Shared { descriptor, major } => {
                    if row.takes_mn_major() {
                        majors += if *major == Major::Mn { ", 1" } else { ", 0" };
                    }
                    self.descriptor(descriptor.low, descriptor.high)
                }
                Factor::Tensor(address) => self.address(address, Memory::Tensor),
            });
        }
        let scales = if row.has_scales() { ", 1, 1" } else { "" };
        // Literals are taken as they are: 0 means that the accumulator is not read.
        let accumulate = self.predicate(accumulate);
        let (d, a, b) = (vector(d, true), &factors[0], &factors[1]);
        let meta = metadata(meta);
        self.line(format!("{} {d}, {a}, {b}{meta}, {accumulate}{scales}{majors}", row.mnemonic));
    }

    /// The index of the block in an answer of the launch. It is undefined where nothing was cancelled.
    fn cancelled(&mut self, dst: Value, answer: &[Reg]) {
        let (low, high) = answer.split_at(answer.len() / 2);
        let (low, high) = (vector(low, true), vector(high, true));
        let name = self.define(dst);
        let lines = [
            ".reg .pred any".to_string(),
            ".reg .b64 low, high".to_string(),
            ".reg .b128 answer".to_string(),
            format!("mov.b64 low, {low}"),
            format!("mov.b64 high, {high}"),
            "mov.b128 answer, {low, high}".to_string(),
            format!("{} any, answer", LaunchControl::IS_CANCELED),
            format!("mov.b32 {name}, {}", LaunchControl::NONE),
            format!("@any {} {name}, answer", LaunchControl::FIRST_BLOCK),
        ];
        self.text.push_str(&format!("    {{ {}; }}\n", lines.join("; ")));
    }

    /// A product with its sums in tensor memory: types, majors and extents are in its instruction descriptor.
    fn tcgen05(
        &mut self,
        row: &Tcgen05Row,
        d: &Address,
        (a, b): (&Factor, &Factor),
        (scales, meta): (Option<[ScaleCells; 2]>, Option<MetadataCells>),
        accumulate: Operand,
    ) {
        let mut majors = [Major::K; 2];
        let mut factors = Vec::new();
        for (factor, along) in [a, b].into_iter().zip(&mut majors) {
            factors.push(match factor {
                Factor::Registers(regs) => vector(regs, true),
                Factor::Shared { descriptor, major } => {
                    *along = *major;
                    self.descriptor(descriptor.low, descriptor.high)
                }
                Factor::Tensor(address) => self.address(address, Memory::Tensor),
            });
        }
        let [left, right] = majors;
        let mut beside = String::new();
        let instruction = match (row.scaling, scales) {
            (Some(scaling), Some(scales)) => {
                for scales in scales {
                    beside += &format!(", {}", self.address(&scales.address, Memory::Tensor));
                }
                row.scaled_instruction(&scaling, scales.map(|scales| scales.byte), [left, right])
            }
            _ => row.instruction(left, right),
        };
        let instruction = instruction | meta.map_or(0, |meta| Tcgen05Row::sparse_bits(meta.selector));
        if let Some(meta) = meta {
            factors.push(self.address(&meta.address, Memory::Tensor));
        }
        let instruction = self.register(Operand::Imm(u64::from(instruction)), RegType::B32);
        let accumulate = self.predicate(accumulate);
        let d = self.address(d, Memory::Tensor);
        let factors = factors.join(", ");
        self.line(format!("{} {d}, {factors}, {instruction}{beside}, {accumulate}", row.mnemonic));
    }

    /// A predicate, of which literals are taken as they are.
    fn predicate(&mut self, operand: Operand) -> String {
        match operand {
            Operand::Imm(bits) => literal(mov(RegType::Pred), RegType::Pred, bits),
            Operand::Value(value) => self.name(value),
        }
    }

    /// The text of an instruction as a function of single blocks or of pairs has it.
    fn grouped(&self, text: &str) -> String {
        if self.function.pairs { in_pairs(text) } else { text.to_string() }
    }

    fn tensor(
        &mut self,
        row: &TensorRow,
        map: &str,
        coords: &[Operand],
        (shared, barrier): (&Address, &Option<Address>),
        multicast: Option<(Operand, bool)>,
        hint: Option<CacheHint>,
    ) {
        let shared = self.address(shared, Memory::Shared);
        let (coords, offsets) = coords.split_at(coords.len().min(row.coordinates() as usize));
        let coords: Vec<String> =
            coords.iter().map(|c| self.operand(&row.mnemonic, *c, RegType::B32)).collect();
        let place = format!("[{map}, {{{}}}]", coords.join(", "));
        let (mut form, mut tail) = (String::new(), String::new());
        if row.im2col {
            let offsets: Vec<String> = offsets.iter().map(|offset| self.narrowed(*offset)).collect();
            tail += &format!(", {{{}}}", offsets.join(", "));
        }
        let of_pair = barrier.is_some() && self.function.pairs && multicast.is_none();
        if let Some((mask, even)) = multicast {
            let ranks = self.ranks(mask);
            form += ".multicast::cluster";
            // In each pair the mbarrier is that of the block with the parity of the given one's (PTX ISA 9.1, `cp.async.bulk.tensor`).
            form += if even { ".cta_group::2" } else { "" };
            tail += &format!(", {ranks}");
        } else if of_pair {
            // The mbarrier may be the other block's (PTX ISA 9.1, `cp.async.bulk.tensor`).
            form += ".cta_group::2";
        }
        if let Some(hint) = hint {
            let policy = self.counts.fresh(RegType::B64);
            self.line(format!("mov.b64 {policy}, {:#x}", hint.policy()));
            form += ".L2::cache_hint";
            tail += &format!(", {policy}");
        }
        let mnemonic = if of_pair { row.mnemonic_in_pairs() } else { row.mnemonic_on(self.function.arch) };
        match barrier {
            Some(barrier) => {
                let barrier = self.address(barrier, Memory::Shared);
                self.line(format!("{mnemonic}{form} {shared}, {place}, {barrier}{tail}"));
            }
            None => self.line(format!("{mnemonic}{form} {place}, {shared}{tail}")),
        }
    }

    /// A mask of the ranks of blocks, in the register of 16 bits that instructions want.
    fn ranks(&mut self, mask: Operand) -> String {
        self.narrowed(mask)
    }

    /// The low half of an integer, in a register of 16 bits.
    fn narrowed(&mut self, operand: Operand) -> String {
        let wide = self.register(operand, RegType::B32);
        let narrow = self.counts.fresh(RegType::B16);
        self.line(format!("cvt.u16.u32 {narrow}, {wide}"));
        narrow
    }

    /// Asks for the tensor maps (PTX ISA, `prefetch.tensormap`), the first time, so that the first copy by each does not wait for it: a hint, which
    /// no other execution has. The thread that makes the first barrier does, since a copy to shared memory needs a barrier.
    fn ask_for_maps(&mut self) {
        if std::mem::take(&mut self.maps_unasked) {
            // Those in global memory may not be read before they are acquired.
            let by_value = self.function.params.iter().filter_map(|param| match param.kind {
                FunctionParamKind::TensorMap(map) => self.maps.get(map as usize).cloned(),
                _ => None,
            });
            for map in by_value.collect::<Vec<_>>() {
                self.line(format!("prefetch.tensormap [{map}]"));
            }
        }
    }

    fn mbarrier(&mut self, op: MbarrierOp, address: &Address, operand: Operand) {
        let address = self.address(address, Memory::Shared);
        match op {
            MbarrierOp::Init => {
                self.ask_for_maps();
                let count = self.operand(op.mnemonic(), operand, RegType::B32);
                self.line(format!("{} {address}, {count}", op.mnemonic()));
            }
            MbarrierOp::Arrive | MbarrierOp::ArrivePeer | MbarrierOp::ArriveCluster => {
                self.line(format!("{} _, {address}", op.mnemonic()))
            }
            MbarrierOp::Commit => {
                let mnemonic = self.grouped(op.mnemonic());
                self.line(format!("{mnemonic} {address}"));
            }
            MbarrierOp::CommitPeers => {
                let (mnemonic, ranks) = (self.grouped(op.mnemonic()), self.ranks(operand));
                self.line(format!("{mnemonic} {address}, {ranks}"));
            }
            MbarrierOp::ArriveExpect => {
                let bytes = self.operand(op.mnemonic(), operand, RegType::B32);
                self.line(format!("{} _, {address}, {bytes}", op.mnemonic()));
            }
            MbarrierOp::Wait | MbarrierOp::WaitCluster => {
                let parity = self.operand(op.mnemonic(), operand, RegType::B32);
                let (done, number) = (self.counts.fresh(RegType::Pred), self.label_number());
                self.label(&format!("$L{number}_wait"));
                self.line(format!("{} {done}, {address}, {parity}", op.mnemonic()));
                self.line(format!("@!{done} bra $L{number}_wait"));
            }
        }
    }

    /// A loop is tested once before it and then after each round. Branches are plain `bra`, which threads of a warp
    /// may take differently.
    fn for_loop(&mut self, counter: Value, lo: Operand, hi: Operand, step: Operand, body: &[Inst]) {
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
        let step_text = match step {
            Operand::Imm(bits) => (bits as i32).to_string(),
            Operand::Value(value) => self.name(value),
        };
        let last = match (hi, step) {
            (_, Operand::Imm(1)) => None,
            (Operand::Imm(hi), Operand::Imm(step)) if (hi as i32).checked_add(step as i32).is_some() => None,
            (Operand::Imm(hi), Operand::Imm(step)) => {
                Some((hi as i32).saturating_sub(step as i32).to_string())
            }
            _ => {
                let hi = self.register(hi, RegType::B32);
                let last = self.counts.fresh(RegType::B32);
                self.line(format!("sub.sat.s32 {last}, {hi}, {step_text}"));
                Some(last)
            }
        };
        let lo_text = self.operand("mov.b32", lo, RegType::B32);
        let name = self.define(counter);
        self.line(format!("mov.b32 {name}, {lo_text}"));
        self.label(&top);
        self.ends.push(end);
        self.block(body);
        let end = self.ends.pop().unwrap_or_default();
        let again = self.counts.fresh(RegType::Pred);
        if let Some(last) = last {
            self.line(format!("{lt} {again}, {name}, {last}"));
            self.line(format!("{add} {name}, {name}, {step_text}"));
        } else {
            self.line(format!("{add} {name}, {name}, {step_text}"));
            self.line(format!("{lt} {again}, {name}, {hi_text}"));
        }
        self.line(format!("@{again} bra {top}"));
        let leaves = body.iter().any(|inst| matches!(inst.op, Op::Break { .. }));
        if may_be_empty || leaves {
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

/// The operands of a block-scaled product: for each factor the register of its scales, the first of their bytes, and the lanes that have them.
fn scaling(scales: Option<[ScaleBytes; 2]>) -> String {
    let each =
        |scale: ScaleBytes| format!(", {}, {{{}, {}}}", reg(scale.register), scale.byte, Scaling::THREAD);
    scales.map_or(String::new(), |scales| scales.map(each).concat())
}

/// The operands of a sparse left factor: the register of its metadata, and the sparsity selector.
fn metadata(meta: Option<Reg>) -> String {
    meta.map_or(String::new(), |meta| format!(", {}, 0x{:x}", reg(meta), Sparsity::SELECTOR))
}
