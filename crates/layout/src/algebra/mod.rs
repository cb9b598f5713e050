//! The algebra of layouts (paper section 3). Layouts are functions from coordinates to values; `compose(a, b)` applies
//! `b` first. One file an operation; each states its law.

mod coalesce;
mod common;
mod complement;
mod compose;
mod coordinate;
mod divide;
mod f2;
mod injective;
mod inverse;
mod product;
mod profile;
mod reshape;
mod tiler;

pub use coalesce::{coalesce, coalesce_by, filter_zeros, squeeze};
pub use common::{admissible, max_alignment, max_common_layout, max_common_vector, nullspace};
pub use complement::{complement, complement_unbounded};
pub(crate) use compose::assemble;
pub use compose::{compose, compose_by_mode, compose_coordinates};
pub use coordinate::{
    complement_coordinates, inverse_coordinates, left_inverse_coordinates, logical_divide_coordinates,
    logical_product_coordinates, right_inverse_coordinates,
};
pub use divide::{
    flat_divide, flat_divide_by_mode, logical_divide, logical_divide_by_mode, tiled_divide,
    tiled_divide_by_mode, zipped_divide, zipped_divide_by_mode,
};
pub use f2::{compose_f2, from_f2, inverse_f2, left_inverse_f2, nullspace_f2, right_inverse_f2, to_f2};
pub use injective::injective_within;
pub use inverse::{inverse, left_inverse, right_inverse};
pub use product::{
    blocked_product, flat_product, logical_product, raked_product, tiled_product, zipped_product,
};
pub use profile::by_profile;
pub use reshape::{recast, tile_to_shape};
pub use tiler::{
    Tiler, blocked_product_tiler, by_mode, compose_tiler, flat_divide_tiler, flat_product_tiler,
    logical_divide_tiler, logical_product_tiler, raked_product_tiler, tiled_divide_tiler,
    tiled_product_tiler, zipped_divide_tiler, zipped_product_tiler,
};
