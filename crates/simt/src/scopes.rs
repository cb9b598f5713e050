//! Scopes of what is built: blocks, and the modes of a [`Builder`] that hold for a while. Each is a closure, so that it ends however the
//! closure is left.

use tilewright_machine::SyncOp;

use crate::builder::Builder;
use crate::function::{Inst, Operand, Value};

/// Builds a function: a [`Builder`], or a type that has one.
pub trait Build: Sized {
    /// The builder.
    fn builder(&mut self) -> &mut Builder;

    /// Pure operations go to the outermost block they can (as at first), or stay in the current one. Results that a loop uses once an
    /// iteration are better computed where they are used: hoisted, each would hold a register through the whole loop.
    fn hoisting<R>(&mut self, hoist: bool, body: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.builder().set_hoisting(hoist);
        let result = body(self);
        self.builder().set_hoisting(before);
        result
    }

    /// Pure operations stay inside the current block, also where their operands exist outside: operations that only some warps need
    /// must not cost the registers of all.
    fn pinned<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        let floor = self.builder().floor_here();
        let result = body(self);
        self.builder().set_floor(floor);
        result
    }

    /// Only some of the block's threads do what is built: `thread` is their index among themselves, and `barrier` stands for the
    /// block's.
    fn as_team<R>(&mut self, team: Option<(Value, SyncOp)>, body: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.builder().set_team(team);
        let result = body(self);
        self.builder().set_team(before);
        result
    }

    /// One side of a branch, for [`Builder::if_else`]. Its operations are [`pinned`](Build::pinned).
    fn side<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> (R, Vec<Inst>) {
        self.builder().open_branch();
        let result = self.pinned(body);
        (result, self.builder().close_side())
    }

    /// A branch without another side, taken where the condition holds. Its operations are [`pinned`](Build::pinned).
    fn only_where<R>(&mut self, condition: Value, body: impl FnOnce(&mut Self) -> R) -> R {
        let (result, then) = self.side(body);
        self.builder().if_else(condition, then, Vec::new());
        result
    }

    /// A counted loop; the closure is given the counter.
    fn in_loop<R>(&mut self, [lo, hi, step]: [Operand; 3], body: impl FnOnce(&mut Self, Value) -> R) -> R {
        let counter = self.builder().open_loop();
        let result = body(self, counter);
        self.builder().close_loop(counter, lo, hi, step);
        result
    }
}

impl Build for Builder {
    fn builder(&mut self) -> &mut Builder {
        self
    }
}
