//! An outside oracle for the printer: `ptxas` accepts everything it can print, warns of nothing, and spills nothing.
//!
//! `TILEWRIGHT_PTXAS` names the assembler; without it one is looked for in `PATH`; without that, only the printing is
//! tested.

mod products;
mod tensors;

use std::path::PathBuf;
use std::process::Command;

use tilewright_machine::{
    Arch, CopyKind, CopyRow, Feature, Memory, MemoryOrder, RegType, ScalarOp, ShuffleMode, Sparsity, SyncOp,
    Until, atomic_rows, copy_rows, mma_rows,
};
use tilewright_simt::passes::dead_code;
use tilewright_simt::{
    Address, ArrayId, Builder, Function, FunctionParamKind, Op, Operand, Reg, ScaleBytes, Special, Value,
    verify,
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
