//! Placement.

pub mod equations;
