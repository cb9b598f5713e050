//! A small kernel that is built by hand: `y[i] = x[i] * factor` for `i < n`, 128 elements a block.
#![allow(dead_code, reason = "each test file uses some of it")]

use tilewright_compiler::{Kernel, Options};
use tilewright_machine::{Arch, RegType, ScalarOp, copy_named};
use tilewright_simt::{Address, Builder, Function, FunctionParamKind, Operand, Reg, Special};

use tilewright_runtime::{Device, DeviceChoice, Sizes, devices, open};

const BLOCK: i64 = 128;

/// The tile program.
pub const SOURCE: &str = include_str!("scale.tile");

/// The kernel that the compiler makes of a program.
pub fn compiled(source: &str) -> Kernel {
    let program = tilewright_tile::parse(source).unwrap();
    tilewright_compiler::compile(&program, &Options::new(Arch::SM_80)).unwrap()
}

/// The thread-level program. It reads `skip` bytes past where it should.
pub fn function(arch: Arch, skip: i32) -> Function {
    let mut b = Builder::new("scale", arch, BLOCK as u32);
    let x = b.add_param("x", FunctionParamKind::Pointer);
    let y = b.add_param("y", FunctionParamKind::Pointer);
    let factor = b.add_param("factor", FunctionParamKind::F32);
    let n = b.add_param("n", FunctionParamKind::I32);
    let reg = Reg { array: b.add_array("read", 1), index: 0 };
    let thread = b.special(Special::ThreadIndex);
    let block = b.special(Special::BlockIndex(0));
    let start = b.scalar(ScalarOp::MulI32, &[block.into(), Operand::Imm(BLOCK as u64)]);
    let index = b.scalar(ScalarOp::AddI32, &[start, thread.into()]);
    let n = b.param(n);
    let Operand::Value(inside) = b.scalar(ScalarOp::LtI32, &[index, n.into()]) else { panic!("folded") };
    let offset = b.scalar(ScalarOp::MulWide, &[index, Operand::Imm(4)]);
    let address = |b: &mut Builder, param, offset_bytes| {
        let base = b.param(param);
        Address { base: b.scalar(ScalarOp::AddI64, &[base.into(), offset]), offset: offset_bytes }
    };
    let (from, to) = (address(&mut b, x, skip), address(&mut b, y, 0));
    b.load(copy_named("ld.global.b32").unwrap(), vec![reg], from, Some(inside));
    let (value, factor) = (b.read(reg), b.param(factor));
    let product = b.scalar(ScalarOp::MulF32, &[value, factor.into()]);
    b.write(reg, product);
    b.store(copy_named("st.global.b32").unwrap(), vec![reg], to, Some(inside));
    b.finish()
}

pub fn kernel_of(function: Function) -> Kernel {
    tilewright_simt::verify(&function).unwrap();
    assert!(function.values.iter().all(|ty| *ty != RegType::B16));
    compiled(SOURCE).with_function(function)
}

pub fn sizes(n: i64) -> Sizes {
    Sizes::from([("n".to_string(), n)])
}

/// Every device of this machine.
pub fn every_device() -> Vec<Box<dyn Device>> {
    let list = devices();
    if let Some(reason) = &list.cuda_absent {
        eprintln!("on the simulator only: {reason}");
    }
    list.devices
        .iter()
        .filter(|d| d.choice == DeviceChoice::Sim || d.arch.is_some())
        .map(|d| open(d.choice).unwrap())
        .collect()
}
