//! Contractions of two tensors (GETT): `einsum` text, its indices folded into as few modes as the tensors allow, and each group of modes a
//! nested mode of a matrix product (*CuTe Layout Representation and Algebra*, sections 1.3 and 2.6.2, table 3).

mod config;
mod einsum;
mod fold;
mod permute;
mod plan;
mod reference;
mod space;
mod tile;

pub use config::ContractionConfig;
pub use einsum::{Einsum, EinsumError, Group, Operand};
pub use fold::{Folded, Mode, Sizes, Strides};
pub use permute::Permute;
pub use plan::Plan;
pub use reference::reference;
pub(crate) use space::TUNING;
pub use tile::TileExtents;
