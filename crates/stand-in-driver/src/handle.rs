//! The library as a test sees it.

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};

use libloading::Library;

/// The stand-in, loaded: once in a process, however often it is asked for.
pub struct StandIn {
    library: Library,
    path: PathBuf,
}

impl StandIn {
    /// The library that was built with this test.
    ///
    /// # Panics
    ///
    /// There is none: the test does not depend on this crate.
    pub fn of_this_test() -> StandIn {
        StandIn::at(&StandIn::path_of_this_test())
    }

    /// The path of the library that was built with this test.
    ///
    /// # Panics
    ///
    /// As of [`StandIn::of_this_test`].
    pub fn path_of_this_test() -> PathBuf {
        let name = libloading::library_filename("tilewright_stand_in_driver");
        let test = std::env::current_exe().expect("a test has a path");
        let beside = |folder: &Path| [folder.join(&name), folder.join("deps").join(&name)];
        let found = test.ancestors().skip(1).take(3).flat_map(beside).find(|path| path.is_file());
        found.expect("the stand-in is built with the tests that depend on it")
    }

    /// The library at a path.
    ///
    /// # Panics
    ///
    /// It does not load.
    pub fn at(path: &Path) -> StandIn {
        // SAFETY: the library is this crate's, and has no initialisers of its own.
        let library = unsafe { Library::new(path) }.expect("the stand-in loads");
        StandIn { library, path: path.to_path_buf() }
    }

    /// A copy of the library in a folder, which lacks some functions: the names that it has for them are other ones.
    ///
    /// # Panics
    ///
    /// The folder cannot be written, or the library does not have such a function.
    pub fn without(folder: &Path, functions: &[&str]) -> PathBuf {
        let mut bytes = std::fs::read(StandIn::path_of_this_test()).expect("the stand-in is readable");
        for function in functions {
            // The name as the table of names has it, between two NUL characters.
            let name = [b"\0", function.as_bytes(), b"\0"].concat();
            let at = bytes.windows(name.len()).position(|window| window == name);
            let mut at = at.expect("the stand-in has the function");
            while let Some(next) = bytes[at..].windows(name.len()).position(|window| window == name) {
                bytes[at + next + 1] = b'_';
                at += next + 1;
            }
        }
        let path = folder.join(libloading::library_filename("older_driver"));
        std::fs::write(&path, bytes).expect("the folder is writable");
        path
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The calls since this was last asked, one a line: the function, and what it was given.
    ///
    /// # Panics
    ///
    /// The library at hand is no stand-in.
    pub fn calls(&self) -> Vec<String> {
        type Take = unsafe extern "C" fn(*mut u8, usize) -> usize;
        // SAFETY: the function has this type; it writes at most as many bytes as it is told.
        let text = unsafe {
            let take = self.library.get::<Take>("stand_in_calls").expect("a stand-in");
            let mut bytes = vec![0u8; 1 << 22];
            let written = take(bytes.as_mut_ptr(), bytes.len());
            bytes.truncate(written);
            bytes
        };
        String::from_utf8_lossy(&text).lines().map(str::to_string).collect()
    }

    /// Changes how it behaves: `devices` (their number), `capability` (`90`), `resident` (blocks of a multiprocessor), `fail cuInit` (the error of a function
    /// from now on; 0: none), `hold cuTensorMapEncodeTiled` (1: calls of it wait until this is 0).
    ///
    /// # Panics
    ///
    /// The library at hand is no stand-in.
    pub fn set(&self, what: &str, value: i64) {
        type Set = unsafe extern "C" fn(*const c_char, i64);
        let what = CString::new(what).expect("a name");
        // SAFETY: the function has this type, and reads the text before it returns.
        unsafe { self.library.get::<Set>("stand_in_set").expect("a stand-in")(what.as_ptr(), value) };
    }

    /// Makes the context of a device this thread's; -1: none.
    ///
    /// # Panics
    ///
    /// The library at hand is no stand-in.
    pub fn make_current(&self, device: i64) {
        type Make = unsafe extern "C" fn(i64);
        // SAFETY: the function has this type.
        unsafe { self.library.get::<Make>("stand_in_make_current").expect("a stand-in")(device) };
    }

    /// Memory of the GPU, which lives as long as the process.
    ///
    /// # Panics
    ///
    /// The library at hand is no stand-in.
    pub fn alloc(&self, bytes: usize) -> u64 {
        type Alloc = unsafe extern "C" fn(*mut u64, usize) -> i32;
        let mut pointer = 0;
        // SAFETY: the function has this type, and writes the address to where it is told.
        unsafe { self.library.get::<Alloc>("cuMemAlloc_v2").expect("a stand-in")(&raw mut pointer, bytes) };
        pointer
    }

    /// A stream, begun to be captured or not.
    ///
    /// # Panics
    ///
    /// The library at hand is no stand-in.
    pub fn stream(&self, captured: bool) -> *mut std::ffi::c_void {
        type Create = unsafe extern "C" fn(*mut *mut std::ffi::c_void, u32) -> i32;
        type Begin = unsafe extern "C" fn(*mut std::ffi::c_void, i32) -> i32;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the functions have these types; the first writes the stream to where it is told.
        unsafe {
            self.library.get::<Create>("cuStreamCreate").expect("a stand-in")(&raw mut stream, 1);
            if captured {
                self.library.get::<Begin>("cuStreamBeginCapture_v2").expect("a stand-in")(stream, 1);
            }
        }
        stream
    }
}
