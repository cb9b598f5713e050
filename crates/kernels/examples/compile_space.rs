//! How long it takes to compile many configurations of a tuning space: synthesis and lowering to PTX, and `ptxas` with --ptxas.
//!
//! `cargo run --release -p tilewright-kernels --example compile_space -- --count 102 --threads 2`

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use tilewright_compiler::{Options, compile};
use tilewright_kernels::gemm::GemmConfig;
use tilewright_kernels::gemm_hopper::HopperGemmConfig;
use tilewright_kernels::w4a16::W4A16Config;
use tilewright_machine::Arch;
use tilewright_tile::Program;

/// Compile many configurations of a tuning space.
#[derive(Parser)]
struct Args {
    /// The operator: gemm, gemm_hopper or w4a16
    #[arg(long, default_value = "gemm")]
    operator: String,
    /// Configurations, evenly spread over the space
    #[arg(long, default_value_t = 102)]
    count: usize,
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
    /// Assemble each kernel with this ptxas too
    #[arg(long, value_name = "PATH")]
    ptxas: Option<PathBuf>,
}

/// What became of one configuration.
struct Row {
    config: String,
    compiled: Duration,
    assembled: Option<Duration>,
    spills: bool,
    failed: Option<String>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let (m, n, k) = (args.m, args.n, args.k);
    let space: Vec<(String, Program)> = match args.operator.as_str() {
        "gemm" => GemmConfig::space(args.arch, m, n, k)
            .map(|c| Ok((format!("{c:?}"), c.program()?)))
            .collect::<Result<_, tilewright_kernels::ConfigError>>()?,
        "gemm_hopper" => HopperGemmConfig::space(args.arch, m, n, k)
            .map(|c| Ok((format!("{c:?}"), c.program()?)))
            .collect::<Result<_, tilewright_kernels::ConfigError>>()?,
        "w4a16" => W4A16Config::space(args.arch, m, n, k, Some(128))
            .map(|c| Ok((format!("{c:?}"), c.program()?)))
            .collect::<Result<_, tilewright_kernels::ConfigError>>()?,
        other => return Err(format!("--operator {other}: there are gemm, gemm_hopper and w4a16").into()),
    };
    let count = args.count.min(space.len());
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..args.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        return;
                    }
                    let (config, program) = &space[i * space.len() / count];
                    let row = measure(&args, i, config, program);
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
    let failed: Vec<&Row> = rows.iter().filter(|r| r.failed.is_some()).collect();
    for row in &failed {
        println!("failed: {}: {}", row.config, row.failed.as_deref().unwrap_or_default());
    }
    for row in rows.iter().filter(|r| r.spills) {
        println!("spills: {}", row.config);
    }
    println!(
        "{count} of {} configurations of {} for {}: {:.2} s with {} threads, {} failed",
        space.len(),
        args.operator,
        args.arch,
        wall.as_secs_f64(),
        args.threads.max(1),
        failed.len()
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
    Ok(())
}

fn measure(args: &Args, i: usize, config: &str, program: &Program) -> Row {
    let options = Options::new(args.arch).for_sizes(program, &[("m", args.m), ("n", args.n), ("k", args.k)]);
    let started = Instant::now();
    let kernel = compile(program, &options);
    let compiled = started.elapsed();
    let mut row = Row { config: config.to_string(), compiled, assembled: None, spills: false, failed: None };
    match (kernel, &args.ptxas) {
        (Err(error), _) => row.failed = Some(error.to_string()),
        (Ok(_), None) => {}
        (Ok(kernel), Some(ptxas)) => {
            let file = std::env::temp_dir().join(format!("tilewright-space-{}-{i}.ptx", std::process::id()));
            let started = Instant::now();
            let output = std::fs::write(&file, &kernel.ptx).and_then(|()| {
                std::process::Command::new(ptxas)
                    .args([format!("-arch={}", args.arch).as_str(), "-v", "-o", "/dev/null"])
                    .arg(&file)
                    .output()
            });
            row.assembled = Some(started.elapsed());
            // A file that is left behind in the temporary folder harms nobody.
            let _ = std::fs::remove_file(&file);
            match output {
                Ok(output) => {
                    let text = String::from_utf8_lossy(&output.stderr);
                    row.spills = !text.contains(" 0 bytes spill stores");
                    row.failed = (!output.status.success()).then(|| text.into_owned());
                }
                Err(error) => row.failed = Some(error.to_string()),
            }
        }
    }
    row
}
