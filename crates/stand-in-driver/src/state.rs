//! The state of the stand-in: calls, handles, memory, and settings of how it behaves.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// The environment variable that names a file to write calls to, too.
const CALLS_VARIABLE: &str = "TILEWRIGHT_STAND_IN_CALLS";

/// Multiprocessors of each device.
pub(crate) const MULTIPROCESSORS: i32 = 132;
/// Handles of the primary contexts: this plus the device.
pub(crate) const CONTEXT: usize = 0xc000;

/// A function in code that was loaded.
#[derive(Clone, Default)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Bytes of its parameters.
    pub(crate) params: Vec<usize>,
}

/// Everything behind the one lock.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) calls: Vec<String>,
    pub(crate) settings: HashMap<String, i64>,
    /// Entries of modules, libraries, kernels and functions, by handle.
    pub(crate) entries: HashMap<usize, Vec<Entry>>,
    pub(crate) captured: HashSet<usize>,
    /// Memory by its address.
    pub(crate) memory: BTreeMap<u64, Vec<u64>>,
    next: usize,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// The device whose context is current; -1: none.
    pub(crate) static CURRENT: Cell<i64> = const { Cell::new(-1) };
}

fn lock() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file that calls are also written to, for tests in another process.
fn log() -> Option<&'static File> {
    static LOG: OnceLock<Option<File>> = OnceLock::new();
    let open = || File::create(std::env::var_os(CALLS_VARIABLE)?).ok();
    LOG.get_or_init(open).as_ref()
}

/// Calls a function with the state.
pub(crate) fn with<T>(call: impl FnOnce(&mut State) -> T) -> T {
    call(lock().get_or_insert_with(State::default))
}

/// Writes a call down, waits while it is held, and returns the error that it is to have.
pub(crate) fn called(name: &str, line: String) -> i32 {
    let mut state = lock();
    let all = state.get_or_insert_with(State::default);
    let call = if line.is_empty() { name.to_string() } else { format!("{name} {line}") };
    if let Some(mut file) = log() {
        // A test that finds a call missing says so.
        let _ = writeln!(file, "{call}");
    }
    all.calls.push(call);
    let held = format!("hold {name}");
    while state.as_ref().is_some_and(|state| state.setting(&held, 0) != 0) {
        state = CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    state.as_ref().map_or(0, |state| state.setting(&format!("fail {name}"), 0)) as i32
}

/// Changes a setting.
pub(crate) fn set(what: &str, value: i64) {
    with(|state| state.settings.insert(what.to_string(), value));
    CHANGED.notify_all();
}

impl State {
    pub(crate) fn setting(&self, what: &str, default: i64) -> i64 {
        self.settings.get(what).copied().unwrap_or(default)
    }

    /// A new handle.
    pub(crate) fn handle(&mut self) -> usize {
        self.next += 1;
        0x10000 + 16 * self.next
    }

    /// The bytes at an address, if they are all of one allocation.
    pub(crate) fn holds(&self, address: u64, bytes: usize) -> bool {
        let found = self.memory.range(..=address).next_back();
        found.is_some_and(|(start, words)| address - start + bytes as u64 <= 8 * words.len() as u64)
    }
}

/// The entries of a PTX text, with the bytes of their parameters.
pub(crate) fn entries_of(ptx: &str) -> Vec<Entry> {
    let entry = |text: &str| {
        let (name, rest) = text.split_once('(')?;
        let list = rest.split_once(')')?.0;
        let bytes = |param: &str| {
            let mut words = param.split_whitespace().skip_while(|word| *word != ".param").skip(1);
            let mut ty = words.next()?;
            if ty == ".align" {
                ty = words.nth(1)?;
            }
            let element = ty.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<usize>().ok()? / 8;
            let declared = words.next().unwrap_or_default();
            let count =
                declared.split_once('[').and_then(|(_, count)| count.trim_end_matches(']').parse().ok());
            Some(element * count.unwrap_or(1))
        };
        Some(Entry { name: name.trim().to_string(), params: list.split(',').filter_map(bytes).collect() })
    };
    let without_comments: Vec<&str> =
        ptx.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    without_comments.join("\n").split(".entry").skip(1).filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_from_the_text() {
        let ptx = ".visible .entry f(\n.param .u64 x,\n\t.param .align 64 .b8 map[128],\n.param .f32 y // y, z\n)\n{}\n.entry g()\n{}";
        let entries = entries_of(ptx);
        assert_eq!((entries[0].name.as_str(), &entries[0].params[..]), ("f", &[8, 128, 4][..]));
        assert_eq!((entries[1].name.as_str(), entries[1].params.len()), ("g", 0));
    }
}
