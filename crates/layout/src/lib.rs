//! Hierarchical layouts over integer-semimodules and their algebra. A layout maps coordinates, which count
//! colexicographically (leftmost fastest), to offsets; `compose(a, b)` is `a ∘ b`, which applies `b` first.
//!
//! The crate follows *CuTe Layout Representation and Algebra*; "paper" in these pages means that one. It knows no GPU.
//! This page teaches the algebra from loops to division into tiles; every example runs.
//!
//! # From loops to layouts (paper 1.2)
//!
//! `for (i = 0; i < 17; ++i) (A + 2)[3*i]` visits 17 places, 3 apart. That is a *shape*, 17, and a *stride*, 3; together
//! a layout, written `shape:stride`. Two nested loops have two extents and two strides, and strides that are not known
//! yet are symbols:
//!
//! ```
//! use tilewright_layout::*;
//! let one: Layout = "17:3".parse()?;
//! assert_eq!((one.eval(0), one.eval(1), one.eval(16)), (0, 3, 48));
//! // for j < 20: for i < 4: A[5*p*i + 2*q*j]
//! let two: Layout<Poly> = "(4,20):(5*p,2*q)".parse()?;
//! assert_eq!(two.eval_coord(&(3, 1).into())?.to_string(), "15*p+2*q");
//! // The same loops as one loop over k < 80: i = k mod 4, j = k / 4.
//! assert_eq!(two.eval(7), two.eval_coord(&(3, 1).into())?);
//! # Ok::<(), LayoutError>(())
//! ```
//!
//! # Coordinates (paper 2.2)
//!
//! The last line above is the heart of the matter: a shape takes coordinates of several kinds. Integers count the
//! leftmost mode fastest. Modes may nest, and then there are kinds in between. All of them name the same element:
//!
//! ```
//! use tilewright_layout::*;
//! let l: Layout = "((2,2),(4,2)):((1,8),(2,16))".parse()?;
//! for coord in [HTuple::from(22), (2, 5).into(), ((0, 1), (1, 1)).into()] {
//!     assert_eq!(natural_coordinate(&coord, l.shape())?, ((0, 1), (1, 1)).into());
//!     assert_eq!(l.eval_coord(&coord)?, 8 + 2 + 16);
//! }
//! // One shape is compatible with a finer one when all its coordinates are coordinates of that one, too.
//! assert!(HTuple::from((4, 8)).compatible(l.shape()));
//! # Ok::<(), LayoutError>(())
//! ```
//!
//! # Strides need not be integers (paper 2.3)
//!
//! All that a stride must allow is to be added and to be scaled by integers: see [`Stride`]. Over [`Coord`] a layout
//! gives coordinates, `e1` being the coordinate (0,1); over [`F2`] it adds by exclusive or, which swizzles; over [`Poly`]
//! it is symbolic.
//!
//! ```
//! use tilewright_layout::*;
//! let coordinates: Layout<Coord> = "(4,(4,2)):(e1,(e0,6e1))".parse()?;
//! assert_eq!(coordinates.eval_coord(&(3, 5).into())?.to_string(), "e0+9e1");
//! let swizzle: Layout<F2> = "(4,4):(f1,f5)".parse()?;
//! assert_eq!(swizzle.eval_coord(&(1, 1).into())?, F2(1 ^ 5));
//! // A layout is a matrix applied to the natural coordinate (table 1); for F2, to its bits.
//! assert_eq!(coordinates.linear_form().1, [[0, 1, 0], [1, 0, 6]]);
//! assert_eq!(swizzle.linear_form()?[0], [1, 0, 1, 0]);
//! # Ok::<(), LayoutError>(())
//! ```
//!
//! # Tensors (paper 2.5, 2.6)
//!
//! An [`Accessor`] behind a layout makes a [`Tensor`]: full coordinates give values, coordinates with holes give
//! sub-tensors. [`copy`] and [`gemm`] are written once, and the layouts make them a transpose or a convolution:
//!
//! ```
//! use tilewright_layout::*;
//! let a = Tensor::new(Counting(0), "((3,2),((2,3),2)):((4,1),((2,15),100))".parse::<Layout>()?);
//! assert_eq!(a.get(&(2, 5).into())?, 40);
//! assert_eq!(a.slice(&"(2,_)".parse()?)?.to_string(), "{8} o ((2,3),2):((2,15),100)");
//! let (rows, mut columns) = ([1, 2, 3, 4, 5, 6], [0; 6]);
//! let src = Tensor::new(Pointer::new(&rows), "(2,3):(3,1)".parse::<Layout>()?);
//! copy(&src, &Tensor::new(PointerMut::new(&mut columns), "(2,3):(1,2)".parse::<Layout>()?))?;
//! assert_eq!(columns, [1, 4, 2, 5, 3, 6]);
//! # Ok::<(), LayoutError>(())
//! ```
//!
//! # Coalescing (paper 3.2)
//!
//! Read as a function of integers, a layout may need fewer modes than it has:
//!
//! ```
//! use tilewright_layout::*;
//! let l: Layout = "(2,(1,6)):(1,(6,2))".parse()?;
//! assert_eq!(coalesce(&l).to_string(), "12:1");
//! assert_eq!(coalesce_by(&l, &HTuple::from((0, 0)))?.to_string(), "(2,6):(1,2)"); // each mode by itself
//! # Ok::<(), LayoutError>(())
//! ```
//!
//! # Composition (paper 3.3)
//!
//! Loops are transformed by layouts: `a ∘ b` is `a` with the coordinates that `b` gives. Here the elements of a row-major
//! 8×8 matrix as the 32 threads of a tensor core hold them, two each:
//!
//! ```
//! use tilewright_layout::*;
//! let matrix: Layout = "(8,8):(8,1)".parse()?; // coordinate -> offset
//! let threads: Layout = "((4,8),2):((16,1),8)".parse()?; // (thread, value) -> coordinate
//! assert_eq!(compose(&matrix, &threads)?.to_string(), "((4,8),2):((2,8),1)"); // (thread, value) -> offset
//! // The same transformation of a layout of coordinates says which element each thread holds.
//! let names: Layout<Coord> = "(8,8):(e0,e1)".parse()?;
//! assert_eq!(compose(&names, &threads)?.to_string(), "((4,8),2):((2e1,e0),e1)");
//! // Not every composition is a layout; one that is not is an error, never a wrong layout.
//! let error = compose(&"(4,6,8):(2,3,5)".parse::<Layout>()?, &"6:3".parse()?).unwrap_err();
//! assert!(matches!(error, LayoutError::Composition { condition: Condition::StrideDivisibility, mode: 0, .. }));
//! # Ok::<(), LayoutError>(())
//! ```
//!
//! `tilewright layout '((4,8),2):((16,1),8)' --draw svg --tile 8,8` draws those threads and values on the matrix:
//!
#![doc = include_str!("../pictures/threads.svg")]
//!
//! A [`Tiler`] applies by mode: `<4:1,8:2>` takes the first four rows and every other column.
//!
//! ```
//! use tilewright_layout::*;
//! let tile = compose_tiler(&"(8,16):(20,1)".parse::<Layout>()?, &"<4:1,8:2>".parse()?)?;
//! assert_eq!(tile.to_string(), "(4,8):(20,2)");
//! # Ok::<(), LayoutError>(())
//! ```
//!
//! # Inverses (paper 3.4)
//!
//! [`right_inverse`], [`left_inverse`] and [`inverse`] lead from offsets back to coordinates. The right inverse knows
//! which elements are contiguous, so two of them know how wide a copy can be; the left inverse knows where offsets lie:
//!
//! ```
//! use tilewright_layout::*;
//! assert_eq!(right_inverse(&"(4,8):(8,1)".parse()?).to_string(), "(8,4):(4,1)");
//! assert_eq!(max_common_vector(&"((2,2),8):((1,16),2)".parse()?, &"(4,8):(1,4)".parse()?), 2);
//! assert_eq!(admissible(&"(4,8):(1,5)".parse()?, &"(2,2):(5,1)".parse()?)?.to_string(), "(2,2):(4,1)");
//! # Ok::<(), LayoutError>(())
//! ```
//!
//! # Complement, product and divide (paper 3.5)
//!
//! The [`complement`] leads to what a layout leaves out. Repeat a tile along its complement and you have a product;
//! compose a layout with a tile and the tile's complement and you have split it into tiles and the grid of them:
//!
//! ```
//! use tilewright_layout::*;
//! assert_eq!(complement(&"8:3".parse()?, 24)?.to_string(), "3:1");
//! let repeated = blocked_product(&"(3,4):(4,1)".parse()?, &"(2,5):(1,2)".parse()?)?;
//! assert_eq!(repeated.to_string(), "((3,2),(4,5)):((4,12),(1,24))");
//! let third = logical_divide(&"24:3".parse::<Layout>()?, &"8:3".parse()?)?;
//! assert_eq!(third.to_string(), "(8,3):(9,3)"); // (every third element, which of the three)
//! let tiles = zipped_divide_tiler(&"(8,16):(20,1)".parse::<Layout>()?, &"<4:1,8:2>".parse()?)?;
//! assert_eq!(tiles.to_string(), "((4,8),(2,2)):((20,2),(80,1))"); // (tile, grid of tiles)
//! // The tile of block (1,0), sliced out of the tensor.
//! let mine = Tensor::new(Counting(0), tiles).slice(&"(_,(1,0))".parse()?)?;
//! assert_eq!(mine.to_string(), "{80} o (4,8):(20,2)");
//! # Ok::<(), LayoutError>(())
//! ```
//!
//! A [`SwizzledLayout`] permutes the offsets of a layout, and the crate `tilewright-layout-calc` does all of this from text.
//!
//! # Bits
//!
//! A layout whose extents are powers of two is a matrix over F2, and a [`LinearLayout`] is one with labelled dimensions ([`bits`] teaches them): which
//! register of which lane holds which element. What CuTe's algebra does not do is done there: conversions between
//! register layouts ([`Reorder`]) and shared memory without bank conflicts ([`optimal_swizzle`]). The accumulator of a matrix
//! instruction, `tilewright layout 'mma((1,1),(16,8))' --draw svg`:
//!
#![doc = include_str!("../pictures/mma.svg")]
//!
//! ```
//! use tilewright_layout::*;
//! let c = LinearLayout::mma(MmaOperand::C, 2, &[1, 1], &[16, 8])?;
//! let rows: LinearLayout =
//!     "[register: (0,1) (0,2); lane: (0,4) (1,0) (2,0) (4,0) (8,0); warp:] -> [dim0:16, dim1:8]".parse()?;
//! let r = Reorder::new(&c, &rows)?;
//! assert_eq!((r.exchange.clone(), r.exchanges()), (Exchange::Lanes, 4)); // four shuffles, no shared memory
//! # Ok::<(), LayoutError>(())
//! ```

mod algebra;
mod algorithms;
pub mod bits;
mod coords;
mod error;
mod htuple;
mod layout;
mod linear;
mod stride;
mod swizzle;
mod tensor;
pub mod text;
pub mod work;

pub use algebra::*;
pub use algorithms::{batched_gemm, copy, gemm};
pub use bits::{
    AffineLayout, Blocked, Dim, Exchange, LinearLayout, MAX_BITS, MAX_DIMS, MmaOperand, NvmmaShared, Reorder,
    SharedAccess, Split, TileBuilder, check_sizes, lane_wavefronts, log2, optimal_swizzle,
    single_element_swizzle, wavefronts,
};
pub use coords::{map_coordinate, natural_coordinate};
pub use error::{Condition, LayoutError};
pub use htuple::{HTuple, MAX_DEPTH, Shape, crd2idx, idx2crd};
pub use layout::Layout;
pub use linear::complete;
pub use stride::{Basis, Coord, F2, Poly, Stride};
pub use swizzle::{Swizzle, SwizzledLayout};
pub use tensor::{
    Accessor, AccessorMut, Counting, Pointer, PointerMut, Recorder, Slice, Tensor, Transform, slice,
};
