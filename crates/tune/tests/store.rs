//! Records: what is written is found, what no longer holds is refused with its reason, and processes that tune at once neither disturb each
//! other nor do the same work.

mod common;

use std::io::Write;
use std::path::Path;
use std::process::Command;

use common::{Fake, columns_96, gpu, problem, quick};
use tilewright_machine::Arch;
use tilewright_tune::{
    Candidate, Found, Measurer, Origin, Problem, Record, SHIPPED, Settings, Store, Target, TuneError, Tuned,
    choose, merge, read_lines, refresh_hashes, shipped, tune, write_lines,
};

const SIZES: [i64; 3] = [512, 512, 512];

fn settings() -> Settings {
    Settings { refine: false, ..quick() }
}

/// Tunes with a measurer that knows the answer; `Err` from the measurer's maker says that nothing may be measured.
fn tuned(problem: &Problem, store: &Store, fresh: bool, may_measure: bool) -> Tuned {
    let mut make = |_: &Problem| -> Result<Box<dyn Measurer>, TuneError> {
        assert!(may_measure, "measured what is in the cache");
        Ok(Box::new(Fake::new(columns_96)))
    };
    tune(problem, &gpu(), store, fresh, &settings(), &mut make, &mut |_| {}).unwrap()
}

#[test]
fn a_second_run_finds_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let small = problem("gemm", SIZES, &[]);
    assert!(matches!(store.find(&small, &gpu()), Found::Nothing));
    let first = tuned(&small, &store, false, true);
    assert!(first.report.is_some() && first.refused.is_empty());
    let record = &first.record;
    assert_eq!(
        (record.class.as_str(), record.device.as_str()),
        ("m<=512/16 n<=512/16 k<=512/16", "NVIDIA Fake")
    );
    assert!(record.remeasured && record.measured.checked_against.is_some());
    assert!(!record.runners_up.is_empty() && record.runners_up[0].microseconds >= record.microseconds);
    assert_eq!(Record::parse(&record.line()).unwrap(), *record);

    let second = tuned(&small, &store, false, false);
    assert_eq!(second.record, first.record);
    assert!(second.report.is_none());
    // The class of shapes has the record, other classes, pins and devices have not.
    let alike = problem("gemm", [496, 464, 480], &[("dtype", "f16")]);
    assert_eq!(tuned(&alike, &store, false, false).record, first.record);
    for other in [problem("gemm", [512, 512, 640], &[]), problem("gemm", SIZES, &[("dtype", "bf16")])] {
        assert!(matches!(store.find(&other, &gpu()), Found::Nothing), "{other}");
    }
    let device = Target { device: "NVIDIA Other".to_string(), ..gpu() };
    assert!(matches!(store.find(&small, &device), Found::Nothing));

    assert!(tuned(&small, &store, true, true).report.is_some());
    let choice = choose(&alike, &gpu(), Some(&store)).unwrap();
    assert_eq!((choice.from, choice.candidate.to_string()), (Origin::Cache, first.record.configuration));
    let unknown = choose(&alike, &device, Some(&store)).unwrap();
    assert_eq!(unknown.from, Origin::Estimate);
    assert!(unknown.why.contains("not measured"), "{}", unknown.why);
}

#[test]
fn what_no_longer_holds_is_refused_with_its_reason_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let problem = problem("gemm", SIZES, &[("dtype", "bf16")]);
    let good = tuned(&problem, &store, false, true).record;
    let file = store.file(&good.key());
    let changed = |change: fn(&mut Record)| {
        let mut record = good.clone();
        change(&mut record);
        record.line()
    };
    let cases: [(String, &str); 10] = [
        (changed(|r| r.compiler = "0.0.9".to_string()), "compiler 0.0.9 was measured, and this is"),
        (changed(|r| r.programs.replace_range(..4, "zzzz")), "has changed since it was measured"),
        (changed(|r| r.device = "Other".to_string()), "for another device: Other, not NVIDIA Fake"),
        (changed(|r| r.arch = "sm_80".to_string()), "for another architecture: sm_80, not sm_90a"),
        (changed(|r| r.class.push('9')), "for another class of shapes"),
        (changed(|r| r.configuration.push_str(" warps=4")), "`gemm` has no parameter `warps`"),
        (changed(|r| r.configuration = "dtype=bf16 bm=100".to_string()), "must be a multiple of 16"),
        (changed(|r| r.configuration = "bm=64".to_string()), "does not keep dtype=bf16"),
        (changed(|r| r.format = 99), "it has form 99, and this version reads form 1"),
        (good.line()[..good.line().len() / 2].to_string(), "it cannot be read"),
    ];
    for (text, reason) in cases {
        std::fs::write(&file, text).unwrap();
        let choice = choose(&problem, &gpu(), Some(&store)).unwrap();
        assert!(
            choice.from == Origin::Estimate && choice.refused[0].contains(reason),
            "{:?}",
            choice.refused
        );
        let again = tuned(&problem, &store, false, true);
        assert_eq!(again.refused.len(), 1, "{reason}");
        assert!(again.refused[0].contains(reason), "{:?} should say {reason}", again.refused);
        assert!(again.refused[0].contains(&file.display().to_string()));
        assert_eq!(again.record.configuration, good.configuration);
        assert!(matches!(store.find(&problem, &gpu()), Found::Record(..)), "{reason}");
    }
    // Bytes that are no text are no reason to stop either.
    std::fs::write(&file, [0xff, 0xfe]).unwrap();
    assert!(tuned(&problem, &store, false, true).refused[0].contains("it cannot be read"));
}

#[test]
fn a_wrong_winner_is_never_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let problem = problem("gemm", SIZES, &[]);
    let mut make = |_: &Problem| -> Result<Box<dyn Measurer>, TuneError> {
        let mut fake = Fake::new(columns_96);
        fake.difference = Some("`c` differs".to_string());
        Ok(Box::new(fake))
    };
    let error = tune(&problem, &gpu(), &store, false, &settings(), &mut make, &mut |_| {}).unwrap_err();
    assert!(matches!(error, TuneError::Wrong { .. }), "{error}");
    assert!(matches!(store.find(&problem, &gpu()), Found::Nothing));
}

#[test]
fn files_of_records_are_merged_by_key() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path().join("cache"));
    let first = tuned(&problem("gemm", SIZES, &[]), &store, false, true).record;
    let second = tuned(&problem("gemm", [64, 512, 512], &[]), &store, false, true).record;
    let files = ["a", "b"].map(|name| folder.path().join(name));
    let slower = Record { microseconds: first.microseconds * 2.0, ..first.clone() };
    let write = |i: usize, records: &[Record]| write_lines(&files[i], records).unwrap();

    // Of one version the faster stays, whichever file it is in.
    write(0, &[slower.clone(), second.clone()]);
    write(1, std::slice::from_ref(&first));
    for order in [[0, 1], [1, 0]] {
        let merged = merge(&order.map(|i| files[i].clone())).unwrap();
        assert!(merged.records.len() == 2 && merged.records.contains(&first), "{order:?}");
        assert!(merged.records.contains(&second));
        assert_eq!(merged.left_out, std::slice::from_ref(&slower));
    }
    // Of several versions the latest; the same record twice is one.
    let later = Record { compiler: "99.0.0".to_string(), ..slower.clone() };
    write(0, &[later.clone(), second.clone()]);
    write(1, &[first.clone(), second.clone()]);
    let merged = merge(&files).unwrap();
    assert!(merged.records.contains(&later) && merged.left_out == std::slice::from_ref(&first));
    // Times under other conditions do not compare.
    let mut clean = first.clone();
    clean.measured.conditions.l2 = "clean".to_string();
    write(0, &[clean]);
    let error = merge(&files).unwrap_err().to_string();
    for text in [files[0].to_str().unwrap(), files[1].to_str().unwrap(), "clean and dirty", "m<=512"] {
        assert!(error.contains(text), "{text} is not in {error}");
    }
    assert!(matches!(merge(&[folder.path().join("none")]), Err(TuneError::Store { .. })));
    std::fs::write(&files[0], "{}\n").unwrap();
    assert!(matches!(merge(&files), Err(TuneError::RecordFile { line: 1, .. })));
}

#[test]
fn files_of_records_are_replaced_by_key_and_refreshed() {
    let folder = tempfile::tempdir().unwrap();
    let (store, file) = (Store::new(folder.path().join("cache")), folder.path().join("records.jsonl"));
    let first = tuned(&problem("gemm", SIZES, &[]), &store, false, true).record;
    let second = tuned(&problem("gemm", [64, 512, 512], &[]), &store, false, true).record;
    for record in [&first, &second, &first] {
        store.put_line(&file, record).unwrap();
    }
    assert_eq!(read_lines(&file).unwrap(), [second.clone(), first.clone()]);
    assert_eq!(refresh_hashes(&file).unwrap(), (0, 2));

    let stale = Record { programs: "0".to_string(), ..first.clone() };
    store.put_line(&file, &stale).unwrap();
    assert_eq!(refresh_hashes(&file).unwrap(), (1, 2));
    let refreshed = &read_lines(&file).unwrap()[1];
    assert_eq!(*refreshed, Record { remeasured: false, ..first.clone() });

    let impossible = Record { configuration: "bm=7".to_string(), ..first };
    store.put_line(&file, &impossible).unwrap();
    let before = std::fs::read(&file).unwrap();
    let error = refresh_hashes(&file).unwrap_err().to_string();
    assert!(error.contains("records.jsonl, line 2: its configuration is not accepted"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), before);

    std::fs::write(&file, "{}\n").unwrap();
    let error = store.put_line(&file, &second).unwrap_err().to_string();
    assert!(error.contains("line 1: it cannot be read"), "{error}");
    let missing = read_lines(Path::new("no/such/file")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read no/such/file"), "{missing}");
}

/// Without a record of the class, what was found for other sizes counts, unless the rows are not aligned as well.
#[test]
fn records_of_other_sizes_help() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let wanted = problem("gemm", [1024, 512, 512], &[]);
    tuned(&problem("gemm", [1088, 512, 512], &[]), &store, false, true);
    let nearby = [960, 512, 512];
    let mut record = tuned(&problem("gemm", nearby, &[]), &store, false, true).record;
    // A configuration that the estimate would not take, and a time that says that the estimate is wrong about it: the nearest
    // record is slower than estimated, this one is faster.
    record.configuration = "bm=64 bn=96 stages=3".to_string();
    let candidate = Candidate::parse(&record.configuration).unwrap();
    record.programs = candidate.hash(problem("gemm", nearby, &[]).operator()).unwrap();
    record.microseconds = 0.5;
    store.put(&record).unwrap();
    let near = choose(&wanted, &gpu(), Some(&store)).unwrap();
    assert_eq!((near.from, &near.candidate), (Origin::Nearby, &candidate));
    assert!(near.why.contains("measured at k=512 m=960 n=512"), "{}", near.why);
    for other in [problem("gemm", [1023, 512, 512], &[]), problem("gemm", nearby, &[("dtype", "bf16")])] {
        assert_eq!(choose(&other, &gpu(), Some(&store)).unwrap().from, Origin::Estimate, "{other}");
    }
    // A record that no longer holds says nothing of other sizes either.
    record.compiler = "0.0.9".to_string();
    store.put(&record).unwrap();
    assert_ne!(choose(&wanted, &gpu(), Some(&store)).unwrap().candidate, candidate);
}

/// Every shipped record is used: its configuration is accepted, and its programs are the ones that it names.
#[test]
fn shipped_records_hold() {
    let mut keys = std::collections::BTreeSet::new();
    let lines = SHIPPED.iter().flat_map(|(file, text)| (1..).zip(text.lines()).map(move |line| (file, line)));
    for (file, (line, text)) in lines {
        let record = Record::parse(text).unwrap_or_else(|e| panic!("{file}, line {line}: {e}"));
        let (problem, target) = (record.problem().unwrap(), record.target().unwrap());
        if let Err(reason) = record.holds(&problem, &target, true) {
            panic!(
                "crates/tune/records/{file}, line {line}: {reason}\nmeasure again with `tilewright tune … --records FILE`, or, \
                 if only the program's text changed, run `tilewright tune --refresh-hashes FILE`"
            );
        }
        assert!(
            keys.insert(record.key()),
            "{file}, line {line}: there is another record of {}",
            record.key()
        );
        let choice = choose(&problem, &target, None).unwrap();
        assert_eq!((choice.from, choice.candidate.to_string()), (Origin::Shipped, record.configuration));
    }
}

/// A device without a record of a class has that of another device of its architecture; one of another architecture has none.
#[test]
fn records_of_another_device_are_taken() {
    let (_, text) = SHIPPED[0];
    let record = Record::parse(text.lines().next().unwrap()).unwrap();
    let (problem, target) = (record.problem().unwrap(), record.target().unwrap());
    let other = Target { device: "another GPU".to_string(), ..target };
    let choice = choose(&problem, &other, None).unwrap();
    assert_eq!((choice.from, choice.candidate.to_string()), (Origin::Shipped, record.configuration));
    assert!(choice.why.starts_with(&format!("measured on {}", record.device)), "{}", choice.why);
    let older = Target::new("another GPU", Arch::SM_80);
    assert!(matches!(shipped(&problem, &older), Found::Nothing));
}

/// The test starts itself several times; each child tunes the same two problems into one folder and notes what it measures.
#[test]
fn two_processes_measure_once() {
    const FOLDER: &str = "TILEWRIGHT_TUNE_TEST_FOLDER";
    let problems = [problem("gemm", SIZES, &[]), problem("gemm", [64, 512, 512], &[])];
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = Path::new(&folder);
        let store = Store::new(folder.join("cache"));
        for problem in &problems {
            let mut make = |problem: &Problem| -> Result<Box<dyn Measurer>, TuneError> {
                let notes = std::fs::OpenOptions::new().append(true).create(true).open(folder.join("notes"));
                notes.unwrap().write_all(format!("{problem}\n").as_bytes()).unwrap();
                Ok(Box::new(Fake::new(columns_96)))
            };
            let tuned = tune(problem, &gpu(), &store, false, &settings(), &mut make, &mut |_| {}).unwrap();
            store.put_line(&folder.join("records.jsonl"), &tuned.record).unwrap();
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let child = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "two_processes_measure_once"])
            .env(FOLDER, folder.path())
            .output()
            .unwrap()
    };
    std::thread::scope(|scope| {
        let children = [(); 3].map(|()| scope.spawn(child));
        for output in children.map(|c| c.join().unwrap()) {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
    });
    let notes = std::fs::read_to_string(folder.path().join("notes")).unwrap();
    let mut notes: Vec<&str> = notes.lines().collect();
    notes.sort_unstable();
    let mut expected = problems.each_ref().map(Problem::to_string);
    expected.sort_unstable();
    assert_eq!(notes, expected, "each problem is measured once");
    let store = Store::new(folder.path().join("cache"));
    assert!(problems.iter().all(|p| matches!(store.find(p, &gpu()), Found::Record(..))));
    assert_eq!(read_lines(&folder.path().join("records.jsonl")).unwrap().len(), 2);
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let store = Store::new(file.path());
    let error = store.lock("a", || ()).unwrap_err().to_string();
    assert!(error.starts_with("cannot make the folder"), "{error}");
    let no_target = Target::new("none", Arch::SM_80);
    assert!(matches!(store.find(&problem("gemm", SIZES, &[]), &no_target), Found::Refused { .. }));
}
