//! The builder folds, shares and hoists; the verifier rejects each broken invariant.

use tilewright_machine::{Arch, Memory, RegType, ScalarOp, SyncOp, copies, copy_named, mma_rows};
use tilewright_simt::{
    Address, Builder, Function, FunctionParamKind, Inst, Op, Operand, OriginId, Reg, Special, Value, passes,
    verify,
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
    let mut b = Builder::new("f", Arch::Sm80, 32);
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
    let mut b = Builder::new("f", Arch::Sm80, 32);
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

#[test]
fn dead_code_goes_and_effects_stay() {
    let mut b = Builder::new("f", Arch::Sm80, 32);
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
    let mut b = Builder::new("f", Arch::Sm80, 32);
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
    let load =
        copies(Memory::Shared, Memory::Register, Arch::Sm80).find(|r| r.name == "ld.shared.b32").unwrap();
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
            Op::Load { row: load, dst: vec![reg(0), reg(1)], address: address(v(0)), guard: None },
            "2 registers where",
        ),
        (
            Op::Load { row: load, dst: vec![reg(0)], address: address(v(0)), guard: Some(Value(0)) },
            "%0 is B32 where Pred is wanted",
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
            "newer than the architecture",
        ),
        (
            Op::Mma { row: &mma_rows()[0], d: vec![reg(0)], a: vec![], b: vec![] },
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
    let mut b = Builder::new("f", Arch::Sm80, 32);
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
