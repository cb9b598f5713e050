//! Whole texts of small functions, and the corners of single instructions.

use tilewright_machine::{
    Arch, BoxShape, BulkOp, CacheHint, DType, Major, MbarrierOp, MmaKind, RegType, ScalarOp, SwizzleMode,
    SyncOp, TensorOp, copy_named, mmas, tensor_row, wgmmas,
};
use tilewright_simt::{
    Address, Builder, DescriptorValue, Factor, Function, FunctionParamKind, Inst, Op, Operand, OriginId, Reg,
    Special, TensorMap, Value, verify,
};

use crate::print;

fn at(base: impl Into<Operand>, offset: i32) -> Address {
    Address { base: base.into(), offset }
}

/// The instructions between the declarations and the return.
fn body(function: &Function) -> String {
    verify(function).unwrap();
    let text = print(function);
    let (_, inside) = text.split_once("\n{\n").unwrap();
    let (inside, _) = inside.split_once("    ret;\n").unwrap();
    inside.split_inclusive('\n').filter(|line| !line.starts_with("    .reg")).collect()
}

#[test]
fn a_whole_kernel() {
    let mut b = Builder::new("scale", Arch::SM_80, 128);
    let x = b.add_param("x", FunctionParamKind::Pointer);
    let factor = b.add_param("factor", FunctionParamKind::F32);
    let n = b.add_param("n", FunctionParamKind::I32);
    let fragment = b.add_array("tile", 1);
    let reg = Reg { array: fragment, index: 0 };
    b.set_origin("t = global_view(x)");
    let thread = b.special(Special::ThreadIndex);
    let size = b.param(n);
    let inside = b.scalar(ScalarOp::LtI32, &[thread.into(), size.into()]);
    let Operand::Value(inside) = inside else { panic!("not a literal") };
    let base = b.param(x);
    let offset = b.scalar(ScalarOp::MulWide, &[thread.into(), Operand::Imm(4)]);
    let address = b.scalar(ScalarOp::AddI64, &[base.into(), offset]);
    b.set_origin("copy(t, tile)");
    b.load(copy_named("ld.global.b32").unwrap(), vec![reg], at(address, 0), Some(inside));
    b.set_origin("tile = tile * factor");
    let factor = b.param(factor);
    let value = b.read(reg);
    let product = b.scalar(ScalarOp::MulF32, &[value, factor.into()]);
    b.write(reg, product);
    b.set_origin("copy(tile, t)");
    b.store(copy_named("st.global.b32").unwrap(), vec![reg], at(address, 0), Some(inside));
    let function = b.finish();
    verify(&function).unwrap();
    let expected = "\
.version 7.4
.target sm_80
.address_size 64

.visible .entry scale(
    .param .u64 scale_param_0, // x
    .param .f32 scale_param_1, // factor
    .param .u32 scale_param_2 // n
)
.maxntid 128, 1, 1
.minnctapersm 1
{
    .reg .pred %p<1>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<3>;
    .reg .b32 %a0_<1>; // tile
    // t = global_view(x)
    mov.u32 %r0, %tid.x;
    ld.param.b32 %r1, [scale_param_2];
    setp.lt.s32 %p0, %r0, %r1;
    ld.param.u64 %rd0, [scale_param_0];
    cvta.to.global.u64 %rd0, %rd0;
    mul.wide.s32 %rd1, %r0, 4;
    add.s64 %rd2, %rd0, %rd1;
    // copy(t, tile)
    mov.b32 %a0_0, 0;
    @%p0 ld.global.b32 %a0_0, [%rd2];
    // tile = tile * factor
    ld.param.b32 %r2, [scale_param_1];
    mov.b32 %r3, %a0_0;
    mul.rn.f32 %r4, %r3, %r2;
    mov.b32 %a0_0, %r4;
    // copy(tile, t)
    @%p0 st.global.b32 [%rd2], %a0_0;
    ret;
}
";
    assert_eq!(print(&function), expected);
}

#[test]
fn shared_memory_and_asynchronous_copies() {
    let mut b = Builder::new("stage", Arch::SM_80, 32);
    let x = b.add_param("x", FunctionParamKind::Pointer);
    let n = b.add_param("n", FunctionParamKind::I32);
    b.add_shared("tile", 512, 16);
    let fragment = b.add_array("f", 4);
    let regs: Vec<Reg> = (0..4).map(|index| Reg { array: fragment, index }).collect();
    let shared = b.special(Special::SharedBase);
    let base = b.param(x);
    let size = b.param(n);
    let Operand::Value(guard) = b.scalar(ScalarOp::GeI32, &[size.into(), Operand::Imm(1)]) else { panic!() };
    b.async_copy(copy_named("cp.async.16").unwrap(), at(shared, 16), at(base, -32), Some(guard));
    b.async_copy(copy_named("cp.async.4").unwrap(), at(shared, 0), at(base, 0), None);
    b.matrix(copy_named("ldmatrix.x4").unwrap(), regs, at(Operand::Imm(64), 0));
    let function = b.finish();
    let text = print(&function);
    assert!(
        text.contains("// shared tile: 512 bytes at 0\n.extern .shared .align 1024 .b8 stage_smem[];\n"),
        "{text}"
    );
    let expected = "    \
    mov.u32 %r0, stage_smem;
    ld.param.u64 %rd0, [stage_param_0];
    cvta.to.global.u64 %rd0, %rd0;
    ld.param.b32 %r1, [stage_param_1];
    setp.ge.s32 %p0, %r1, 1;
    selp.b32 %r2, 16, 0, %p0;
    cp.async.cg.shared.global [%r0+16], [%rd0+-32], 16, %r2;
    cp.async.ca.shared.global [%r0], [%rd0], 4;
    mov.b32 %r3, 64;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%a0_0, %a0_1, %a0_2, %a0_3}, [%r3];
";
    assert_eq!(body(&function), expected);
}

#[test]
fn a_guarded_lookup_gives_zero_elsewhere() {
    let mut b = Builder::new("f", Arch::SM_80, 32);
    let array = b.add_array("r", 1);
    let list = b.add_param("list", FunctionParamKind::Pointer);
    let thread = b.special(Special::ThreadIndex);
    let Operand::Value(inside) = b.scalar(ScalarOp::LtI32, &[thread.into(), Operand::Imm(3)]) else {
        panic!("not a literal")
    };
    let base = b.param(list);
    let word = b.lookup(copy_named("ld.global.b32").unwrap(), at(base, 4), Some(inside));
    b.write(Reg { array, index: 0 }, word);
    let expected = "    mov.u32 %r0, %tid.x;
    setp.lt.s32 %p0, %r0, 3;
    ld.param.u64 %rd0, [f_param_0];
    cvta.to.global.u64 %rd0, %rd0;
    mov.b32 %r1, 0;
    @%p0 ld.global.b32 %r1, [%rd0+4];
    mov.b32 %a0_0, %r1;
";
    assert_eq!(body(&b.finish()), expected);
}

fn loop_over(lo: Operand, hi: Option<i64>, step: i32) -> String {
    let mut b = Builder::new("k", Arch::SM_80, 32);
    let n = b.add_param("n", FunctionParamKind::I32);
    let hi = match hi {
        Some(hi) => Operand::Imm(hi as u32 as u64),
        None => b.param(n).into(),
    };
    b.for_loop(lo, hi, Operand::Imm(step as u32 as u64), |b, _| {
        b.sync(tilewright_machine::SyncOp::Barrier);
        Ok::<(), ()>(())
    })
    .unwrap();
    body(&b.finish())
}

#[test]
fn a_loop_with_literal_bounds_needs_no_test_before_it() {
    let expected = "    \
    mov.b32 %r0, 0;
$L0_loop:
    bar.sync 0;
    add.s32 %r0, %r0, 2;
    setp.lt.s32 %p0, %r0, 8;
    @%p0 bra $L0_loop;
";
    assert_eq!(loop_over(Operand::Imm(0), Some(8), 2), expected);
}

#[test]
fn a_loop_that_never_runs_is_not_printed() {
    let text = loop_over(Operand::Imm(0), Some(-1), 1);
    assert!(!text.contains("bar.sync") && !text.contains("bra"), "{text}");
}

#[test]
fn a_loop_with_a_run_time_bound_is_tested_first_and_its_counter_cannot_wrap() {
    let expected = "    \
    ld.param.b32 %r0, [k_param_0];
    setp.ge.s32 %p0, 0, %r0;
    @%p0 bra $L0_end;
    sub.sat.s32 %r1, %r0, 4;
    mov.b32 %r2, 0;
$L0_loop:
    bar.sync 0;
    setp.lt.s32 %p1, %r2, %r1;
    add.s32 %r2, %r2, 4;
    @%p1 bra $L0_loop;
$L0_end:
";
    assert_eq!(loop_over(Operand::Imm(0), None, 4), expected);
    let by_one = loop_over(Operand::Imm(0), None, 1);
    assert!(!by_one.contains("sub.sat") && by_one.contains("setp.lt.s32 %p1, %r1, %r0;"), "{by_one}");
    let far = loop_over(Operand::Imm(0), Some(i64::from(i32::MAX)), 16);
    assert!(far.contains(&format!("setp.lt.s32 %p0, %r0, {};", i32::MAX - 16)), "{far}");
}

#[test]
fn branches() {
    let build = |then: bool, otherwise: bool| {
        let mut b = Builder::new("k", Arch::SM_80, 32);
        let thread = b.special(Special::ThreadIndex);
        let Operand::Value(p) = b.scalar(ScalarOp::LtI32, &[thread.into(), Operand::Imm(5)]) else {
            panic!()
        };
        let fragment = b.add_array("f", 1);
        let reg = Reg { array: fragment, index: 0 };
        let write = |go: bool, value: u64| {
            move |b: &mut Builder| {
                if go {
                    b.write(reg, Operand::Imm(value));
                }
            }
        };
        b.branch(p, write(then, 1), write(otherwise, 0x3f80_0000));
        let text = body(&b.finish());
        text[text.find('@').unwrap()..].to_string()
    };
    let both = "\
@!%p0 bra $L0_else;
    mov.b32 %a0_0, 1;
    bra $L0_end;
$L0_else:
    mov.b32 %a0_0, 0x3f800000;
$L0_end:
";
    assert_eq!(build(true, true), both);
    assert_eq!(build(true, false), "@!%p0 bra $L0_end;\n    mov.b32 %a0_0, 1;\n$L0_end:\n");
    assert_eq!(build(false, true), "@%p0 bra $L0_end;\n    mov.b32 %a0_0, 0x3f800000;\n$L0_end:\n");
}

/// Builders fold what this function does not.
#[test]
fn literals_where_an_instruction_takes_none_go_through_a_register() {
    let scalar = |dst: u32, op, args: &[Operand]| Inst {
        op: Op::Scalar { dst: Value(dst), op, args: args.to_vec() },
        origin: OriginId(0),
    };
    let mut b = Builder::new("k", Arch::SM_80, 32);
    let thread = b.special(Special::ThreadIndex);
    let p = b.scalar(ScalarOp::LtI32, &[thread.into(), Operand::Imm(u64::from((-5i32) as u32))]);
    let mut function = b.finish();
    function.values.extend([RegType::Pred, RegType::B16, RegType::Pred]);
    function.body.push(scalar(2, ScalarOp::XorPred, &[p, Operand::Imm(1)]));
    function.body.push(scalar(3, ScalarOp::LowB16, &[Operand::Imm(0x1_0007)]));
    function.body.push(scalar(4, ScalarOp::LtI32, &[Operand::Imm(1), Operand::Imm(2)]));
    let expected = "    \
    mov.u32 %r0, %tid.x;
    setp.lt.s32 %p0, %r0, -5;
    mov.pred %p1, 1;
    xor.pred %p2, %p0, %p1;
    mov.b16 %h0, 7;
    mov.pred %p3, 1;
";
    assert_eq!(body(&function), expected);
}

#[test]
fn the_version_is_that_of_the_youngest_instruction() {
    let begins = |arch: Arch, ab: DType, c: DType| {
        let row = mmas([ab; 2], c, MmaKind::Dense, arch).next().unwrap();
        let mut b = Builder::new("k", arch, 32);
        let (na, nb, nc) = row.registers();
        let [a, x, d] = [("a", na), ("b", nb), ("d", nc)].map(|(name, count)| {
            let array = b.add_array(name, count);
            (0..count).map(|index| Reg { array, index }).collect::<Vec<_>>()
        });
        b.mma(row, d, a, x);
        let text = print(&b.finish());
        text.lines().next().unwrap_or_default().to_string()
    };
    let sparse = |arch: Arch, asynchronous: bool| {
        let mut b = Builder::new("k", arch, 128);
        let array = b.add_array("regs", 16);
        let regs =
            |first: u32, count: u32| (first..first + count).map(|index| Reg { array, index }).collect();
        let meta = Reg { array, index: 15 };
        if asynchronous {
            let row = wgmmas(DType::F16, DType::F16, DType::F32, true).find(|row| row.n == 8).unwrap();
            let descriptor = DescriptorValue { low: Operand::Imm(0), high: 0 };
            let right = Factor::Shared { descriptor, major: Major::K };
            b.sparse_wgmma(row, regs(0, 4), (Factor::Registers(regs(4, 4)), meta), right, Operand::Imm(1));
        } else {
            let row = mmas([DType::F16; 2], DType::F32, MmaKind::Sparse, arch).next().unwrap();
            b.sparse_mma(row, regs(0, 4), regs(4, 4), regs(8, 4), meta);
        }
        print(&b.finish())
    };
    let text = sparse(Arch::SM_80, false);
    assert!(text.starts_with(".version 8.5"));
    let operands = "{%a0_0, %a0_1, %a0_2, %a0_3}, {%a0_4, %a0_5, %a0_6, %a0_7}, {%a0_8, %a0_9, %a0_10, %a0_11}, \
                    {%a0_0, %a0_1, %a0_2, %a0_3}, %a0_15, 0x0;";
    let expected =
        format!("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {operands}");
    assert!(text.contains(&expected), "{text}");
    let text = sparse(Arch::SM_90A, true);
    assert!(text.starts_with(".version 8.2"));
    let expected = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%a0_0, %a0_1, %a0_2, %a0_3}, \
                    {%a0_4, %a0_5, %a0_6, %a0_7}, %rd0, %a0_15, 0x0, 1, 1, 1, 0;";
    assert!(text.contains(expected), "{text}");
    assert_eq!(begins(Arch::SM_80, DType::F32, DType::F32), ".version 7.4");
    assert_eq!(begins(Arch::SM_89, DType::F16, DType::F32), ".version 8.1");
    assert_eq!(begins(Arch::SM_89, DType::E4M3, DType::F32), ".version 8.4");
    assert_eq!(begins(Arch::SM_90A, DType::E5M2, DType::F32), ".version 8.4");
    assert_eq!(begins(Arch::SM_90A, DType::F64, DType::F64), ".version 8.0");
}

#[test]
fn products_of_a_warpgroup() {
    let mut b = Builder::new("k", Arch::SM_90A, 128);
    let (d, a) = (b.add_array("d", 4), b.add_array("a", 4));
    let regs = |array| -> Vec<Reg> { (0..4).map(|index| Reg { array, index }).collect() };
    let low = Operand::Value(b.special(Special::ThreadIndex));
    let elected = b.elect();
    let shared =
        |low, major| Factor::Shared { descriptor: DescriptorValue { low, high: 0x4000_0040 }, major };
    let row = |ty| wgmmas(ty, ty, DType::F32, false).find(|row| row.n == 8).unwrap();
    let left = Factor::Registers(regs(a));
    b.sync(SyncOp::WgmmaFence);
    b.wgmma(row(DType::F16), regs(d), shared(low, Major::K), shared(low, Major::Mn), Operand::Imm(0));
    b.wgmma(row(DType::F32), regs(d), left, shared(Operand::Imm(0x1_0002), Major::K), elected.into());
    b.sync(SyncOp::WgmmaCommit);
    b.sync(SyncOp::WgmmaWait(0));
    let expected = "    \
    mov.u32 %r0, %tid.x;
    elect.sync _|%p0, 0xffffffff;
    wgmma.fence.sync.aligned;
    mov.b32 %r1, 0x40000040;
    mov.b64 %rd0, {%r0, %r1};
    mov.b32 %r2, 0x40000040;
    mov.b64 %rd1, {%r0, %r2};
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%a0_0, %a0_1, %a0_2, %a0_3}, %rd0, %rd1, 0, 1, 1, 0, 1;
    mov.b32 %r3, 0x10002;
    mov.b32 %r4, 0x40000040;
    mov.b64 %rd2, {%r3, %r4};
    wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%a0_0, %a0_1, %a0_2, %a0_3}, {%a1_0, %a1_1, %a1_2, %a1_3}, %rd2, %p0, 1, 1;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
";
    assert_eq!(body(&b.finish()), expected);
}

/// Integer products have no factors of their inputs.
#[test]
fn integer_products_of_a_warpgroup() {
    let mut b = Builder::new("k", Arch::SM_90A, 128);
    let d = b.add_array("d", 4);
    let regs = (0..4).map(|index| Reg { array: d, index }).collect();
    let low = Operand::Value(b.special(Special::ThreadIndex));
    let shared = Factor::Shared { descriptor: DescriptorValue { low, high: 64 }, major: Major::K };
    let row = wgmmas(DType::I8, DType::I8, DType::I32, false).find(|row| row.n == 8).unwrap();
    b.wgmma(row, regs, shared.clone(), shared, Operand::Imm(1));
    let text = body(&b.finish());
    let expected =
        "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%a0_0, %a0_1, %a0_2, %a0_3}, %rd0, %rd1, 1;\n";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn tensor_copies_mbarriers_and_clusters() {
    let mut b = Builder::new("k", Arch::SM_90A, 160);
    b.set_cluster(2);
    let x = b.add_param("x", FunctionParamKind::Pointer);
    let shape = BoxShape::dense(DType::F16, vec![64, 8], SwizzleMode::B128);
    let map = b.add_tensor_map(TensorMap { name: "x".to_string(), shape });
    b.add_shared("tile", 1024, 1024);
    b.add_shared("full", 8, 8);
    let base = Operand::Value(b.special(Special::SharedBase));
    let rank = Operand::Value(b.special(Special::ClusterRank));
    let full = at(base, 1024);
    b.mbarrier(MbarrierOp::Init, full, Operand::Imm(1));
    b.sync(SyncOp::FenceMbarrierInit);
    b.sync(SyncOp::ClusterBarrier);
    let tensor = |op, barrier, multicast, hint| Op::Tensor {
        row: tensor_row(op, 2).unwrap(),
        map,
        one: None,
        coords: vec![Operand::Imm(0), rank],
        shared: at(base, 0),
        barrier,
        multicast,
        even: false,
        hint,
    };
    b.mbarrier(MbarrierOp::ArriveExpect, full, Operand::Imm(1024));
    b.bulk(tensor(TensorOp::Load, Some(full), None, None));
    b.bulk(tensor(TensorOp::Load, Some(full), Some(Operand::Imm(3)), Some(CacheHint::EvictLast)));
    b.mbarrier(MbarrierOp::Wait, full, Operand::Imm(0));
    b.bulk(tensor(TensorOp::Add, None, None, Some(CacheHint::EvictFirst)));
    let global = b.param(x);
    let bulk =
        |op, other, barrier| Op::Bulk { op, shared: at(base, 0), other, bytes: Operand::Imm(1024), barrier };
    b.bulk(bulk(BulkOp::Load, at(global, 32), Some(full)));
    b.bulk(bulk(BulkOp::Store, at(global, 0), None));
    b.sync(SyncOp::BulkCommit);
    b.sync(SyncOp::BulkWaitRead(0));
    let peer = b.scalar(ScalarOp::Mapa, &[base, Operand::Imm(1)]);
    b.mbarrier(MbarrierOp::ArrivePeer, at(peer, 1024), Operand::Imm(0));
    b.mbarrier(MbarrierOp::Arrive, full, Operand::Imm(0));
    b.sync(SyncOp::NamedBarrier { id: 1, threads: 160 });
    let function = b.finish();
    let expected = "    \
    mov.b64 %rd0, k_param_1;
    cvta.param.u64 %rd0, %rd0;
    mov.u32 %r0, k_smem;
    mov.u32 %r1, %cluster_ctarank;
    prefetch.tensormap [%rd0];
    mbarrier.init.shared::cta.b64 [%r0+1024], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0+1024], 1024;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r0], [%rd0, {0, %r1}], [%r0+1024];
    mov.b32 %r2, 3;
    cvt.u16.u32 %h0, %r2;
    mov.b64 %rd1, 0x14f0000000000000;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%r0], [%rd0, {0, %r1}], [%r0+1024], %h0, %rd1;
$L0_wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r0+1024], 0;
    @!%p0 bra $L0_wait;
    mov.b64 %rd2, 0x12f0000000000000;
    cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group.L2::cache_hint [%rd0, {0, %r1}], [%r0], %rd2;
";
    let text = body(&function);
    assert!(text.starts_with(expected), "{text}");
    let (_, rest) = text.split_at(expected.len());
    let expected = "    \
    ld.param.u64 %rd3, [k_param_0];
    cvta.to.global.u64 %rd3, %rd3;
    mov.b32 %r3, 1024;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd3+32], %r3, [%r0+1024];
    mov.b32 %r4, 1024;
    cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r0], %r4;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
    mapa.shared::cluster.u32 %r5, %r0, 1;
    mbarrier.arrive.shared::cluster.b64 _, [%r5+1024];
    mbarrier.arrive.shared::cta.b64 _, [%r0+1024];
    bar.sync 1, 160;
";
    assert_eq!(rest, expected);
    let whole = print(&function);
    let head = "\
.visible .entry k(
    .param .u64 k_param_0, // x
    .param .align 64 .b8 k_param_1[128] // x.map0
)
.maxntid 160, 1, 1
.minnctapersm 1
.explicitcluster
.reqnctapercluster 2, 1, 1
{
";
    assert!(whole.starts_with(".version 8.0\n.target sm_90a\n") && whole.contains(head), "{whole}");
}
