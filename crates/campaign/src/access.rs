//! Accesses to shared and global memory, and which of them come one before another without a barrier.

use tilewright::tile::{ParamId, TensorId};

/// A part of a tensor in shared or global memory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Part {
    /// The tensor.
    pub tensor: TensorId,
    /// The parameter, of a view.
    pub param: Option<ParamId>,
    /// By mode the coordinate, where it is fixed and known.
    pub index: Vec<Option<i64>>,
}

impl Part {
    /// True if the two parts may overlap: they are of one tensor, and no mode that both fix differs.
    pub fn meets(&self, other: &Part) -> bool {
        match (self.param, other.param) {
            // Views of one buffer may lie anywhere in it; parts of one view with different indices lie apart.
            (Some(a), Some(b)) if a == b && self.tensor != other.tensor => true,
            _ if self.tensor != other.tensor => false,
            _ => !self
                .index
                .iter()
                .zip(&other.index)
                .any(|(a, b)| matches!((a, b), (Some(a), Some(b)) if a != b)),
        }
    }
}

/// An access.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Access {
    /// The part that is touched.
    pub part: Part,
    /// True if it is written.
    pub writes: bool,
    /// True if the statement is the one that a barrier passed.
    pub passes: bool,
    /// The other side, where it tells which threads do it.
    pub held: Option<Held>,
}

/// The register tensor of a copy from or to shared memory, or of an atomic operation with a value there.
///
/// The threads that hold an element of the operands of an elementwise statement hold it of the result, and of an atomic operation's operands and result the same do (docs/tile-language.md). Of the threads that
/// hold an element the first one stores it, and changes it by an atomic operation; of several that hold it, all get the result behind a barrier. Where the program gives a layout in which one thread holds each
/// element, that thread does all with it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Held {
    /// By the threads that hold a register tensor.
    Tensor {
        /// One of the tensors that the same threads hold.
        holders: TensorId,
        /// True of an atomic operation and of a copy that combines elements.
        changes: bool,
        /// True of an atomic operation, which has a result.
        fetches: bool,
        /// True where one thread holds each element.
        alone: bool,
    },
    /// By an asynchronous product, which a warpgroup does as one, and for which all of its threads wait.
    Product,
}

impl Access {
    /// True if this comes before another access behind it without a barrier between of all threads, or of those of each warpgroup.
    pub fn precedes(&self, other: &Access, warpgroups: bool) -> bool {
        match (&self.held, &other.held) {
            (Some(Held::Product), _) => warpgroups,
            (
                Some(Held::Tensor { holders, changes, fetches, alone }),
                Some(Held::Tensor { holders: others, changes: behind, .. }),
            ) => {
                let by_the_first = (*changes || *behind) && self.writes && other.writes;
                self.part == other.part && holders == others && (*alone || *fetches || by_the_first)
            }
            _ => false,
        }
    }
}
