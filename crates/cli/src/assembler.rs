//! `ptxas`, where it is at hand: the registers and spills of a kernel, for reports, and binaries for packs.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tilewright::compiler::Kernel;

/// Figures of a kernel that the assembler prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assembled {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of a thread that are stored because there are too few registers.
    pub spilled: u32,
    /// Bytes of local memory of a thread.
    pub stack: u32,
}

impl Assembled {
    /// As JSON.
    pub fn json(self) -> Value {
        json!({ "registers": self.registers, "spilled_bytes": self.spilled, "stack_bytes": self.stack })
    }

    /// As words.
    pub fn text(self) -> String {
        let Assembled { registers, spilled, stack } = self;
        let stack = if stack > 0 { format!(", {stack} bytes of stack") } else { String::new() };
        format!("{registers} registers a thread, {spilled} bytes spilled{stack}")
    }
}

/// The assembler that `TILEWRIGHT_PTXAS` names, else that of the path.
fn ptxas() -> Option<PathBuf> {
    std::env::var_os("TILEWRIGHT_PTXAS").filter(|path| !path.is_empty()).map(PathBuf::from).or_else(|| {
        std::env::split_paths(&std::env::var_os("PATH")?).map(|p| p.join("ptxas")).find(|p| p.is_file())
    })
}

/// The number before a phrase.
fn before(text: &str, phrase: &str) -> Option<u32> {
    let words = text.split_once(phrase)?.0;
    words.split_whitespace().next_back()?.parse().ok()
}

/// The figures in what `ptxas -v` prints.
fn figures(text: &str) -> Option<Assembled> {
    let registers = text.split_once("Used ").and_then(|(_, rest)| before(rest, " registers"))?;
    let of = |phrase| before(text, phrase).unwrap_or(0);
    Some(Assembled { registers, spilled: of(" bytes spill stores"), stack: of(" bytes stack frame") })
}

/// Assembles a kernel: `None` where there is no assembler, else its figures, or the reason why it gives none.
pub fn assembled(kernel: &Kernel) -> Option<Result<Assembled, String>> {
    let ptxas = ptxas()?;
    let run = || -> std::io::Result<Result<Assembled, String>> {
        let name = format!("tilewright-{}-{}.ptx", kernel.function.name, std::process::id());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, &kernel.ptx)?;
        let arch = format!("-arch={}", kernel.function.arch);
        let output = Command::new(&ptxas).args([&arch, "-v", "-o", "/dev/null"]).arg(&file).output();
        std::fs::remove_file(&file)?;
        let output = output?;
        let text = [output.stdout, output.stderr].map(|t| String::from_utf8_lossy(&t).into_owned()).concat();
        let first = || kernel.explain_log(text.lines().next().unwrap_or("it says nothing"));
        Ok(figures(&text).filter(|_| output.status.success()).ok_or_else(first))
    };
    Some(run().unwrap_or_else(|e| Err(format!("`{}` does not run: {e}", ptxas.display()))))
}

/// The binary that the assembler makes of a kernel for an architecture (`sm_86`), or the reason why it makes none.
pub fn binary(kernel: &Kernel, arch: &str) -> Result<Vec<u8>, String> {
    let ptxas = ptxas().ok_or("binaries need `ptxas`: set TILEWRIGHT_PTXAS to its path")?;
    let run = || -> std::io::Result<Result<Vec<u8>, String>> {
        let name = format!("tilewright-{}-{arch}-{}", kernel.function.name, std::process::id());
        let [text, code] =
            ["ptx", "cubin"].map(|ending| std::env::temp_dir().join(format!("{name}.{ending}")));
        std::fs::write(&text, &kernel.ptx)?;
        let arch = format!("-arch={arch}");
        let output = Command::new(&ptxas).arg(arch).arg("-o").args([&code, &text]).output();
        std::fs::remove_file(&text)?;
        let output = output?;
        if !output.status.success() {
            let said =
                [output.stdout, output.stderr].map(|t| String::from_utf8_lossy(&t).into_owned()).concat();
            return Ok(Err(kernel.explain_log(said.lines().next().unwrap_or("the assembler says nothing"))));
        }
        let bytes = std::fs::read(&code)?;
        std::fs::remove_file(&code)?;
        Ok(Ok(bytes))
    };
    run().unwrap_or_else(|e| Err(format!("`{}` makes no binary: {e}", ptxas.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read() {
        let text = "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'k' for 'sm_90a'\n\
            ptxas info    : Function properties for k\n    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n\
            ptxas info    : Used 168 registers, used 1 barriers\n";
        let found = figures(text).unwrap();
        assert_eq!(found, Assembled { registers: 168, spilled: 12, stack: 16 });
        assert_eq!(found.text(), "168 registers a thread, 12 bytes spilled, 16 bytes of stack");
        assert_eq!(figures("ptxas fatal"), None);
    }
}
