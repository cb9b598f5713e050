//! Hierarchical layouts over integer-semimodules and their algebra. A layout maps coordinates, which count
//! colexicographically (leftmost fastest), to offsets; `compose(a, b)` is `a ∘ b`, which applies `b` first.
//!
//! The crate follows *CuTe Layout Representation and Algebra*; "paper" in these pages means that one. It knows no GPU.
//!
//! # A short tour
//!
//! A layout is written `shape:stride`. This one stores a matrix of 4 rows and 8 columns column by column:
//!
//! ```
//! use tilewright_layout::*;
//! let columns: Layout = "(4,8):(1,4)".parse()?;
//! let coord = HTuple::from((2, 3)); // row 2, column 3
//! assert_eq!(columns.eval_coord(&coord)?, 2 + 3 * 4);
//! assert_eq!(columns.eval(14), 14); // the same element by its integral coordinate 2 + 3·4
//! # Ok::<(), LayoutError>(())
//! ```
//!
//! Modes may nest. Every shape takes coordinates of several kinds: `((2,2),(4,2))` takes integers below 32, pairs below
//! (4,8), and natural coordinates such as `((0,1),(1,1))`:
//!
//! ```
//! use tilewright_layout::*;
//! let l: Layout = "((2,2),(4,2)):((1,8),(2,16))".parse()?;
//! for coord in [HTuple::from(22), (2, 5).into(), ((0, 1), (1, 1)).into()] {
//!     assert_eq!(l.eval_coord(&coord)?, 26);
//! }
//! # Ok::<(), LayoutError>(())
//! ```
//!
//! [`coalesce`] simplifies a layout as a function of integers. [`compose`] takes one layout through another: here the
//! elements of a row-major 8×8 matrix as the 32 threads of a tensor core hold them, two each:
//!
//! ```
//! use tilewright_layout::*;
//! let matrix: Layout = "(8,8):(8,1)".parse()?; // coordinate -> offset
//! let threads: Layout = "((4,8),2):((16,1),8)".parse()?; // (thread, value) -> coordinate
//! assert_eq!(compose(&matrix, &threads)?.to_string(), "((4,8),2):((2,8),1)"); // (thread, value) -> offset
//! // Not every composition is a layout; one that is not is an error, never a wrong layout.
//! assert!(compose(&"(4,6,8):(2,3,5)".parse::<Layout>()?, &"6:3".parse()?).is_err());
//! # Ok::<(), LayoutError>(())
//! ```
//!
//! [`right_inverse`], [`left_inverse`] and [`inverse`] lead from offsets back to coordinates, [`complement`] to what a
//! layout leaves out. From these come division into tiles and products of tiles:
//!
//! ```
//! use tilewright_layout::*;
//! let matrix: Layout = "(8,16):(1,8)".parse()?;
//! let tiles = zipped_divide_by_mode(&matrix, &[Layout::identity(4), Layout::identity(8)])?;
//! assert_eq!(tiles.to_string(), "((4,8),(2,2)):((1,8),(4,64))"); // (tile, grid of tiles)
//! let repeated = blocked_product(&"(3,4):(4,1)".parse()?, &"(2,5):(1,2)".parse()?)?;
//! assert_eq!(repeated.to_string(), "((3,2),(4,5)):((4,12),(1,24))");
//! # Ok::<(), LayoutError>(())
//! ```
//!
//! Strides need not be integers: a layout over [`Coord`] gives coordinates.
//!
//! ```
//! use tilewright_layout::*;
//! let strides = HTuple::Tuple(vec![HTuple::Leaf(Coord::basis(0)), HTuple::Leaf(Coord::basis(1))]);
//! let matrix = Layout::new((8, 8).into(), strides)?;
//! let threads: Layout = "((4,8),2):((16,1),8)".parse()?;
//! assert_eq!(compose(&matrix, &threads)?.to_string(), "((4,8),2):((2e1,e0),e1)");
//! # Ok::<(), LayoutError>(())
//! ```
//!
//! A [`SwizzledLayout`] permutes the offsets of a layout, and [`calc::evaluate`] does all of this from text.

mod algebra;
pub mod calc;
mod error;
mod htuple;
mod layout;
mod stride;
mod swizzle;
mod text;

pub use algebra::*;
pub use error::{Condition, LayoutError};
pub use htuple::{HTuple, MAX_DEPTH, Shape, crd2idx, idx2crd};
pub use layout::Layout;
pub use stride::{Coord, Stride};
pub use swizzle::{Swizzle, SwizzledLayout};
