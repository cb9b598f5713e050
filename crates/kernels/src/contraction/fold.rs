//! Folding: indices that lie in one run in every tensor that has them become one mode, by [`coalesce`], and each group of modes one
//! nested mode (the CuTe paper's multi-modes, section 1.3 and table 3).

use std::collections::BTreeMap;

use tilewright_layout::{HTuple, Layout, coalesce};

use super::einsum::{Einsum, EinsumError, Group, Operand};

/// Sizes of indices, by letter.
pub type Sizes = BTreeMap<char, i64>;

/// Strides of the first operand, the second one and the result, in elements, one an index in its order; `None`: row-major.
pub type Strides<'a> = [Option<&'a [i64]>; 3];

/// A mode of a folded contraction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mode {
    /// Its indices, outermost first.
    pub letters: String,
    /// The product of their sizes.
    pub extent: i64,
    /// The elements from one to the next in each tensor; `None` in the one that does not have it.
    pub strides: [Option<i64>; 3],
}

/// A contraction with as few modes as its tensors allow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Folded {
    /// The modes of M, N, K and L. The first of a group is the fastest; a group without indices has none.
    pub groups: [Vec<Mode>; 4],
}

/// Elements of a tensor, at most.
const MOST_ELEMENTS: i64 = 1 << 62;

impl Einsum {
    /// The strides of a tensor, one an index.
    fn strides(
        &self,
        operand: Operand,
        sizes: &Sizes,
        given: Option<&[i64]>,
    ) -> Result<Vec<i64>, EinsumError> {
        let indices = self.indices(operand);
        if let Some(given) = given {
            if given.len() != indices.len() {
                let (found, wanted) = (given.len(), indices.len());
                return Err(EinsumError::Strides { operand, found, wanted });
            }
            return match indices.iter().zip(given).find(|(_, stride)| **stride < 1) {
                Some((letter, stride)) => {
                    Err(EinsumError::Stride { letter: *letter, operand, stride: *stride })
                }
                None => Ok(given.to_vec()),
            };
        }
        let (mut next, mut strides) = (1i64, vec![0; indices.len()]);
        for (i, letter) in indices.iter().enumerate().rev() {
            strides[i] = next;
            let all = next.checked_mul(sizes[letter]).filter(|all| *all <= MOST_ELEMENTS);
            next = all.ok_or(EinsumError::TooLarge { operand })?;
        }
        Ok(strides)
    }

    /// Checks that every index has a size and nothing else has.
    pub(super) fn check_sizes(&self, sizes: &Sizes) -> Result<(), EinsumError> {
        let letters = self.letters();
        if let Some(letter) = sizes.keys().find(|letter| !letters.contains(letter)) {
            return Err(EinsumError::NoIndex { letter: *letter, einsum: self.to_string() });
        }
        for letter in letters {
            match sizes.get(&letter) {
                None => return Err(EinsumError::NoSize { letter }),
                Some(size) if *size < 1 => return Err(EinsumError::Size { letter, size: *size }),
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// The contraction at these sizes and strides with as few modes as can be: indices of size 1 are left out, and those that continue each
    /// other in every tensor that has them are one mode.
    ///
    /// ```
    /// use tilewright_kernels::contraction::{Einsum, Group};
    /// let einsum: Einsum = "bhqd,bhkd->bhqk".parse()?;
    /// let sizes = [('b', 2), ('h', 4), ('q', 128), ('k', 256), ('d', 64)].into();
    /// let folded = einsum.fold(&sizes, [None; 3])?;
    /// let batches = folded.group(Group::L);
    /// assert_eq!((batches[0].letters.as_str(), batches[0].extent), ("bh", 8));
    /// # Ok::<(), tilewright_kernels::contraction::EinsumError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Sizes that are missing, below 1 or of no index; strides below 1 or of another number than the indices; tensors of more than 2⁶²
    /// elements.
    pub fn fold(&self, sizes: &Sizes, strides: Strides<'_>) -> Result<Folded, EinsumError> {
        self.check_sizes(sizes)?;
        let [a, b, c] = [0, 1, 2].map(|i| self.strides(Operand::ALL[i], sizes, strides[i]));
        let strides = [a?, b?, c?];
        let stride = |operand: Operand, letter: char| {
            let at = self.indices(operand).iter().position(|other| *other == letter)?;
            Some(strides[operand as usize][at])
        };
        let mode = |letter: char| Mode {
            letters: letter.to_string(),
            extent: sizes[&letter],
            strides: Operand::ALL.map(|operand| stride(operand, letter)),
        };
        let mut groups: [Vec<Mode>; 4] = Group::ALL.map(|group| {
            let letters = self.letters().into_iter().filter(|letter| self.group(*letter) == Some(group));
            letters.map(mode).filter(|mode| mode.extent > 1).collect()
        });
        groups.iter_mut().for_each(merge);
        let folded = Folded { groups };
        Ok(Folded { groups: Group::ALL.map(|group| folded.ordered(group)) })
    }
}

/// Merges modes of a group that continue each other, until none do.
fn merge(modes: &mut Vec<Mode>) {
    let pair = |modes: &[Mode]| {
        let all = (0..modes.len()).flat_map(|inner| (0..modes.len()).map(move |outer| (inner, outer)));
        all.into_iter().find(|(inner, outer)| inner != outer && modes[*inner].continued_by(&modes[*outer]))
    };
    while let Some((inner, outer)) = pair(modes) {
        let (letters, extent) = (modes[outer].letters.clone(), modes[outer].extent);
        modes[inner].letters.insert_str(0, &letters);
        modes[inner].extent *= extent;
        modes.remove(outer);
    }
}

impl Mode {
    /// Returns whether the other mode goes on where this one ends, in every tensor.
    fn continued_by(&self, outer: &Mode) -> bool {
        let shape = HTuple::from((self.extent, outer.extent));
        self.strides.iter().zip(&outer.strides).all(|both| match both {
            (Some(inner), Some(outer)) => {
                let together = Layout::new(shape.clone(), HTuple::from((*inner, *outer)));
                together.is_ok_and(|layout| coalesce(&layout).leaves().len() == 1)
            }
            (None, None) => true,
            _ => false,
        })
    }
}

impl Folded {
    /// The modes of a group, fastest first.
    pub fn group(&self, group: Group) -> &[Mode] {
        &self.groups[group as usize]
    }

    /// The mode that is contiguous in a tensor, if one is.
    pub fn contiguous(&self, operand: Operand) -> Option<(Group, &Mode)> {
        let all =
            Group::ALL.into_iter().flat_map(|group| self.group(group).iter().map(move |mode| (group, mode)));
        let mut of = all.filter(|(_, mode)| mode.strides[operand as usize] == Some(1));
        of.next()
    }

    /// The modes of a group in the order in which a tile has them: by the strides of a factor that is contiguous along the group, where there
    /// is one, else of a tensor that is.
    fn ordered(&self, group: Group) -> Vec<Mode> {
        let leads = match group {
            Group::M => [Operand::A, Operand::C],
            Group::N => [Operand::B, Operand::C],
            Group::K => [Operand::A, Operand::B],
            Group::L => [Operand::C, Operand::A],
        };
        let along = |operand: &&Operand| self.contiguous(**operand).is_some_and(|(of, _)| of == group);
        let lead = *leads.iter().find(along).unwrap_or(&leads[1]) as usize;
        let mut modes = self.group(group).to_vec();
        modes.sort_by_key(|mode| mode.strides[lead]);
        modes
    }

    /// A tensor's layout: two nested modes, of A M and K, of B N and K, of C M and N, and the batches as a third where there are any.
    pub fn layout(&self, operand: Operand) -> Layout {
        let nested = |group: Group, of: &dyn Fn(&Mode) -> i64, none: i64| match self.group(group) {
            [] => HTuple::Leaf(none),
            [one] => HTuple::Leaf(of(one)),
            several => HTuple::Tuple(several.iter().map(|mode| HTuple::Leaf(of(mode))).collect()),
        };
        let all = Group::ALL.into_iter().filter(|group| group.of()[operand as usize]);
        let groups: Vec<Group> =
            all.filter(|group| *group != Group::L || !self.group(Group::L).is_empty()).collect();
        let stride = |mode: &Mode| mode.strides[operand as usize].unwrap_or(0);
        let shape = groups.iter().map(|group| nested(*group, &|mode| mode.extent, 1)).collect();
        let strides = groups.iter().map(|group| nested(*group, &stride, 0)).collect();
        Layout::new(HTuple::Tuple(shape), HTuple::Tuple(strides))
            .expect("shape and strides are made of the same modes")
    }

    /// The product of a group's extents.
    pub fn extent(&self, group: Group) -> i64 {
        self.group(group).iter().map(|mode| mode.extent).product()
    }
}
