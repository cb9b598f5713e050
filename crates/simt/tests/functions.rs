//! The builder folds, shares and hoists; the verifier rejects each broken invariant.

use tilewright_machine::{
    Arch, BoxShape, BulkOp, DType, Major, MbarrierOp, Memory, RegType, ScalarOp, Scope, SwizzleMode, SyncOp,
    TensorOp, copies, copy_named, mma_rows, tensor_row, wgmmas,
};
use tilewright_simt::{
    Address, Builder, DescriptorValue, Factor, Function, FunctionParamKind, Inst, Op, Operand, OriginId, Reg,
    Special, TensorMap, Value, passes, verify,
};

fn imm(x: u64) -> Operand {
    Operand::Imm(x)
}

fn count(function: &Function) -> usize {
    let mut n = 0;
    function.visit(&mut |_| n += 1);
    n
}

#[test]
fn literals_fold_and_equal_operations_are_shared() {
    let mut b = Builder::new("f", Arch::SM_80, 32);
    assert_eq!(b.scalar(ScalarOp::AddI32, &[imm(2), imm(3)]), imm(5));
    let t = Operand::Value(b.special(Special::ThreadIndex));
    assert_eq!(b.scalar(ScalarOp::MulI32, &[t, imm(1)]), t);
    assert_eq!(b.scalar(ScalarOp::AndB32, &[t, imm(0)]), imm(0));
    let x = b.scalar(ScalarOp::AddI32, &[t, imm(4)]);
    let y = b.scalar(ScalarOp::AddI32, &[imm(4), t]);
    assert_eq!(x, y);
    assert_eq!(count(&b.finish()), 2);
}

#[test]
fn invariant_operations_leave_the_loop() {
    let mut b = Builder::new("f", Arch::SM_80, 32);
    let array = b.add_array("r", 1);
    let t = Operand::Value(b.special(Special::ThreadIndex));
    b.for_loop(imm(0), imm(4), imm(1), |b, i| -> Result<(), ()> {
        let invariant = b.scalar(ScalarOp::ShlB32, &[t, imm(4)]);
        let sum = b.scalar(ScalarOp::AddI32, &[invariant, i.into()]);
        b.write(Reg { array, index: 0 }, sum);
        Ok(())
    })
    .unwrap();
    let f = b.finish();
    verify(&f).unwrap();
    let Some(Op::For { body, .. }) = f.body.last().map(|i| &i.op) else { panic!("the loop comes last") };
    assert_eq!(body.len(), 2, "{f}");
    assert!(f.to_string().contains("for %1 in 0..4 step 1 {"), "{f}");
}

/// Looks a word up twice, before and after a wait for the kernels before, and twice in a loop.
#[test]
fn lookups_leave_loops_but_not_over_a_wait_for_the_kernels_before() {
    let mut b = Builder::new("f", Arch::SM_90A, 32);
    let array = b.add_array("r", 1);
    let param = b.add_param("list", FunctionParamKind::Pointer);
    let address = Address { base: b.param(param).into(), offset: 8 };
    let row = copy_named("ld.global.b32").unwrap();
    let before = b.lookup(row, address, None);
    assert_eq!(b.lookup(row, address, None), before);
    b.sync(SyncOp::DependencyWait);
    b.for_loop(imm(0), imm(4), imm(1), |b, _| -> Result<(), ()> {
        let after = b.lookup(row, address, None);
        assert_ne!(after, before);
        assert_eq!(b.lookup(row, address, None), after);
        let sum = b.scalar(ScalarOp::AddI32, &[before, after]);
        b.write(Reg { array, index: 0 }, sum);
        b.sync(SyncOp::DependencyWait);
        let again = b.lookup(row, address, None);
        b.write(Reg { array, index: 0 }, again);
        Ok(())
    })
    .unwrap();
    let f = b.finish();
    verify(&f).unwrap();
    let expected = "    %0 = param list
    %1 = ld.global.b32 [%0+8]
    griddepcontrol.wait
    %3 = ld.global.b32 [%0+8]
    %4 = add %1, %3
    for %2 in 0..4 step 1 {
        @0[0] = %4
        griddepcontrol.wait
        %5 = ld.global.b32 [%0+8]
        @0[0] = %5
    }
";
    assert!(f.to_string().contains(expected), "{f}");
}

#[test]
fn dead_code_goes_and_effects_stay() {
    let mut b = Builder::new("f", Arch::SM_80, 32);
    let array = b.add_array("r", 1);
    let unused = b.read(Reg { array, index: 0 });
    b.scalar(ScalarOp::AddI32, &[unused, imm(1)]);
    b.for_loop(imm(0), imm(4), imm(1), |_, _| -> Result<(), ()> { Ok(()) }).unwrap();
    b.sync(SyncOp::Barrier);
    let mut f = b.finish();
    assert!(passes::dead_code(&mut f));
    assert_eq!(f.body.len(), 1, "{f}");
    assert!(!passes::dead_code(&mut f));
}

/// A function of one instruction, with two values (a `B32`, a `Pred`), an array of two registers and a shared buffer.
fn one(op: Op) -> Function {
    let mut b = Builder::new("f", Arch::SM_80, 32);
    b.set_origin("copy(a, b)");
    b.add_array("r", 2);
    b.add_param("p", FunctionParamKind::Pointer);
    b.add_shared("s", 64, 16);
    let mut f = b.finish();
    f.values = vec![RegType::B32, RegType::Pred, RegType::B32];
    let first = Op::Special { dst: Value(0), special: Special::ThreadIndex };
    f.body = vec![Inst { op: first, origin: OriginId(1) }, Inst { op, origin: OriginId(1) }];
    f
}

fn message(op: Op) -> String {
    verify(&one(op)).unwrap_err().to_string()
}

fn reg(index: u32) -> Reg {
    Reg { array: tilewright_simt::ArrayId(0), index }
}

#[test]
fn every_broken_invariant_is_named_with_its_statement() {
    let v = |i| Operand::Value(Value(i));
    let address = |base| Address { base, offset: 0 };
    let load = copies(Memory::Shared, Memory::Register, Scope::Cta, Arch::SM_80)
        .find(|r| r.name == "ld.shared.b32")
        .unwrap();
    let cases = [
        (Op::Special { dst: Value(0), special: Special::ThreadIndex }, "%0 is defined twice"),
        (Op::WriteReg { dst: reg(0), src: v(2) }, "%2 is used where it is not defined"),
        (Op::WriteReg { dst: reg(0), src: v(9) }, "%9 does not exist"),
        (Op::WriteReg { dst: reg(5), src: v(0) }, "@0[5] is outside its array"),
        (Op::Scalar { dst: Value(2), op: ScalarOp::AddI32, args: vec![v(0)] }, "add takes 2 operands"),
        (Op::Scalar { dst: Value(1), op: ScalarOp::AddI32, args: vec![v(0), v(0)] }, "%1 is defined as B32"),
        (
            Op::Scalar { dst: Value(2), op: ScalarOp::AddI64, args: vec![v(0), v(0)] },
            "%0 is B32 where B64 is wanted",
        ),
        (
            Op::Load {
                row: load,
                dst: vec![reg(0), reg(1)],
                address: address(v(0)),
                guard: None,
                outside: [0; 2],
            },
            "2 registers where",
        ),
        (
            Op::Load {
                row: load,
                dst: vec![reg(0)],
                address: address(v(0)),
                guard: Some(Value(0)),
                outside: [0; 2],
            },
            "%0 is B32 where Pred is wanted",
        ),
        (
            Op::Lookup { row: load, dst: Value(2), address: address(v(0)), guard: None },
            "ld.shared.b32 loads no word of global memory",
        ),
        (
            Op::Lookup {
                row: copy_named("ld.global.b32").unwrap(),
                dst: Value(2),
                address: address(v(0)),
                guard: None,
            },
            "%0 is B32 where B64 is wanted",
        ),
        (
            Op::Store { row: load, src: vec![reg(0)], address: address(v(0)), guard: None },
            "ld.shared.b32 is not a store",
        ),
        (
            Op::Matrix {
                row: copy_named("stmatrix.x1").unwrap(),
                regs: vec![reg(0)],
                address: address(v(0)),
            },
            "which sm_80 does not have",
        ),
        (
            Op::Mma { row: &mma_rows()[0], d: vec![reg(0)], a: vec![], b: vec![], meta: None, scales: None },
            "1 registers where the instruction has 4",
        ),
        (Op::For { counter: Value(2), lo: imm(0), hi: imm(1), step: imm(0), body: vec![] }, "loop step 0"),
        (Op::Param { dst: Value(2), param: 7 }, "no such parameter"),
    ];
    for (op, expected) in cases {
        let text = message(op);
        assert!(text.contains(expected) && text.contains("copy(a, b)"), "{text} should say {expected}");
    }
    // Buffers that are never in use together may overlap, but none leaves the window.
    let mut buffers = one(Op::Sync(SyncOp::Barrier));
    buffers.shared.push(buffers.shared[0].clone());
    assert!(verify(&buffers).is_ok());
    buffers.shared[0].offset = buffers.shared_bytes;
    assert!(verify(&buffers).unwrap_err().to_string().contains("leaves the window"));
}

#[test]
fn the_clock_is_read_where_it_stands_and_never_removed() {
    let mut b = Builder::new("f", Arch::SM_80, 32);
    let first = b.special(Special::Clock);
    let counter = b.open_loop();
    let second = b.special(Special::Clock);
    b.close_loop(counter, imm(0), imm(2), imm(1));
    assert_ne!(first, second);
    let mut function = b.finish();
    verify(&function).unwrap();
    assert!(!passes::dead_code(&mut function));
    let text = function.to_string();
    assert!(text.contains("%0 = clock") && text.contains("        %2 = clock"), "{text}");
}

/// A function for sm_90a of one instruction, with a tensor map, an array of 12 registers and a value of each type.
fn hopper(op: Op) -> Function {
    let mut b = Builder::new("f", Arch::SM_90A, 128);
    b.set_origin("copy(a, b)");
    b.add_array("r", 12);
    b.add_param("p", FunctionParamKind::Pointer);
    let shape = BoxShape::dense(DType::F16, vec![64, 8], SwizzleMode::B128);
    b.add_tensor_map(TensorMap { name: "t".to_string(), shape });
    let mut f = b.finish();
    f.values = vec![RegType::B32, RegType::Pred, RegType::B32, RegType::B64];
    let first = [
        Op::Special { dst: Value(0), special: Special::ThreadIndex },
        Op::Elect { dst: Value(1) },
        Op::Param { dst: Value(3), param: 0 },
    ];
    f.body = first.into_iter().chain([op]).map(|op| Inst { op, origin: OriginId(1) }).collect();
    f
}

#[test]
fn what_hopper_does_not_take_is_named() {
    let v = |i| Operand::Value(Value(i));
    let at = |base| Address { base, offset: 0 };
    let regs = |range: std::ops::Range<u32>| range.map(reg).collect::<Vec<_>>();
    let row = wgmmas(DType::F16, DType::F16, DType::F32, false).find(|row| row.n == 16).unwrap();
    let tf32 = wgmmas(DType::F32, DType::F32, DType::F32, false).find(|row| row.n == 16).unwrap();
    let shared =
        |low, major| Factor::Shared { descriptor: DescriptorValue { low, high: 0x4000_0040 }, major };
    let product = |row, d, a, b, accumulate| Op::Wgmma { row, d, a, b, meta: None, accumulate };
    let good = shared(v(0), Major::K);
    let tensor = |op, rank, coords, barrier, multicast| Op::Tensor {
        row: tensor_row(op, rank).unwrap(),
        map: 0,
        one: None,
        coords,
        shared: at(v(0)),
        barrier,
        multicast,
        even: false,
        hint: None,
    };
    let bulk = |op, bytes, barrier| Op::Bulk { op, shared: at(v(0)), other: at(v(3)), bytes, barrier };
    let mbarrier = |op, operand| Op::Mbarrier { op, address: at(v(0)), operand };
    let named = |id, threads| Op::Sync(SyncOp::NamedBarrier { id, threads });
    let budget = |registers| Op::Sync(SyncOp::SetMaxRegisters { more: true, registers });
    let right = [
        product(row, regs(0..8), good.clone(), good.clone(), v(1)),
        product(row, regs(0..8), Factor::Registers(regs(8..12)), shared(v(0), Major::Mn), imm(0)),
        tensor(TensorOp::Load, 2, vec![v(0), imm(0)], Some(at(v(0))), Some(imm(3))),
        tensor(TensorOp::Add, 2, vec![v(0), imm(0)], None, None),
        bulk(BulkOp::Load, imm(32), Some(at(v(0)))),
        bulk(BulkOp::Store, v(0), None),
        mbarrier(MbarrierOp::Init, imm(4)),
        named(1, 128),
        budget(232),
    ];
    for op in right {
        verify(&hopper(op)).unwrap();
    }
    let wrong = [
        (
            product(row, regs(0..4), good.clone(), good.clone(), imm(1)),
            "4 registers where the instruction has 8",
        ),
        (product(row, regs(0..8), good.clone(), good.clone(), v(0)), "%0 is B32 where Pred is wanted"),
        (
            product(row, regs(0..8), good.clone(), Factor::Registers(regs(8..12)), imm(1)),
            "right factor in registers",
        ),
        (product(row, regs(0..8), Factor::Registers(regs(7..11)), good.clone(), imm(1)), "with @0[7] twice"),
        (product(row, vec![reg(1); 8], good.clone(), good.clone(), imm(1)), "with @0[1] twice"),
        (
            product(tf32, regs(0..8), good.clone(), shared(v(0), Major::Mn), imm(1)),
            "a factor that is MN-major",
        ),
        (product(row, regs(0..8), shared(v(1), Major::K), good, imm(1)), "%1 is Pred where B32 is wanted"),
        (
            tensor(TensorOp::Load, 3, vec![imm(0); 3], Some(at(v(0))), None),
            "tma.load.3d of a box of 3 dimensions",
        ),
        (tensor(TensorOp::Load, 2, vec![imm(0); 2], None, None), "tma.load.2d with the operands of another"),
        (tensor(TensorOp::Store, 2, vec![imm(0); 2], None, Some(imm(1))), "with the operands of another"),
        (bulk(BulkOp::Load, imm(24), Some(at(v(0)))), "bulk.load of 24 bytes"),
        (bulk(BulkOp::Store, imm(16), Some(at(v(0)))), "bulk.store with the operands of another"),
        (bulk(BulkOp::Peer, imm(16), Some(at(v(0)))), "%3 is B64 where B32 is wanted"),
        (mbarrier(MbarrierOp::Init, imm(0)), "mbarrier.init with 0"),
        (mbarrier(MbarrierOp::ArriveExpect, imm(1 << 20)), "mbarrier.arrive.expect_tx with 1048576"),
        (mbarrier(MbarrierOp::Wait, imm(2)), "mbarrier.wait with 2"),
        (named(0, 128), "barrier 0 of 128 threads"),
        (named(1, 100), "barrier 1 of 100 threads"),
        (named(1, 160), "barrier 1 of 160 threads, of which the block has 128"),
        (budget(100), "a budget of 100 registers"),
        (Op::Param { dst: Value(2), param: 1 }, "a tensor map is no value"),
    ];
    for (op, expected) in wrong {
        let text = verify(&hopper(op)).unwrap_err().to_string();
        assert!(text.contains(expected) && text.contains("copy(a, b)"), "{text} should say {expected}");
    }
    let older = [
        Op::Elect { dst: Value(1) },
        Op::Special { dst: Value(2), special: Special::ClusterRank },
        mbarrier(MbarrierOp::Init, imm(1)),
        Op::Sync(SyncOp::ClusterBarrier),
    ];
    for op in older {
        assert!(message(op).contains("which sm_80 does not have"));
    }
}

#[test]
fn copies_by_one_of_several_tensor_maps_say_which() {
    let copy = |one| Op::Tensor {
        row: tensor_row(TensorOp::Store, 2).unwrap(),
        map: 0,
        one,
        coords: vec![imm(0); 2],
        shared: Address { base: Operand::Value(Value(0)), offset: 0 },
        barrier: None,
        multicast: None,
        even: false,
        hint: None,
    };
    let several = |one| {
        let mut f = hopper(copy(one));
        let maps = f.params.iter_mut().find(|param| param.kind == FunctionParamKind::TensorMap(0)).unwrap();
        maps.kind = FunctionParamKind::TensorMaps(0);
        f.values.push(RegType::B64);
        let op = Op::TensorMap { dst: Value(4), map: 0, number: Operand::Value(Value(0)), guard: None };
        f.body.insert(3, Inst { op, origin: OriginId(1) });
        f
    };
    verify(&several(Some(Operand::Value(Value(4))))).unwrap();
    let text = several(Some(Operand::Value(Value(4)))).to_string();
    assert!(text.contains("%4 = tensor map %0 of t") && text.contains("t[%4](0, 0)"), "{text}");
    for one in [None, Some(Operand::Value(Value(3))), Some(imm(0))] {
        let message = verify(&several(one)).unwrap_err().to_string();
        assert!(message.contains("without a tensor map, or with another"), "{message}");
    }
    let message = verify(&hopper(copy(Some(Operand::Value(Value(3)))))).unwrap_err().to_string();
    assert!(message.contains("without a tensor map, or with another"), "{message}");
    let none = Op::TensorMap { dst: Value(2), map: 0, number: imm(0), guard: None };
    assert!(verify(&hopper(none)).unwrap_err().to_string().contains("no such tensor maps"));
}

#[test]
fn clusters_and_tensor_maps_are_checked() {
    let mut f = hopper(Op::Sync(SyncOp::ClusterBarrier));
    for blocks in [0, 17] {
        f.cluster = blocks;
        assert!(verify(&f).unwrap_err().to_string().contains("a cluster of"));
    }
    f.cluster = 16;
    verify(&f).unwrap();
    f.threads = 96;
    f.body.push(Inst { op: Op::Sync(SyncOp::WgmmaFence), origin: OriginId(1) });
    assert!(verify(&f).unwrap_err().to_string().contains("in a block of 96 threads"));
    f.params.pop();
    assert!(verify(&f).unwrap_err().to_string().contains("tensor map 0 of t is not one parameter"));
    f.arch = Arch::SM_80;
    assert!(verify(&f).unwrap_err().to_string().contains("a cluster of 16 blocks"));
}
