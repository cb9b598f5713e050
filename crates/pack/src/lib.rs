//! Packs (`*.twpack`): kernels as files. A pack has, of each kernel, its recipe and its code, and perhaps the program that it was compiled from.
//!
//! ```
//! use tilewright_launch::{Recipe, Target};
//! use tilewright_pack::{Entry, Pack};
//!
//! let target = Target { name: "sm_80".into(), capability: (8, 0), specific: false };
//! let recipe = Recipe::new("nothing", "nothing", target);
//! let mut pack = Pack::new("an example");
//! pack.add(Entry::of_ptx(recipe, ".visible .entry nothing() { ret; }"))?;
//! let bytes = pack.to_bytes()?;
//! let read = Pack::from_bytes(&bytes)?;
//! assert_eq!(read.get("nothing").unwrap().recipe, pack.get("nothing").unwrap().recipe);
//! # Ok::<(), tilewright_pack::PackError>(())
//! ```
//!
//! The file: the 8 bytes [`MAGIC`], the length of the header and that of the file (64 bits each, little-endian), the SHA-256 of everything behind it (32 bytes), the header as JSON with
//! sorted keys, and then code, each at a multiple of 16 bytes with zeros before it. The same kernels make the same bytes. Reading a pack runs no code and trusts nothing in it;
//! loading a kernel of it trusts its author, and is `unsafe` for that ([`Gpu::load`](tilewright_launch::Gpu::load)).

mod error;
mod file;
mod header;
mod json;

pub use error::PackError;
pub use file::{Entry, FORMAT, Image, MAGIC, Pack, Source};
