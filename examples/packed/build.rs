//! Compiles the program's kernels into one pack.

use tilewright_build::{Builder, Options};
use tilewright_machine::Arch;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Builder::new()
        .file("kernels/scale.tile", &Options::new(Arch::SM_80))?
        .file("kernels/scale.tile", &Options::new(Arch::SM_90A))?
        .write("kernels.twpack")?;
    Ok(())
}
