//! The kernels ahead of a contraction whose factors are not contiguous as products of matrices need them, and the one behind a product whose result
//! is not: each copies a tensor in another order of its indices, as the permutations of a contraction by transposition do (TTGT), but only where a nested
//! view costs more.

use std::fmt;
use std::str::FromStr;

use tilewright_machine::DType;
use tilewright_tile::dsl::{Buffer, KernelBuilder, Reference, block_x, tile};
use tilewright_tile::{Expr, Program};

use super::plan::extent_name;
use crate::config::ConfigError;
use crate::warp_specialized::digits;

/// Elements of a block's tile along the contiguous modes of both orders, and its threads.
const SIDE: i64 = 32;
const THREADS: i64 = 128;

/// The tensors of a contraction that kernels of their own copy in another order of their indices.
///
/// The text form is `none`, or their letters: `a`, `bc`, `abc`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Permute {
    /// The first factor, ahead of the product, to `permuted_a`.
    pub a: bool,
    /// The second factor, ahead of the product, to `permuted_b`.
    pub b: bool,
    /// The result, behind the product, from `permuted_c`.
    pub c: bool,
}

impl Permute {
    /// Every choice, those of fewer tensors and those without the result first.
    pub const ALL: [Permute; 8] = {
        const fn of(a: bool, b: bool, c: bool) -> Permute {
            Permute { a, b, c }
        }
        [
            of(false, false, false),
            of(true, false, false),
            of(false, true, false),
            of(true, true, false),
            of(false, false, true),
            of(true, false, true),
            of(false, true, true),
            of(true, true, true),
        ]
    };

    /// Returns whether no tensor is permuted.
    pub fn is_none(self) -> bool {
        self == Permute::default()
    }

    /// Returns whether a is permuted, whether b is, and whether c is.
    pub(super) fn tensors(self) -> [bool; 3] {
        [self.a, self.b, self.c]
    }

    /// Returns whether it permutes every tensor that the other does.
    pub(super) fn covers(self, other: Permute) -> bool {
        (self.a || !other.a) && (self.b || !other.b) && (self.c || !other.c)
    }
}

impl fmt::Display for Permute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        let names = [(self.a, "a"), (self.b, "b"), (self.c, "c")];
        names.iter().filter(|(permuted, _)| *permuted).try_for_each(|(_, name)| f.write_str(name))
    }
}

impl FromStr for Permute {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Permute::ALL.into_iter().find(|permute| permute.to_string() == text);
        found.ok_or("must be none, or letters of a, b and c, in this order: a, bc, abc")
    }
}

/// A tensor in two orders of its indices.
pub(super) struct Permutation {
    /// The modes of the tensor that is read: indices that stay together, outermost first.
    pub modes: Vec<String>,
    /// The numbers of these modes in the other order.
    order: Vec<usize>,
}

impl Permutation {
    /// The permutation between two orders of the same indices; `None` where they are the same.
    pub fn of(from: &[char], to: &[char]) -> Option<Self> {
        let place = |letter: &char| to.iter().position(|other| other == letter);
        let mut modes: Vec<String> = Vec::new();
        let mut places: Vec<usize> = Vec::new();
        let mut before = None;
        for letter in from {
            let at = place(letter)?;
            match modes.last_mut() {
                Some(mode) if before.is_some_and(|before: usize| before + 1 == at) => mode.push(*letter),
                _ => {
                    modes.push(letter.to_string());
                    places.push(at);
                }
            }
            before = Some(at);
        }
        let mut order: Vec<usize> = (0..modes.len()).collect();
        order.sort_by_key(|mode| places[*mode]);
        (modes.len() > 1).then_some(Permutation { modes, order })
    }

    /// The kernel of a tensor of this name, from one buffer to another.
    pub fn program(&self, name: &str, [from, to]: [&str; 2], dtype: DType) -> Result<Program, ConfigError> {
        let mut t = KernelBuilder::new(&format!("permute_{name}"));
        let extents: Vec<Expr> = self.modes.iter().map(|mode| t.size(&extent_name(mode), SIDE)).collect();
        let permuted: Vec<Expr> = self.order.iter().map(|mode| extents[*mode].clone()).collect();
        let from = t.tensor(from, dtype, extents.clone());
        let to = t.tensor(to, dtype, permuted);
        let (source, target) = (self.modes.len() - 1, self.order[self.order.len() - 1]);
        // The mode beside the contiguous one, where it is the same in both orders.
        let beside = self.order[self.order.len() - 2];
        let down = if target == source { beside } else { target };
        let side = |mode: usize| if mode == source || mode == down { SIDE } else { 1 };
        let counts: Vec<Expr> = extents.iter().enumerate().map(|(mode, n)| n.ceil_div(side(mode))).collect();
        t.grid([counts.iter().fold(1.into(), |all: Expr, count| all * count)]);
        t.threads(THREADS);
        let at: Vec<Expr> =
            digits(&block_x(), &counts).iter().enumerate().map(|(mode, digit)| digit * side(mode)).collect();
        let place = |mode: usize| self.order.iter().position(|other| *other == mode).unwrap_or(0) as u32;
        let to_at: Vec<Expr> = self.order.iter().map(|mode| at[*mode].clone()).collect();
        let (rows, columns) = (tile(down as u32, SIDE), tile(source as u32, SIDE));
        let gx = t.global_view("gx", from.from(at), [rows, columns]);
        t.wait_dependencies();
        let view = |t: &mut KernelBuilder, to: &Buffer, modes: [usize; 2]| {
            let modes = modes.map(|mode| tile(place(mode), side(mode)));
            t.global_view("gy", to.from(to_at.clone()), modes)
        };
        if target == source {
            let gy = view(&mut t, &to, [down, source]);
            let values = t.register_tensor("r", dtype, [SIDE, SIDE]);
            t.copy(gx, values);
            t.copy(values, gy);
        } else {
            let gy = view(&mut t, &to, [source, target]);
            let staged = t.shared_tensor("s", dtype, [SIDE, SIDE]);
            let values = t.register_tensor("r", dtype, [SIDE, SIDE]);
            t.copy(gx, staged);
            t.syncthreads();
            t.copy(Reference::from(staged).transpose(), values);
            t.copy(values, gy);
        }
        t.launch_dependents();
        Ok(t.finish()?)
    }
}

/// The workspace that a permuted tensor is in.
pub(super) fn permuted_name(tensor: &str) -> String {
    format!("permuted_{tensor}")
}
