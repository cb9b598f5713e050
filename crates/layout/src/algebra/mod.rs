//! The algebra of layouts (paper section 3). Layouts are functions from coordinates to values; `compose(a, b)` applies
//! `b` first. One file an operation; each states its law.

mod coalesce;
mod complement;
mod compose;
mod divide;
mod injective;
mod inverse;
mod product;

pub use coalesce::{coalesce, coalesce_by};
pub use complement::{complement, complement_unbounded};
pub use compose::{compose, compose_by_mode};
pub use divide::{
    flat_divide, flat_divide_by_mode, logical_divide, logical_divide_by_mode, tiled_divide,
    tiled_divide_by_mode, zipped_divide, zipped_divide_by_mode,
};
pub(crate) use injective::injective_within;
pub use inverse::{inverse, left_inverse, right_inverse};
pub use product::{
    blocked_product, flat_product, logical_product, raked_product, tiled_product, zipped_product,
};
