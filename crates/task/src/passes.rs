//! The passes from the instantiated tree to a graph that can be emitted, in their order.

pub mod depend;
pub mod discipline;
pub mod join;
pub mod place;
pub mod synchronise;
