//! A program checked for several architectures without a run: verified, linted, compiled. The command `tilewright check` and the language server
//! both show what [`check`] finds, each in its own form.

use rayon::prelude::*;
use tilewright_machine::Arch;
use tilewright_tile::{Diagnostic, Diagnostics, Program, Verified, check_architecture, core, lint, verify};

use crate::{Kernel, Options, compile, compile_core};

/// The architectures that a program is checked for where nobody names one: those on which kernels have run.
pub const USUAL: [Arch; 3] = [Arch::SM_80, Arch::SM_89, Arch::SM_90A];

/// A program on an architecture.
#[derive(Debug)]
pub enum Fit {
    /// It compiles.
    Compiles(Box<Kernel>),
    /// The architecture lacks a construct that the program has.
    Lacks(Diagnostic),
    /// The compiler refuses the program.
    Refused(Diagnostics),
}

/// Findings about a program that the verifier accepts.
#[derive(Debug)]
pub struct Checked {
    /// The program, folded over the tile constants.
    pub verified: Verified,
    /// Findings of the lints, in the order of the text, without those that the text allows.
    pub warnings: Vec<Diagnostic>,
    /// Each architecture that was asked for, in that order.
    pub fits: Vec<(Arch, Fit)>,
}

impl Checked {
    /// The first architecture that the program compiles for, with its kernel.
    pub fn compiled(&self) -> Option<(Arch, &Kernel)> {
        self.fits.iter().find_map(|(arch, fit)| match fit {
            Fit::Compiles(kernel) => Some((*arch, &**kernel)),
            Fit::Lacks(_) | Fit::Refused(_) => None,
        })
    }

    /// Mistakes of a program that none of the architectures takes: those that the first that could has found.
    pub fn errors(&self) -> Option<Diagnostics> {
        if self.compiled().is_some() {
            return None;
        }
        let refused = self.fits.iter().find_map(|(_, fit)| match fit {
            Fit::Refused(diagnostics) => Some(diagnostics.clone()),
            Fit::Compiles(_) | Fit::Lacks(_) => None,
        });
        let lacks = || {
            self.fits.iter().rev().find_map(|(_, fit)| match fit {
                Fit::Lacks(lacks) => Some(lacks.clone().into()),
                Fit::Compiles(_) | Fit::Refused(_) => None,
            })
        };
        refused.or_else(lacks)
    }
}

/// Checks a program for some architectures; of the text of a core program, `core` is what it says, and `program` the surface program that says the same. The
/// architecture of `options` is replaced by each in turn.
///
/// ```
/// use tilewright_compiler::{Options, check::{USUAL, check}};
/// use tilewright_machine::Arch;
///
/// let program = tilewright_tile::parse(
///     "size n = 64
///      kernel twice(x: f32[n], y: f32[n]) grid(2) threads(32) {
///          gx = global_view(x[block.x * 32 :], (32) : (e0))
///          gy = global_view(y[block.x * 32 :], (32) : (e0))
///          r = register_tensor(f32, [32])
///          copy(gx, r)
///          copy(2.0 * r, gy)
///      }",
/// )?;
/// let checked = check(&program, None, &Options::new(Arch::SM_80), &USUAL)?;
/// assert!(checked.errors().is_none());
/// // The grid's two blocks are enough for 64 elements, and for no more.
/// assert_eq!(checked.warnings[0].code.name(), "short-grid");
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
///
/// # Errors
///
/// Those of the verifier. What the compiler refuses on an architecture is a [`Fit`].
pub fn check(
    program: &Program,
    core: Option<&core::Program>,
    options: &Options,
    archs: &[Arch],
) -> Result<Checked, Diagnostics> {
    let verified = verify(program, &options.constants)?;
    let fit = |arch: Arch| {
        if let Err(lacks) = check_architecture(&verified, arch) {
            return Fit::Lacks(lacks);
        }
        let options = Options { arch, ..options.clone() };
        let compiled = match core {
            Some(core) => compile_core(core, &options),
            None => compile(program, &options),
        };
        compiled.map_or_else(Fit::Refused, |kernel| Fit::Compiles(Box::new(kernel)))
    };
    let of_all = || archs.par_iter().map(|arch| (*arch, fit(*arch))).collect();
    let (warnings, fits) = rayon::join(|| lint(&verified, &options.sizes), of_all);
    Ok(Checked { verified, warnings, fits })
}
