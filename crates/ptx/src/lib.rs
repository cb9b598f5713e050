//! Prints a thread-level program as PTX text.
//!
//! Nothing else writes PTX syntax. Mnemonics come from the instruction rows; what is here is the syntax around them:
//! operands, vectors, guards, labels, declarations. One instruction becomes one line, or a few where PTX has no single
//! form for it (a guarded load first clears its registers; a literal that an instruction cannot take goes through
//! a scratch register). Order is kept: PTX executes effects in the order of the text.
//!
//! Registers are typed by width only. `%p` are predicates, `%h`, `%r` and `%rd` hold values of 16, 32 and 64 bits, and
//! `%a3_7` is register 7 of fragment array 3. PTX takes a `.b32` register wherever an operand has 32 bits, so a register
//! needs no other type when its array holds `f32` accumulators in one place and packed halves in another.
//!
//! ```
//! use tilewright_machine::{Arch, ScalarOp, copy_named};
//! use tilewright_simt::{Address, Builder, FunctionParamKind, Operand, Reg, Special};
//!
//! let mut b = Builder::new("first_words", Arch::SM_80, 32);
//! let x = b.add_param("x", FunctionParamKind::Pointer);
//! let zero = b.add_array("zero", 1);
//! let thread = b.special(Special::ThreadIndex);
//! let offset = b.scalar(ScalarOp::MulWide, &[thread.into(), Operand::Imm(4)]);
//! let base = b.param(x);
//! let address = b.scalar(ScalarOp::AddI64, &[base.into(), offset]);
//! let reg = Reg { array: zero, index: 0 };
//! b.write(reg, Operand::Imm(0));
//! b.store(copy_named("st.global.b32").unwrap(), vec![reg], Address { base: address, offset: 0 }, None);
//!
//! let ptx = tilewright_ptx::print(&b.finish());
//! assert!(ptx.contains("mul.wide.s32 %rd0, %r0, 4;"));
//! assert!(ptx.contains("st.global.b32 [%rd2], %a0_0;"));
//! ```

mod body;
mod lines;
mod operand;

use std::borrow::Cow;
use std::fmt::Write;

use tilewright_machine::{TO_OWN_BLOCK_PTX_VERSION, WgmmaRow};
use tilewright_simt::{Function, FunctionParamKind, Op, Operand, passes};

use crate::body::Body;
use crate::lines::Places;
use crate::operand::comment;
pub use lines::{Frame, Lines};

/// The version of PTX that a function is written in: the architecture's, or that of an instruction which is younger.
fn version(function: &Function) -> &'static str {
    let mut least = function.arch.spec().ptx_version;
    function.visit(&mut |inst| {
        let needed = match &inst.op {
            Op::Store { row, .. } if row.reduction().is_some() && row.bytes > 4 => "8.1",
            Op::Mma { row, .. } => row.ptx_version,
            Op::Tcgen05 { row, .. } => row.ptx_version,
            // The fence that acquires a tensor map (PTX ISA, section 9.7.13.4).
            Op::TensorMap { .. } => "8.3",
            Op::Wgmma { row, .. } if row.sparsity.is_some() => WgmmaRow::SPARSE_PTX_VERSION,
            Op::Tensor { row, .. } if row.mnemonic_on(function.arch) != row.mnemonic => {
                TO_OWN_BLOCK_PTX_VERSION
            }
            Op::Bulk { op, .. } if op.mnemonic_on(function.arch) != op.mnemonic() => TO_OWN_BLOCK_PTX_VERSION,
            _ => return,
        };
        if number(needed) > number(least) {
            least = needed;
        }
    });
    least
}

/// The two numbers of a version of PTX.
fn number(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The PTX text of a function that [`tilewright_simt::verify()`] accepts. The entry point's name is the function's, which
/// must be an identifier of PTX (letters, digits, `_`, `$`; the first is no digit).
///
/// A launch passes the parameters in their order (`.u64` pointers, `.u32` integers, `.f32` numbers) and asks for
/// [`Function::shared_bytes`] of dynamic shared memory.
pub fn print(function: &Function) -> String {
    print_with_lines(function, &Lines::default())
}

/// The PTX text as [`print()`] makes it, with the source lines of its instructions: what NVIDIA's profiler, sanitizer and debugger show beside
/// the code. They change no instruction.
pub fn print_with_lines(function: &Function, lines: &Lines) -> String {
    print_module(&[(function, lines)])
}

/// The PTX text of one module with all of these functions as entry points, each with its source lines: functions of one architecture and of
/// different names, at least one. Its version is the youngest that one of them needs.
pub fn print_module(functions: &[(&Function, &Lines)]) -> String {
    let printed: Vec<Cow<'_, Function>> =
        functions.iter().map(|(function, _)| without_simulated(function)).collect();
    let lines = Lines::numbered_together(functions.iter().map(|(_, lines)| *lines));
    let names = Lines::functions(&lines.places);
    let versions = printed.iter().map(|function| version(function));
    let version = versions.max_by_key(|version| number(version)).unwrap_or_default();
    let arch = printed.first().map_or_else(String::new, |function| function.arch.to_string());
    let mut out =
        format!(".version {version}\n.target {arch}\n.address_size 64\n{}\n", Lines::header(&lines.files));
    for (i, (function, places)) in printed.iter().zip(&lines.places).enumerate() {
        if i > 0 {
            out.push('\n');
        }
        entry(&mut out, function, Places { places, functions: &names });
    }
    out + &Lines::names(&names)
}

/// A function without what only the simulator executes.
fn without_simulated(function: &Function) -> Cow<'_, Function> {
    let mut simulated = false;
    function.visit(&mut |inst| {
        simulated |= matches!(
            inst.op,
            Op::Assert { .. } | Op::Print { .. } | Op::Asm { means: Operand::Value(_), .. }
        );
    });
    if !simulated {
        return Cow::Borrowed(function);
    }
    let mut without = function.clone();
    passes::drop_diagnostics(&mut without);
    passes::drop_meanings(&mut without);
    Cow::Owned(without)
}

/// Prints a function: its window of shared memory and its entry point.
fn entry(out: &mut String, function: &Function, places: Places<'_>) {
    let body = Body::print(function, places);
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    if function.shared_bytes > 0 {
        for buffer in &function.shared {
            let name = comment(&buffer.name);
            line(format!("// shared {name}: {} bytes at {}", buffer.bytes, buffer.offset));
        }
        line(format!(".extern .shared .align 1024 .b8 {}[];", operand::shared_window(function)));
        line(String::new());
    }
    line(format!(".visible .entry {}(", function.name));
    let last = function.params.len().saturating_sub(1);
    for (i, param) in function.params.iter().enumerate() {
        let ty = match param.kind {
            FunctionParamKind::Pointer | FunctionParamKind::Pointers | FunctionParamKind::TensorMaps(_) => {
                ".u64"
            }
            FunctionParamKind::I32 => ".u32",
            FunctionParamKind::F32 => ".f32",
            FunctionParamKind::I64 => ".u64",
            FunctionParamKind::F64 => ".f64",
            FunctionParamKind::TensorMap(_) => ".align 64 .b8",
        };
        let size = if matches!(param.kind, FunctionParamKind::TensorMap(_)) { "[128]" } else { "" };
        let comma = if i == last { "" } else { "," };
        line(format!(
            "    .param {ty} {}{size}{comma} // {}",
            operand::param(function, i as u32),
            comment(&param.name)
        ));
    }
    line(")".to_string());
    line(format!(".maxntid {}, 1, 1", function.threads));
    line(format!(".minnctapersm {}", function.resident));
    if function.cluster > 1 {
        line(".explicitcluster".to_string());
        line(format!(".reqnctapercluster {}, 1, 1", function.cluster));
    }
    line("{".to_string());
    for (ty, prefix, count) in body.registers() {
        if count > 0 {
            line(format!("    .reg {ty} {prefix}<{count}>;"));
        }
    }
    for (i, array) in function.arrays.iter().enumerate() {
        if array.registers > 0 {
            line(format!("    .reg .b32 %a{i}_<{}>; // {}", array.registers, comment(&array.name)));
        }
    }
    // Writing to a string cannot fail.
    let _ = write!(out, "{}    ret;\n}}\n", body.text());
}

#[cfg(test)]
mod tests;

/// The page about new instructions, whose examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/add-an-instruction.md")]
struct AddAnInstruction;
