//! Programs that are right by construction, whose synchronising statements say whether they are needed.
//!
//! A comment behind a synchronising statement is a *mark*. `// needed for s`: accesses of `s` before and behind it, at least one
//! of which writes, are by different warps or units, whatever layouts the compiler chooses, and nothing else orders them; so without the
//! statement, or with it on the other side of one of these accesses, the program is wrong. `// redundant`: the statement orders nothing
//! that is not ordered without it. A statement without a mark may be either.
//!
//! A mark is certain because a shared tile is read twice, once in a layout in which each warp holds rows, once in one in
//! which each warp holds columns: one of an element's two readers is another warp than its writer.

mod atomics;
mod barriers;
mod cluster;
mod control;
mod draft;
mod exchange;
mod flow;
mod integers;
mod pixels;
mod products;
mod ring;
mod roles;
mod tensor_memory;

use crate::dice::Dice;

pub use draft::Case;

/// The program of a random choice.
pub fn generate(dice: &mut Dice) -> Case {
    match dice.below(20) {
        0..=6 => flow::flow(dice),
        7..=8 => ring::ring(dice),
        9..=12 => roles::product(dice),
        13 => roles::relay(dice),
        14 => exchange::fan_out(dice),
        15 => exchange::exchange(dice),
        16 => cluster::rows(dice),
        19 => barriers::any(dice),
        _ if dice.once_in(6) => pixels::pixels(dice),
        _ if dice.once_in(3) => atomics::changes(dice),
        _ if dice.once_in(4) => atomics::meetings(dice),
        _ if dice.once_in(4) => atomics::flags(dice),
        _ if dice.once_in(3) => match dice.once_in(2) {
            true => tensor_memory::chain(dice),
            false => tensor_memory::product(dice),
        },
        _ => roles::tiles_through(dice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tilewright::tile::{Constants, parse, verify};

    #[test]
    fn generated_programs_are_programs() {
        let mut families = BTreeMap::new();
        for job in 0..400 {
            let case = generate(&mut Dice::of(7, job));
            *families.entry(case.family).or_insert(0) += 1;
            let program = parse(&case.text).unwrap_or_else(|e| panic!("{e}\n{}", case.text));
            let verified = verify(&program, &Constants::new());
            assert!(verified.is_ok(), "{}\n{}", verified.expect_err("an error"), case.text);
        }
        assert_eq!(families.len(), 16, "{families:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_program() {
        assert_eq!(generate(&mut Dice::of(3, 9)).text, generate(&mut Dice::of(3, 9)).text);
    }
}
