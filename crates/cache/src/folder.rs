//! A folder that processes share: files that are written beside their place and moved there, and locks that the operating system gives back when a process ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use fs4::FileExt;
use sha2::{Digest, Sha256};

/// The variable that names the folder of the cache.
pub const CACHE_VARIABLE: &str = "TILEWRIGHT_CACHE";

/// Something in a folder that did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// A file or folder could not be read or written.
    #[error("cannot {action} {}: {error}", path.display())]
    File {
        /// Activity that failed.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The user has no folder for caches.
    #[error("there is no folder for the cache ({reason}): set {CACHE_VARIABLE}")]
    NoCache {
        /// The reason.
        reason: String,
    },
}

impl FolderError {
    fn of(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| FolderError::File { action, path: path.to_path_buf(), error }
    }
}

/// A lock between processes, given back when dropped.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "the lock is held as long as the file is open")] File);

/// A folder, which is made when something is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder at a path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Folder(path.into())
    }

    /// The user's: the one that `TILEWRIGHT_CACHE` names, else `tilewright` in the platform's folder for caches.
    ///
    /// # Errors
    ///
    /// [`FolderError::NoCache`] if the user has no home.
    pub fn of_user() -> Result<Self, FolderError> {
        if let Some(folder) = std::env::var_os(CACHE_VARIABLE).filter(|f| !f.is_empty()) {
            return Ok(Folder::new(folder));
        }
        let strategy = etcetera::choose_base_strategy()
            .map_err(|error| FolderError::NoCache { reason: error.to_string() })?;
        Ok(Folder::new(strategy.cache_dir().join("tilewright")))
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Waits for the lock of a name; `waiting` is called first if another holds it.
    ///
    /// # Errors
    ///
    /// [`FolderError::File`].
    pub fn lock(&self, name: &str, waiting: impl FnOnce()) -> Result<Lock, FolderError> {
        let (file, path) = self.lock_file(name)?;
        // Not every file system says at once whether a lock is taken; waiting is right in any case.
        if FileExt::try_lock(&file).is_err() {
            waiting();
            FileExt::lock(&file).map_err(FolderError::of("take the lock", &path))?;
        }
        Ok(Lock(file))
    }

    /// The lock of a name, if nobody holds it.
    ///
    /// # Errors
    ///
    /// [`FolderError::File`].
    pub fn try_lock(&self, name: &str) -> Result<Option<Lock>, FolderError> {
        let (file, _) = self.lock_file(name)?;
        Ok(FileExt::try_lock(&file).is_ok().then_some(Lock(file)))
    }

    fn lock_file(&self, name: &str) -> Result<(File, PathBuf), FolderError> {
        let folder = self.0.join("locks");
        fs::create_dir_all(&folder).map_err(FolderError::of("make the folder", &folder))?;
        let path = folder.join(format!("{}.lock", file_of(name)));
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        Ok((open.map_err(FolderError::of("open the lock", &path))?, path))
    }
}

/// The name of the file of a key: its first word, and a hash.
pub fn file_of(key: &str) -> String {
    let word: String = key.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    format!("{word}-{}", &sha256(key)[..32])
}

/// The SHA-256 of a text, in hexadecimal digits.
pub fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a file beside its place and moves it there: a reader sees the old one or the new one.
///
/// # Errors
///
/// [`FolderError::File`].
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), FolderError> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(FolderError::of("make the folder", folder))?;
    let failed = |error| FolderError::of("write", path)(error);
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
