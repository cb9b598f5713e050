//! Results of a search for thread-value layouts, and its bounds.

use tilewright_tile::{Code, Diagnostic, StmtId, TensorId};

use crate::gemm::TiledMma;
use crate::reason::Why;
use crate::tv::TvLayout;

/// The layouts of all register tensors: one solution of the constraints.
#[derive(Clone, Debug)]
pub struct Registers {
    /// One entry a tensor; `None` for other memories, and for what is not solved yet.
    pub layouts: Vec<Option<(TvLayout, Why)>>,
    /// One entry a statement: the arrangement of each matrix product.
    pub gemms: Vec<Option<TiledMma>>,
    /// The tensors that have layouts, in the order in which they got them.
    trail: Vec<TensorId>,
    /// The same tensors as a set of bits.
    known: Vec<u64>,
}

impl Registers {
    /// The layout of a register tensor, if it has one.
    pub fn layout(&self, id: TensorId) -> Option<TvLayout> {
        self.layouts.get(id.0 as usize)?.as_ref().map(|(tv, _)| tv.clone())
    }

    /// Nothing decided yet.
    pub(super) fn open(tensors: usize, statements: usize) -> Self {
        let known = vec![0; tensors.div_ceil(64)];
        Registers { layouts: vec![None; tensors], gemms: vec![None; statements], trail: Vec::new(), known }
    }

    /// Gives a tensor its layout.
    pub(super) fn set(&mut self, id: TensorId, tv: TvLayout, why: Why) {
        let at = id.0 as usize;
        self.layouts[at] = Some((tv, why));
        self.known[at / 64] |= 1 << (at % 64);
        self.trail.push(id);
    }

    /// Number of layouts so far, to come back to ([`undo`](Self::undo)).
    pub(super) fn mark(&self) -> usize {
        self.trail.len()
    }

    /// The tensors that have got layouts since there were `mark`.
    pub(super) fn since(&self, mark: usize) -> &[TensorId] {
        &self.trail[mark..]
    }

    /// Takes layouts back until there are `mark`.
    pub(super) fn undo(&mut self, mark: usize) {
        for id in self.trail.drain(mark..) {
            let at = id.0 as usize;
            self.layouts[at] = None;
            self.known[at / 64] &= !(1 << (at % 64));
        }
    }

    /// The tensors that have layouts, as a set of bits.
    pub(super) fn known(&self) -> &[u64] {
        &self.known
    }

    /// The decisions, without the way there.
    pub(super) fn solution(&self) -> Self {
        let (layouts, gemms) = (self.layouts.clone(), self.gemms.clone());
        Registers { layouts, gemms, trail: Vec::new(), known: Vec::new() }
    }
}

/// Two statements that want different layouts of one tensor.
#[derive(Clone, Debug)]
pub struct Clash {
    /// The message to the author.
    pub diagnostic: Box<Diagnostic>,
    /// The statement and the operand whose rearrangement would resolve it.
    pub remedy: Option<(StmtId, TensorId)>,
}

impl From<Diagnostic> for Clash {
    fn from(diagnostic: Diagnostic) -> Self {
        Clash { diagnostic: Box::new(diagnostic), remedy: None }
    }
}

/// The bounds of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Solutions that are looked at, at most.
    pub solutions: usize,
    /// 0 tries arrangements in their own order; any other number shuffles them, but for the first.
    pub seed: u64,
    /// Steps that a search takes, at most, which bounds its time on any machine in the same way: layouts led on by one statement,
    /// arrangements compared with what is known, ways to do a copy, statements estimated for a warp.
    pub steps: u64,
}

/// The bound that ends a search before it has looked at everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exhausted {
    /// [`Budget::solutions`].
    Solutions,
    /// [`Budget::steps`].
    Steps,
}

/// The findings of a search.
pub struct Found {
    /// Solutions, in the order in which they were found.
    pub solutions: Vec<Registers>,
    /// The bound that ended it before every arrangement was looked at.
    pub exhausted: Option<Exhausted>,
    /// The clash of the first branch that had one.
    pub clash: Option<Clash>,
    /// Branches that ended in a clash.
    pub clashes: usize,
}

impl Found {
    /// A branch ended in a clash, which is looked at only if it may be worth more than the one there is.
    pub(super) fn fail(&mut self, clash: impl FnOnce() -> Clash) {
        self.clashes += 1;
        if self.clash.as_ref().is_some_and(|old| old.remedy.is_some()) {
            return;
        }
        let clash = clash();
        // The clash that a rearrangement resolves is worth more than one that nothing does.
        if self.clash.is_none() || clash.remedy.is_some() {
            self.clash = Some(clash);
        }
    }
}

/// For the case that a search ends without a solution and without a clash, which it never does.
pub(crate) fn nothing_found() -> Diagnostic {
    Diagnostic::new(
        Code::Unsatisfiable,
        tilewright_tile::Origin::Unknown,
        "no layouts were found for this program",
    )
    .help("give the search a larger budget")
}
