//! Copies of tensors, barriers, clusters and tensor memory.

use tilewright_machine::{
    Arch, BoxShape, BulkOp, CacheHint, Corners, DType, Descriptor, LaunchControl, Major, MbarrierOp,
    ProxyFence, ScalarOp, Scope, SumsScaling, SwizzleMode, SyncOp, Tcgen05Row, TensorOp, TensorRow,
    copy_rows, tcgen05_rows, tensor_gather, tensor_im2col, tensor_memory_copies, tensor_row, tensor_rows,
};
use tilewright_simt::{
    Address, Builder, DescriptorValue, Factor, FunctionParamKind, MetadataCells, Op, Operand, Reg,
    ScaleCells, Special, TensorMap, Value,
};

use super::{at, check};

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
