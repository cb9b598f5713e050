//! Packs (`*.twpack`): kernels as files. A pack has, of each kernel, its recipe and its code, and perhaps the program that it was compiled from.
//!
//! ```
//! use tilewright_launch::{Recipe, Target};
//! use tilewright_twpack::{Entry, Pack, PackFile};
//!
//! let target = Target { name: "sm_80".into(), capability: (8, 0), specific: false };
//! let recipe = Recipe::new("nothing", "nothing", target);
//! let mut pack = Pack::new("an example");
//! pack.add(Entry::of_ptx(recipe, ".version 7.0\n.target sm_80\n.visible .entry nothing() { ret; }"))?;
//! let bytes = pack.to_bytes()?;
//! assert_eq!(Pack::from_bytes(&bytes)?, pack);
//!
//! // The header alone, and then what is asked for.
//! let file = PackFile::open(bytes)?;
//! let kernel = file.named("nothing").next().unwrap();
//! assert_eq!(file.recipe(kernel)?.threads, 1);
//! # Ok::<(), tilewright_twpack::PackError>(())
//! ```
//!
//! The file: the 8 bytes [`MAGIC`], the length of the header and that of the file (64 bits each, little-endian), the SHA-256 of the header (32 bytes), the header as JSON with sorted keys,
//! and then parts, each directly behind the one before, at the next multiple of 16 bytes with zeros between: of each kernel the recipe (JSON), its code (PTX text and binaries), and its program (JSON), if it was
//! kept. The header lists kernels with the places, lengths and hashes of their parts, and operators with the kernels that compute them for classes of sizes ([`Class`]). The same kernels make the same bytes, and other bytes are other kernels, or refused. Reading a pack runs no code and trusts nothing in it;
//! loading a kernel of it trusts its author ([`PackFile::load`], [`PackFile::pinned`], [`include_kernels!`]).
//!
//! The crate has few dependencies, so that a program with nothing but kernels is small: JSON and SHA-256 are its own.

mod class;
mod entry;
mod error;
mod file;
mod header;
mod json;
mod load;
mod operators;
mod pack;
mod ptx;
mod sha256;

pub use class::{Class, Span};
pub use entry::{Entry, Image, Source};
pub use error::PackError;
pub use file::{FORMAT, Listed, MAGIC, PackFile};
pub use load::{Included, Trusted};
pub use operators::{OperatorCall, Operators};
pub use pack::Pack;
