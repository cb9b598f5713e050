//! Barriers among a block's threads: which roles come to each named one, and the numbers that the hardware knows barriers by.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::BarrierId;
use crate::program::{Barrier, BarrierKind};
use crate::statement::{self, Form, Operand, Stmt, StmtKind, SyncScope, Use};

/// Barriers of a block. Number 0 is that of all its threads.
pub const BARRIERS: u32 = 16;

/// The named barriers to which statements come.
pub(crate) fn barriers_of<F: Form>(body: &[Stmt<F>]) -> BTreeSet<BarrierId> {
    let mut found = BTreeSet::new();
    statement::visit(body, 0, &mut |stmt, _| {
        for operand in stmt.kind.operands() {
            if let Operand::Barrier(used, id) = operand
                && used != Use::Define
            {
                found.insert(*id);
            }
        }
    });
    found
}

/// True if the warpgroups that do these statements meet each by itself.
pub(crate) fn meets_by_warpgroup<F: Form>(body: &[Stmt<F>]) -> bool {
    let mut found = false;
    statement::visit(body, 0, &mut |stmt, _| {
        found |= matches!(stmt.kind, StmtKind::Sync(SyncScope::Warpgroup));
    });
    found
}

/// The barriers that turns stand for: each role waits for its turn at one of its own, and arrives at that of the next role when the turn is
/// over. Before its first turn the last role arrives at that of the first, which waits there once more behind its last turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Turns {
    /// The roles that take turns, in their order, each with the barrier at which it waits.
    pub(crate) roles: Vec<(usize, BarrierId)>,
}

impl Turns {
    /// All turns of a program with these barriers and bodies of roles. The first role's barrier has the number of the turns; those of the
    /// others follow the program's barriers.
    pub(crate) fn of<F: Form>(barriers: &[Barrier], bodies: &[&[Stmt<F>]]) -> BTreeMap<BarrierId, Turns> {
        let mut next = barriers.len() as u32;
        let mut all = BTreeMap::new();
        let turns = |id: &BarrierId| barriers[id.0 as usize].kind == BarrierKind::Turns;
        for id in (0..barriers.len() as u32).map(BarrierId).filter(turns) {
            let comes = |role: &usize| barriers_of(bodies[*role]).contains(&id);
            let mut roles: Vec<(usize, BarrierId)> = Vec::new();
            for role in (0..bodies.len()).filter(comes) {
                let barrier = if roles.is_empty() { id } else { BarrierId(next) };
                next += u32::from(!roles.is_empty());
                roles.push((role, barrier));
            }
            all.insert(id, Turns { roles });
        }
        all
    }

    fn place(&self, role: usize) -> Option<usize> {
        self.roles.iter().position(|(other, _)| *other == role)
    }

    /// The barrier at which a role waits for its turn.
    pub(crate) fn waits(&self, role: usize) -> Option<BarrierId> {
        self.place(role).map(|at| self.roles[at].1)
    }

    /// The barrier at which a role arrives behind its turn.
    pub(crate) fn passes(&self, role: usize) -> Option<BarrierId> {
        self.place(role).map(|at| self.roles[(at + 1) % self.roles.len()].1)
    }

    /// The barrier at which a role arrives when it begins.
    pub(crate) fn begins(&self, role: usize) -> Option<BarrierId> {
        let last = self.roles.last().is_some_and(|(last, _)| *last == role);
        self.roles.first().filter(|_| last).map(|(_, barrier)| *barrier)
    }

    /// The barrier at which a role waits when it ends.
    pub(crate) fn ends(&self, role: usize) -> Option<BarrierId> {
        self.roles.first().filter(|(first, _)| *first == role).map(|(_, barrier)| *barrier)
    }
}

/// The threads that do the same statements: those of a role, or all of a block without roles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Team {
    /// Warpgroups; rounded down, of a block that has no whole ones.
    pub warpgroups: u32,
    /// True if `syncthreads(warpgroup)` stands among its statements.
    pub by_warpgroup: bool,
}

/// The numbers of a block's barriers: of each role, then of the warpgroups of roles that meet each by itself, then of named barriers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BarrierNumbers {
    /// The number of each role's barrier.
    roles: Vec<u32>,
    /// For each team the number of its first warpgroup's barrier; its other warpgroups have the next ones.
    warpgroups: Vec<Option<u32>>,
    /// The number of the first named barrier.
    named: u32,
    /// One more than the largest number.
    end: u32,
}

impl BarrierNumbers {
    /// The numbers of a block of these teams, which are roles or one of all threads, with so many named barriers.
    pub fn new(teams: &[Team], roles: bool, named: usize) -> Self {
        let mut end: u32 = 1;
        let mut take = |count: u32| {
            let first = end;
            end = end.saturating_add(count);
            first
        };
        let of_roles = if roles { teams.iter().map(|_| take(1)).collect() } else { Vec::new() };
        // Where there is one warpgroup, the barrier of the team is its own.
        let apart = |team: &Team| team.by_warpgroup && team.warpgroups > 1;
        let warpgroups = teams.iter().map(|team| apart(team).then(|| take(team.warpgroups))).collect();
        let named = take(u32::try_from(named).unwrap_or(u32::MAX / 2));
        BarrierNumbers { roles: of_roles, warpgroups, named, end }
    }

    /// The number of a role's barrier; 0 in a block without roles.
    pub fn team(&self, team: usize) -> u32 {
        self.roles.get(team).copied().unwrap_or(0)
    }

    /// The number of the barrier of a team's first warpgroup, if its warpgroups have barriers of their own.
    pub fn first_warpgroup(&self, team: usize) -> Option<u32> {
        self.warpgroups.get(team).copied().flatten()
    }

    /// The number of a named barrier.
    pub fn named(&self, id: BarrierId) -> u32 {
        self.named + id.0
    }

    /// Barriers that the block needs, number 0 among them.
    pub fn count(&self) -> u32 {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn team(warpgroups: u32, by_warpgroup: bool) -> Team {
        Team { warpgroups, by_warpgroup }
    }

    #[test]
    fn numbers_do_not_clash() {
        let numbers = BarrierNumbers::new(&[team(1, true), team(2, true), team(3, false)], true, 2);
        assert_eq!([0, 1, 2].map(|role| numbers.team(role)), [1, 2, 3]);
        assert_eq!([0, 1, 2].map(|role| numbers.first_warpgroup(role)), [None, Some(4), None]);
        assert_eq!([BarrierId(0), BarrierId(1)].map(|id| numbers.named(id)), [6, 7]);
        assert_eq!(numbers.count(), 8);
    }

    #[test]
    fn a_block_without_roles_meets_at_number_0() {
        let numbers = BarrierNumbers::new(&[team(4, true)], false, 0);
        assert_eq!((numbers.team(0), numbers.first_warpgroup(0), numbers.count()), (0, Some(1), 5));
    }
}
