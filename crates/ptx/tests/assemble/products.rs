//! Products of warpgroups, and the registers of roles.

use tilewright_machine::{
    Arch, DType, Descriptor, Major, MbarrierOp, ScalarOp, ShuffleMode, Sparsity, SwizzleMode, SyncOp,
    WgmmaRow, wgmma_rows, wgmmas,
};
use tilewright_simt::{
    ArrayId, Builder, DescriptorValue, Factor, FunctionParamKind, Operand, Reg, Special, Value,
};

use super::{assemble, at, check, value};

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
