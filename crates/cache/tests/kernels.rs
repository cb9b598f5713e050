//! Kernels that are kept: what decides the key, what is damaged, what is too much, and many processes at once, some of which end early.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use tilewright_cache::{COMPILER, CompileError, Folder, Kept, Kernels, Key, Origin, Warning};
use tilewright_compiler::{LineInfo, Options, compile};
use tilewright_launch::{Driver, Gpu};
use tilewright_machine::Arch;
use tilewright_stand_in_driver::StandIn;
use tilewright_tile::{Program, parse};
use tilewright_twpack::Entry;

/// The variables that tell a child of this test its task, its folder and its seed.
const CHILD: [&str; 3] =
    ["TILEWRIGHT_CACHE_TEST_CHILD", "TILEWRIGHT_CACHE_TEST_FOLDER", "TILEWRIGHT_CACHE_TEST_SEED"];

/// A program that adds a number.
fn program(number: usize) -> Program {
    parse(&format!(
        "size n = 1024
         kernel add(x: f32[n], y: f32[n]) grid(ceil_div(n, 128)) threads(128) {{
             gx = global_view(x[block.x * 128 :], (128) : (e0))
             gy = global_view(y[block.x * 128 :], (128) : (e0))
             r = register_tensor(f32, [128])
             copy(gx, r)
             s = r + {number}.0
             copy(s, gy)
         }}"
    ))
    .unwrap()
}

fn options() -> Options {
    Options::new(Arch::SM_80)
}

fn kernels(folder: &Path) -> Kernels {
    Kernels::new(Folder::new(folder))
}

fn got(kernels: &Kernels, number: usize) -> Kept {
    kernels.load_or_compile(&program(number), &options()).unwrap()
}

/// The kernel as it is without a cache.
fn expected(number: usize) -> Entry {
    let kernel = compile(&program(number), &options()).unwrap();
    Entry::of_ptx(kernel.recipe().unwrap(), kernel.ptx)
}

fn key(number: usize) -> Key {
    Key::of(&program(number), &options()).unwrap()
}

#[test]
fn a_kernel_is_compiled_once_and_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let kernels = kernels(folder.path());
    let first = got(&kernels, 1);
    assert_eq!((first.origin, &first.entry), (Origin::Made, &expected(1)));
    let second = got(&kernels, 1);
    assert_eq!((second.origin, &second.entry), (Origin::Found, &first.entry));
    assert!(first.warnings.is_empty() && second.warnings.is_empty());
    assert_eq!(got(&kernels, 2).origin, Origin::Made);

    let stand_in = StandIn::of_this_test();
    // SAFETY: the stand-in has the functions of a driver, and runs no code.
    #[allow(unsafe_code)]
    let driver = unsafe { Driver::open(stand_in.path()) }.unwrap();
    stand_in.make_current(0);
    let kernel = second.load(&Gpu::current_of(driver).unwrap()).unwrap();
    assert_eq!(kernel.plan(&[1000]).unwrap().grid(), [8, 1, 1]);

    // What does not compile is not kept.
    let mut unknown = options();
    unknown.multiples.insert("k".into(), 8);
    let error = kernels.load_or_compile(&program(1), &unknown).unwrap_err();
    assert!(matches!(error, CompileError::Diagnostics(_)), "{error}");
    assert!(!kernels.file(&Key::of(&program(1), &unknown).unwrap()).exists());
}

#[test]
fn the_key_is_of_everything_that_decides_the_code() {
    let mut of_size = options();
    of_size.multiples.insert("n".into(), 16);
    let mut compared = options();
    compared.sizes.insert("n".into(), 4096);
    let mut other = options();
    other.candidate = Some(1);
    let mut timed = options();
    let mut timing = timed.timing().clone();
    timing.figures.pop();
    timed.timing = Some(timing.into());
    let all = [options(), Options::new(Arch::SM_90A), of_size, compared, other, timed];
    let keys: BTreeSet<String> =
        all.iter().map(|options| Key::of(&program(1), options).unwrap().digits().to_string()).collect();
    assert_eq!(keys.len(), all.len());
    assert_ne!(key(1), key(2));
    assert_eq!(key(1), key(1));
    // In this checkout, the sources of the compiler too.
    assert!(COMPILER.starts_with(concat!(env!("CARGO_PKG_VERSION"), "+")), "{COMPILER}");

    // Source lines and records are of the text, which the key does not have.
    let mut debug = options();
    debug.debug = true;
    let mut lines = options();
    lines.lines = Some(LineInfo::default());
    let folder = tempfile::tempdir().unwrap();
    for options in [debug, lines] {
        assert_eq!(Key::of(&program(1), &options), None);
        let kept = kernels(folder.path()).load_or_compile(&program(1), &options).unwrap();
        assert_eq!(kept.origin, Origin::Made);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn damaged_and_foreign_files_are_replaced_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let kernels = kernels(folder.path());
    let (one, two) = (kernels.file(&key(1)), kernels.file(&key(2)));
    got(&kernels, 1);
    got(&kernels, 2);
    let right = fs::read(&one).unwrap();
    let mut texts = Vec::new();
    let places = [0, 10, 40, 100, right.len() / 2, right.len() - 1];
    let flipped = places.map(|at| {
        let mut bytes = right.clone();
        bytes[at] ^= 4;
        bytes
    });
    let others = [Vec::new(), right[..right.len() / 2].to_vec(), fs::read(&two).unwrap(), b"a text".to_vec()];
    for wrong in flipped.into_iter().chain(others) {
        fs::write(&one, &wrong).unwrap();
        let kept = got(&kernels, 1);
        assert_eq!((kept.origin, &kept.entry), (Origin::Made, &expected(1)));
        let [Warning::Corrupt { path, .. }] = &kept.warnings[..] else { panic!("{:?}", kept.warnings) };
        assert_eq!(*path, one);
        texts.push(kept.warnings[0].to_string());
        assert_eq!(fs::read(&one).unwrap(), right);
        assert_eq!(got(&kernels, 1).origin, Origin::Found);
    }
    assert!(texts.iter().any(|text| text.ends_with("it has the kernel of another key")), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("this is no pack")), "{texts:?}");
}

#[test]
fn a_folder_that_cannot_be_used_costs_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a file");
    fs::write(&file, "").unwrap();
    let kept = got(&kernels(&file), 1);
    assert_eq!((kept.origin, &kept.entry), (Origin::Made, &expected(1)));
    assert!(kept.warnings.iter().all(|warning| matches!(warning, Warning::Folder(_))), "{:?}", kept.warnings);
    assert!(kept.warnings.iter().any(|w| w.to_string().starts_with("the kernel is not kept: cannot ")));
}

#[test]
fn what_was_used_longest_ago_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let all = kernels(folder.path());
    let mark = |number: usize, hours: u64| {
        let file = fs::File::options().append(true).open(all.file(&key(number))).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600 * hours)).unwrap();
    };
    for number in 0..6 {
        got(&all, number);
        mark(number, 10 - number as u64);
    }
    // The oldest is used again.
    assert_eq!(got(&all, 0).origin, Origin::Found);
    let left = all.file(&key(0)).with_file_name(".tmpleft");
    fs::write(&left, "half a kernel").unwrap();
    let old = fs::File::options().append(true).open(&left).unwrap();
    old.set_modified(SystemTime::now() - Duration::from_secs(7200)).unwrap();
    let bytes = fs::metadata(all.file(&key(0))).unwrap().len();
    let few = all.with_limit(4 * bytes + bytes / 2);
    assert_eq!(got(&few, 6).origin, Origin::Made);
    let there: Vec<usize> = (0..7).filter(|number| few.file(&key(*number)).exists()).collect();
    assert_eq!(there, [0, 5, 6]);
    assert!(!left.exists());
    assert_eq!(got(&few, 1).origin, Origin::Made);
}

/// Starts this test again, as a process that does one thing.
fn child(what: &str, folder: &Path, seed: usize) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_child_of_the_tests_below", "--nocapture"]).stdout(Stdio::piped());
    command.env(CHILD[0], what).env(CHILD[1], folder).env(CHILD[2], seed.to_string());
    command.spawn().unwrap()
}

/// Numbers from a seed (xorshift).
fn numbers(seed: usize) -> impl FnMut() -> usize {
    let mut state = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize
    }
}

const PROGRAMS: usize = 8;

#[test]
fn a_child_of_the_tests_below() {
    let Ok(what) = std::env::var(CHILD[0]) else { return };
    let [folder, seed] = [CHILD[1], CHILD[2]].map(|name| std::env::var(name).unwrap());
    let (kernels, mut number) = (kernels(Path::new(&folder)), numbers(seed.parse().unwrap()));
    match what.as_str() {
        // All kernels, in an order of its own.
        "all" => {
            let first = number();
            for i in 0..PROGRAMS {
                let kept = got(&kernels, (first + i * 3) % PROGRAMS);
                assert!(kept.warnings.is_empty(), "{:?}", kept.warnings);
                println!("{:?} {}", kept.origin, kept.entry.id().unwrap());
            }
        }
        // Writes kernels again and again, until it is killed.
        _ => {
            let entries: Vec<Entry> = (0..PROGRAMS).map(large).collect();
            println!("begins to write");
            loop {
                let at = number() % PROGRAMS;
                let _ = fs::remove_file(kernels.file(&named(at)));
                let kept = kernels.load_or_make(&named(at), || Ok::<_, ()>(entries[at].clone())).unwrap();
                assert!(kept.warnings.is_empty(), "{:?}", kept.warnings);
            }
        }
    }
}

#[test]
fn sixteen_processes_compile_each_kernel_once() {
    let folder = tempfile::tempdir().unwrap();
    let children: Vec<Child> = (0..16).map(|seed| child("all", folder.path(), seed)).collect();
    let mut counts: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        for line in text.lines() {
            // The harness prints the name of the test before the first line.
            let Some((origin, id)) = line.rsplit_once(' ').filter(|(_, id)| id.len() == 64) else { continue };
            counts.entry(id.to_string()).or_default()[usize::from(origin.ends_with("Found"))] += 1;
        }
    }
    let ids: BTreeSet<String> = (0..PROGRAMS).map(|number| expected(number).id().unwrap()).collect();
    assert_eq!(counts.keys().cloned().collect::<BTreeSet<_>>(), ids);
    assert!(counts.values().all(|counts| *counts == [1, 15]), "{counts:?}");
}

/// A kernel with much text, so that writing it takes a while.
fn large(number: usize) -> Entry {
    let mut entry = expected(number);
    let text = entry.ptx().unwrap().to_string() + &format!("// {number} of a long text\n").repeat(20_000);
    entry = Entry::of_ptx(entry.recipe, text);
    entry
}

/// The key of such a kernel.
fn named(number: usize) -> Key {
    let mut options = options();
    options.sizes.insert("n".into(), 128);
    Key::of(&program(number), &options).unwrap()
}

#[test]
fn writers_that_are_killed_leave_whole_kernels_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let kernels = kernels(folder.path());
    let entries: Vec<Entry> = (0..PROGRAMS).map(large).collect();
    let times = if std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some() { 1000 } else { 50 };
    let mut number = numbers(7);
    let mut there = 0;
    for round in 0..times / 2 {
        // Two at a time, which wait for each other too.
        let mut children =
            [child("write", folder.path(), 2 * round), child("write", folder.path(), 2 * round + 1)];
        for child in &mut children {
            let output = BufReader::new(child.stdout.take().unwrap());
            assert!(output.lines().map_while(Result::ok).any(|line| line.ends_with("begins to write")));
        }
        std::thread::sleep(Duration::from_micros((number() % 40_000) as u64));
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        for (number, entry) in entries.iter().enumerate() {
            // A lock that a killed process has held is free, and what is there is whole.
            let exists = kernels.file(&named(number)).exists();
            let kept = kernels.load_or_make(&named(number), || {
                if exists { Err("was not whole") } else { Ok(entry.clone()) }
            });
            let kept = kept.unwrap_or_else(|reason| panic!("round {round}: kernel {number} {reason}"));
            assert!(kept.warnings.is_empty(), "{:?}", kept.warnings);
            assert_eq!(kept.entry, *entry);
            there += usize::from(exists);
        }
    }
    let left = fs::read_dir(folder.path().join("kernels")).unwrap().filter_map(Result::ok);
    let left = left.filter(|file| file.path().extension().is_none()).count();
    println!("{times} writers were killed, {left} of them in a file; {there} kernels were there and whole");
    assert!(there > times, "writers wrote something: {there} kernels in {times} runs");
}
