//! Compiled kernels, each a pack in a file whose name is the hash of all that decides its code.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tilewright_compiler::{NoRecipe, Options, compile};
use tilewright_launch::{Code, Gpu, Kernel, LaunchError};
use tilewright_tile::{Diagnostics, Program};
use tilewright_twpack::{Entry, Pack, PackError, PackFile};

use crate::folder::{Folder, FolderError, replace, sha256};

/// The compiler that kernels are of: its version, and in a checkout of the repository a hash of its sources.
pub const COMPILER: &str = env!("TILEWRIGHT_COMPILER_BUILD");

/// Bytes of kernels that are kept, unless something else is said.
const MOST_BYTES: u64 = 1 << 30;
/// A kernel that is used is marked so, but for those that were within this time.
const USED_AFTER: Duration = Duration::from_secs(3600);
/// Files of writers that ended early are deleted after this time.
const LEFT_AFTER: Duration = Duration::from_secs(3600);

/// The identity of a kernel: a hash of its printed program, the options, the architecture and the compiler.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Key(String);

impl Key {
    /// The key of a program with options. There is none where the code says more than these decide: source lines, and assertions and prints, whose places a launch needs.
    pub fn of(program: &Program, options: &Options) -> Option<Key> {
        if options.lines.is_some() || options.debug {
            return None;
        }
        // Derived text, in which no option can be forgotten; all maps in it are sorted.
        let text =
            format!("{COMPILER}\n{:?}\n{options:?}\n{:?}\n{program}", options.arch.spec(), options.timing());
        Some(Key(sha256(&text)))
    }

    /// The digits.
    pub fn digits(&self) -> &str {
        &self.0
    }
}

/// The origin of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Origin {
    /// It was kept.
    Found,
    /// It was made now.
    Made,
}

/// Something that went wrong with files, and did no harm to the kernel.
#[derive(Debug)]
#[non_exhaustive]
pub enum Warning {
    /// A file is no kernel, or another one. It was not used, and is replaced.
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file or a lock could not be used.
    Folder(FolderError),
    /// The kernel cannot be kept.
    Pack(PackError),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Corrupt { path, reason } => {
                write!(f, "the kept kernel {} is not used, and is replaced: {reason}", path.display())
            }
            Warning::Folder(error) => write!(f, "the kernel is not kept: {error}"),
            Warning::Pack(error) => write!(f, "the kernel is not kept: {error}"),
        }
    }
}

/// A kernel that is ready to be loaded.
#[derive(Debug)]
#[non_exhaustive]
pub struct Kept {
    /// Recipe and code.
    pub entry: Entry,
    /// The origin.
    pub origin: Origin,
    /// Mishaps.
    pub warnings: Vec<Warning>,
}

impl Kept {
    /// Loads the kernel. Its code is of this compiler, or of the user's own folder, which is trusted as the user's programs are.
    ///
    /// # Errors
    ///
    /// The GPU or its driver does not take it.
    pub fn load(&self, gpu: &Gpu) -> Result<Kernel, LaunchError> {
        let code = self.entry.image_for(gpu.capability()).or(self.entry.images.first());
        let code = code.map_or(Code::Ptx(""), |image| image.code());
        // SAFETY: recipe and code are of one kernel of the compiler, and lay since then in a folder that only the user writes.
        #[allow(unsafe_code)]
        unsafe {
            gpu.load(&self.entry.recipe, code)
        }
    }
}

/// A kernel that was not found, and could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The program does not compile.
    #[error("{0}")]
    Diagnostics(Diagnostics),
    /// There is no recipe of the kernel.
    #[error(transparent)]
    NoRecipe(#[from] NoRecipe),
}

/// Compiled kernels in a folder that only the user writes, of any number of processes at the same time.
///
/// A file is written beside its place and moved there, so a reader sees a whole kernel or none, whenever a writer ends; what is read is checked with its hashes, and what is not as it was
/// written is replaced. Of processes that want the same kernel one compiles it, and the others wait. Where files or locks cannot be used, kernels are compiled, with a warning.
#[derive(Clone, Debug)]
pub struct Kernels {
    folder: Folder,
    most_bytes: u64,
}

impl Kernels {
    /// The kernels in a folder, which only the user writes: their code is loaded as it is.
    pub fn new(folder: Folder) -> Self {
        Kernels { folder, most_bytes: MOST_BYTES }
    }

    /// The user's kernels ([`Folder::of_user`]).
    ///
    /// # Errors
    ///
    /// [`FolderError::NoCache`] if the user has no home.
    pub fn of_user() -> Result<Self, FolderError> {
        Folder::of_user().map(Kernels::new)
    }

    /// With another number of bytes that are kept. Where there are more, the kernels go that were used longest ago.
    pub fn with_limit(mut self, bytes: u64) -> Self {
        self.most_bytes = bytes;
        self
    }

    /// The file of a kernel.
    pub fn file(&self, key: &Key) -> PathBuf {
        self.parts().join(format!("{}.twpack", key.0))
    }

    fn parts(&self) -> PathBuf {
        self.folder.path().join("kernels")
    }

    /// The kernel of a program: the one that is kept, or compiled now and kept.
    ///
    /// # Errors
    ///
    /// The program does not compile, or has no recipe.
    pub fn load_or_compile(&self, program: &Program, options: &Options) -> Result<Kept, CompileError> {
        let compiled = || {
            let kernel = compile(program, options).map_err(CompileError::Diagnostics)?;
            Ok(Entry::of_ptx(kernel.recipe()?, kernel.ptx))
        };
        match Key::of(program, options) {
            Some(key) => self.load_or_make(&key, compiled),
            None => Ok(Kept { entry: compiled()?, origin: Origin::Made, warnings: Vec::new() }),
        }
    }

    /// The kernel of a key: the one that is kept, or made now and kept. Of processes that ask at the same time one makes it.
    ///
    /// # Errors
    ///
    /// Whatever the maker returns.
    pub fn load_or_make<E>(&self, key: &Key, make: impl FnOnce() -> Result<Entry, E>) -> Result<Kept, E> {
        let mut warnings = Vec::new();
        // What is wrong is said by the reader who holds the lock, and replaces it.
        if let Ok(Some(entry)) = self.read(key) {
            return Ok(Kept { entry, origin: Origin::Found, warnings });
        }
        let name = format!("kernels | {}", &key.0[..2.min(key.0.len())]);
        let _lock =
            self.folder.lock(&name, || ()).map_err(|error| warnings.push(Warning::Folder(error))).ok();
        match self.read(key) {
            Ok(Some(entry)) => return Ok(Kept { entry, origin: Origin::Found, warnings }),
            Ok(None) => {}
            Err(warning) => warnings.push(warning),
        }
        let entry = make()?;
        if let Err(warning) = self.write(key, &entry) {
            warnings.push(warning);
        }
        Ok(Kept { entry, origin: Origin::Made, warnings })
    }

    fn read(&self, key: &Key) -> Result<Option<Entry>, Warning> {
        let path = self.file(key);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(Warning::Folder(FolderError::File { action: "read", path, error }));
            }
        };
        let corrupt = |reason: String| Warning::Corrupt { path: path.clone(), reason };
        let file = PackFile::open(bytes).map_err(|error| corrupt(error.to_string()))?;
        let [listed] = file.kernels() else { return Err(corrupt("it has not one kernel".to_string())) };
        if listed.name() != key.0 {
            return Err(corrupt("it has the kernel of another key".to_string()));
        }
        let entry = file.entry(listed).map_err(|error| corrupt(error.to_string()))?;
        used(&path);
        let name = entry.recipe.name.clone();
        Ok(Some(entry.named(name)))
    }

    fn write(&self, key: &Key, entry: &Entry) -> Result<(), Warning> {
        let mut pack = Pack::new(format!("tilewright {COMPILER}"));
        pack.add(entry.clone().named(key.digits())).map_err(Warning::Pack)?;
        let bytes = pack.to_bytes().map_err(Warning::Pack)?;
        let path = self.file(key);
        replace(&path, &bytes).map_err(Warning::Folder)?;
        self.trim(&path).map_err(Warning::Folder)
    }

    /// Deletes the kernels that were used longest ago, where there are too many, and what writers that ended early have left. One process does so at a time; the file that was
    /// written last stays.
    fn trim(&self, written: &Path) -> Result<(), FolderError> {
        let Some(_lock) = self.folder.try_lock("trim | kernels")? else { return Ok(()) };
        let (folder, now) = (self.parts(), SystemTime::now());
        let failed = |error| FolderError::File { action: "list", path: folder.clone(), error };
        let age =
            |at: &Metadata| at.modified().ok().and_then(|at| now.duration_since(at).ok()).unwrap_or_default();
        let mut kept: Vec<(Duration, u64, PathBuf)> = Vec::new();
        for file in fs::read_dir(&folder).map_err(failed)?.filter_map(Result::ok) {
            // A file that another process deletes at the same time is gone.
            let Ok(data) = file.metadata() else { continue };
            let path = file.path();
            if path.extension().is_some_and(|ending| ending == "twpack") {
                kept.push((age(&data), data.len(), path));
            } else if age(&data) > LEFT_AFTER {
                let _ = fs::remove_file(path);
            }
        }
        let mut bytes: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
        if bytes <= self.most_bytes {
            return Ok(());
        }
        // Some room, so that not every kernel from now on has others deleted.
        let wanted = self.most_bytes / 4 * 3;
        kept.sort();
        while let Some((_, length, path)) = kept.pop().filter(|_| bytes > wanted) {
            if path != written && fs::remove_file(&path).is_ok() {
                bytes -= length;
            }
        }
        Ok(())
    }
}

/// Marks a kernel as used now. A folder that cannot be written is no reason not to use it.
fn used(path: &Path) {
    let mark = || -> io::Result<()> {
        let file = File::options().append(true).open(path)?;
        let now = SystemTime::now();
        if now.duration_since(file.metadata()?.modified()?).is_ok_and(|age| age > USED_AFTER) {
            file.set_modified(now)?;
        }
        Ok(())
    };
    let _ = mark();
}
