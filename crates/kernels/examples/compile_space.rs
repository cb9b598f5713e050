//! Compiles many configurations of an operator to PTX and reports the time of synthesis and lowering, and of `ptxas` with --ptxas.
//!
//! `cargo run --release -p tilewright-kernels --example compile_space -- --count 102 --threads 2`
//!
//! `--list examples/configurations.txt --ptx DIR` writes the PTX of the configurations of a file, under names that stay: run it
//! before and after a change and compare the folders.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use tilewright_compiler::{Options, compile};
use tilewright_kernels::operator;
use tilewright_machine::Arch;

/// Compile many configurations of a tuning space, or those of a list.
#[derive(Parser)]
struct Args {
    /// The operator
    #[arg(long, default_value = "gemm")]
    operator: String,
    /// Configurations, evenly spread over the space
    #[arg(long, default_value_t = 102)]
    count: usize,
    /// A parameter that every configuration has, as NAME=VALUE
    #[arg(long = "pin", value_name = "NAME=VALUE")]
    pinned: Vec<String>,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// The architecture
    #[arg(long, default_value = "sm_90a")]
    arch: Arch,
    /// Rows of the result
    #[arg(short, default_value_t = 4096)]
    m: i64,
    /// Columns of the result
    #[arg(short, default_value_t = 4096)]
    n: i64,
    /// Length of the sums
    #[arg(short, default_value_t = 4096)]
    k: i64,
    /// Configurations of this file, a line each as --print writes them, rather than of a space
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// Print the configurations and compile nothing
    #[arg(long)]
    print: bool,
    /// Write each kernel's PTX to a file of this folder, named after the number of its configuration
    #[arg(long, value_name = "DIR")]
    ptx: Option<PathBuf>,
    /// Write each tile program in the same way
    #[arg(long, value_name = "DIR")]
    tile: Option<PathBuf>,
    /// Assemble each kernel with this ptxas too
    #[arg(long, value_name = "PATH")]
    ptxas: Option<PathBuf>,
}

/// An operator's configuration for a problem, as a line of text: `gemm sm_90a m=4096 n=4096 k=4096 : bm=128 bn=256`.
struct Case {
    operator: String,
    arch: Arch,
    sizes: Vec<(String, i64)>,
    parameters: Vec<(String, String)>,
}

impl Case {
    fn parse(line: &str) -> Result<Self, Box<dyn Error>> {
        let (problem, parameters) = line.split_once(" :").ok_or("no `:` before the parameters")?;
        let mut words = problem.split_whitespace();
        let mut word = || words.next().ok_or("OPERATOR ARCH SIZES : PARAMETERS is wanted");
        let (operator, arch) = (word()?.to_string(), word()?.parse::<Arch>()?);
        let sizes = words.map(|word| {
            let (name, value) = pair(word)?;
            Ok::<_, Box<dyn Error>>((name, value.parse()?))
        });
        let sizes = sizes.collect::<Result<_, _>>()?;
        let parameters = parameters.split_whitespace().map(pair).collect::<Result<_, _>>()?;
        Ok(Case { operator, arch, sizes, parameters })
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.operator, self.arch)?;
        self.sizes.iter().try_for_each(|(name, size)| write!(f, " {name}={size}"))?;
        f.write_str(" :")?;
        self.parameters.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

fn pair(word: &str) -> Result<(String, String), Box<dyn Error>> {
    let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not NAME=VALUE"))?;
    Ok((name.to_string(), value.to_string()))
}

/// The measurements of one configuration.
#[derive(Default)]
struct Row {
    config: String,
    compiled: Duration,
    assembled: Option<Duration>,
    spills: bool,
    failed: Option<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let cases = match &args.list {
        Some(file) => listed(file)?,
        None => spread(&args)?,
    };
    if args.print {
        cases.iter().for_each(|case| println!("{case}"));
        return Ok(());
    }
    for folder in args.ptx.iter().chain(&args.tile) {
        std::fs::create_dir_all(folder)?;
    }
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..args.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(number) else { return };
                    let mut row = Row { config: case.to_string(), ..Row::default() };
                    if let Err(error) = measure(&args, number, case, &mut row) {
                        row.failed = Some(error.to_string());
                    }
                    if let Ok(mut rows) = rows.lock() {
                        rows.push(row);
                    }
                }
            });
        }
    });
    let wall = started.elapsed();
    let mut rows = rows.into_inner().map_err(|e| e.to_string())?;
    rows.sort_by_key(|r| r.compiled);
    report(&args, &rows, wall);
    Ok(())
}

/// The configurations of a file.
fn listed(file: &Path) -> Result<Vec<Case>, Box<dyn Error>> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let case = |(number, line): (usize, &str)| {
        Case::parse(line).map_err(|e| format!("{}:{}: {e}", file.display(), number + 1).into())
    };
    text.lines().enumerate().map(case).collect()
}

/// The configurations evenly spread over an operator's space, in the order of its estimates.
fn spread(args: &Args) -> Result<Vec<Case>, Box<dyn Error>> {
    let operator = operator(&args.operator)?;
    let tuning = operator.tuning.ok_or_else(|| format!("{} has no tuning space", operator.name))?;
    let sizes = [("m", args.m), ("n", args.n), ("k", args.k)].map(|(name, size)| (name.to_string(), size));
    let pinned = args.pinned.iter().map(|word| pair(word)).collect::<Result<Vec<_>, _>>()?;
    let given: Vec<(&str, &str)> =
        pinned.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let points = (tuning.space)(args.arch.into(), &BTreeMap::from(sizes.clone()), &given)?.points;
    let count = args.count.min(points.len());
    let case = |i: usize| Case {
        operator: operator.name.to_string(),
        arch: args.arch,
        sizes: sizes.to_vec(),
        parameters: points[i * points.len() / count]
            .parameters
            .iter()
            .map(|(name, value)| ((*name).to_string(), value.clone()))
            .collect(),
    };
    Ok((0..count).map(case).collect())
}

fn report(args: &Args, rows: &[Row], wall: Duration) {
    let failed = rows.iter().filter(|r| r.failed.is_some());
    for row in failed.clone() {
        println!("failed: {}: {}", row.config, row.failed.as_deref().unwrap_or_default());
    }
    for row in rows.iter().filter(|r| r.spills) {
        println!("spills: {}", row.config);
    }
    println!(
        "{} configurations: {:.2} s with {} threads, {} failed",
        rows.len(),
        wall.as_secs_f64(),
        args.threads.max(1),
        failed.count()
    );
    let compile: Duration = rows.iter().map(|r| r.compiled).sum();
    if let (Some(middle), Some(longest)) = (rows.get(rows.len() / 2), rows.last()) {
        println!(
            "to PTX: {:.2} s in all, median {:.0} ms, longest {:.0} ms ({})",
            compile.as_secs_f64(),
            middle.compiled.as_secs_f64() * 1e3,
            longest.compiled.as_secs_f64() * 1e3,
            longest.config
        );
    }
    let assembled: Option<Duration> = rows.iter().map(|r| r.assembled).sum();
    if let Some(time) = assembled {
        println!(
            "ptxas: {:.2} s in all, {} spill",
            time.as_secs_f64(),
            rows.iter().filter(|r| r.spills).count()
        );
    }
}

/// Compiles the programs of a configuration.
fn measure(args: &Args, number: usize, case: &Case, row: &mut Row) -> Result<(), Box<dyn Error>> {
    let given: Vec<(&str, &str)> = case.parameters.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let programs = (operator(&case.operator)?.programs)(&given)?;
    let sizes: Vec<(&str, i64)> = case.sizes.iter().map(|(name, size)| (name.as_str(), *size)).collect();
    for (i, program) in programs.iter().enumerate() {
        let options = Options::new(case.arch).for_own_sizes(program, &sizes);
        let started = Instant::now();
        let kernel = compile(program, &options)?;
        row.compiled += started.elapsed();
        let name = format!("{:04}-{}-{i}", number + 1, case.operator);
        if let Some(folder) = &args.ptx {
            std::fs::write(folder.join(name.clone() + ".ptx"), &kernel.ptx)?;
        }
        if let Some(folder) = &args.tile {
            std::fs::write(folder.join(name.clone() + ".tile"), program.to_string())?;
        }
        if let Some(ptxas) = &args.ptxas {
            assemble(ptxas, case.arch, &name, &kernel.ptx, row)?;
        }
    }
    Ok(())
}

fn assemble(ptxas: &Path, arch: Arch, name: &str, ptx: &str, row: &mut Row) -> Result<(), Box<dyn Error>> {
    let file = std::env::temp_dir().join(format!("tilewright-space-{}-{name}.ptx", std::process::id()));
    let started = Instant::now();
    let output = std::fs::write(&file, ptx).and_then(|()| {
        std::process::Command::new(ptxas)
            .args([format!("-arch={arch}").as_str(), "-v", "-o", "/dev/null"])
            .arg(&file)
            .output()
    });
    *row.assembled.get_or_insert_default() += started.elapsed();
    // A file that is left behind in the temporary folder harms nobody.
    let _ = std::fs::remove_file(&file);
    let output = output?;
    let text = String::from_utf8_lossy(&output.stderr);
    row.spills |= !text.contains(" 0 bytes spill stores");
    if output.status.success() { Ok(()) } else { Err(text.into()) }
}
