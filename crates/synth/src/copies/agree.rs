//! The layout of a shared tensor that several roles touch: one for the copies of all of them.
//!
//! Each role is synthesised on its own, with a layout of what they share that was chosen without looking at any. That says how their register
//! tensors are laid out; what all their copies ask together is then unified as the copies of one role are, and the swizzle with the fewest
//! bank conflicts over all roles is found.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use tilewright_layout::SwizzledLayout;
use tilewright_tile::TensorId;
use tilewright_tile::core::{Program, Stmt, TensorKind};

use super::{Leaf, Memo, Search, SharedProblem, Site, Stages, copying, leave_useful};
use crate::divisibility::Divisibility;
use crate::options::Options;
use crate::shared::{Constraint, stage_modes};
use crate::statements::statements;
use crate::synthesis::{Synthesis, TensorLayout};
use crate::tv::TvLayout;

/// A layout that several roles agree on.
#[derive(Clone, PartialEq, Debug)]
pub struct Agreed {
    /// The layout, of the whole tensor.
    pub layout: SwizzledLayout,
    /// The demands of all copies.
    pub constraint: Constraint,
    /// Elements from one stage to the next, where it has stages.
    pub stage: Option<i64>,
}

/// Everything that a role's copies are looked at with.
struct Role<'a> {
    program: &'a Program,
    synthesis: &'a Synthesis,
    divisibility: Divisibility<'a>,
    statements: Vec<(&'a Stmt, usize)>,
    steps: Cell<u64>,
}

impl Role<'_> {
    /// Calls `f` with the problem of this role's shared tensors.
    fn with<T>(&self, options: &Options, f: impl FnOnce(&SharedProblem<'_>) -> T) -> T {
        let register = |id: TensorId| -> Option<TvLayout> {
            match self.synthesis.tensors.get(id.0 as usize)? {
                Some(TensorLayout::Register(tv)) => Some(tv.clone()),
                _ => None,
            }
        };
        f(&SharedProblem {
            verified: self.program,
            divisibility: &self.divisibility,
            timing: options.timing(),
            register: &register,
            statements: &self.statements,
            plain: false,
            memo: &Memo::default(),
            copying: &copying(&self.statements),
            steps: &self.steps,
            limit: options.budget.steps,
        })
    }
}

/// The layouts of the tensors `open` that suit the copies of all roles better than those that they have: fewer cycles of the load/store
/// unit, bank conflicts included. `roles` are the programs of all roles, as they were synthesised with a layout for each of these tensors.
pub fn agree(
    open: &BTreeSet<TensorId>,
    roles: &[(&Program, &Synthesis)],
    options: &Options,
) -> BTreeMap<TensorId, Agreed> {
    let roles: Vec<Role<'_>> = roles
        .iter()
        .map(|(program, synthesis)| Role {
            program,
            synthesis,
            divisibility: Divisibility::new(program, &options.multiples),
            statements: statements(program),
            steps: Cell::new(0),
        })
        .collect();
    open.iter().filter_map(|id| Some((*id, better(*id, &roles, options)?))).collect()
}

/// A layout of one tensor that takes fewer cycles than the one that it has.
fn better(id: TensorId, roles: &[Role<'_>], options: &Options) -> Option<Agreed> {
    let first = roles.first()?.program;
    let TensorKind::Shared { pinned: Some(pinned), .. } = &first.tensor(id).kind else { return None };
    let rank = first.shape(id).len();
    let modes = roles.iter().map(|role| {
        role.with(options, |problem| {
            let mut references = problem.references(id).peekable();
            let touched = references.peek().is_some();
            touched.then(|| stage_modes(rank, references))
        })
    });
    let modes = modes.flatten().reduce(|a, b| a.into_iter().filter(|mode| b.contains(mode)).collect())?;
    let (known, _) = best(id, roles, options, &[], Some(pinned))?;
    let (leaf, stages) = best(id, roles, options, &modes, None)?;
    if leaf.cost >= known.cost {
        return None;
    }
    let layout = match stages.distance {
        None => leaf.layout,
        Some(distance) => leaf.layout.with_stages(&stages.whole, &stages.modes, distance).ok()?,
    };
    Some(Agreed { layout, constraint: leaf.constraint, stage: stages.distance })
}

/// The cheapest way to do the copies of all roles that touch a tensor, with a given layout or with any.
fn best(
    id: TensorId,
    roles: &[Role<'_>],
    options: &Options,
    modes: &[usize],
    pinned: Option<&SwizzledLayout>,
) -> Option<(Leaf, Stages)> {
    let mut sites: Vec<Site> = Vec::new();
    let mut stages = None;
    for role in roles {
        let of_role = role.with(options, |problem| {
            let stages = problem.stages_along(id, modes.to_vec());
            problem.sites(id, &stages).map(|sites| (sites, stages))
        });
        let (mut of_role, along) = of_role.ok()?;
        // A copy takes the load/store unit once for each warp.
        of_role.iter_mut().for_each(|site| site.weight *= u64::from(role.program.threads() / 32));
        sites.append(&mut of_role);
        stages = Some(along);
    }
    let stages = stages?;
    leave_useful(&mut sites, pinned);
    let steps = Cell::new(0);
    let mut search = Search {
        sites: &sites,
        bits: roles.first()?.program.tensor(id).dtype.bits(),
        pinned,
        stage: stages.distance,
        limit: 1,
        best: Vec::new(),
        clashes: Vec::new(),
        budget: super::NODES,
        steps: &steps,
        most_steps: options.budget.steps,
    };
    search.descend(&mut Vec::new(), Constraint::unknown(&stages.shape), 0);
    let leaf = search.best.into_iter().next()?;
    Some((leaf, stages))
}
