//! The tensors that the programs of operators leave for each other, or for their own next launch: no operands, but a workspace.

use crate::operators::Operator;

/// A tensor of a workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workspace {
    /// The parameter's name.
    pub name: &'static str,
    /// Its contents before the first program.
    pub before: Before,
}

/// The contents of a workspace before the first program of an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// Anything.
    Anything,
    /// Zeros.
    Zeros,
    /// Zeros at the first launch, and those that each launch leaves.
    ZerosLeft,
}

const fn anything(name: &'static str) -> Workspace {
    Workspace { name, before: Before::Anything }
}

const fn zeros(name: &'static str) -> Workspace {
    Workspace { name, before: Before::Zeros }
}

const fn zeros_left(name: &'static str) -> Workspace {
    Workspace { name, before: Before::ZerosLeft }
}

/// Sums of parts that a second program adds up.
const PARTIAL: &[Workspace] = &[anything("partial")];
/// The same of a norm's backward pass, with what its first program knows of each row.
const NORM: &[Workspace] = &[anything("partial"), anything("partial_b"), anything("mean"), anything("scale")];
/// Shares that blocks leave for the last one.
const WHOLE: &[Workspace] = &[anything("partial"), zeros_left("arrived")];
/// Of products by TMA and wgmma: factors in another form, sums of parts, counters of tiles that blocks share.
const PRODUCT: &[Workspace] =
    &[anything("packed_a"), anything("packed_b"), anything("partial"), zeros_left("done")];

/// The latter alone.
const SHARED_TILES: &[Workspace] = &[anything("partial"), zeros_left("done")];
/// The same of contractions, with tensors whose indices are in another order.
const CONTRACTION: &[Workspace] = &[
    anything("packed_a"),
    anything("packed_b"),
    anything("permuted_a"),
    anything("permuted_b"),
    anything("permuted_c"),
    anything("partial"),
    zeros_left("done"),
];

/// The workspaces of the operators that have some, by name.
const WORKSPACES: &[(&str, &[Workspace])] = &[
    ("gemm", PARTIAL),
    ("gemm_hopper", PRODUCT),
    ("gemm_weights", SHARED_TILES),
    ("contraction", CONTRACTION),
    (
        "conv_hopper",
        &[
            anything("packed_x"),
            anything("packed_f"),
            anything("packed_df"),
            anything("partial"),
            zeros_left("done"),
        ],
    ),
    ("attention", &[anything("vt")]),
    ("attention_decode", &[anything("po"), anything("pl")]),
    ("attention_backward", &[anything("stats"), anything("sums")]),
    ("moe_sort", &[anything("counted")]),
    ("rmsnorm_backward", NORM),
    ("add_rmsnorm_backward", NORM),
    ("layernorm_backward", NORM),
    ("add_layernorm_backward", NORM),
    ("sum_columns", PARTIAL),
    ("mean_columns", PARTIAL),
    ("max_columns", PARTIAL),
    ("gemv_transposed", PARTIAL),
    ("sum_all", WHOLE),
    ("max_all", WHOLE),
    ("linear_cross_entropy", &[anything("tops"), anything("sums"), anything("chosen")]),
    ("linear_cross_entropy_backward", &[anything("g"), zeros("meet")]),
];

impl Operator {
    /// The tensors of its programs that are no operands.
    pub fn workspaces(&self) -> &'static [Workspace] {
        WORKSPACES.iter().find(|(name, _)| *name == self.name).map_or(&[], |(_, tensors)| tensors)
    }
}
