//! The matrix product that a contraction is, whatever its sizes: which factor is the first, the modes of each group, and whether these are
//! matrices as `gemm_hopper` has them.

use std::collections::BTreeMap;

use super::einsum::{Einsum, EinsumError, Group, MOST_INDICES, Operand};
use super::fold::{Folded, Sizes};
use crate::gemm_hopper::{Batch, Major};
use crate::warp_specialized::Axis;

/// A contraction of row-major tensors as a matrix product.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The second operand of the text is `a`, and the first is `b`: so are the columns of c, along which it is contiguous, those of `b`.
    pub exchanged: bool,
    /// The contraction with the operands in the order of the product.
    pub einsum: Einsum,
    /// Its modes by letters, for each of M, N, K and L fastest first.
    pub modes: [Vec<String>; 4],
    /// The letters of the modes whose extents kernels that permute have as sizes of their own.
    pub(super) permuted: Vec<String>,
    /// The modes of a, b and c, outermost first.
    axes: [Vec<(Group, usize)>; 3],
}

/// Distinct primes: the products of different sets of them differ, so that what then is contiguous in row-major tensors is so at all sizes.
const WITNESSES: [i64; 2 * MOST_INDICES] =
    [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71];

impl Einsum {
    /// The matrix product that the contraction of row-major tensors is.
    ///
    /// ```
    /// use tilewright_kernels::contraction::Einsum;
    /// // Heads are outside of the rows of c, and not of those of a: the batches are two modes.
    /// let plan = "bqhd,bkhd->bhqk".parse::<Einsum>()?.plan()?;
    /// assert_eq!(plan.modes, [vec!["q"], vec!["k"], vec!["d"], vec!["h", "b"]]);
    /// assert_eq!(plan.matrices(), None);
    /// # Ok::<(), tilewright_kernels::contraction::EinsumError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`fold`](Self::fold): a tensor of very many indices.
    pub fn plan(&self) -> Result<Plan, EinsumError> {
        let last = self.indices(Operand::C).last();
        let exchanged = last.is_some_and(|letter| self.group(*letter) == Some(Group::M));
        let einsum = if exchanged { self.exchanged() } else { self.clone() };
        let folded = einsum.fold_at_any_size()?;
        let modes =
            Group::ALL.map(|group| folded.group(group).iter().map(|mode| mode.letters.clone()).collect());
        let axes = Operand::ALL.map(|operand| {
            let of =
                |group: Group| folded.group(group).iter().enumerate().map(move |(i, mode)| (group, i, mode));
            let mut all: Vec<(Group, usize, i64)> = Group::ALL
                .into_iter()
                .flat_map(of)
                .filter_map(|(group, i, mode)| Some((group, i, mode.strides[operand as usize]?)))
                .collect();
            all.sort_by_key(|(.., stride)| std::cmp::Reverse(*stride));
            all.into_iter().map(|(group, i, _)| (group, i)).collect()
        });
        Ok(Plan { exchanged, einsum, modes, permuted: Vec::new(), axes })
    }

    /// The modes that row-major tensors of any sizes have.
    fn fold_at_any_size(&self) -> Result<Folded, EinsumError> {
        let sizes: Sizes = self.letters().into_iter().zip(WITNESSES).collect();
        self.fold(&sizes, [None; 3])
    }
}

/// The size that is the extent of a mode of these letters.
pub(super) fn extent_name(letters: &str) -> String {
    format!("extent_{letters}")
}

impl Plan {
    /// The modes of a group by letters, fastest first.
    pub fn of(&self, group: Group) -> &[String] {
        &self.modes[group as usize]
    }

    /// The order of a factor's modes in memory, and the batching, where the contraction is a product of `gemm_hopper`: at most one mode a
    /// group, batches outermost in all tensors.
    pub fn matrices(&self) -> Option<([Major; 2], Batch)> {
        if self.modes.iter().any(|modes| modes.len() > 1) {
            return None;
        }
        let outermost = |axes: &Vec<(Group, usize)>| axes.iter().skip(1).all(|(group, _)| *group != Group::L);
        if !self.axes.iter().all(outermost) {
            return None;
        }
        let last = |operand: Operand| self.axes[operand as usize].last().map(|(group, _)| *group);
        let major = |operand: Operand| if last(operand) == Some(Group::K) { Major::K } else { Major::Mn };
        // A factor without rows lies along k, whose stride is then 1 as well.
        let batch = if self.of(Group::L).is_empty() { Batch::None } else { Batch::Packed };
        (last(Operand::C) != Some(Group::M)).then(|| ([major(Operand::A), major(Operand::B)], batch))
    }

    /// The sizes of the programs, by name: the extent of a group of one mode has the group's name, those of several `m0`, `m1`, …, the fastest
    /// first. A product of matrices has `m`, `n` and `k` whatever the groups.
    ///
    /// # Errors
    ///
    /// Sizes that are missing, below 1 or of no index.
    pub fn program_sizes(&self, sizes: &Sizes) -> Result<BTreeMap<String, i64>, EinsumError> {
        self.einsum.check_sizes(sizes)?;
        let extents = self.extents(sizes);
        let matrices = self.matrices().is_some();
        let of_group = |group: Group| {
            let (name, extents) = (group.name(), &extents[group as usize]);
            match extents.as_slice() {
                [] if matrices && group != Group::L => vec![(name.to_string(), 1)],
                [one] => vec![(name.to_string(), *one)],
                several => {
                    several.iter().enumerate().map(|(i, extent)| (format!("{name}{i}"), *extent)).collect()
                }
            }
        };
        let extent = |letters: &String| {
            let product = letters.chars().map(|letter| sizes[&letter]).fold(1, i64::saturating_mul);
            (extent_name(letters), product)
        };
        Ok(Group::ALL.into_iter().flat_map(of_group).chain(self.permuted.iter().map(extent)).collect())
    }

    /// The extents of the modes of M, N, K and L, fastest first, for sizes of all letters.
    pub(super) fn extents(&self, sizes: &Sizes) -> [Vec<i64>; 4] {
        let extent =
            |letters: &String| letters.chars().map(|letter| sizes[&letter]).fold(1, i64::saturating_mul);
        self.modes.each_ref().map(|modes| modes.iter().map(extent).collect())
    }

    /// The modes of a tensor, outermost first. A group of its rows or columns without modes is one of extent 1.
    pub(super) fn axes(&self, operand: Operand) -> Vec<Axis> {
        let absent = Group::ALL
            .into_iter()
            .filter(|group| *group != Group::L && group.of()[operand as usize] && self.of(*group).is_empty());
        let absent = absent.map(|group| Axis { group, mode: 0 });
        absent
            .chain(
                self.axes[operand as usize].iter().map(|(group, mode)| Axis { group: *group, mode: *mode }),
            )
            .collect()
    }

    /// The group along which a tensor is contiguous, and the number of its mode.
    pub(super) fn contiguous(&self, operand: Operand) -> Option<(Group, usize)> {
        self.axes[operand as usize].last().copied()
    }
}
