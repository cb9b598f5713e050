//! Builds a thread-level program.
//!
//! Pure operations are folded, shared and hoisted as they are made: a result of literals becomes a literal, an operation
//! that was made before (in an enclosing block) is not made again, and a new one is placed in the outermost block in
//! which its operands exist. So loop-invariant addresses and predicates are computed once, before the loop, with no pass
//! that has to find them again.

use std::collections::HashMap;
use std::sync::Arc;

use tilewright_machine::{
    Arch, AtomicRow, CopyRow, MbarrierOp, MemoryOrder, MmaRow, RegType, ScalarOp, ShuffleMode, SyncOp,
    Tcgen05Row, Until, WgmmaRow,
};

use crate::function::{
    Address, Array, ArrayId, DescriptorValue, Factor, Function, FunctionParam, FunctionParamKind, Inst,
    MetadataCells, Op, Operand, OriginId, Position, Reg, ScaleBytes, ScaleCells, SharedBuffer, Special,
    TensorBuffer, TensorMap, Value,
};
use crate::printed::Print;

#[derive(PartialEq, Eq, Hash, Clone)]
enum Key {
    Special(Special),
    Param(u32),
    Scalar(ScalarOp, Vec<Operand>),
    /// Since how many waits for the kernels before.
    Lookup(Address, Option<Value>, u32),
    Pointer(Address, Option<Value>),
    TensorMap(u32, Operand, Option<Value>),
}

/// A block that is being filled.
struct Scope {
    body: Vec<Inst>,
    /// The statement that opened it.
    origin: OriginId,
    /// True for the body of a loop.
    repeats: bool,
    /// True once a loop in it has ended.
    has_loop: bool,
    made: HashMap<Key, Value>,
    /// Operations made here that were not to be hoisted. They are shared within the block only: a loop in it computes its own.
    local: HashMap<Key, Value>,
}

impl Scope {
    fn of(origin: OriginId, repeats: bool) -> Self {
        Scope {
            body: Vec::new(),
            origin,
            repeats,
            has_loop: false,
            made: HashMap::new(),
            local: HashMap::new(),
        }
    }
}

/// Builds one [`Function`].
pub struct Builder {
    function: Function,
    scopes: Vec<Scope>,
    /// The scope (0 = outermost) in which each value is defined.
    depths: Vec<usize>,
    origin: OriginId,
    hoist: bool,
    /// No operation goes to a block outside this one.
    floor: usize,
    /// Thread index and barrier of the threads that run the code under construction, if these are only some of the block.
    team: Option<(Value, SyncOp)>,
    /// Waits for the kernels before this one, whose writes lookups may read, and the scope of the last.
    waits: (u32, usize),
}

impl Builder {
    /// An empty function.
    pub fn new(name: impl Into<String>, arch: Arch, threads: u32) -> Self {
        Builder {
            function: Function {
                name: name.into(),
                arch,
                threads,
                resident: 1,
                cluster: 1,
                pairs: false,
                params: Vec::new(),
                tensor_maps: Vec::new(),
                shared: Vec::new(),
                shared_bytes: 0,
                tensor_memory: Vec::new(),
                values: Vec::new(),
                arrays: Vec::new(),
                origins: vec![String::new()],
                positions: vec![None],
                named: Vec::new(),
                body: Vec::new(),
            },
            scopes: vec![Scope::of(OriginId(0), false)],
            depths: Vec::new(),
            origin: OriginId(0),
            hoist: true,
            floor: 0,
            team: None,
            waits: (0, 0),
        }
    }

    /// The architecture that the function is for.
    pub fn arch(&self) -> Arch {
        self.function.arch
    }

    /// Sets the team; returns the one before.
    pub(crate) fn set_team(&mut self, team: Option<(Value, SyncOp)>) -> Option<(Value, SyncOp)> {
        std::mem::replace(&mut self.team, team)
    }

    /// Keeps operations inside the current block; returns the outermost block before.
    pub(crate) fn floor_here(&mut self) -> usize {
        std::mem::replace(&mut self.floor, self.scopes.len() - 1)
    }

    /// Sets what [`floor_here`](Self::floor_here) returned.
    pub(crate) fn set_floor(&mut self, floor: usize) {
        self.floor = floor;
    }

    /// Sets whether operations are hoisted; returns whether they were.
    pub(crate) fn set_hoisting(&mut self, hoist: bool) -> bool {
        std::mem::replace(&mut self.hoist, hoist)
    }

    /// The function. Blocks still open are closed.
    pub fn finish(mut self) -> Function {
        while self.scopes.len() > 1 {
            self.scopes.pop();
        }
        self.function.body = self.scopes.pop().map(|s| s.body).unwrap_or_default();
        self.function
    }

    /// Instructions made from here on come from this tile statement.
    pub fn set_origin(&mut self, text: impl Into<String>) {
        self.set_origin_at(text, None);
    }

    /// Instructions made from here on come from this tile statement, which is at this position of its source.
    pub fn set_origin_at(&mut self, text: impl Into<String>, position: Option<Position>) {
        let text = text.into();
        let Function { origins, positions, .. } = &mut self.function;
        let known = origins.iter().zip(&*positions).position(|(o, p)| *o == text && *p == position);
        let index = known.unwrap_or_else(|| {
            origins.push(text);
            positions.push(position);
            origins.len() - 1
        });
        self.origin = OriginId(index as u32);
    }

    /// The tile statement that instructions come from names this shared buffer, by its index.
    pub fn name_shared(&mut self, buffer: u32) {
        let (named, origin) = (&mut self.function.named, self.origin.0 as usize);
        named.resize(named.len().max(origin + 1), Vec::new());
        if !named[origin].contains(&buffer) {
            named[origin].push(buffer);
        }
    }

    /// Adds a parameter and returns its index.
    pub fn add_param(&mut self, name: impl Into<String>, kind: FunctionParamKind) -> u32 {
        self.function.params.push(FunctionParam { name: name.into(), kind });
        (self.function.params.len() - 1) as u32
    }

    /// The blocks that one multiprocessor has registers for, at least.
    pub fn set_resident(&mut self, blocks: u32) {
        self.function.resident = blocks;
    }

    /// The blocks of a cluster, along x.
    pub fn set_cluster(&mut self, blocks: u32) {
        self.function.cluster = blocks;
    }

    /// Lets the blocks of clusters work in pairs.
    pub fn set_pairs(&mut self) {
        self.function.pairs = true;
    }

    /// Adds a tensor map with its parameter, and returns the map's index.
    pub fn add_tensor_map(&mut self, map: TensorMap) -> u32 {
        self.add_map(map, FunctionParamKind::TensorMap)
    }

    /// Adds tensor maps that differ in the tensor's address alone, with the parameter that points to them, and returns their index.
    pub fn add_tensor_maps(&mut self, map: TensorMap) -> u32 {
        self.add_map(map, FunctionParamKind::TensorMaps)
    }

    fn add_map(&mut self, map: TensorMap, kind: fn(u32) -> FunctionParamKind) -> u32 {
        let index = self.function.tensor_maps.len() as u32;
        self.add_param(format!("{}.map{index}", map.name), kind(index));
        self.function.tensor_maps.push(map);
        index
    }

    /// Adds a shared buffer at an offset of the block's window, and returns its index. It may lie where another does, if they are never in
    /// use together.
    pub fn add_shared_at(&mut self, name: impl Into<String>, offset: u32, bytes: u32) -> u32 {
        self.function.shared.push(SharedBuffer { name: name.into(), offset, bytes });
        self.function.shared_bytes = self.function.shared_bytes.max(offset + bytes);
        (self.function.shared.len() - 1) as u32
    }

    /// Adds a shared buffer after the last one, aligned to `align` bytes, and returns its offset.
    pub fn add_shared(&mut self, name: impl Into<String>, bytes: u32, align: u32) -> u32 {
        let offset = self.function.shared_bytes.next_multiple_of(align.max(1));
        self.function.shared.push(SharedBuffer { name: name.into(), offset, bytes });
        self.function.shared_bytes = offset + bytes;
        offset
    }

    /// Adds a tensor of these columns of the block's tensor memory.
    pub fn add_tensor_memory(&mut self, name: impl Into<String>, column: u32, columns: u32) {
        self.function.tensor_memory.push(TensorBuffer { name: name.into(), column, columns });
    }

    /// Adds a register array.
    pub fn add_array(&mut self, name: impl Into<String>, registers: u32) -> ArrayId {
        self.function.arrays.push(Array { name: name.into(), registers });
        ArrayId((self.function.arrays.len() - 1) as u32)
    }

    fn new_value(&mut self, ty: RegType, depth: usize) -> Value {
        self.function.values.push(ty);
        self.depths.push(depth);
        Value((self.function.values.len() - 1) as u32)
    }

    fn push(&mut self, op: Op) {
        let origin = self.origin;
        if let Some(scope) = self.scopes.last_mut() {
            scope.body.push(Inst { op, origin });
        }
    }

    /// The depth of the block in which an operand is defined: 0 is the function's body. What lies less deep changes
    /// less often.
    pub fn depth(&self, operand: Operand) -> usize {
        match operand {
            Operand::Value(value) => self.depths[value.0 as usize],
            Operand::Imm(_) => 0,
        }
    }

    /// The block for an operation that may stand in the one of this depth. It does not leave a branch in which a loop has ended: its result would
    /// hold a register through the loop.
    fn hoisted(&self, depth: usize) -> usize {
        let stays = |scope: &Scope| !scope.repeats && scope.has_loop;
        let within = self.scopes.iter().skip(depth + 1).rposition(stays);
        within.map_or(depth, |above| depth + 1 + above)
    }

    fn pure(&mut self, key: Key, ty: RegType, depth: usize, op: impl FnOnce(Value) -> Op) -> Value {
        let known = self.scopes.iter().find_map(|scope| scope.made.get(&key));
        if let Some(value) = known.or_else(|| self.scopes.last()?.local.get(&key)) {
            return *value;
        }
        let here = self.scopes.len() - 1;
        let depth = if self.hoist { self.hoisted(depth.max(self.floor).min(here)) } else { here };
        let dst = self.new_value(ty, depth);
        let inst = Inst { op: op(dst), origin: self.origin };
        let scope = &mut self.scopes[depth];
        scope.body.push(inst);
        if self.hoist {
            scope.made.insert(key, dst)
        } else {
            scope.local.insert(key, dst)
        };
        dst
    }

    /// The value of a special register. The clock is read here and now, every time; all others are read once.
    pub fn special(&mut self, special: Special) -> Value {
        if !special.is_constant() {
            let dst = self.new_value(RegType::B32, self.scopes.len() - 1);
            self.push(Op::Special { dst, special });
            return dst;
        }
        if let (Special::ThreadIndex, Some((thread, _))) = (special, self.team) {
            return thread;
        }
        self.pure(Key::Special(special), RegType::B32, 0, |dst| Op::Special { dst, special })
    }

    /// The value of a parameter.
    pub fn param(&mut self, param: u32) -> Value {
        let ty = self.function.params[param as usize].kind.register();
        self.pure(Key::Param(param), ty, 0, |dst| Op::Param { dst, param })
    }

    /// `op(args)`: folded, shared and hoisted.
    pub fn scalar(&mut self, op: ScalarOp, args: &[Operand]) -> Operand {
        let literals: Option<Vec<u64>> = args.iter().map(|a| a.literal()).collect();
        if let Some(literals) = literals {
            return Operand::Imm((op.row().eval)(&literals));
        }
        if let Some(simple) = simplify(op, args) {
            return simple;
        }
        let mut args = args.to_vec();
        // A literal first operand of a commutative operation goes second, where PTX takes it.
        if is_commutative(op) && matches!(args[0], Operand::Imm(_)) {
            args.swap(0, 1);
        }
        let depth = args.iter().map(|a| self.depth(*a)).max().unwrap_or(0);
        let key = Key::Scalar(op, args.clone());
        Operand::Value(self.pure(key, op.row().result, depth, |dst| Op::Scalar { dst, op, args }))
    }

    /// Reads a fragment's register.
    pub fn read(&mut self, src: Reg) -> Operand {
        let dst = self.new_value(RegType::B32, self.scopes.len() - 1);
        self.push(Op::ReadReg { dst, src });
        Operand::Value(dst)
    }

    /// Writes a fragment's register.
    pub fn write(&mut self, dst: Reg, src: Operand) {
        self.push(Op::WriteReg { dst, src });
    }

    /// A guarded load.
    pub fn load(&mut self, row: &'static CopyRow, dst: Vec<Reg>, address: Address, guard: Option<Value>) {
        self.load_or(row, dst, address, guard, [0; 2]);
    }

    /// A guarded load: where the guard is false, the registers become `outside`, in turns.
    pub fn load_or(
        &mut self,
        row: &'static CopyRow,
        dst: Vec<Reg>,
        address: Address,
        guard: Option<Value>,
        outside: [u32; 2],
    ) {
        self.push(Op::Load { row, dst, address, guard, outside });
    }

    /// The word at an address of global memory that nothing writes while the function runs, 0 where the guard is false: shared and hoisted,
    /// but not before a wait for the kernels before this one.
    pub fn lookup(&mut self, row: &'static CopyRow, address: Address, guard: Option<Value>) -> Operand {
        let of_guard = guard.map_or(0, |guard| self.depth(Operand::Value(guard)));
        let depth = self.depth(address.base).max(of_guard).max(self.waits.1);
        let key = Key::Lookup(address, guard, self.waits.0);
        let make = |dst| Op::Lookup { row, dst, address, guard };
        Operand::Value(self.pure(key, RegType::B32, depth, make))
    }

    /// A pointer of a parameter that points to several, 0 where the guard is false: shared and hoisted. The host has written it.
    pub fn lookup_pointer(
        &mut self,
        row: &'static CopyRow,
        address: Address,
        guard: Option<Value>,
    ) -> Operand {
        let of_guard = guard.map_or(0, |guard| self.depth(Operand::Value(guard)));
        let depth = self.depth(address.base).max(of_guard);
        let make = |dst| Op::Lookup { row, dst, address, guard };
        Operand::Value(self.pure(Key::Pointer(address, guard), RegType::B64, depth, make))
    }

    /// A tensor map of several, for tensor copies: shared and hoisted.
    pub fn tensor_map(&mut self, map: u32, number: Operand, guard: Option<Value>) -> Operand {
        let depth = self.depth(number).max(guard.map_or(0, |guard| self.depth(guard.into())));
        let make = |dst| Op::TensorMap { dst, map, number, guard };
        Operand::Value(self.pure(Key::TensorMap(map, number, guard), RegType::B64, depth, make))
    }

    /// A guarded store, or reduction.
    pub fn store(&mut self, row: &'static CopyRow, src: Vec<Reg>, address: Address, guard: Option<Value>) {
        self.push(Op::Store { row, src, address, guard });
    }

    /// A guarded atomic operation; what was there before, 0 where the guard is false. Where nothing uses it,
    /// [`dead_code`](crate::passes::dead_code) takes the instruction without a result.
    pub fn atomic(
        &mut self,
        row: &'static AtomicRow,
        order: MemoryOrder,
        address: Address,
        operands: Vec<Operand>,
        guard: Option<Value>,
    ) -> Operand {
        let dst = self.new_value(row.register(), self.scopes.len() - 1);
        self.push(Op::Atomic { row, order, dst: Some(dst), address, operands, guard });
        Operand::Value(dst)
    }

    /// A wait for a word of global memory.
    pub fn await_word(&mut self, address: Address, until: Until, operand: Operand) {
        self.push(Op::Await { address, until, operand });
    }

    /// A guarded asynchronous copy.
    pub fn async_copy(&mut self, row: &'static CopyRow, dst: Address, src: Address, guard: Option<Value>) {
        self.push(Op::AsyncCopy { row, dst, src, guard });
    }

    /// A matrix load or store.
    pub fn matrix(&mut self, row: &'static CopyRow, regs: Vec<Reg>, address: Address) {
        self.push(Op::Matrix { row, regs, address });
    }

    /// A matrix product.
    pub fn mma(&mut self, row: &'static MmaRow, d: Vec<Reg>, a: Vec<Reg>, b: Vec<Reg>) {
        self.push(Op::Mma { row, d, a, b, meta: None, scales: None });
    }

    /// A matrix product with a sparse A, whose metadata are in a register.
    pub fn sparse_mma(&mut self, row: &'static MmaRow, d: Vec<Reg>, a: Vec<Reg>, b: Vec<Reg>, meta: Reg) {
        self.push(Op::Mma { row, d, a, b, meta: Some(meta), scales: None });
    }

    /// A block-scaled matrix product, with the scales of A and of B.
    pub fn scaled_mma(
        &mut self,
        row: &'static MmaRow,
        d: Vec<Reg>,
        [a, b]: [Vec<Reg>; 2],
        scales: [ScaleBytes; 2],
    ) {
        self.push(Op::Mma { row, d, a, b, meta: None, scales: Some(scales) });
    }

    /// A warp shuffle.
    pub fn shuffle(&mut self, src: Operand, mode: ShuffleMode, operand: Operand) -> Operand {
        let dst = self.new_value(RegType::B32, self.scopes.len() - 1);
        self.push(Op::Shuffle { dst, src, mode, operand });
        Operand::Value(dst)
    }

    /// An asynchronous matrix product of a warpgroup.
    pub fn wgmma(&mut self, row: &'static WgmmaRow, d: Vec<Reg>, a: Factor, b: Factor, accumulate: Operand) {
        self.push(Op::Wgmma { row, d, a, b, meta: None, accumulate });
    }

    /// The same with a sparse left factor, whose metadata are in a register.
    pub fn sparse_wgmma(
        &mut self,
        row: &'static WgmmaRow,
        d: Vec<Reg>,
        (a, meta): (Factor, Reg),
        b: Factor,
        accumulate: Operand,
    ) {
        self.push(Op::Wgmma { row, d, a, b, meta: Some(meta), accumulate });
    }

    /// An asynchronous matrix product with its sums in tensor memory.
    pub fn tcgen05(
        &mut self,
        row: &'static Tcgen05Row,
        d: Address,
        a: Factor,
        b: Factor,
        accumulate: Operand,
    ) {
        self.push(Op::Tcgen05 { row, d, a, b, scales: None, meta: None, accumulate });
    }

    /// The same with the scales of A and of B.
    pub fn scaled_tcgen05(
        &mut self,
        row: &'static Tcgen05Row,
        d: Address,
        [a, b]: [Factor; 2],
        scales: [ScaleCells; 2],
        accumulate: Operand,
    ) {
        self.push(Op::Tcgen05 { row, d, a, b, scales: Some(scales), meta: None, accumulate });
    }

    /// The same with a sparse left factor, and its metadata.
    pub fn sparse_tcgen05(
        &mut self,
        row: &'static Tcgen05Row,
        d: Address,
        [a, b]: [Factor; 2],
        meta: MetadataCells,
        accumulate: Operand,
    ) {
        self.push(Op::Tcgen05 { row, d, a, b, scales: None, meta: Some(meta), accumulate });
    }

    /// A copy of a chunk of scales from shared memory to tensor memory.
    pub fn scale_copy(&mut self, chunk: DescriptorValue, to: Address) {
        self.push(Op::ScaleCopy { chunk, to });
    }

    /// A copy between tensor memory and registers.
    pub fn tensor_copy(&mut self, row: &'static CopyRow, regs: Vec<Reg>, address: Address) {
        self.push(Op::TensorCopy { row, regs, address });
    }

    /// Allocates columns of tensor memory, whose address goes to a word of shared memory.
    pub fn tensor_allocate(&mut self, columns: u32, to: Address) {
        self.push(Op::TensorAllocate { columns, to });
    }

    /// Frees columns of tensor memory.
    pub fn tensor_free(&mut self, columns: u32, address: Operand) {
        self.push(Op::TensorFree { columns, address });
    }

    /// An [`Op::Tensor`] or an [`Op::Bulk`].
    pub fn bulk(&mut self, op: Op) {
        self.push(op);
    }

    /// Asks the launch to cancel a cluster that has not begun.
    pub fn try_cancel(&mut self, answer: Address, barrier: Address) {
        self.push(Op::TryCancel { answer, barrier });
    }

    /// The index of the first block of the cluster that an answer says was cancelled.
    pub fn cancelled(&mut self, answer: Vec<Reg>) -> Value {
        let dst = self.new_value(RegType::B32, self.scopes.len() - 1);
        self.push(Op::Cancelled { dst, answer });
        dst
    }

    /// Emits an operation on an mbarrier.
    pub fn mbarrier(&mut self, op: MbarrierOp, address: Address, operand: Operand) {
        self.push(Op::Mbarrier { op, address, operand });
    }

    /// True in the elected lane of those that are active.
    pub fn elect(&mut self) -> Value {
        let dst = self.new_value(RegType::Pred, self.scopes.len() - 1);
        self.push(Op::Elect { dst });
        dst
    }

    /// The result, a value of type `result`, of instructions of PTX on operands of these types: `means` is the same.
    pub fn asm(
        &mut self,
        text: &str,
        result: RegType,
        (types, args): (Vec<RegType>, Vec<Operand>),
        means: Operand,
    ) -> Operand {
        let dst = self.new_value(result, self.scopes.len() - 1);
        self.push(Op::Asm { text: text.into(), dst, result, types, args, means });
        Operand::Value(dst)
    }

    /// Notes that a predicate holds.
    pub fn assert(&mut self, holds: Operand) {
        self.push(Op::Assert { holds });
    }

    /// Shows operands.
    pub fn print(&mut self, what: Print, operands: Vec<Operand>) {
        self.push(Op::Print { what: Arc::new(what), operands });
    }

    /// True in all lanes where it is in one of them.
    pub fn vote(&mut self, src: Operand) -> Value {
        let dst = self.new_value(RegType::Pred, self.scopes.len() - 1);
        self.push(Op::Vote { dst, src });
        dst
    }

    /// A barrier, a fence or a wait.
    pub fn sync(&mut self, op: SyncOp) {
        let op = match (op, self.team) {
            (SyncOp::Barrier, Some((_, barrier))) => barrier,
            (op, _) => op,
        };
        if op == SyncOp::DependencyWait {
            self.waits = (self.waits.0 + 1, self.scopes.len() - 1);
        }
        self.push(Op::Sync(op));
    }

    /// Waits at the barrier whose number is a value, alike in the threads of a warp, until so many threads have come.
    pub fn barrier_sync(&mut self, id: Operand, threads: u32) {
        self.push(Op::BarrierSync { id, threads });
    }

    /// A counted loop; `body` receives the counter.
    pub fn for_loop<E>(
        &mut self,
        lo: Operand,
        hi: Operand,
        step: Operand,
        body: impl FnOnce(&mut Builder, Value) -> Result<(), E>,
    ) -> Result<(), E> {
        let counter = self.open_loop();
        let result = body(self, counter);
        self.close_loop(counter, lo, hi, step);
        result
    }

    /// Ends the innermost open block; what comes next is of the statement that opened it.
    fn close(&mut self) -> Vec<Inst> {
        let Some(scope) = self.scopes.pop() else { return Vec::new() };
        self.origin = scope.origin;
        scope.body
    }

    /// Begins a loop: what follows, to the matching [`close_loop`](Builder::close_loop), is its body. Returns the counter.
    pub fn open_loop(&mut self) -> Value {
        let counter = self.new_value(RegType::B32, self.scopes.len());
        self.scopes.push(Scope::of(self.origin, true));
        counter
    }

    /// Ends the innermost open loop, which [`open_loop`](Builder::open_loop) began.
    pub fn close_loop(&mut self, counter: Value, lo: Operand, hi: Operand, step: Operand) {
        let body = self.close();
        if let Some(scope) = self.scopes.last_mut() {
            scope.has_loop = true;
        }
        self.push(Op::For { counter, lo, hi, step, body });
    }

    /// Threads in which the condition holds leave the innermost open loop, in whose body this must stand.
    pub fn break_where(&mut self, condition: Value) {
        self.push(Op::Break { condition });
    }

    /// Begins one side of a branch: what follows, to the matching [`close_branch`](Builder::close_branch) or
    /// [`close_side`](Builder::close_side), is its body.
    pub fn open_branch(&mut self) {
        self.scopes.push(Scope::of(self.origin, false));
    }

    /// Ends the innermost open side of a branch, which is done where the condition holds.
    pub fn close_branch(&mut self, condition: Value) {
        let then = self.close_side();
        self.if_else(condition, then, Vec::new());
    }

    /// Ends the innermost open side of a branch, for [`if_else`](Builder::if_else).
    pub fn close_side(&mut self) -> Vec<Inst> {
        self.close()
    }

    /// A branch of sides that were built before.
    pub fn if_else(&mut self, condition: Value, then: Vec<Inst>, otherwise: Vec<Inst>) {
        self.push(Op::If { condition, then, otherwise });
    }

    /// Instructions that were built before.
    pub fn append(&mut self, body: Vec<Inst>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.body.extend(body);
        }
    }

    /// A two-way branch.
    pub fn branch(
        &mut self,
        condition: Value,
        then: impl FnOnce(&mut Builder),
        otherwise: impl FnOnce(&mut Builder),
    ) {
        self.open_branch();
        then(self);
        let then = self.close_side();
        self.open_branch();
        otherwise(self);
        let otherwise = self.close_side();
        self.if_else(condition, then, otherwise);
    }
}

fn is_commutative(op: ScalarOp) -> bool {
    use ScalarOp::*;
    matches!(
        op,
        AddI32
            | MulI32
            | MinI32
            | MaxI32
            | AndB32
            | OrB32
            | XorB32
            | MulWide
            | AddI64
            | MulI64
            | EqI32
            | NeI32
            | AddF32
            | MulF32
            | MinF32
            | MaxF32
    )
}

/// Identities that hold bit for bit.
fn simplify(op: ScalarOp, args: &[Operand]) -> Option<Operand> {
    use ScalarOp::*;
    let imm = |i: usize| match args[i] {
        Operand::Imm(bits) => Some(bits),
        Operand::Value(_) => None,
    };
    match op {
        AddI32 | OrB32 | XorB32 | AddI64 => {
            if imm(1) == Some(0) {
                Some(args[0])
            } else if imm(0) == Some(0) {
                Some(args[1])
            } else {
                None
            }
        }
        SubI32 | ShlB32 | ShrU32 | ShlB64 if imm(1) == Some(0) => Some(args[0]),
        DivI32 if imm(1) == Some(1) => Some(args[0]),
        RemI32 if imm(1) == Some(1) => Some(Operand::Imm(0)),
        MulI32 | MulI64 => match (imm(0), imm(1)) {
            (Some(0), _) | (_, Some(0)) => Some(Operand::Imm(0)),
            (Some(1), _) => Some(args[1]),
            (_, Some(1)) => Some(args[0]),
            _ => None,
        },
        AndB32 if imm(0) == Some(0) || imm(1) == Some(0) => Some(Operand::Imm(0)),
        AndPred if imm(0) == Some(1) => Some(args[1]),
        AndPred if imm(1) == Some(1) => Some(args[0]),
        AndPred if imm(0) == Some(0) || imm(1) == Some(0) => Some(Operand::Imm(0)),
        _ => None,
    }
}
