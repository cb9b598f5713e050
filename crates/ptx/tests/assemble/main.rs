//! An outside oracle for the printer: `ptxas` accepts everything it can print, warns of nothing, and spills nothing.
//!
//! `TILEWRIGHT_PTXAS` names the assembler; without it one is looked for in `PATH`; without that, only the printing is
//! tested.

use std::path::PathBuf;
use std::process::Command;

use tilewright_machine::{
    Arch, BoxShape, BulkOp, CacheHint, CopyKind, CopyRow, Corners, DType, Descriptor, Feature, LaunchControl,
    Major, MbarrierOp, Memory, MemoryOrder, ProxyFence, RegType, ScalarOp, Scope, ShuffleMode, Sparsity,
    SumsScaling, SwizzleMode, SyncOp, Tcgen05Row, TensorOp, TensorRow, Until, WgmmaRow, atomic_rows,
    copy_rows, mma_rows, tcgen05_rows, tensor_gather, tensor_im2col, tensor_memory_copies, tensor_row,
    tensor_rows, wgmma_rows, wgmmas,
};
use tilewright_simt::passes::dead_code;
use tilewright_simt::{
    Address, ArrayId, Builder, DescriptorValue, Factor, Function, FunctionParamKind, MetadataCells, Op,
    Operand, Reg, ScaleBytes, ScaleCells, Special, TensorMap, Value, verify,
};

fn ptxas() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("TILEWRIGHT_PTXAS") {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("ptxas")).find(|file| file.is_file())
}

/// Verifies, prints and assembles: the text, and what the assembler says, which is nothing without one.
fn assemble(function: &Function, level: u32) -> (String, String) {
    verify(function).unwrap();
    let ptx = tilewright_ptx::print(function);
    let name = format!("{}.{}.ptx", function.name, function.arch);
    let Some(ptxas) = ptxas() else {
        eprintln!("no ptxas in TILEWRIGHT_PTXAS or PATH: {name} is printed but not assembled");
        return (ptx, String::new());
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(&name);
    std::fs::write(&file, &ptx).unwrap();
    let output = Command::new(&ptxas)
        .arg(format!("-arch={}", function.arch))
        .arg(format!("-O{level}"))
        .arg("-v")
        .arg(&file)
        .arg("-o")
        .arg(dir.path().join("out.cubin"))
        .output()
        .unwrap_or_else(|e| panic!("{} does not start: {e}", ptxas.display()));
    let log = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{log}\n{ptx}");
    (ptx, log)
}

/// Verifies, prints and assembles without a complaint.
fn check(function: &Function) -> String {
    let (ptx, log) = assemble(function, 3);
    // Advisories of the assembler are numbered; those of `wgmma` begin with C75.
    let complaint = log.lines().find(|line| line.contains("warning") || line.contains("(C"));
    assert_eq!(complaint, None, "{}: {log}", function.name);
    let spills = log.lines().find(|line| line.contains("bytes spill stores"));
    assert!(spills.is_none_or(|line| line.contains(" 0 bytes spill stores, 0 bytes spill loads")), "{log}");
    ptx
}

/// A kernel with one value of each type, an array, and addresses in both memories. Everything that tests make ends in
/// the array, and the array in global memory, so that the assembler drops nothing.
struct Bench {
    b: Builder,
    array: ArrayId,
    used: u32,
    shared: Operand,
    global: Operand,
    guard: Value,
    b16: Operand,
    b32: Operand,
}

const REGISTERS: u32 = 64;

fn value(operand: Operand) -> Value {
    match operand {
        Operand::Value(value) => value,
        Operand::Imm(_) => panic!("folded"),
    }
}

impl Bench {
    fn new(name: &str, arch: Arch) -> Self {
        let mut b = Builder::new(name, arch, 64);
        let x = b.add_param("x", FunctionParamKind::Pointer);
        let n = b.add_param("n", FunctionParamKind::I32);
        let scale = b.add_param("scale", FunctionParamKind::F32);
        b.add_shared("tile", 4096, 128);
        let array = b.add_array("fragment", REGISTERS);
        let thread = b.special(Special::ThreadIndex);
        let size = b.param(n);
        let guard = value(b.scalar(ScalarOp::LtI32, &[thread.into(), size.into()]));
        let offset = b.scalar(ScalarOp::MulWide, &[thread.into(), Operand::Imm(16)]);
        let base = b.param(x);
        let global = b.scalar(ScalarOp::AddI64, &[base.into(), offset]);
        let shared = b.special(Special::SharedBase);
        let row = b.scalar(ScalarOp::ShlB32, &[thread.into(), Operand::Imm(4)]);
        let shared = b.scalar(ScalarOp::AddI32, &[shared.into(), row]);
        let b32 = Operand::Value(b.param(scale));
        let b16 = b.scalar(ScalarOp::LowB16, &[b32]);
        for index in 0..REGISTERS {
            b.write(Reg { array, index }, b32);
        }
        Bench { b, array, used: 0, shared, global, guard, b16, b32 }
    }

    /// The next registers of the array, round and round.
    fn regs(&mut self, count: u32) -> Vec<Reg> {
        let start = self.used;
        self.used += count;
        (start..start + count).map(|i| Reg { array: self.array, index: i % REGISTERS }).collect()
    }

    fn of_type(&self, ty: RegType) -> Operand {
        match ty {
            RegType::Pred => self.guard.into(),
            RegType::B16 => self.b16,
            RegType::B32 => self.b32,
            RegType::B64 => self.global,
        }
    }

    /// Keeps a value of any type alive.
    fn keep(&mut self, result: Operand, ty: RegType) {
        let wide = match ty {
            RegType::B32 => result,
            RegType::B16 => self.b.scalar(ScalarOp::ExtendB16, &[result]),
            RegType::Pred => self.b.scalar(ScalarOp::Select, &[self.b32, Operand::Imm(0xffff_ffff), result]),
            // The bits of an address can be kept only by using it as one.
            RegType::B64 => {
                let reg = self.regs(1);
                let row = tilewright_machine::copy_named("ld.global.u8").unwrap();
                self.b.load(row, reg, Address { base: result, offset: 0 }, None);
                return;
            }
        };
        let reg = self.regs(1)[0];
        self.b.write(reg, wide);
    }

    fn finish(self) -> String {
        check(&self.function())
    }

    /// The function, which ends with a store of all registers.
    fn function(mut self) -> Function {
        let row = tilewright_machine::copy_named("st.global.v4.b32").unwrap();
        self.b.set_origin("copy(fragment, x)");
        for start in (0..REGISTERS).step_by(4) {
            let regs = (start..start + 4).map(|index| Reg { array: self.array, index }).collect();
            let address = Address { base: self.global, offset: start as i32 * 256 };
            self.b.store(row, regs, address, Some(self.guard));
        }
        self.b.finish()
    }

    fn copy(&mut self, row: &'static CopyRow, guard: Option<Value>, offset: i32) {
        let shared = Address { base: self.shared, offset };
        let global = Address { base: self.global, offset };
        match row.kind {
            CopyKind::Matrix { .. } => {
                let regs = self.regs(row.registers());
                self.b.matrix(row, regs, shared);
            }
            CopyKind::Async => self.b.async_copy(row, shared, global, guard),
            // Synthesis alone has these: `every_atomic_instruction` has what is emitted.
            CopyKind::Atomic(_) | CopyKind::Tensor { .. } => {}
            CopyKind::PerThread | CopyKind::Reduction(_) => {
                let regs = self.regs(row.registers());
                let memory = if row.dst == Memory::Register { row.src } else { row.dst };
                let address = if memory == Memory::Global { global } else { shared };
                if row.dst == Memory::Register {
                    self.b.load(row, regs, address, guard);
                } else {
                    self.b.store(row, regs, address, guard);
                }
            }
        }
    }
}

#[test]
fn every_atomic_instruction_and_wait() {
    let orders =
        [MemoryOrder::Relaxed, MemoryOrder::Acquire, MemoryOrder::Release, MemoryOrder::AcquireRelease];
    for arch in Arch::ALL {
        let mut bench = Bench::new("atomics", arch);
        let mut expected = Vec::new();
        for row in atomic_rows() {
            for order in orders {
                let base = if row.memory == Memory::Global { bench.global } else { bench.shared };
                let address = Address { base, offset: 8 };
                let operands = vec![bench.of_type(row.register()); row.op.operands()];
                for guard in [None, Some(bench.guard)] {
                    let old = bench.b.atomic(row, order, address, operands.clone(), guard);
                    bench.keep(old, row.register());
                }
                expected.push(row.mnemonic(order, true));
                if row.has_plain_form(order) {
                    bench.b.atomic(row, order, address, operands, Some(bench.guard));
                    expected.push(row.mnemonic(order, false));
                }
            }
        }
        for until in [Until::AtLeast, Until::SignDiffers] {
            bench.b.await_word(Address { base: bench.global, offset: 0 }, until, bench.b32);
        }
        // Results that nothing reads are left out.
        let mut function = bench.function();
        dead_code(&mut function);
        let ptx = check(&function);
        expected.push("ld.acquire.gpu.global.b32".to_string());
        expected.iter().for_each(|mnemonic| assert!(ptx.contains(mnemonic.as_str()), "{mnemonic}"));
    }
}

#[test]
fn every_scalar_operation_on_values() {
    for arch in Arch::ALL {
        let mut bench = Bench::new("scalars", arch);
        for op in ScalarOp::ALL.iter().filter(|op| arch.has(op.needs())) {
            let row = op.row();
            let mut args: Vec<Operand> = row.operands.iter().map(|ty| bench.of_type(*ty)).collect();
            if *op == ScalarOp::Lop3B32 {
                args[3] = TABLE;
            }
            bench.b.set_origin(row.name);
            let result = bench.b.scalar(*op, &args);
            bench.keep(result, row.result);
        }
        let ptx = bench.finish();
        for op in ScalarOp::ALL.iter().filter(|op| arch.has(op.needs())) {
            assert!(ptx.contains(op.row().mnemonic), "{}", op.row().name);
        }
    }
}

/// The table of a `lop3`, which must be a literal.
const TABLE: Operand = Operand::Imm(0x6a);

/// Every place of every operation takes a literal, also alone.
#[test]
fn every_scalar_operation_on_literals() {
    let mut bench = Bench::new("literals", Arch::SM_100A);
    // Positions and lengths of bit fields are at most 255.
    let bits = |op: ScalarOp, place: usize| match (op, op.row().operands[place]) {
        (ScalarOp::BfeU32 | ScalarOp::BfeS32, _) if place >= 1 => 5,
        (ScalarOp::BfiB32, _) if place >= 2 => 5,
        (_, RegType::Pred) => 1,
        (_, RegType::B16) => 0x3c00,
        (_, RegType::B32) => 0x4110_0000,
        (_, RegType::B64) => 0x1_0000_0010,
    };
    let mut extra = Vec::new();
    for op in ScalarOp::ALL {
        let row = op.row();
        for mask in 1..1u32 << row.operands.len() {
            let mut args: Vec<Operand> = row
                .operands
                .iter()
                .enumerate()
                .map(
                    |(i, ty)| {
                        if mask & (1 << i) != 0 { Operand::Imm(bits(*op, i)) } else { bench.of_type(*ty) }
                    },
                )
                .collect();
            if *op == ScalarOp::Lop3B32 {
                args[3] = TABLE;
            }
            extra.push((*op, args));
        }
    }
    // Past the builder, which would fold and reorder.
    let reg = bench.regs(1)[0];
    let mut function = bench.b.finish();
    let origin = tilewright_simt::OriginId(0);
    for (op, args) in extra {
        let row = op.row();
        function.values.push(row.result);
        let dst = Value(function.values.len() as u32 - 1);
        function.body.push(tilewright_simt::Inst { op: Op::Scalar { dst, op, args }, origin });
        if row.result == RegType::B32 {
            function
                .body
                .push(tilewright_simt::Inst { op: Op::WriteReg { dst: reg, src: dst.into() }, origin });
        }
    }
    check(&function);
}

#[test]
fn every_copy() {
    for arch in Arch::ALL {
        let mut bench = Bench::new("copies", arch);
        let rows: Vec<&CopyRow> = copy_rows().iter().filter(|row| arch.has(row.needs)).collect();
        for row in &rows {
            bench.b.set_origin(row.name);
            bench.copy(row, None, 0);
            bench.copy(row, Some(bench.guard), 256);
            bench.copy(row, None, -256);
        }
        bench.b.sync(SyncOp::AsyncWaitAll);
        let ptx = bench.finish();
        for row in rows {
            assert!(ptx.contains(row.mnemonic), "{}", row.name);
        }
        assert_eq!(ptx.contains("stmatrix"), arch.has(Feature::StMatrix));
    }
}

#[test]
fn every_matrix_product() {
    for arch in Arch::ALL {
        let mut bench = Bench::new("products", arch);
        let rows = || mma_rows().iter().filter(|row| arch.has(row.needs));
        for row in rows() {
            let (a, b, c) = row.registers();
            bench.b.set_origin(row.name);
            let (a, b, d) = (bench.regs(a), bench.regs(b), bench.regs(c));
            match row.sparsity {
                Some(_) => {
                    let meta = bench.regs(1)[0];
                    bench.b.write(meta, Operand::Imm(u64::from(Sparsity::FIRST_TWO)));
                    bench.b.sparse_mma(row, d, a, b, meta);
                }
                None if row.scaling.is_some() => {
                    // Every byte from which scales begin.
                    let count = row.scaling.as_ref().map_or(4, |scaling| row.k / scaling.block) as usize;
                    let registers = bench.regs(2);
                    registers.iter().for_each(|scales| bench.b.write(*scales, Operand::Imm(0x7f7f_7f7f)));
                    for byte in (0..4).step_by(count) {
                        let scales = [0, 1].map(|i| ScaleBytes { register: registers[i], byte });
                        bench.b.scaled_mma(row, d.clone(), [a.clone(), b.clone()], scales);
                    }
                }
                None => bench.b.mma(row, d, a, b),
            }
        }
        let ptx = bench.finish();
        for row in rows() {
            assert!(ptx.contains(row.mnemonic), "{}", row.name);
        }
    }
}

#[test]
fn shuffles_barriers_specials_loops_and_branches() {
    for arch in Arch::ALL {
        let mut bench = Bench::new("control", arch);
        for mode in ShuffleMode::ALL {
            for (src, operand) in [
                (bench.b32, Operand::Imm(3)),
                (Operand::Imm(7), bench.b32),
                (bench.b32, bench.b32),
                (Operand::Imm(7), Operand::Imm(0xffff_ffff)),
            ] {
                let result = bench.b.shuffle(src, mode, operand);
                bench.keep(result, RegType::B32);
            }
        }
        let syncs = [
            SyncOp::Barrier,
            SyncOp::WarpBarrier,
            SyncOp::AsyncCommit,
            SyncOp::AsyncWaitGroup(2),
            SyncOp::AsyncWaitAll,
        ];
        syncs.into_iter().for_each(|op| bench.b.sync(op));
        for axis in 0..3 {
            let block = bench.b.special(Special::BlockIndex(axis));
            bench.keep(block.into(), RegType::B32);
        }
        let bounds = [
            (Operand::Imm(0), Operand::Imm(7), 3),
            (Operand::Imm(0), bench.b32, 1),
            (bench.b32, Operand::Imm(100), 16),
            (Operand::Imm(u64::from(i32::MIN as u32)), bench.b32, 7),
            (Operand::Imm(0), Operand::Imm(i32::MAX as u64), 1 << 20),
        ];
        let (guard, array, b32) = (bench.guard, bench.array, bench.b32);
        for (lo, hi, step) in bounds {
            let body = |b: &mut Builder, counter: Value| -> Result<(), String> {
                let reg = Reg { array, index: 5 };
                let old = b.read(reg);
                let new = b.scalar(ScalarOp::AddI32, &[old, counter.into()]);
                b.write(reg, new);
                b.for_loop(Operand::Imm(0), b32, Operand::Imm(2), |b, inner| {
                    b.branch(
                        guard,
                        |b| b.write(Reg { array, index: 6 }, inner.into()),
                        |b| b.write(Reg { array, index: 7 }, Operand::Imm(1)),
                    );
                    b.branch(guard, |b| b.sync(SyncOp::AsyncCommit), |_| {});
                    b.branch(guard, |_| {}, |b| b.sync(SyncOp::AsyncCommit));
                    Ok(())
                })
            };
            bench.b.for_loop(lo, hi, Operand::Imm(step), body).unwrap();
        }
        bench.finish();
    }
}

#[test]
fn a_kernel_with_nothing_in_it() {
    check(&Builder::new("nothing", Arch::SM_90A, 1).finish());
}

fn at(base: impl Into<Operand>, offset: i32) -> Address {
    Address { base: base.into(), offset }
}

/// A kernel for warpgroups: shared memory, an accumulator, and everything that its products write in global memory.
struct Groups {
    b: Builder,
    /// The lower half of the descriptor of the shared memory's first byte.
    low: Operand,
    d: ArrayId,
    a: ArrayId,
    meta: ArrayId,
    b32: Operand,
    go: Value,
}

impl Groups {
    fn new(name: &str, threads: u32) -> Self {
        let mut b = Builder::new(name, Arch::SM_90A, threads);
        b.add_param("x", FunctionParamKind::Pointer);
        let n = b.add_param("n", FunctionParamKind::I32);
        b.add_shared("tiles", 128 * 1024, 1024);
        let (d, a) = (b.add_array("d", 128), b.add_array("a", 4));
        let meta = b.add_array("meta", 1);
        let b32 = Operand::Value(b.param(n));
        let go = value(b.scalar(ScalarOp::NeI32, &[b32, Operand::Imm(7)]));
        let base = b.special(Special::SharedBase);
        let base = b.scalar(ScalarOp::AndB32, &[base.into(), Operand::Imm(0x3ffff)]);
        let low = b.scalar(ScalarOp::ShrU32, &[base, Operand::Imm(4)]);
        Groups { b, low, d, a, meta, b32, go }
    }

    fn d(&self, count: u32) -> Vec<Reg> {
        (0..count).map(|index| Reg { array: self.d, index }).collect()
    }

    fn a(&self) -> Vec<Reg> {
        (0..4).map(|index| Reg { array: self.a, index }).collect()
    }

    fn shared(&mut self, start: u32, major: Major, swizzle: SwizzleMode) -> Factor {
        let bits = Descriptor { start, leading: 16, stride: 8 * swizzle.span(), swizzle }.encode();
        let low = self.b.scalar(ScalarOp::AddI32, &[self.low, Operand::Imm(bits & 0xffff_ffff)]);
        Factor::Shared { descriptor: DescriptorValue { low, high: (bits >> 32) as u32 }, major }
    }

    /// One product in a group of its own.
    fn product(&mut self, row: &'static WgmmaRow, a: Factor, b: Factor, accumulate: Operand) {
        let d = self.d(row.registers().1);
        self.b.set_origin(row.name.as_str());
        let meta = Reg { array: self.meta, index: 0 };
        self.b.sync(SyncOp::WgmmaFence);
        match row.sparsity {
            Some(_) => self.b.sparse_wgmma(row, d, (a, meta), b, accumulate),
            None => self.b.wgmma(row, d, a, b, accumulate),
        }
        self.b.sync(SyncOp::WgmmaCommit);
        self.b.sync(SyncOp::WgmmaWait(0));
    }

    fn clear(&mut self, count: u32) {
        for reg in self.d(count) {
            self.b.write(reg, Operand::Imm(0));
        }
    }

    /// Stores the first `count` registers of the accumulator.
    fn store(&mut self, count: u32) {
        let thread = self.b.special(Special::ThreadIndex);
        let base = self.b.param(0);
        let offset = self.b.scalar(ScalarOp::MulWide, &[thread.into(), Operand::Imm(1024)]);
        let address = self.b.scalar(ScalarOp::AddI64, &[base.into(), offset]);
        let row = tilewright_machine::copy_named("st.global.b32").unwrap();
        for reg in self.d(count) {
            self.b.store(row, vec![reg], at(address, 4 * reg.index as i32), None);
        }
    }

    fn finish(self) -> String {
        check(&self.b.finish())
    }
}

/// The types of the products, each once.
fn wgmma_types() -> Vec<(DType, DType, DType, bool)> {
    let types = wgmma_rows().iter().map(|row| (row.a, row.b, row.c, row.sparsity.is_some()));
    let mut types: Vec<_> = types.collect();
    types.dedup();
    types
}

/// Every way to give a row its operands, on one accumulator.
fn products(k: &mut Groups, row: &'static WgmmaRow, swizzle: SwizzleMode, accumulate: Operand) {
    let majors: &[Major] = if row.takes_mn_major() { &[Major::K, Major::Mn] } else { &[Major::K] };
    for major in majors {
        let right = k.shared(0x8000, *major, swizzle);
        for other in majors {
            let left = k.shared(0, *other, swizzle);
            k.product(row, left, right.clone(), accumulate);
        }
        let left = Factor::Registers(k.a());
        k.product(row, left, right, Operand::Imm(1));
    }
}

fn warpgroup(name: &str) -> Groups {
    let mut k = Groups::new(name, 128);
    for reg in k.a() {
        k.b.write(reg, k.b32);
    }
    k.b.write(Reg { array: k.meta, index: 0 }, Operand::Imm(u64::from(Sparsity::FIRST_TWO)));
    k
}

/// Hundreds of products in one kernel take the optimiser minutes, so it is off here.
#[test]
fn every_matrix_product_of_a_warpgroup() {
    let mut printed = 0;
    for (ta, tb, tc, sparse) in wgmma_types() {
        let mut k = warpgroup(&format!("wgmma_{ta}_{tb}_{tc}{}", if sparse { "_sparse" } else { "" }));
        for (i, row) in wgmmas(ta, tb, tc, sparse).enumerate() {
            // Each of the ways to say whether to accumulate, in turn.
            let accumulate = [Operand::Imm(1), k.go.into(), Operand::Imm(0)][i % 3];
            products(&mut k, row, SwizzleMode::ALL[i % 4], accumulate);
        }
        let ptx = assemble(&k.b.finish(), 0).0;
        for row in wgmmas(ta, tb, tc, sparse) {
            assert!(ptx.contains(&row.mnemonic), "{}", row.name);
            printed += 1;
        }
    }
    assert_eq!(printed, wgmma_rows().len());
}

#[test]
fn products_of_a_warpgroup_stay_asynchronous() {
    for (ta, tb, tc, sparse) in wgmma_types() {
        for n in [8, 96, 256] {
            let row = wgmmas(ta, tb, tc, sparse).find(|row| row.n == n).unwrap();
            let mut k =
                warpgroup(&format!("wgmma_{ta}_{tb}_{tc}_{n}{}", if sparse { "_sparse" } else { "" }));
            let go = k.go.into();
            k.clear(row.registers().1);
            products(&mut k, row, SwizzleMode::B128, go);
            k.store(row.registers().1);
            k.finish();
        }
    }
}

/// The main loop of a product: it stays asynchronous over the back edge.
#[test]
fn a_pipelined_loop_of_products() {
    let mut k = Groups::new("wgmma_loop", 128);
    let row = wgmmas(DType::F16, DType::F16, DType::F32, false).next().unwrap();
    k.clear(128);
    let n = k.b32;
    let counter = k.b.open_loop();
    let slot = k.b.scalar(ScalarOp::AndB32, &[counter.into(), Operand::Imm(3)]);
    let slot = k.b.scalar(ScalarOp::MulI32, &[slot, Operand::Imm(0x6000 / 16)]);
    let base = k.low;
    k.low = k.b.scalar(ScalarOp::AddI32, &[base, slot]);
    k.b.sync(SyncOp::WgmmaFence);
    for step in 0..4 {
        let left = k.shared(32 * step, Major::K, SwizzleMode::B128);
        let right = k.shared(0x2000 + 32 * step, Major::K, SwizzleMode::B128);
        let d = k.d(128);
        k.b.wgmma(row, d, left, right, Operand::Imm(1));
    }
    k.b.sync(SyncOp::WgmmaCommit);
    k.b.sync(SyncOp::WgmmaWait(1));
    k.b.close_loop(counter, Operand::Imm(0), n, Operand::Imm(1));
    k.b.sync(SyncOp::WgmmaWait(0));
    k.store(128);
    k.finish();
}

/// A producer gives registers to two consumers, which hold more than an even share.
#[test]
fn registers_move_between_roles() {
    let mut k = Groups::new("roles", 384);
    let row = wgmmas(DType::BF16, DType::BF16, DType::F32, false).next().unwrap();
    let thread = k.b.special(Special::ThreadIndex);
    let warp = k.b.scalar(ScalarOp::ShrU32, &[thread.into(), Operand::Imm(5)]);
    let warp = k.b.shuffle(warp, ShuffleMode::Idx, Operand::Imm(0));
    let producer = value(k.b.scalar(ScalarOp::GeI32, &[warp, Operand::Imm(8)]));
    let consumer = value(k.b.scalar(ScalarOp::LtI32, &[warp, Operand::Imm(8)]));
    let base = k.b.special(Special::SharedBase);
    k.b.open_branch();
    k.b.sync(SyncOp::SetMaxRegisters { more: false, registers: 40 });
    k.b.open_branch();
    k.b.mbarrier(MbarrierOp::Wait, at(base, 0x1_f000), Operand::Imm(1));
    k.b.mbarrier(MbarrierOp::ArriveExpect, at(base, 0x1_f008), Operand::Imm(8192));
    let go = k.go;
    k.b.close_branch(go);
    k.b.close_branch(producer);
    k.b.open_branch();
    k.b.sync(SyncOp::SetMaxRegisters { more: true, registers: 232 });
    k.clear(128);
    k.b.mbarrier(MbarrierOp::Wait, at(base, 0x1_f008), Operand::Imm(0));
    let (left, right) =
        (k.shared(0, Major::K, SwizzleMode::B128), k.shared(0x8000, Major::K, SwizzleMode::B128));
    k.product(row, left, right, Operand::Imm(1));
    k.b.sync(SyncOp::NamedBarrier { id: 1, threads: 256 });
    k.store(128);
    k.b.close_branch(consumer);
    let ptx = k.finish();
    assert!(ptx.contains(".maxntid 384, 1, 1\n.minnctapersm 1\n"), "{ptx}");
}

/// One elected thread of a block of a cluster, with a tensor map of each rank.
struct Elected {
    b: Builder,
    shared: Operand,
    global: Operand,
    b32: Operand,
    elected: Value,
}

impl Elected {
    fn new(name: &str) -> Self {
        let mut b = Builder::new(name, Arch::SM_90A, 128);
        b.set_cluster(4);
        let x = b.add_param("x", FunctionParamKind::Pointer);
        let n = b.add_param("n", FunctionParamKind::I32);
        for rank in 1..=5 {
            let mut extents = vec![64];
            extents.resize(rank, 2);
            let shape = BoxShape::dense(DType::F16, extents, SwizzleMode::B128);
            b.add_tensor_map(TensorMap { name: format!("t{rank}"), shape });
        }
        b.add_shared("tile", 8192, 1024);
        b.add_shared("barriers", 64, 8);
        let shared = Operand::Value(b.special(Special::SharedBase));
        let global = Operand::Value(b.param(x));
        let b32 = Operand::Value(b.param(n));
        let elected = b.elect();
        b.open_branch();
        Elected { b, shared, global, b32, elected }
    }

    fn barrier(&self) -> Address {
        at(self.shared, 8192)
    }

    fn finish(mut self) -> String {
        let elected = self.elected;
        self.b.close_branch(elected);
        self.b.sync(SyncOp::ClusterBarrier);
        check(&self.b.finish())
    }
}

#[test]
fn every_tensor_copy() {
    let mut k = Elected::new("tensor_copies");
    let rank = k.b.special(Special::ClusterRank);
    let mask = k.b.scalar(ScalarOp::ShlB32, &[Operand::Imm(1), rank.into()]);
    for row in tensor_rows() {
        let load = row.op == TensorOp::Load;
        let masks = [None, Some(mask), Some(Operand::Imm(0xf))];
        for multicast in masks.into_iter().take(if load { 3 } else { 1 }) {
            for hint in [None, Some(CacheHint::EvictFirst), Some(CacheHint::EvictLast)] {
                let mut coords = vec![k.b32; row.rank as usize];
                coords[0] = Operand::Imm(u64::from((-8i32) as u32));
                let op = Op::Tensor {
                    row,
                    map: row.rank - 1,
                    one: None,
                    coords,
                    shared: at(k.shared, 1024),
                    barrier: load.then(|| k.barrier()),
                    multicast,
                    even: false,
                    hint,
                };
                k.b.bulk(op);
            }
        }
    }
    k.b.sync(SyncOp::BulkCommit);
    k.b.sync(SyncOp::BulkWaitRead(1));
    k.b.sync(SyncOp::BulkWait(0));
    let ptx = k.finish();
    assert!(ptx.contains(".explicitcluster\n.reqnctapercluster 4, 1, 1\n"), "{ptx}");
    for row in tensor_rows() {
        let forms: &[&str] = match row.op {
            TensorOp::Load => {
                &["", ".multicast::cluster", ".L2::cache_hint", ".multicast::cluster.L2::cache_hint"]
            }
            TensorOp::Store | TensorOp::Add => &["", ".L2::cache_hint"],
        };
        for form in forms {
            assert!(ptx.contains(&format!("{}{form} [", row.mnemonic)), "{}{form}", row.name);
        }
    }
}

#[test]
fn tensor_maps_of_an_array() {
    let mut k = Elected::new("tensor_maps");
    let row = tensor_rows().iter().find(|row| row.op == TensorOp::Store && row.rank == 2).unwrap();
    let shape = BoxShape::dense(DType::F16, vec![64, 2], SwizzleMode::B128);
    let map = k.b.add_tensor_maps(TensorMap { name: "several".to_string(), shape });
    for number in [k.b32, Operand::Imm(3)] {
        let one = Some(k.b.tensor_map(map, number, None));
        let (coords, shared) = (vec![k.b32; 2], at(k.shared, 1024));
        k.b.bulk(Op::Tensor {
            row,
            map,
            one,
            coords,
            shared,
            barrier: None,
            multicast: None,
            even: false,
            hint: None,
        });
    }
    let ptx = k.finish();
    assert_eq!(ptx.matches("fence.proxy.tensormap::generic.acquire.sys").count(), 2, "{ptx}");
}

#[test]
fn every_bulk_copy_and_what_peers_share() {
    let mut k = Elected::new("bulk_copies");
    let peer = |k: &mut Elected, offset: i32| {
        let place = k.b.scalar(ScalarOp::AddI32, &[k.shared, Operand::Imm(offset as u64)]);
        k.b.scalar(ScalarOp::Mapa, &[place, Operand::Imm(1)])
    };
    let (tile, barrier) = (peer(&mut k, 0), peer(&mut k, 8192));
    for op in BulkOp::ALL {
        for bytes in [Operand::Imm(4096), k.b32] {
            let other = if op == BulkOp::Peer { at(tile, 0) } else { at(k.global, 64) };
            let barrier = match op {
                BulkOp::Load => Some(k.barrier()),
                BulkOp::Store => None,
                BulkOp::Peer => Some(at(barrier, 0)),
            };
            let shared = at(k.shared, 1024);
            k.b.bulk(Op::Bulk { op, shared, other, bytes, barrier });
        }
    }
    k.b.sync(SyncOp::BulkCommit);
    k.b.sync(SyncOp::BulkWait(0));
    for op in MbarrierOp::ALL.into_iter().filter(|op| Arch::SM_90A.has(op.needs())) {
        let place = if op.reaches_peers() { at(barrier, 0) } else { k.barrier() };
        for operand in if !op.has_operand() { vec![Operand::Imm(0)] } else { vec![Operand::Imm(1), k.b32] } {
            k.b.mbarrier(op, place, operand);
        }
        if op == MbarrierOp::Init {
            k.b.sync(SyncOp::FenceMbarrierInit);
        }
    }
    let array = k.b.add_array("sum", 4);
    for row in copy_rows().iter().filter(|row| row.scope == Scope::Cluster) {
        let regs: Vec<Reg> = (0..row.registers()).map(|index| Reg { array, index }).collect();
        k.b.load(row, regs.clone(), at(tile, 16), None);
        let store = if regs.len() == 1 {
            "st.global.b32".to_string()
        } else {
            format!("st.global.v{}.b32", regs.len())
        };
        k.b.store(tilewright_machine::copy_named(&store).unwrap(), regs, at(k.global, 0), None);
    }
    let ptx = k.finish();
    for mnemonic in BulkOp::ALL.map(BulkOp::mnemonic).into_iter().chain(
        MbarrierOp::ALL.into_iter().filter(|op| Arch::SM_90A.has(op.needs())).map(MbarrierOp::mnemonic),
    ) {
        assert!(ptx.contains(mnemonic), "{mnemonic}");
    }
    assert_eq!(ptx.matches("ld.shared::cluster").count(), 3);
}

#[test]
fn every_barrier_fence_and_wait_of_hopper() {
    let mut b = Builder::new("syncs", Arch::SM_90A, 128);
    let syncs = [
        SyncOp::DependencyWait,
        SyncOp::NamedBarrier { id: 15, threads: 128 },
        SyncOp::ClusterBarrier,
        SyncOp::ClusterStart,
        SyncOp::WgmmaFence,
        SyncOp::WgmmaCommit,
        SyncOp::WgmmaWait(0),
        SyncOp::BulkCommit,
        SyncOp::BulkWait(1),
        SyncOp::BulkWaitRead(0),
        SyncOp::FenceProxyAsync(ProxyFence::Shared),
        SyncOp::FenceProxyAsync(ProxyFence::SharedCluster),
        SyncOp::FenceProxyAsync(ProxyFence::Global),
        SyncOp::FenceProxyAsync(ProxyFence::All),
        SyncOp::FenceMbarrierInit,
        SyncOp::SetMaxRegisters { more: false, registers: 24 },
        SyncOp::SetMaxRegisters { more: true, registers: 256 },
        SyncOp::DependentsLaunch,
    ];
    syncs.into_iter().for_each(|op| b.sync(op));
    let ptx = check(&b.finish());
    for op in syncs {
        assert!(ptx.contains(&op.spelling()), "{op:?}");
    }
}

/// Every size that clusters have; more than 8 blocks need an opt-in of the launch only.
#[test]
fn clusters() {
    for blocks in [2, 8, 16] {
        let mut b = Builder::new(format!("cluster_of_{blocks}"), Arch::SM_90A, 128);
        b.set_cluster(blocks);
        b.sync(SyncOp::ClusterBarrier);
        check(&b.finish());
    }
}

/// Tensor memory from its allocation to its end: every copy, every kind of product with every place of its factors, and what orders them; of one block and of pairs, whose
/// tensor copies may signal the other block.
#[test]
fn tensor_memory() {
    let archs = [Arch::SM_100A, Arch::SM_103A];
    for (arch, pairs) in archs.into_iter().flat_map(|arch| [(arch, false), (arch, true)]) {
        let name = if pairs { "tensor_memory_of_pairs" } else { "tensor_memory" };
        let mut b = Builder::new(name, arch, 128);
        if pairs {
            b.set_cluster(2);
            b.set_pairs();
        }
        let x = b.add_param("x", FunctionParamKind::Pointer);
        b.add_shared("factors", 0x1_0000, 1024);
        b.add_shared("barrier", 8, 8);
        b.add_shared("address", 4, 4);
        b.add_tensor_memory("sums", 0, 512);
        let shared = Operand::Value(b.special(Special::SharedBase));
        let (barrier, place) = (at(shared, 0x1_0000), at(shared, 0x1_0008));
        b.tensor_allocate(512, place);
        b.sync(SyncOp::TensorRelinquish);
        b.sync(SyncOp::TensorFenceBefore);
        b.sync(SyncOp::Barrier);
        b.sync(SyncOp::TensorFenceAfter);
        let word = Reg { array: b.add_array("address", 1), index: 0 };
        b.load(tilewright_machine::copy_named("ld.shared.b32").unwrap(), vec![word], place, None);
        let sums = b.read(word);
        let units = b.scalar(ScalarOp::ShrU32, &[shared, Operand::Imm(4)]);
        let elected = b.elect();
        b.open_branch();
        let mut kinds = std::collections::BTreeSet::new();
        let has = |row: &&Tcgen05Row| arch.has(row.needs()) && row.n == 256 && (row.blocks == 2) == pairs;
        for row in tcgen05_rows().iter().filter(has) {
            kinds.insert(row.mnemonic.clone());
            let majors: &[Major] = if row.takes_mn_major() { &[Major::K, Major::Mn] } else { &[Major::K] };
            let modes = [SwizzleMode::ALL.as_slice(), &[SwizzleMode::B128Atom32]].concat();
            let taken = |(major, mode): &(Major, SwizzleMode)| match major {
                Major::K => *mode != SwizzleMode::B128Atom32,
                Major::Mn => row.takes_mn_swizzle(*mode),
            };
            for (major, swizzle) in
                majors.iter().flat_map(|major| modes.iter().map(|mode| (*major, *mode))).filter(taken)
            {
                let form = Descriptor { start: 0, leading: 16, stride: 1024, swizzle };
                let high = (Tcgen05Row::matrix(&form) >> 32) as u32;
                let factor = || {
                    let descriptor = DescriptorValue { low: units, high };
                    Factor::Shared { descriptor, major }
                };
                if row.sparse {
                    let meta = |selector| MetadataCells { address: at(sums, 320), selector };
                    let last = u32::from(row.a.bits() == 16);
                    b.sparse_tcgen05(row, at(sums, 0), [factor(), factor()], meta(0), Operand::Imm(0));
                    let left = Factor::Tensor(at(sums, 256));
                    b.sparse_tcgen05(row, at(sums, 0), [left, factor()], meta(last), Operand::Imm(1));
                    continue;
                }
                let Some(scaling) = row.scaling else {
                    b.tcgen05(row, at(sums, 0), factor(), factor(), Operand::Imm(0));
                    b.tcgen05(row, at(sums, 64), factor(), factor(), Operand::Value(elected));
                    b.tcgen05(row, at(sums, 0), Factor::Tensor(at(sums, 256)), factor(), Operand::Imm(1));
                    continue;
                };
                let scales = |column| {
                    let byte = (SumsScaling::SCALES - scaling.taken(row.k)) as u32;
                    ScaleCells { address: at(sums, column), byte }
                };
                b.scale_copy(DescriptorValue { low: units, high: 0x4008 }, at(sums, 300));
                b.scaled_tcgen05(
                    row,
                    at(sums, 0),
                    [factor(), factor()],
                    [scales(256), scales(300)],
                    Operand::Imm(0),
                );
            }
        }
        b.mbarrier(MbarrierOp::Commit, barrier, Operand::Imm(0));
        b.mbarrier(MbarrierOp::CommitPeers, barrier, Operand::Imm(3));
        if pairs {
            let shape = BoxShape::dense(DType::F16, vec![64, 64], SwizzleMode::B128);
            let map = b.add_tensor_map(TensorMap { name: "right".to_string(), shape });
            let even = b.scalar(ScalarOp::Mapa, &[shared, Operand::Imm(0)]);
            b.bulk(Op::Tensor {
                row: tensor_row(TensorOp::Load, 2).unwrap(),
                map,
                one: None,
                coords: vec![Operand::Imm(0); 2],
                shared: at(shared, 0),
                barrier: Some(at(even, 0x1_0000)),
                multicast: None,
                even: false,
                hint: None,
            });
            b.bulk(Op::Tensor {
                row: tensor_row(TensorOp::Load, 2).unwrap(),
                map,
                one: None,
                coords: vec![Operand::Imm(0); 2],
                shared: at(shared, 0),
                barrier: Some(at(even, 0x1_0000)),
                multicast: Some(Operand::Imm(5)),
                even: true,
                hint: Some(CacheHint::EvictLast),
            });
            kinds.insert("mbarrier::complete_tx::bytes.cta_group::2".to_string());
            kinds.insert("multicast::cluster.cta_group::2".to_string());
        }
        b.close_branch(elected);
        b.mbarrier(MbarrierOp::Wait, barrier, Operand::Imm(0));
        b.sync(SyncOp::TensorFenceAfter);
        let array = b.add_array("cells", 32);
        for row in tensor_memory_copies() {
            let regs = (0..row.registers()).map(|index| Reg { array, index }).collect();
            b.tensor_copy(row, regs, at(sums, 4));
            b.sync(SyncOp::TensorWaitLoad);
            b.sync(SyncOp::TensorWaitStore);
        }
        let out = b.param(x);
        let stored = (0..4).map(|index| Reg { array, index }).collect();
        let store = tilewright_machine::copy_named("st.global.v4.b32").unwrap();
        b.store(store, stored, at(Operand::Value(out), 0), None);
        b.sync(SyncOp::TensorFenceBefore);
        b.sync(SyncOp::Barrier);
        b.tensor_free(512, sums);
        let ptx = check(&b.finish());
        for mnemonic in
            kinds.iter().map(String::as_str).chain(tensor_memory_copies().iter().map(|r| r.mnemonic))
        {
            assert!(ptx.contains(mnemonic), "{mnemonic}");
        }
    }
}

/// Requests to cancel a cluster, their answers, and gathers of rows, on every chip that has them.
#[test]
fn launch_control_and_gathers() {
    for arch in Arch::ALL.into_iter().filter(|arch| arch.has(LaunchControl::NEEDS)) {
        let mut b = Builder::new("launch_control", arch, 128);
        let x = b.add_param("x", FunctionParamKind::Pointer);
        b.add_shared("rows", 4096, 1024);
        b.add_shared("answer", 16, 16);
        b.add_shared("barrier", 8, 8);
        let shape = BoxShape::dense(DType::F16, vec![64, 1], SwizzleMode::B128);
        let map = b.add_tensor_map(TensorMap { name: "rows".to_string(), shape });
        let shared = Operand::Value(b.special(Special::SharedBase));
        let (answer, barrier) = (at(shared, 4096), at(shared, 4112));
        let elected = b.elect();
        b.open_branch();
        b.mbarrier(MbarrierOp::ArriveExpect, barrier, Operand::Imm(528));
        b.try_cancel(answer, barrier);
        for hint in [None, Some(CacheHint::EvictFirst)] {
            let coords = [0, 5, 1, 1 << 20, u64::from(u32::MAX)].map(Operand::Imm).to_vec();
            let (row, shared, barrier) = (tensor_gather(), at(shared, 512), Some(barrier));
            b.bulk(Op::Tensor {
                row,
                map,
                one: None,
                coords,
                shared,
                barrier,
                multicast: None,
                even: false,
                hint,
            });
        }
        b.close_branch(elected);
        b.mbarrier(MbarrierOp::Wait, barrier, Operand::Imm(0));
        let words = b.add_array("answer", 5);
        let reg = |index| Reg { array: words, index };
        let load = tilewright_machine::copy_named("ld.shared.v4.b32").unwrap();
        b.load(load, (0..4).map(reg).collect(), answer, None);
        b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
        let block = b.cancelled((0..4).map(reg).collect());
        b.write(reg(4), block.into());
        let out = b.param(x);
        let store = tilewright_machine::copy_named("st.global.b32").unwrap();
        b.store(store, vec![reg(4)], at(Operand::Value(out), 0), None);
        let ptx = check(&b.finish());
        let parts = [LaunchControl::TRY_CANCEL, LaunchControl::IS_CANCELED, LaunchControl::FIRST_BLOCK];
        for mnemonic in parts.into_iter().chain([tensor_gather().mnemonic.as_str()]) {
            assert!(ptx.contains(mnemonic), "{arch}: {mnemonic}");
        }
    }
}

/// Loads of pixels, of lines, images and volumes, on every chip that has them.
#[test]
fn every_load_of_pixels() {
    for arch in Arch::ALL.into_iter().filter(|arch| arch.has(TensorRow::NEEDS)) {
        let mut b = Builder::new("pixels", arch, 128);
        let n = b.add_param("n", FunctionParamKind::I32);
        for row in tensor_im2col() {
            let spatial = row.rank as usize - 2;
            let shape = BoxShape {
                steps: vec![1; row.rank as usize],
                corners: Some(Corners { lower: vec![-1; spatial], upper: vec![-1; spatial] }),
                ..BoxShape::dense(DType::F16, vec![64, 16], SwizzleMode::B128)
            };
            b.add_tensor_map(TensorMap { name: row.name.clone(), shape });
        }
        b.add_shared("pixels", 2048, 1024);
        b.add_shared("barrier", 8, 8);
        let multicast = arch.has(TensorRow::MULTICAST_NEEDS);
        if multicast {
            b.set_cluster(2);
        }
        let (shared, n) = (Operand::Value(b.special(Special::SharedBase)), Operand::Value(b.param(n)));
        let elected = b.elect();
        b.open_branch();
        for (row, map) in tensor_im2col().iter().zip(0..) {
            let masks = [None, Some(Operand::Imm(3))];
            for multicast in masks.into_iter().take(if multicast { 2 } else { 1 }) {
                for hint in [None, Some(CacheHint::EvictFirst)] {
                    let mut coords = vec![n; (row.coordinates() + row.offsets()) as usize];
                    *coords.last_mut().unwrap() = Operand::Imm(2);
                    let (shared, barrier) = (at(shared, 0), Some(at(shared, 2048)));
                    b.bulk(Op::Tensor {
                        row,
                        map,
                        one: None,
                        coords,
                        shared,
                        barrier,
                        multicast,
                        even: false,
                        hint,
                    });
                }
            }
        }
        b.close_branch(elected);
        if multicast {
            b.sync(SyncOp::ClusterBarrier);
        }
        let ptx = check(&b.finish());
        for row in tensor_im2col() {
            assert!(ptx.contains(&*row.mnemonic_on(arch)), "{arch}: {}", row.name);
        }
    }
}
