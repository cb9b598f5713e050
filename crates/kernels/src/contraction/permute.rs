//! The kernels ahead of a contraction whose factors are not contiguous as products of matrices need them: each copies a factor in another order of its
//! indices, as the permutations of a contraction by transposition do (TTGT), but only where a nested view costs more.

use tilewright_machine::DType;
use tilewright_tile::dsl::{Buffer, KernelBuilder, Reference, block_x, tile};
use tilewright_tile::{Expr, Program};

use super::plan::extent_name;
use crate::config::ConfigError;
use crate::warp_specialized::digits;

/// Elements of a block's tile along the contiguous modes of both orders, and its threads.
const SIDE: i64 = 32;
const THREADS: i64 = 128;

/// A factor in two orders of its indices.
pub(super) struct Permutation {
    /// The modes of the factor as it is given: indices that stay together, outermost first.
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

    /// `permuted_a` from `a`, or of another factor.
    pub fn program(&self, name: &str, dtype: DType) -> Result<Program, ConfigError> {
        let mut t = KernelBuilder::new(&format!("permute_{name}"));
        let extents: Vec<Expr> = self.modes.iter().map(|mode| t.size(&extent_name(mode), SIDE)).collect();
        let permuted: Vec<Expr> = self.order.iter().map(|mode| extents[*mode].clone()).collect();
        let from = t.tensor(name, dtype, extents.clone());
        let to = t.tensor(&permuted_name(name), dtype, permuted);
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

/// The workspace that a permuted factor is in.
pub(super) fn permuted_name(factor: &str) -> String {
    format!("permuted_{factor}")
}
