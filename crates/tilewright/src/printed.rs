//! Records of what a kernel prints, the interpreter's beside the simulator's.

use std::collections::BTreeMap;
use std::fmt;

use tilewright_compiler::Kernel;
use tilewright_machine::{PrintLog, Printed, PrintedItem};
use tilewright_tile::{Origin, StmtKind};

/// The execution that made a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrintedBy {
    /// The interpreter and the device, with the same items.
    Both,
    /// The interpreter: the device has other items, or none at all.
    Interpreter,
    /// The simulator: the interpreter has other items.
    Simulator,
    /// A GPU: the interpreter has other items.
    Gpu,
}

impl fmt::Display for PrintedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PrintedBy::Both => "both",
            PrintedBy::Interpreter => "interpreter",
            PrintedBy::Simulator => "simulator",
            PrintedBy::Gpu => "GPU",
        })
    }
}

/// A record with the statement that made it.
#[derive(Clone, PartialEq, Debug)]
pub struct PrintedRecord {
    /// The statement's text.
    pub text: String,
    /// The names of the counters of the loops around, outermost first.
    pub counters: Vec<String>,
    /// The statement's place.
    pub span: Origin,
    /// The record.
    pub record: Printed,
    /// The execution that made it.
    pub by: PrintedBy,
}

impl fmt::Display for PrintedRecord {
    /// The text, the block, the iteration, and the items: integers on the same line, tensors each on lines of their own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.record.block;
        write!(f, "{} [block ({x}, {y}, {z})", self.text)?;
        for (name, value) in self.counters.iter().zip(&self.record.iteration) {
            write!(f, ", {name} = {value}")?;
        }
        f.write_str("]")?;
        if self.by != PrintedBy::Both {
            write!(f, " by the {}", self.by)?;
        }
        for (number, item) in self.record.items.iter().enumerate() {
            match item {
                PrintedItem::Integer(value) => write!(f, "{}{value}", if number == 0 { ": " } else { ", " })?,
                PrintedItem::Tensor(tensor) => {
                    let list = tensor.text(INDENT);
                    let modes: Vec<String> = tensor.shape.iter().map(ToString::to_string).collect();
                    write!(f, "\n{:INDENT$}{list} {}[{}]", "", tensor.dtype, modes.join(", "))?;
                }
            }
        }
        Ok(())
    }
}

/// Columns by which tensors are indented.
const INDENT: usize = 4;

/// The first records of a launch.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Prints {
    /// In the interpreter's order: by block, and within a block as they were made. A record of the simulator's with other items follows the
    /// interpreter's.
    pub records: Vec<PrintedRecord>,
    /// Records that were not kept, of the execution that left out more.
    pub left_out: u64,
}

impl Prints {
    /// The records of a kernel by the interpreter, and by the device that it ran on, if that has some.
    pub fn new(kernel: &Kernel, interpreted: &PrintLog, ran: Option<(&PrintLog, PrintedBy)>) -> Prints {
        let (simulated, device) = ran.unzip();
        let device = device.unwrap_or(PrintedBy::Simulator);
        let statements = statements(kernel);
        let key = |record: &Printed| (record.statement, record.block, record.iteration.clone());
        // Those of one key, the last first.
        let mut others: BTreeMap<_, Vec<&Printed>> = BTreeMap::new();
        for record in simulated.into_iter().flat_map(PrintLog::records) {
            others.entry(key(record)).or_default().insert(0, record);
        }
        let mut prints = Prints { records: Vec::new(), left_out: interpreted.left_out() };
        let mut push = |record: &Printed, by| {
            let (text, counters, span) = statements.get(&record.statement).cloned().unwrap_or_default();
            prints.records.push(PrintedRecord { text, counters, span, record: record.clone(), by });
        };
        for record in interpreted.records() {
            match others.get_mut(&key(record)).and_then(Vec::pop) {
                Some(other) if other.items == record.items => push(record, PrintedBy::Both),
                Some(other) => {
                    push(record, PrintedBy::Interpreter);
                    push(other, device);
                }
                None => push(record, PrintedBy::Interpreter),
            }
        }
        for record in others.into_values().flat_map(|records| records.into_iter().rev()) {
            push(record, device);
        }
        prints.left_out = prints.left_out.max(simulated.map_or(0, PrintLog::left_out));
        prints
    }

    /// True if nothing was printed.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.left_out == 0
    }
}

/// The text, the counters and the place of each `print` of a kernel, by its number as the author wrote it.
fn statements(kernel: &Kernel) -> BTreeMap<u32, (String, Vec<String>, Origin)> {
    let mut found = BTreeMap::new();
    let names = |iteration: &Option<tilewright_tile::Iteration>| -> Vec<String> {
        iteration.iter().flatten().map(|(name, _)| name.clone()).collect()
    };
    kernel.core.visit(&mut |stmt, _| {
        if let StmtKind::Print { text, iteration, .. } = &stmt.kind {
            let number = kernel.core.statements.written(stmt.id).number();
            found.insert(number, (text.clone(), names(iteration), stmt.span));
        }
    });
    let surface = &kernel.verified.program().statements;
    kernel.verified.visit(&mut |stmt, _| {
        if let StmtKind::Print { text, iteration, .. } = &stmt.kind {
            let number = surface.written(stmt.id).number();
            found.insert(number, (text.clone(), names(iteration), stmt.span));
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use tilewright_compiler::{Options, compile};
    use tilewright_machine::Arch;
    use tilewright_runtime::SimDevice;
    use tilewright_tile::parse;

    use super::*;
    use crate::check::{CheckOptions, check};

    const PROGRAM: &str = "size n = 100
        kernel k(x: f32[n, 64], y: f32[n, 64]) grid(ceil_div(n, 32)) threads(64) {
            gx = global_view(x[block.x * 32 :, :], (32, 64) : (e0, e1))
            gy = global_view(y[block.x * 32 :, :], (32, 64) : (e0, e1))
            r = register_tensor(f32, [32, 64])
            s = shared_tensor(f32, [32, 64])
            copy(gx, r)
            copy(r, s)
            PRINT
            syncthreads()
            for i in 0..2 {
                copy(s, r)
                PRINT
                r = r * 2.0
            }
            copy(r, gy)
        }";

    #[test]
    fn a_print_changes_nothing_of_ptx() {
        let ptx = |print: &str| {
            let program = parse(&PROGRAM.replace("PRINT", print)).unwrap();
            let kernel = compile(&program, &Options::new(Arch::SM_80)).unwrap();
            let lines = kernel.ptx.lines().filter(|line| !line.trim_start().starts_with("//"));
            lines.map(str::to_string).collect::<Vec<_>>()
        };
        assert_eq!(ptx(""), ptx("print(\"both\", r, s, s[:, 3], block.x, n)"));
    }

    #[test]
    fn records_that_are_too_many_are_counted() {
        let text = PROGRAM.replacen("PRINT", "", 1).replace("PRINT", "print(\"i\", i * 7)");
        let kernel = compile(&parse(&text).unwrap(), &Options::new(Arch::SM_80)).unwrap();
        let options = CheckOptions { sizes: [("n".to_string(), 20_000)].into(), ..Default::default() };
        let outcome = check(&kernel, &SimDevice::default(), &options).unwrap();
        assert!(outcome.is_right());
        let prints = outcome.printed;
        assert_eq!(prints.records.len(), 1024);
        assert_eq!(prints.left_out, 2 * 625 - 1024);
        assert!(prints.records.iter().all(|record| record.by == PrintedBy::Both));
        assert_eq!(prints.records[3].to_string(), "i [block (1, 0, 0), i = 1]: 7");
    }
}
