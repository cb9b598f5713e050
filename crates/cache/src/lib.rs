//! The cache: a folder of the user, which any number of processes share.
//!
//! [`Kernels`] keeps compiled kernels, so that a program compiles each once on a machine; [`Folder`] has the locks and the writing of files, by which the tuner keeps its records in the same folder.
//!
//! ```
//! use tilewright_cache::{Folder, Kernels, Origin};
//! use tilewright_compiler::Options;
//! use tilewright_machine::Arch;
//!
//! let program = tilewright_tile::parse(
//!     "size n = 1024
//!      kernel copy(x: f32[n], y: f32[n]) grid(ceil_div(n, 128)) threads(128) {
//!          gx = global_view(x[block.x * 128 :], (128) : (e0))
//!          gy = global_view(y[block.x * 128 :], (128) : (e0))
//!          r = register_tensor(f32, [128])
//!          copy(gx, r)
//!          copy(r, gy)
//!      }",
//! )?;
//! let folder = tempfile::tempdir()?;
//! let kernels = Kernels::new(Folder::new(folder.path())); // or `Kernels::of_user()?`
//! let options = Options::new(Arch::SM_80);
//! assert_eq!(kernels.load_or_compile(&program, &options)?.origin, Origin::Made);
//! let kept = kernels.load_or_compile(&program, &options)?;
//! assert_eq!(kept.origin, Origin::Found);
//! assert!(kept.entry.ptx().unwrap().contains(".entry copy"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod folder;
mod kernels;

pub use folder::{CACHE_VARIABLE, Folder, FolderError, Lock, file_of, replace, sha256};
pub use kernels::{COMPILER, CompileError, Kept, Kernels, Key, Origin, Warning};
