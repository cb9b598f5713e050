//! Races with the statements that take part.

use tilewright_sim::{Party, Race};
use tilewright_tile::Origin;

use super::reader::Reader;

/// The threads between which a race is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Between {
    /// Threads that do the same statements.
    Threads,
    /// Roles of a block.
    Roles,
    /// Blocks of a cluster.
    Cluster,
    /// Blocks that nothing has meet.
    Blocks,
}

/// A race whose statements are known.
pub(super) struct Clash<'a> {
    pub(super) race: &'a Race,
    pub(super) between: Between,
    /// The numbers of both statements, in the order of the race.
    pub(super) numbers: [Option<usize>; 2],
    /// The places of both statements.
    pub(super) places: [Origin; 2],
}

impl<'a> Clash<'a> {
    pub(super) fn new(reader: &Reader<'_>, race: &'a Race) -> Self {
        let parties = [&race.first, &race.second];
        let statements = &reader.statements;
        let cluster = reader.kernel.function.cluster.max(1);
        let of_cluster = |p: &Party| (p.block[0] / cluster, p.block[1], p.block[2]);
        let roles = parties.map(|p| statements.role_of_thread(p.thread));
        let between = if race.first.block == race.second.block {
            if roles[0] == roles[1] { Between::Threads } else { Between::Roles }
        } else if of_cluster(&race.first) == of_cluster(&race.second) {
            Between::Cluster
        } else {
            Between::Blocks
        };
        Clash {
            race,
            between,
            numbers: parties.map(|p| statements.at(p.position, &p.origin)),
            places: parties.map(|p| statements.place(p.position, &p.origin)),
        }
    }

    pub(super) fn parties(&self) -> [&'a Party; 2] {
        [&self.race.first, &self.race.second]
    }

    /// The number of the party that writes; of two, the second.
    pub(super) fn writer(&self) -> usize {
        usize::from(self.race.second.write)
    }

    /// True if both parties are one statement.
    pub(super) fn is_alone(&self) -> bool {
        match self.numbers {
            [Some(_), Some(_)] => self.places[0].key() == self.places[1].key(),
            _ => self.race.first.origin == self.race.second.origin,
        }
    }
}

/// The threads of a party, as a label begins: `block [0, 1, 0]`, `role `load``, `a thread`.
pub(super) fn actor(reader: &Reader<'_>, between: Between, party: &Party) -> String {
    let role = reader.statements.role_of_thread(party.thread);
    match between {
        Between::Threads if party.asynchronous => "the copy".to_string(),
        Between::Threads => format!("thread {}", party.thread),
        Between::Roles => role.map_or("a role".to_string(), |role| reader.statements.role_words(role)),
        Between::Cluster | Between::Blocks => {
            let [x, y, z] = party.block;
            format!("block ({x}, {y}, {z})")
        }
    }
}
