//! Storage of records: a folder of the user with one file a key, and the file that comes with the kernels. Files are written
//! beside their place and moved there, under locks that the operating system gives back when a process ends (`tilewright_cache`).

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;

use tilewright_cache::{Folder, Lock, file_of};
use tilewright_kernels::model::Model;
use tilewright_machine::Arch;

use crate::error::TuneError;
use crate::problem::{Candidate, Problem, Target, sha256};
use crate::record::{Record, Stale};

/// The records that come with the kernels: the name and the text of a file for each device, one a line.
pub const SHIPPED: [(&str, &str); 2] = [
    ("nvidia-h200.jsonl", include_str!("../records/nvidia-h200.jsonl")),
    ("nvidia-h100-80gb-hbm3.jsonl", include_str!("../records/nvidia-h100-80gb-hbm3.jsonl")),
];

/// The key.
#[derive(Debug)]
pub enum Found {
    /// A record that holds, with its configuration.
    Record(Box<Record>, Candidate),
    /// A record that does not hold: where it is, and why.
    Refused {
        /// Its path.
        place: String,
        /// The reason why it does not hold.
        reason: Stale,
    },
    /// Nothing.
    Nothing,
}

/// A device on which this process alone measures. Measurers that have turns on it hold it together.
#[derive(Clone, Debug)]
pub struct DeviceLock(
    #[expect(dead_code, reason = "the lock is held as long as one of its holders lives")] Arc<Lock>,
);

/// A folder of records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Store {
    folder: Folder,
}

impl Store {
    /// The store in a folder, which is made when something is written.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Store { folder: Folder::new(folder) }
    }

    /// The user's store: the folder that `TILEWRIGHT_CACHE` names, else `tilewright` in the platform's folder for caches.
    ///
    /// # Errors
    ///
    /// [`TuneError::NoCache`] if the user has no home.
    pub fn of_user() -> Result<Self, TuneError> {
        Ok(Store { folder: Folder::of_user()? })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file of a key.
    pub fn file(&self, key: &str) -> PathBuf {
        self.folder().join("tuning").join(format!("{}.json", file_of(key)))
    }

    /// Looks for the record of a problem on a device.
    pub fn find(&self, problem: &Problem, target: &Target) -> Found {
        let file = self.file(&problem.key(target));
        let refused = |reason| Found::Refused { place: file.display().to_string(), reason };
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Found::Nothing,
            Err(error) => return refused(Stale::Corrupt(error.to_string())),
        };
        match Record::parse(&text).and_then(|r| r.holds(problem, target, false).map(|c| (r, c))) {
            Ok((record, candidate)) => Found::Record(Box::new(record), candidate),
            Err(reason) => refused(reason),
        }
    }

    /// The file of a device's model.
    pub fn model_file(&self, device: &str) -> PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        self.folder().join("models").join(format!("{}.txt", device.chars().map(plain).collect::<String>()))
    }

    /// The model of a device, where one was fitted.
    ///
    /// # Errors
    ///
    /// [`TuneError::Store`] for a file that cannot be read; [`TuneError::Model`] for one that is no model.
    pub fn model(&self, device: &str) -> Result<Option<Model>, TuneError> {
        let path = self.model_file(device);
        match read_model(&path) {
            Err(TuneError::Store { error, .. }) if error.kind() == ErrorKind::NotFound => Ok(None),
            model => model.map(Some),
        }
    }

    /// Writes the model of a device in the place of the one before.
    ///
    /// # Errors
    ///
    /// [`TuneError::Store`].
    pub fn put_model(&self, model: &Model) -> Result<PathBuf, TuneError> {
        let path = self.model_file(model.device());
        replace(&path, &model.to_string())?;
        Ok(path)
    }

    /// Every record of an operator that can be read, whatever it is for.
    pub fn all(&self, operator: &str) -> Vec<Record> {
        let Ok(folder) = std::fs::read_dir(self.folder().join("tuning")) else { return Vec::new() };
        let mut files: Vec<PathBuf> = folder.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.sort();
        let read = |file: PathBuf| Record::parse(&std::fs::read_to_string(file).ok()?).ok();
        files.into_iter().filter_map(read).filter(|record| record.operator == operator).collect()
    }

    /// Writes a record in the place of the one before.
    ///
    /// # Errors
    ///
    /// [`TuneError::Store`].
    pub fn put(&self, record: &Record) -> Result<PathBuf, TuneError> {
        let file = self.file(&record.key());
        replace(&file, &format!("{}\n", record.line()))?;
        Ok(file)
    }

    /// Waits for the lock of a name; `waiting` is called first if another holds it.
    ///
    /// # Errors
    ///
    /// [`TuneError::Store`].
    pub fn lock(&self, name: &str, waiting: impl FnOnce()) -> Result<Lock, TuneError> {
        Ok(self.folder.lock(name, waiting)?)
    }

    /// Waits until no other process measures on the device of this model and number; `waiting` is called first if one does.
    ///
    /// # Errors
    ///
    /// [`TuneError::Store`].
    pub fn lock_device(
        &self,
        model: &str,
        ordinal: u32,
        waiting: impl FnOnce(),
    ) -> Result<DeviceLock, TuneError> {
        let lock = self.lock(&format!("device | {model} | {ordinal}"), waiting)?;
        Ok(DeviceLock(Arc::new(lock)))
    }

    /// Puts a record into a file of records, one a line, in the place of the one with its key.
    ///
    /// # Errors
    ///
    /// [`TuneError::Store`]; [`TuneError::RecordFile`] if a line is no record.
    pub fn put_line(&self, path: &Path, record: &Record) -> Result<(), TuneError> {
        let absolute = std::path::absolute(path).map_err(TuneError::store("find", path))?;
        let _lock = self.lock(&format!("records | {}", sha256(&absolute.to_string_lossy())), || ())?;
        let mut records = match read_lines(path) {
            Err(TuneError::Store { error, .. }) if error.kind() == ErrorKind::NotFound => Vec::new(),
            records => records?,
        };
        records.retain(|other| other.key() != record.key());
        records.push(record.clone());
        write_lines(path, &records)
    }
}

/// The model of a file.
///
/// # Errors
///
/// [`TuneError::Store`]; [`TuneError::Model`] for a text that is no model.
pub fn read_model(path: &Path) -> Result<Model, TuneError> {
    let text = std::fs::read_to_string(path).map_err(TuneError::store("read", path))?;
    text.parse().map_err(|error| TuneError::Model { path: path.to_path_buf(), error })
}

/// The records of a file, one a line.
///
/// # Errors
///
/// [`TuneError::Store`]; [`TuneError::RecordFile`] if a line is no record.
pub fn read_lines(path: &Path) -> Result<Vec<Record>, TuneError> {
    let text = std::fs::read_to_string(path).map_err(TuneError::store("read", path))?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let record = |(line, text): (usize, &str)| {
        Record::parse(text).map_err(|reason| TuneError::RecordFile {
            path: path.to_path_buf(),
            line,
            reason: reason.to_string(),
        })
    };
    lines.map(record).collect()
}

/// Brings the hashes of a file of records up to date; returns how many changed, of how many.
///
/// # Errors
///
/// [`TuneError::Store`]; [`TuneError::RecordFile`] for a line that is no record, or whose configuration is none any longer. Nothing is
/// written then.
pub fn refresh_hashes(path: &Path) -> Result<(usize, usize), TuneError> {
    let mut records = read_lines(path)?;
    let mut changed = 0;
    for (i, record) in records.iter_mut().enumerate() {
        let refreshed = record.refresh().map_err(|reason| TuneError::RecordFile {
            path: path.to_path_buf(),
            line: i + 1,
            reason: reason.to_string(),
        })?;
        changed += usize::from(refreshed);
    }
    if changed > 0 {
        write_lines(path, &records)?;
    }
    Ok((changed, records.len()))
}

/// Records of several files put together.
#[derive(Debug)]
pub struct Merged {
    /// A record a key, in the order of keys.
    pub records: Vec<Record>,
    /// Records that gave way to another of their key.
    pub left_out: Vec<Record>,
}

/// Puts the records of several files together. Of records of one key that of the later version of the compiler stays, and of one version the
/// faster.
///
/// # Errors
///
/// [`TuneError::Store`]; [`TuneError::RecordFile`] for a line that is no record; [`TuneError::Conditions`] for records of one key and version that were
/// measured under conditions whose times do not compare.
pub fn merge(files: &[PathBuf]) -> Result<Merged, TuneError> {
    let (mut kept, mut left_out) = (BTreeMap::<String, (Record, PathBuf)>::new(), Vec::new());
    for file in files {
        for record in read_lines(file)? {
            let key = record.key();
            let Some((other, place)) = kept.remove(&key) else {
                kept.insert(key, (record, file.clone()));
                continue;
            };
            let version = |record: &Record| -> Vec<u64> {
                record.compiler.split(['.', '-']).map(|part| part.parse().unwrap_or(0)).collect()
            };
            let order = version(&record).cmp(&version(&other));
            if order.is_eq() && record.measured.conditions.l2 != other.measured.conditions.l2 {
                return Err(TuneError::Conditions {
                    key,
                    files: [place, file.clone()],
                    l2: [other.measured.conditions.l2, record.measured.conditions.l2],
                });
            }
            let wins = order.then(other.microseconds.total_cmp(&record.microseconds)).is_gt();
            let (stays, place, goes) =
                if wins { (record, file.clone(), other) } else { (other, place, record) };
            // The same record in two files is one.
            if stays != goes {
                left_out.push(goes);
            }
            kept.insert(key, (stays, place));
        }
    }
    Ok(Merged { records: kept.into_values().map(|(record, _)| record).collect(), left_out })
}

/// The shipped records by key.
pub(crate) fn all_shipped() -> &'static BTreeMap<String, Record> {
    static RECORDS: OnceLock<BTreeMap<String, Record>> = OnceLock::new();
    RECORDS.get_or_init(|| {
        // A test reads every line.
        let lines = SHIPPED.iter().flat_map(|(_, text)| text.lines());
        lines.filter_map(|line| Record::parse(line).ok()).map(|r| (r.key(), r)).collect()
    })
}

/// The devices of shipped records, in the order of their files.
fn devices_of_shipped() -> &'static [String] {
    static DEVICES: OnceLock<Vec<String>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let first = |(_, text): &(&str, &str)| Record::parse(text.lines().next()?).ok();
        SHIPPED.iter().filter_map(first).map(|record| record.device).collect()
    })
}

/// Looks for the shipped record of a problem on a device, else of one on another device of its architecture. It may be of another version of the compiler, if
/// its programs are the same.
pub fn shipped(problem: &Problem, target: &Target) -> Found {
    let of = |target: &Target| find_in(all_shipped().get(&problem.key(target)), problem, target);
    let others = devices_of_shipped().iter().filter(|device| **device != target.device);
    let mut found = of(target);
    for device in others {
        if !matches!(found, Found::Nothing) {
            break;
        }
        found = of(&Target { device: device.clone(), ..target.clone() });
    }
    found
}

/// The architecture of a device of which there are shipped records.
pub fn arch_of_shipped(device: &str) -> Option<Arch> {
    all_shipped().values().find(|r| r.device == device).and_then(|r| r.target().ok()).map(|t| t.arch)
}

fn find_in(record: Option<&Record>, problem: &Problem, target: &Target) -> Found {
    let Some(record) = record else { return Found::Nothing };
    match record.holds(problem, target, true) {
        Ok(candidate) => Found::Record(Box::new(record.clone()), candidate),
        Err(reason) => Found::Refused { place: "the records that come with the kernels".to_string(), reason },
    }
}

/// Writes records to a file, one a line, in the place of what was there.
///
/// # Errors
///
/// [`TuneError::Store`].
pub fn write_lines(path: &Path, records: &[Record]) -> Result<(), TuneError> {
    let text: String = records.iter().map(|record| record.line() + "\n").collect();
    replace(path, &text)
}

/// Writes a file beside its place and moves it there: a reader sees the old one or the new one.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), TuneError> {
    Ok(tilewright_cache::replace(path, text.as_bytes())?)
}
