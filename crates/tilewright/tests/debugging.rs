//! Additions for debuggers and profilers: source lines, which change no instruction, and records of assertions and prints.

use std::path::{Path, PathBuf};
use std::process::Command;

use tilewright::compiler::{Kernel, LineInfo, Options, compile};
use tilewright::machine::Arch;
use tilewright::prelude::*;
use tilewright::sim::{Argument, Config, GlobalMemory, Report, run};
use tilewright::simt::Function;
use tilewright::simt::record::{BUFFER_BYTES, recorded};
use tilewright::tile::{Module, Program, Sources, least_architecture, parse_module, read_beside, verify};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn options(program: &Program, lines: bool) -> Options {
    let verified = verify(program, &Default::default()).unwrap();
    let mut options = Options::new(least_architecture(&verified).unwrap().0).for_sizes(program, &[]);
    options.lines = lines.then(|| LineInfo { folder: PathBuf::from("/home/author"), sources: None });
    options
}

fn kernel(program: &Program, lines: bool) -> Kernel {
    compile(program, &options(program, lines)).unwrap()
}

fn read(path: &str, text: &str) -> Module {
    parse_module(Sources::new(path, text), &mut read_beside).unwrap()
}

/// A text without its source lines.
fn without_lines(ptx: &str) -> String {
    let (code, _) = ptx.split_once(".section .debug_str").unwrap_or((ptx, ""));
    let directive = |line: &&str| line.trim_start().starts_with(".loc ") || line.starts_with(".file ");
    code.lines().filter(|line| !directive(line)).map(|line| format!("{line}\n")).collect()
}

const FUNCTIONS: &str = "fn half(t) {
    return t * 0.5
}
fn shifted(t) {
    u = half(t) + 1.0
    return u
}
kernel k(x: f32[64], y: f32[64])
    grid(1) threads(64)
{
    gx = global_view(x[:], (64) : (e0))
    gy = global_view(y[:], (64) : (e0))
    r = register_tensor(f32, [64])
    copy(gx, r)
    r = shifted(r)
    copy(r, gy)
}
";

#[test]
fn instructions_have_the_lines_of_their_statements_and_of_the_calls_that_led_there() {
    let program = read("dir/functions.tile", FUNCTIONS).programs.remove(0);
    let ptx = kernel(&program, true).ptx;
    assert!(ptx.contains(".file 1 \"/home/author/dir/functions.tile\"\n"), "{ptx}");
    // The two copies.
    for place in [".loc 1 14 5\n", ".loc 1 16 5\n"] {
        assert!(ptx.contains(place), "{place}: {ptx}");
    }
    // The statement of `shifted`, called at line 15.
    assert!(ptx.contains(".loc 1 15 9\n    .loc 1 5 5, function_name $name0, inlined_at 1 15 9\n"), "{ptx}");
    assert!(
        ptx.contains(".section .debug_str\n{\n$name0:\n.b8 115, 104, 105, 102, 116, 101, 100, 0\n}"),
        "{ptx}"
    );
}

#[test]
fn what_rust_built_has_the_lines_of_the_calls() {
    let mut k = KernelBuilder::new("built");
    let (x, y) = (k.tensor("x", DType::F32, [64]), k.tensor("y", DType::F32, [64]));
    k.grid([1]);
    k.threads(64);
    let gx = k.global_view("gx", &x, [tile(0, 64)]);
    let gy = k.global_view("gy", &y, [tile(0, 64)]);
    let r = k.register_tensor("r", DType::F32, [64]);
    let line = line!() + 1;
    k.copy(gx, r);
    k.copy(r, gy);
    let ptx = kernel(&k.finish().unwrap(), true).ptx;
    assert!(ptx.contains(".file 1 \"crates/tilewright/tests/debugging.rs\"\n"), "{ptx}");
    assert!(
        ptx.contains(&format!(".loc 1 {line} ")) && ptx.contains(&format!(".loc 1 {} ", line + 1)),
        "{ptx}"
    );
}

/// Sections of code of an ELF file of 64 bits, little-endian.
fn code(elf: &[u8]) -> Vec<Vec<u8>> {
    let number = |at: usize, bytes: usize| {
        elf[at..at + bytes].iter().rev().fold(0usize, |number, byte| number << 8 | usize::from(*byte))
    };
    let (table, size, count, names) = (number(40, 8), number(58, 2), number(60, 2), number(62, 2));
    let section = |i: usize| {
        let at = table + i * size;
        (number(at, 4), number(at + 24, 8), number(at + 32, 8))
    };
    let (_, strings, _) = section(names);
    let is_code = |name: usize| elf[strings + name..].starts_with(b".text.");
    let sections = (0..count).map(section).filter(|(name, ..)| is_code(*name));
    sections.map(|(_, at, bytes)| elf[at..at + bytes].to_vec()).collect()
}

fn ptxas() -> Option<PathBuf> {
    std::env::var_os("TILEWRIGHT_PTXAS").map(PathBuf::from).or_else(|| {
        let folders = std::env::var_os("PATH")?;
        std::env::split_paths(&folders).map(|folder| folder.join("ptxas")).find(|path| path.is_file())
    })
}

/// The code that the assembler makes of a text, and the file that holds it.
fn assembled(ptxas: &Path, name: &str, arch: Arch, text: &str) -> (Vec<Vec<u8>>, Vec<u8>) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("debugging");
    std::fs::create_dir_all(&folder).unwrap();
    let (from, to) = (folder.join(format!("{name}.ptx")), folder.join(format!("{name}.cubin")));
    std::fs::write(&from, text).unwrap();
    let run =
        Command::new(ptxas).args([&format!("-arch={arch}"), "-lineinfo", "-o"]).arg(&to).arg(&from).output();
    let run = run.unwrap();
    assert!(run.status.success(), "{name}: {}", String::from_utf8_lossy(&run.stderr));
    let elf = std::fs::read(to).unwrap();
    (code(&elf), elf)
}

#[test]
fn lines_change_no_instruction() {
    let Some(ptxas) = ptxas() else {
        assert!(std::env::var_os("CI").is_none(), "CI has no ptxas: set TILEWRIGHT_PTXAS");
        return;
    };
    for name in ["gemm", "gemm_shared", "gemm_hopper", "transpose_bytes"] {
        let path = root().join("examples").join(format!("{name}.tile"));
        let text = std::fs::read_to_string(&path).unwrap();
        let program = read(&format!("examples/{name}.tile"), &text).programs.remove(0);
        let (with, without) = (kernel(&program, true), kernel(&program, false));
        assert_eq!(without_lines(&with.ptx), without.ptx, "{name}");
        let arch = with.function.arch;
        let (code, elf) = assembled(&ptxas, &format!("{name}.lines"), arch, &with.ptx);
        let (plain, _) = assembled(&ptxas, name, arch, &without.ptx);
        assert!(!code.is_empty() && code == plain, "{name}: the code differs");
        let file = format!("{name}.tile");
        assert!(elf.windows(file.len()).any(|part| part == file.as_bytes()), "{name}: no line table");
    }
}

const DIAGNOSED: &str = "size n = 150
kernel k(x: f32[n, 64], y: f32[n, 64]) grid(ceil_div(n, 32)) threads(64) {
    gx = global_view(x[block.x * 32 :, :], (32, 64) : (e0, e1))
    gy = global_view(y[block.x * 32 :, :], (32, 64) : (e0, e1))
    r = register_tensor(f32, [32, 64])
    s = shared_tensor(f32, [2, 32, 64])
    h = register_tensor(f16, [32, 64])
    copy(gx, r)
    for i in 0..2 {
        copy(r, s[i, :, :])
        syncthreads()
        if block.x != 2 {
            print(\"rows\", r, s[i, :, 3], block.x, n)
        }
        r = r * 2.0
        h = cast(r, f16)
        print(\"narrow\", h)
    }
    assert(block.x < 3, \"the last two\")
    assert(all(r < 100.0), \"small\")
    copy(r, gy)
}
";

/// The simulator's report of a function with two tensors of `n` rows, one of which holds 0, 1, 2, …, and `n`; behind it, for a function that
/// makes records, their buffer, which begins as it is given.
fn simulated(function: &Function, n: usize, records: Option<&[u8]>) -> (Report, Vec<u8>) {
    let mut memory = GlobalMemory::new();
    let (x, y, buffer) = (memory.alloc(n * 64 * 4), memory.alloc(n * 64 * 4), memory.alloc(BUFFER_BYTES));
    let values: Vec<u8> = (0..n * 64).flat_map(|i| (i as f32 / 64.0).to_le_bytes()).collect();
    memory.write(x, &values);
    memory.write(buffer, records.unwrap_or_default());
    let mut args = vec![Argument::Buffer(x), Argument::Buffer(y), Argument::I32(n as i32)];
    args.extend(records.map(|_| Argument::Buffer(buffer)));
    let report = run(function, [n.div_ceil(32) as u32, 1, 1], &memory, &args, &Config::default()).unwrap();
    (report, memory.read(buffer))
}

#[test]
fn records_of_a_gpu_are_what_the_simulator_shows() {
    let program = read("diagnosed.tile", DIAGNOSED).programs.remove(0);
    let kernel = compile(&program, &options(&program, true).with_debug(true)).unwrap();
    let recording = kernel.recording.clone().unwrap();
    let (function, again) = recorded(&kernel.function).unwrap();
    assert_eq!(recording, again);
    assert!(kernel.ptx.contains("// records\n"), "{}", kernel.ptx);
    let (shown, _) = simulated(&kernel.function, 150, None);
    let (report, bytes) = simulated(&function, 150, Some(&vec![0; BUFFER_BYTES]));
    // Nothing but what is asserted is wrong, and the stores of records race with nothing.
    assert!(report.races.is_empty(), "{:?}", report.problems());
    let records = recording.read(&bytes);
    assert_eq!(records.lost, 0);
    // Of 5 blocks, 4 print rows; all print what is narrow; twice each.
    assert_eq!(shown.printed.records().count(), 2 * (4 + 5));
    assert_eq!(records.printed, shown.printed);
    let broken: Vec<_> = records.broken.iter().map(|b| (b.block, b.thread, b.count)).collect();
    // Rows from 25 on: their values are 100 and more after they have been doubled twice.
    assert_eq!(broken.len(), 2);
    assert_eq!(broken[0], ([3, 0, 0], 0, 2 * 64));
    assert_eq!(broken[1].0, [0, 0, 0]);
    assert_eq!(shown.problems().len(), 2);
    if let Some(ptxas) = ptxas() {
        assembled(&ptxas, "diagnosed", kernel.function.arch, &kernel.ptx);
    }
    // A kernel that does not ask for it has nothing of them.
    let plain = compile(&program, &options(&program, true)).unwrap();
    assert!(plain.recording.is_none() && !plain.ptx.contains("// records"));
}

#[test]
fn records_that_find_no_room_are_counted() {
    let program = read("diagnosed.tile", DIAGNOSED).programs.remove(0);
    let kernel = compile(&program, &options(&program, false).with_debug(true)).unwrap();
    let (function, recording) = recorded(&kernel.function).unwrap();
    // A buffer that is full but for some words.
    let mut buffer = vec![0; BUFFER_BYTES];
    buffer[..8].copy_from_slice(&(BUFFER_BYTES as u64 / 4 - 100).to_le_bytes());
    let (report, bytes) = simulated(&function, 150, Some(&buffer));
    assert_eq!(report.problems(), [""; 0]);
    // 64 threads each: two prints twice in 4 of 5 blocks and one in the fifth, two assertions; shared memory of the first thread.
    let records = recording.read(&bytes);
    assert!((64 * 18..64 * 40).contains(&records.lost), "{}", records.lost);
    assert_eq!(records.printed.records().count(), 0);
}

#[test]
fn messages_of_an_assembler_name_the_statement() {
    let source = FUNCTIONS.replace("shifted(r)", "asm(\"tanh.f32 $0, $1;\", r, means = tanh(r))");
    let kernel = kernel(&read("functions.tile", &source).programs[0], true);
    let at = kernel.ptx.lines().position(|line| line.contains("tanh.f32")).unwrap() + 1;
    let said = kernel
        .explain_log(&format!("ptxas k.ptx, line {at}; error   : Not a name of any known instruction\nend"));
    assert!(
        said.contains("instruction (of `r = asm(\"tanh.f32 $0, $1;\", r, means = tanh(r))`)\nend"),
        "{said}"
    );
}
