//! The table of operators whose arguments say more than the sizes: options that follow from types and shapes, and which of several operators computes it.
//!
//! An operator without a row is one all the same: its option `dtype` follows from its first tensor of that type, and its sizes from the shapes.

/// An option that follows from arguments, where the caller does not give it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Derived {
    pub(crate) option: &'static str,
    pub(crate) from: From,
}

/// The origin of an option's value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum From {
    /// The element type of an argument, where the operator has another one.
    Type(&'static str),
    /// An extent of an argument.
    Extent(&'static str, usize),
    /// The last extent of an argument, where it is another than that of a second one.
    Beside(&'static str, &'static str),
    /// The quotient of two extents.
    Ratio([(&'static str, usize); 2]),
    /// This value, where there is an argument of a name.
    With(&'static str, &'static str),
    /// This value, where an argument has so many modes.
    Modes(&'static str, usize, &'static str),
    /// The number of an argument's modes beside so many, and beside one more where an option is given.
    Rank(&'static str, usize, &'static str),
    /// The extents of an argument's modes from one on, or from the next where an option is given, but for the last: joined with `x`, or one number where they are equal.
    Inner(&'static str, usize, &'static str),
}

/// A size of the problem that is no size of the programs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told {
    /// An extent of an argument.
    Extent(&'static str, usize),
    /// An extent of an argument times an option.
    Times(&'static str, usize, &'static str),
}

/// An operator of the library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The operators that compute it: the first that the GPU runs, and that has kernels for it.
    pub(crate) of: &'static [&'static str],
    pub(crate) options: &'static [Derived],
    pub(crate) sizes: &'static [(&'static str, Told)],
    /// Tensors whose first two modes are one mode of some of the kernels.
    pub(crate) joined: &'static [&'static str],
}

/// A row that says nothing.
pub(crate) const NOTHING: Row = Row { name: "", of: &[], options: &[], sizes: &[], joined: &[] };

const fn derived(option: &'static str, from: From) -> Derived {
    Derived { option, from }
}

/// Heads of attention.
const HEADS: [Derived; 2] = [derived("d", From::Extent("q", 3)), derived("dv", From::Beside("v", "q"))];
const LSE: Derived = derived("lse", From::With("lse", "true"));

const ATTENTION: &[Derived] = &[
    HEADS[0],
    HEADS[1],
    LSE,
    derived("out", From::Type("o")),
    derived("bias", From::With("bias", "true")),
    derived("sink", From::With("sinks", "true")),
    derived("alibi", From::With("slopes", "true")),
];

/// The rows.
pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "gemm",
        of: &["gemm_hopper", "gemm"],
        options: &[
            derived("dtype_b", From::Type("b")),
            derived("out", From::Type("c")),
            derived("batch", From::Modes("c", 3, "packed")),
            derived("sparse", From::With("meta", "true")),
            derived("scales", From::Type("a_scale")),
            derived("sums_a", From::With("sums_a", "true")),
        ],
        ..NOTHING
    },
    Row {
        name: "gemm_fp8_blocks",
        of: &["gemm_fp8_blocks"],
        options: &[
            derived("a", From::Type("a")),
            derived("b", From::Type("b")),
            derived("out", From::Type("c")),
        ],
        ..NOTHING
    },
    Row {
        name: "gemm_weights",
        of: &["gemm_weights"],
        options: &[
            derived("weights", From::Type("w")),
            derived("activations", From::Type("a")),
            derived("scale", From::Type("s")),
            derived("zeros", From::With("z", "true")),
            derived("upper", From::Type("h")),
        ],
        ..NOTHING
    },
    Row { name: "w4a16", of: &["w4a16"], options: &[derived("zeros", From::With("z", "true"))], ..NOTHING },
    Row {
        name: "repack_weights",
        of: &["repack_weights"],
        options: &[derived("weights", From::Type("x"))],
        ..NOTHING
    },
    Row {
        name: "contraction",
        of: &["contraction"],
        options: &[derived("dtype_b", From::Type("b")), derived("out", From::Type("c"))],
        ..NOTHING
    },
    Row {
        name: "conv_hopper",
        of: &["conv_hopper"],
        options: &[
            derived("dims", From::Rank("x", 2, "groups")),
            derived("dims", From::Rank("dy", 2, "groups")),
            derived("filter", From::Inner("f", 1, "groups")),
            derived("filter", From::Inner("df", 1, "groups")),
            derived("out", From::Type("y")),
            derived("out", From::Type("dx")),
            derived("out", From::Type("df")),
        ],
        ..NOTHING
    },
    Row { name: "attention", of: &["attention", "attention_sm80"], options: ATTENTION, ..NOTHING },
    Row { name: "attention_backward", of: &["attention_backward"], options: ATTENTION, ..NOTHING },
    Row {
        name: "attention_decode",
        of: &["attention_decode"],
        options: &[
            HEADS[0],
            HEADS[1],
            LSE,
            derived("group", From::Ratio([("q", 2), ("k", 2)])),
            derived("group", From::Ratio([("q", 2), ("kc", 2)])),
            derived("dv", From::Beside("vc", "q")),
            derived("page", From::Extent("kc", 1)),
            derived("kv", From::Type("k")),
            derived("kv", From::Type("kc")),
        ],
        sizes: &[
            ("heads", Told::Extent("k", 2)),
            ("heads", Told::Extent("kc", 2)),
            ("sk", Told::Times("table", 1, "page")),
        ],
        joined: &["kc", "vc"],
    },
    Row { name: "rope", of: &["rope"], options: &[derived("d", From::Extent("x", 2))], ..NOTHING },
    Row {
        name: "rope_interleaved",
        of: &["rope_interleaved"],
        options: &[derived("d", From::Extent("x", 2))],
        ..NOTHING
    },
    Row { name: "topk", of: &["topk"], options: &[derived("k", From::Extent("v", 1))], ..NOTHING },
    Row {
        name: "moe_routing",
        of: &["moe_routing"],
        options: &[
            derived("experts", From::Extent("x", 1)),
            derived("k", From::Extent("ids", 1)),
            derived("bias", From::With("bias", "true")),
        ],
        ..NOTHING
    },
    Row {
        name: "moe_sort",
        of: &["moe_sort"],
        options: &[derived("experts", From::Extent("ends", 0)), derived("map", From::With("map", "true"))],
        ..NOTHING
    },
    Row {
        name: "moe_quantise_rows",
        of: &["moe_quantise_rows"],
        options: &[derived("out", From::Type("y")), derived("gather", From::With("rows", "true"))],
        ..NOTHING
    },
    Row {
        name: "moe_combine",
        of: &["moe_combine"],
        options: &[derived("k", From::Extent("weights", 1))],
        ..NOTHING
    },
];
