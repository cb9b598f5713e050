//! Mappings: which variant runs where, in which memory each tensor lies, and how deep pipelines are. A mapping changes how fast a program
//! is, and never what it computes, but for tunables and variants that sum in another order.

use tilewright_layout::SwizzledLayout;
use tilewright_machine::{Arch, Memory, Processor};
use tilewright_tile::{Expr, Origin, SymbolId};

use crate::program::{LaunchId, LoopId, TaskId, TensorId, VariantId};

/// An instance of a mapping: an index into [`Mapping::instances`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct InstanceId(pub u32);

impl InstanceId {
    /// As an index of its table.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A mapping of a program onto an architecture.
#[derive(Clone, PartialEq, Debug)]
pub struct Mapping {
    /// The name.
    pub name: String,
    /// The architecture.
    pub arch: Arch,
    /// The rows, in the order of the text.
    pub instances: Vec<Instance>,
    /// The place of its name.
    pub span: Origin,
}

/// A variant at a place of the machine: a row of a [`Mapping`].
#[derive(Clone, PartialEq, Debug)]
pub struct Instance {
    /// True of the instance that a kernel begins with; there is one.
    pub entry: bool,
    /// The name that the author gave it; without, it goes by `task.variant`.
    pub name: Option<String>,
    /// The task.
    pub task: TaskId,
    /// Its variant.
    pub variant: VariantId,
    /// The level on which it runs; without, that of its caller.
    pub processor: Option<Processor>,
    /// The memory of each formal that is a tensor, in their order; without, `none` for all.
    pub memories: Option<Vec<Placement>>,
    /// The values of the variant's tunables, in the order of the text.
    pub tunables: Vec<Setting>,
    /// The attributes, in the order of the text.
    pub attributes: Vec<Attribute>,
    /// The instances that launches go to, where not the only one of their task is meant.
    pub callees: Vec<Callee>,
    /// The place of the row.
    pub span: Origin,
}

/// The memory that a mapping gives a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Placement {
    /// `none`: it is never there as a whole, and takes the places that instances below give it.
    None,
    /// A memory.
    In(Memory),
}

/// The value of a tunable.
#[derive(Clone, PartialEq, Debug)]
pub struct Setting {
    /// The tunable.
    pub tunable: SymbolId,
    /// Its value.
    pub value: SettingValue,
    /// The place of the value.
    pub span: Origin,
}

/// The kind of a [`Setting`].
#[derive(Clone, PartialEq, Debug)]
pub enum SettingValue {
    /// An integer, over constants.
    Integer(Expr),
    /// A processor level.
    Processor(Processor),
}

/// The instance to which launches go.
#[derive(Clone, PartialEq, Debug)]
pub struct Callee {
    /// The launch; without, every launch of the instance's task.
    pub launch: Option<LaunchId>,
    /// The instance.
    pub instance: InstanceId,
    /// The place.
    pub span: Origin,
}

/// An attribute of an instance.
#[derive(Clone, PartialEq, Debug)]
pub struct Attribute {
    /// Its meaning.
    pub kind: AttributeKind,
    /// Its place.
    pub span: Origin,
}

/// The meaning of an [`Attribute`]. Integers are over constants.
#[derive(Clone, PartialEq, Debug)]
pub enum AttributeKind {
    /// `warpspecialize(2, store)`: copies are made by a role of their own, and computed is in a role of so many warpgroups; a third role stores.
    Warpspecialize {
        /// The warpgroups that compute; 1 without.
        warpgroups: Option<Expr>,
        /// A role of its own stores.
        store: bool,
    },
    /// `pipeline(kk: 4)`: so many stages of what the loop brings.
    Pipeline {
        /// The loop; without, every loop of the variant.
        head: Option<LoopId>,
        /// The least number of stages: below the most, the rings may shrink where shared memory is short.
        least: Expr,
        /// The number of stages.
        most: Expr,
    },
    /// `shared <= 232448`: an upper bound of shared memory, in bytes.
    Shared(Expr),
    /// `warps(4)`: the warps of a block without roles.
    Warps(Expr),
    /// `persistent(grouped(12, serpentine))`: as many blocks as the GPU holds take tile after tile, in a rasterization order.
    Persistent(Option<Rasterization>),
    /// `order(grouped(16))`: an iteration a block, in a rasterization order of the blocks' numbers, in which the GPU begins them.
    Order(Rasterization),
    /// `cluster(i = 2)`: so many neighbouring iterations of the counter run in one cluster.
    Cluster {
        /// The counter, of a `prange`.
        counter: SymbolId,
        /// The iterations.
        blocks: Expr,
    },
    /// `late(out, kk)`: the launch moves an iteration later.
    Late {
        /// The launch.
        launch: LaunchId,
        /// The loop by which it moves; without, the loop around, or that of the persistent kernel.
        head: Option<LoopId>,
    },
    /// `in_flight(1)`: groups of products that may be in flight at the end of an iteration.
    InFlight(Expr),
    /// `local(acc = register)`: the memory of a tensor that the body makes.
    Local {
        /// The tensor.
        tensor: TensorId,
        /// Its memory.
        placement: Placement,
    },
    /// `layout(x = …)`: the layout of a tensor, coordinate → offset in shared memory, (thread, value) → coordinate in registers.
    Layout {
        /// The tensor.
        tensor: TensorId,
        /// The layout.
        layout: SwizzledLayout,
    },
    /// `registers(24, 240)`: registers of a thread that copies, and of one that computes.
    Registers {
        /// Of a thread that copies.
        load: Expr,
        /// Of a thread that computes.
        compute: Expr,
    },
    /// `space { U = 64 | 128, pipeline = 2..6 }`: the values that a search may take.
    Space(Vec<Dimension>),
}

/// A rasterization order: the order in which blocks take tiles.
#[derive(Clone, PartialEq, Debug)]
pub enum Rasterization {
    /// `grouped(n)`, `grouped(n, serpentine)`: groups of `n` rows of tiles, in each column by column; every second one backwards.
    Grouped {
        /// The rows of a group.
        rows: Expr,
        /// Walks every second group backwards.
        serpentine: bool,
    },
    /// `hilbert(s)`: squares of 2ˢ × 2ˢ tiles, each along a Hilbert curve.
    Hilbert {
        /// The curve's order.
        order: Expr,
    },
}

/// A choice of a search, with its values.
#[derive(Clone, PartialEq, Debug)]
pub struct Dimension {
    /// The choice.
    pub choice: Choice,
    /// The values, in the order of the text.
    pub values: Vec<Value>,
    /// The place.
    pub span: Origin,
}

/// The thing that a [`Dimension`] chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// A tunable.
    Tunable(SymbolId),
    /// The stages of `pipeline`.
    Pipeline,
    /// The launch of `late`.
    Late,
    /// The groups of `in_flight`.
    InFlight,
    /// The warps of `warps`.
    Warps,
    /// The warpgroups of `warpspecialize`.
    Warpgroups,
    /// The rows of a group of tiles, of `persistent` or `order`.
    Rows,
}

impl Choice {
    /// The choices that are attributes.
    pub const ATTRIBUTES: [Choice; 6] =
        [Choice::Pipeline, Choice::Late, Choice::InFlight, Choice::Warps, Choice::Warpgroups, Choice::Rows];

    /// The word of the attribute; nothing of a tunable, which has a name.
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Choice::Tunable(_) => None,
            Choice::Pipeline => Some("pipeline"),
            Choice::Late => Some("late"),
            Choice::InFlight => Some("in_flight"),
            Choice::Warps => Some("warps"),
            Choice::Warpgroups => Some("warpspecialize"),
            Choice::Rows => Some("persistent"),
        }
    }
}

/// Values of a [`Dimension`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// Integers from the first to the last, so far apart.
    Integers {
        /// The first.
        first: i64,
        /// The last.
        last: i64,
        /// The step.
        step: i64,
    },
    /// A launch; `none` without.
    Launch(Option<LaunchId>),
}

impl Mapping {
    /// The instance's row.
    pub fn instance(&self, id: InstanceId) -> &Instance {
        &self.instances[id.index()]
    }

    /// The instances with their ids.
    pub fn instances(&self) -> impl Iterator<Item = (InstanceId, &Instance)> {
        self.instances.iter().enumerate().map(|(i, instance)| (InstanceId(i as u32), instance))
    }

    /// Puts rows into the mapping, each in place of the row of its name among those that are there, or behind all; `name` is what a row goes by. A kernel
    /// begins with the row that says so, else with what is in place of the one that it began with.
    ///
    /// Returns the numbers that the rows have now.
    pub(crate) fn put(&mut self, rows: Vec<Instance>, name: impl Fn(&Instance) -> String) -> Vec<usize> {
        let inherited = self.instances.len();
        if rows.iter().any(|row| row.entry) {
            self.instances.iter_mut().for_each(|row| row.entry = false);
        }
        let mut at = Vec::with_capacity(rows.len());
        for mut row in rows {
            let of_name = |(i, other): &(usize, &Instance)| !at.contains(i) && name(other) == name(&row);
            let known = self.instances[..inherited].iter().enumerate().find(of_name).map(|(i, _)| i);
            match known {
                Some(i) => {
                    row.entry |= self.instances[i].entry;
                    self.instances[i] = row;
                    at.push(i);
                }
                None => {
                    at.push(self.instances.len());
                    self.instances.push(row);
                }
            }
        }
        at
    }

    /// The instance that a kernel begins with: the one that is marked, or the first.
    pub fn entry(&self) -> Option<InstanceId> {
        let marked = self.instances().find(|(_, instance)| instance.entry);
        marked.or_else(|| self.instances().next()).map(|(id, _)| id)
    }
}
