//! Assertions and prints on a GPU: stores to a buffer that the host reads.
//!
//! [`recorded`] makes of a function one that has a further parameter, the address of the buffer, and instead of each assertion and
//! print the code that appends a record to it. The buffer has [`BUFFER_BYTES`], zeros before the launch: the number of words that records have asked
//! for and the number of records that found no room, 64 bits each, then the records. A record is the number of its site plus 1, the block's
//! index along x, y and z, and the words of the site ([`Site`]). A thread appends one after another, so that its records lie in the order in which it made them.
//!
//! [`Recording::read`] makes of such a buffer what the simulator has of the same run: records of prints, and the threads in which
//! assertions do not hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tilewright_layout::SwizzledLayout;
use tilewright_machine::printed::shown_coordinates;
use tilewright_machine::{
    AtomicOp, DType, Elements, Memory, MemoryOrder, PrintLog, Printed, PrintedItem, PrintedTensor, RedOp,
    RegType, ScalarOp, Scope, atomic, thread_copy,
};

use crate::function::{
    Address, Array, ArrayId, Function, FunctionParam, FunctionParamKind, Inst, Op, Operand, OriginId, Reg,
    Special, Value,
};
use crate::printed::{Print, PrintItem, linear, unknown};

/// Bytes of the buffer of records.
pub const BUFFER_BYTES: usize = 4 * (HEADER + WORDS) as usize;
/// Words of its header.
const HEADER: u32 = 4;
/// Words of all records.
const WORDS: u32 = 1 << 20;

/// A place in a function that makes records.
#[derive(Clone, PartialEq, Debug)]
pub struct Site {
    /// The statement that it comes from.
    pub origin: OriginId,
    /// The content of its records.
    pub kind: SiteKind,
}

/// The content of a site's records.
#[derive(Clone, PartialEq, Debug)]
pub enum SiteKind {
    /// An assertion that does not hold: the thread's index in the block.
    Assertion,
    /// A print: its operands, of each thread.
    Print(Arc<Print>),
    /// The elements of a print's item that lie in shared memory, each in whole words, as the first of the threads sees them: they follow that
    /// thread's record of the print.
    Shared(Arc<Print>, usize),
}

/// The sites of a function, by number.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recording {
    /// The sites.
    pub sites: Vec<Site>,
}

/// Threads in which an assertion does not hold, the first of them by block and thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// The statement.
    pub origin: OriginId,
    /// The block of the first.
    pub block: [u32; 3],
    /// The first thread in it.
    pub thread: u32,
    /// Times that it does not hold.
    pub count: u64,
}

/// The records of a launch.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Records {
    /// Records of prints.
    pub printed: PrintLog,
    /// Assertions that do not hold, one entry a statement.
    pub broken: Vec<Broken>,
    /// Records that found no room.
    pub lost: u64,
}

/// The function that records its assertions and prints, and the sites that do; `None` of one that has none.
pub fn recorded(function: &Function) -> Option<(Function, Recording)> {
    let mut diagnoses = false;
    function.visit(&mut |inst| diagnoses |= matches!(inst.op, Op::Assert { .. } | Op::Print { .. }));
    if !diagnoses {
        return None;
    }
    let mut function = function.clone();
    let body = std::mem::take(&mut function.body);
    let buffer = function.params.len() as u32;
    function.params.push(FunctionParam { name: "records".to_string(), kind: FunctionParamKind::Pointer });
    let scratch = ArrayId(function.arrays.len() as u32);
    function.arrays.push(Array { name: "record".to_string(), registers: 1 });
    let mut emit = Emit {
        scratch: Reg { array: scratch, index: 0 },
        function,
        sites: Vec::new(),
        out: Vec::new(),
        origin: OriginId(0),
        place: [Operand::Imm(0); 4],
        shared: Operand::Imm(0),
        buffer: Operand::Imm(0),
    };
    emit.prologue(buffer);
    emit.block(body);
    let Emit { mut function, sites, out, .. } = emit;
    function.body = out;
    Some((function, Recording { sites }))
}

/// Code under construction.
struct Emit {
    function: Function,
    sites: Vec<Site>,
    out: Vec<Inst>,
    origin: OriginId,
    scratch: Reg,
    /// The block's index along x, y and z, and the thread's in the block.
    place: [Operand; 4],
    /// The shared window.
    shared: Operand,
    buffer: Operand,
}

impl Emit {
    fn push(&mut self, op: Op) {
        self.out.push(Inst { op, origin: self.origin });
    }

    fn value(&mut self, ty: RegType) -> Value {
        self.function.values.push(ty);
        Value((self.function.values.len() - 1) as u32)
    }

    fn special(&mut self, special: Special) -> Operand {
        let dst = self.value(RegType::B32);
        self.push(Op::Special { dst, special });
        Operand::Value(dst)
    }

    fn scalar(&mut self, op: ScalarOp, args: &[Operand]) -> Operand {
        let row = op.row();
        let literals: Option<Vec<u64>> = args.iter().map(|arg| arg.literal()).collect();
        if let Some(literals) = literals {
            return Operand::Imm((row.eval)(&literals));
        }
        let dst = self.value(row.result);
        self.push(Op::Scalar { dst, op, args: args.to_vec() });
        Operand::Value(dst)
    }

    fn prologue(&mut self, param: u32) {
        let dst = self.value(RegType::B64);
        self.push(Op::Param { dst, param });
        self.buffer = Operand::Value(dst);
        for axis in 0..3 {
            self.place[usize::from(axis)] = self.special(Special::BlockIndex(axis));
        }
        self.place[3] = self.special(Special::ThreadIndex);
        self.shared = self.special(Special::SharedBase);
    }

    fn block(&mut self, body: Vec<Inst>) {
        for Inst { op, origin } in body {
            self.origin = origin;
            match op {
                Op::Assert { holds } => {
                    let broken = self.scalar(ScalarOp::NotPred, &[holds]);
                    let thread = self.place[3];
                    self.where_true(broken, |emit| emit.record(SiteKind::Assertion, &[thread]));
                }
                Op::Print { what, operands } => self.print(&what, &operands),
                Op::For { counter, lo, hi, step, body } => {
                    let body = self.inside(|emit| emit.block(body));
                    self.origin = origin;
                    self.push(Op::For { counter, lo, hi, step, body });
                }
                Op::If { condition, then, otherwise } => {
                    let then = self.inside(|emit| emit.block(then));
                    let otherwise = self.inside(|emit| emit.block(otherwise));
                    self.origin = origin;
                    self.push(Op::If { condition, then, otherwise });
                }
                op => self.push(op),
            }
        }
    }

    /// The code that `make` emits, in a block of its own.
    fn inside(&mut self, make: impl FnOnce(&mut Emit)) -> Vec<Inst> {
        let outer = std::mem::take(&mut self.out);
        make(self);
        std::mem::replace(&mut self.out, outer)
    }

    fn where_true(&mut self, condition: Operand, make: impl FnOnce(&mut Emit)) {
        match condition {
            Operand::Imm(0) => {}
            Operand::Imm(_) => make(self),
            Operand::Value(condition) => {
                let then = self.inside(make);
                self.push(Op::If { condition, then, otherwise: Vec::new() });
            }
        }
    }

    /// Adds to one of the counters of the header; the value before.
    fn count(&mut self, offset: i32, by: u64, used: bool) -> Option<Value> {
        let row = atomic(AtomicOp::Combine(RedOp::Add), DType::U64, Memory::Global)?;
        let dst = used.then(|| self.value(RegType::B64));
        let address = Address { base: self.buffer, offset };
        let operands = vec![Operand::Imm(by)];
        self.push(Op::Atomic { row, order: MemoryOrder::Relaxed, dst, address, operands, guard: None });
        dst
    }

    /// Appends a record of a new site with these words.
    fn record(&mut self, kind: SiteKind, words: &[Operand]) {
        self.sites.push(Site { origin: self.origin, kind });
        let number = Operand::Imm(self.sites.len() as u64);
        let [x, y, z, _] = self.place;
        let all: Vec<Operand> = [number, x, y, z].iter().chain(words).copied().collect();
        let Some(taken) = self.count(0, all.len() as u64, true).map(Operand::Value) else { return };
        let last = Operand::Imm(u64::from(WORDS).saturating_sub(all.len() as u64 - 1));
        let Operand::Value(fits) = self.scalar(ScalarOp::LtU64, &[taken, last]) else { return };
        let store = thread_copy(Memory::Register, Memory::Global, Scope::Cta, 4);
        let then = self.inside(|emit| {
            let bytes = emit.scalar(ScalarOp::ShlB64, &[taken, Operand::Imm(2)]);
            let base = emit.scalar(ScalarOp::AddI64, &[emit.buffer, bytes]);
            for (i, word) in all.iter().enumerate() {
                let Some(row) = store else { return };
                emit.push(Op::WriteReg { dst: emit.scratch, src: *word });
                let address = Address { base, offset: 4 * (HEADER as i32 + i as i32) };
                emit.push(Op::Store { row, src: vec![emit.scratch], address, guard: None });
            }
        });
        let otherwise = self.inside(|emit| {
            emit.count(8, 1, false);
        });
        self.push(Op::If { condition: fits, then, otherwise });
    }

    fn print(&mut self, what: &Arc<Print>, operands: &[Operand]) {
        self.record(SiteKind::Print(what.clone()), operands);
        let Some(thread) = operands.first().copied() else { return };
        let mut next = 1 + what.counters as usize;
        for (number, item) in what.items.iter().enumerate() {
            let taken = &operands[next..next + item.operands()];
            next += item.operands();
            if let PrintItem::Shared { dtype, buffer, layout, tile, fixed } = item {
                let first = self.scalar(ScalarOp::EqI32, &[thread, Operand::Imm(0)]);
                let (kind, mut index) = (SiteKind::Shared(what.clone(), number), taken.iter().copied());
                let fixed: Vec<Option<Operand>> =
                    fixed.iter().map(|fixed| if *fixed { index.next() } else { None }).collect();
                self.where_true(first, |emit| {
                    let mut words = Vec::new();
                    for at in shown_coordinates(&item.shape()) {
                        words.extend(emit.element((*dtype, *buffer, layout), tile, &fixed, &at));
                    }
                    emit.record(kind, &words);
                });
            }
        }
    }

    /// The bits of an element of shared memory, as whole words; `at` has the modes that are not fixed.
    fn element(
        &mut self,
        (dtype, buffer, layout): (DType, u32, &SwizzledLayout),
        tile: &[i64],
        fixed: &[Option<Operand>],
        at: &[i64],
    ) -> Vec<Operand> {
        let int = |x: i64| Operand::Imm(u64::from(x as i32 as u32));
        let (mut place, mut step, mut inside) = (int(0), 1i64, Operand::Imm(1));
        let mut kept = at.iter();
        for (extent, fixed) in tile.iter().zip(fixed) {
            let x = fixed.unwrap_or_else(|| int(kept.next().copied().unwrap_or(0)));
            let part = self.scalar(ScalarOp::MulI32, &[x, int(step)]);
            place = self.scalar(ScalarOp::AddI32, &[place, part]);
            step *= extent;
            // Of an index below 0 the unsigned number is large.
            let holds = self.scalar(ScalarOp::LtU32, &[x, int(*extent)]);
            inside = self.scalar(ScalarOp::AndPred, &[inside, holds]);
        }
        let (mut element, mut divisor) = (int(0), 1i64);
        for (extent, stride) in layout.layout.leaves() {
            let digit = self.scalar(ScalarOp::DivI32, &[place, int(divisor)]);
            let digit = self.scalar(ScalarOp::RemI32, &[digit, int(extent.max(1))]);
            let part = self.scalar(ScalarOp::MulI32, &[digit, int(stride)]);
            element = self.scalar(ScalarOp::AddI32, &[element, part]);
            divisor *= extent.max(1);
        }
        if !layout.swizzle.is_identity() {
            let (bits, base) = (layout.swizzle.bits(), layout.swizzle.base());
            let high =
                self.scalar(ScalarOp::ShrU32, &[element, Operand::Imm(u64::from(layout.swizzle.shift()))]);
            let mask = ((1i64 << bits) - 1) << base;
            let flipped = self.scalar(ScalarOp::AndB32, &[high, int(mask)]);
            element = self.scalar(ScalarOp::XorB32, &[element, flipped]);
        }
        let bits = self.scalar(ScalarOp::MulI32, &[element, int(i64::from(dtype.bits()))]);
        let byte = self.scalar(ScalarOp::ShrU32, &[bits, int(3)]);
        let byte = self.scalar(ScalarOp::AddI32, &[byte, int(i64::from(buffer))]);
        let base = self.scalar(ScalarOp::AddI32, &[self.shared, byte]);
        let guard = match inside {
            Operand::Value(inside) => Some(inside),
            Operand::Imm(_) => None,
        };
        let width = (dtype.bits() / 8).clamp(1, 4);
        let Some(row) = thread_copy(Memory::Shared, Memory::Register, Scope::Cta, width) else {
            return Vec::new();
        };
        let mut words = Vec::new();
        for word in 0..dtype.bits().div_ceil(32) as i32 {
            let address = Address { base, offset: 4 * word };
            self.push(Op::Load { row, dst: vec![self.scratch], address, guard, outside: [0; 2] });
            let dst = self.value(RegType::B32);
            self.push(Op::ReadReg { dst, src: self.scratch });
            words.push(Operand::Value(dst));
        }
        if dtype.bits() < 8 {
            let shift = self.scalar(ScalarOp::AndB32, &[bits, int(7)]);
            let low = self.scalar(ScalarOp::ShrU32, &[words[0], shift]);
            words[0] = self.scalar(ScalarOp::AndB32, &[low, int((1 << dtype.bits()) - 1)]);
        }
        words
    }
}

impl SiteKind {
    /// Words of a record behind those of its place.
    fn words(&self) -> usize {
        match self {
            SiteKind::Assertion => 1,
            SiteKind::Print(print) => print.operands(),
            SiteKind::Shared(print, item) => {
                let item = &print.items[*item];
                let PrintItem::Shared { dtype, .. } = item else { return 0 };
                shown_coordinates(&item.shape()).len() * dtype.bits().div_ceil(32) as usize
            }
        }
    }
}

/// A reader of records.
#[derive(Default)]
struct Reader {
    records: Records,
    /// Executions of each site by a thread, by block.
    times: BTreeMap<(u32, [u32; 3], u32), u64>,
    /// The number of each execution of a site among the records of its block.
    numbers: BTreeMap<(u32, [u32; 3], u64), u64>,
    /// Records that each block has begun.
    begun: BTreeMap<[u32; 3], u64>,
    /// The execution that the first thread of a block has recorded last, by site.
    last: BTreeMap<(u32, [u32; 3]), u64>,
    /// Executions that are not kept.
    left_out: BTreeSet<(u32, [u32; 3], u64)>,
}

impl Recording {
    /// The records of a launch, from the bytes of its buffer.
    pub fn read(&self, buffer: &[u8]) -> Records {
        let words: Vec<u32> = buffer
            .chunks_exact(4)
            .map(|bytes| bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)))
            .collect();
        let Some((header, rest)) = words.split_at_checked(HEADER as usize) else { return Records::default() };
        let whole = |at: usize| u64::from(header[at]) | u64::from(header[at + 1]) << 32;
        let asked = usize::try_from(whole(0)).unwrap_or(usize::MAX);
        let mut rest = &rest[..rest.len().min(asked)];
        let mut reader = Reader::default();
        // What a kernel that failed has not stored any more is 0.
        while let [number, x, y, z, behind @ ..] = rest {
            let Some((index, site)) =
                number.checked_sub(1).and_then(|i| Some((i, self.sites.get(i as usize)?)))
            else {
                break;
            };
            let Some((words, next)) = behind.split_at_checked(site.kind.words()) else { break };
            reader.record((index, site), [*x, *y, *z], words);
            rest = next;
        }
        let mut records = reader.records;
        records.lost = whole(2);
        records.broken.sort_by_key(|broken| broken.origin);
        records
    }
}

impl Reader {
    fn record(&mut self, (index, site): (u32, &Site), block: [u32; 3], words: &[u32]) {
        match &site.kind {
            SiteKind::Assertion => self.broken(site.origin, block, words.first().copied().unwrap_or(0)),
            SiteKind::Print(print) => self.print(index, print, block, words),
            SiteKind::Shared(print, item) => {
                // The print's own site lies before those of its items.
                let shared = |item: &PrintItem| matches!(item, PrintItem::Shared { .. });
                let before = print.items[..*item].iter().filter(|item| shared(item)).count() as u32 + 1;
                let Some(times) = self.last.get(&(index - before, block)).copied() else { return };
                let Some(number) = self.numbers.get(&(index - before, block, times)) else { return };
                let Some(record) = self.records.printed.get_mut(block, *number) else { return };
                let (PrintItem::Shared { dtype, .. }, Some(PrintedItem::Tensor(shown))) =
                    (&print.items[*item], record.items.get_mut(*item))
                else {
                    return;
                };
                let each = words.chunks(dtype.bits().div_ceil(32) as usize);
                let bits = each
                    .map(|words| words.iter().rev().fold(0u64, |bits, word| bits << 32 | u64::from(*word)));
                shown.elements = Elements::of_bits(*dtype, bits);
            }
        }
    }

    fn broken(&mut self, origin: OriginId, block: [u32; 3], thread: u32) {
        let key = |block: [u32; 3], thread| ([block[2], block[1], block[0]], thread);
        match self.records.broken.iter_mut().find(|broken| broken.origin == origin) {
            Some(known) => {
                known.count += 1;
                if key(block, thread) < key(known.block, known.thread) {
                    (known.block, known.thread) = (block, thread);
                }
            }
            None => self.records.broken.push(Broken { origin, block, thread, count: 1 }),
        }
    }

    /// A thread's part of a record; the first thread that comes begins it.
    fn print(&mut self, site: u32, print: &Print, block: [u32; 3], words: &[u32]) {
        let Some((thread, rest)) = words.split_first() else { return };
        let times = self.times.entry((site, block, *thread)).or_insert(0);
        let execution = (site, block, *times);
        *times += 1;
        if *thread == 0 {
            self.last.insert((site, block), execution.2);
        }
        let integer = |word: &u32| i64::from(*word as i32);
        let (counters, mut rest) = rest.split_at(print.counters as usize);
        let mut operands = Vec::new();
        for item in &print.items {
            let (taken, left) = rest.split_at(item.operands());
            operands.push(taken);
            rest = left;
        }
        let log = &mut self.records.printed;
        let number = match self.numbers.get(&execution) {
            Some(number) => *number,
            None => {
                let begun = self.begun.entry(block).or_insert(0);
                let number = *begun;
                *begun += 1;
                self.numbers.insert(execution, number);
                if log.keeps(block, number) {
                    let items = print.items.iter().zip(&operands).map(|(item, words)| match item {
                        PrintItem::Integer => PrintedItem::Integer(words.first().map_or(0, integer)),
                        PrintItem::Registers { dtype, .. } | PrintItem::Shared { dtype, .. } => {
                            PrintedItem::Tensor(unknown(*dtype, item.shape()))
                        }
                    });
                    let (items, iteration) = (items.collect(), counters.iter().map(integer).collect());
                    log.push(number, Printed { statement: print.statement, block, iteration, items });
                } else if self.left_out.insert(execution) {
                    log.leave_out();
                }
                number
            }
        };
        let Some(record) = log.get_mut(block, number) else { return };
        for ((item, words), shown) in print.items.iter().zip(&operands).zip(&mut record.items) {
            if let PrintedItem::Tensor(shown) = shown {
                bring(*thread, (item, words), shown);
            }
        }
    }
}

/// Puts the elements that a thread holds of a register tensor into a record.
fn bring(thread: u32, (item, words): (&PrintItem, &[u32]), shown: &mut PrintedTensor) {
    let PrintItem::Registers { dtype, threads, values, tile, shape } = item else { return };
    let places: BTreeMap<i64, usize> =
        shown_coordinates(shape).iter().enumerate().map(|(place, at)| (linear(at, tile), place)).collect();
    let (first, bits) = (threads.eval(i64::from(thread)), dtype.bits());
    for (value, offset) in values.table().iter().enumerate() {
        let Some(place) = places.get(&(first + offset)) else { continue };
        let bit = value * bits as usize;
        let word = |k: usize| words.get(bit / 32 + k).map_or(0, |word| u64::from(*word));
        let whole = if bits == 64 { word(0) | word(1) << 32 } else { word(0) >> (bit % 32) };
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        shown.elements.put(*place, &Elements::of_bits(*dtype, [whole & mask]), 0);
    }
}
