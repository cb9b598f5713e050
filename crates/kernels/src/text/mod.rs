//! Operators whose program is a text file. A row of [`TEXT_OPERATORS`] is one operator: its program (in one form or several), the tile
//! constants that are its parameters, a reference of plain loops, the sizes at which it is tested, and its tuning space.
//!
//! The files are programs as they stand: of `f16`, with defaults for their constants. The parameter `dtype` stands in place of `f16`
//! wherever the file names it; other parameters are the defaults of constants.

mod listed;
mod operator;
mod references;
mod rows;
mod space;
mod table;

pub use operator::{Form, Knob, Limit, Sizes, TextOperator, Values};
pub(crate) use table::LISTED;
pub use table::TEXT_OPERATORS;

#[cfg(test)]
mod tests {
    use tilewright_machine::{Arch, DType};
    use tilewright_tile::Program;

    use super::*;
    use crate::text::operator::Limit;

    #[test]
    fn every_row_of_the_table_agrees_with_its_files() {
        for operator in TEXT_OPERATORS {
            for (i, form) in operator.forms.iter().enumerate() {
                let programs = operator.parsed(i, DType::F16, false).unwrap();
                // Each of the programs begins by waiting, if it is to.
                for program in operator.parsed(i, DType::F16, true).unwrap() {
                    let text = program.to_string();
                    let (wait, launch) =
                        (text.matches("wait_dependencies()"), text.matches("launch_dependents()"));
                    assert_eq!((wait.count(), launch.count()), (1, 1), "{text}");
                }
                let declared = programs.iter().flat_map(Program::sizes);
                let mut sizes: Vec<_> = declared.map(|(_, symbol, _)| symbol.name.clone()).collect();
                let mut known: Vec<_> = operator.sizes.iter().map(|(name, _)| name.to_string()).collect();
                sizes.sort();
                sizes.dedup();
                known.sort();
                assert_eq!(sizes, known, "{} {}", operator.name, form.name);
                for knob in operator.knobs {
                    let mut constants = programs.iter().flat_map(Program::constants);
                    let has = constants.any(|(_, symbol, _)| symbol.name == knob.constant);
                    assert_eq!(
                        has,
                        operator.has(i, knob),
                        "{} {}: {}",
                        operator.name,
                        form.name,
                        knob.constant
                    );
                }
            }
            for knob in operator.knobs {
                let has = (0..operator.forms.len()).any(|form| operator.has(form, knob));
                assert!(has, "{}: {}", operator.name, knob.constant);
            }
            assert!(
                operator.forms[0].limit == Limit::None,
                "{}: the default form has a limit",
                operator.name
            );
            assert_eq!(operator.large.len(), operator.sizes.len(), "{}", operator.name);
            assert!(
                operator.edges.iter().all(|edge| edge.len() == operator.sizes.len()),
                "{}",
                operator.name
            );
        }
    }

    #[test]
    fn every_operator_is_tested_at_one_and_beside_vectors_and_tiles() {
        for operator in TEXT_OPERATORS {
            for size in [1, 17, 1000, 4097] {
                let has = operator.edges.iter().any(|edge| edge.contains(&size));
                assert!(has, "{} has no edge with {size}", operator.name);
            }
        }
    }

    #[test]
    fn spaces_of_large_problems_have_several_points() {
        for operator in TEXT_OPERATORS {
            let names = operator.sizes.iter().map(|(name, _)| name.to_string());
            let sizes: Sizes = names.zip(operator.large.iter().copied()).collect();
            let space = operator.points(Arch::SM_90A, &sizes, &[]).unwrap();
            assert!(space.points.len() > 1, "{}: {:?}", operator.name, space.points);
        }
    }

    #[test]
    fn spaces_have_points_at_every_size() {
        for operator in TEXT_OPERATORS {
            for edge in operator.edges {
                let names = operator.sizes.iter().map(|(name, _)| name.to_string());
                let sizes: Sizes = names.zip(edge.iter().copied()).collect();
                let space = operator.points(Arch::SM_90A, &sizes, &[]).unwrap();
                assert!(!space.points.is_empty(), "{} {edge:?}", operator.name);
            }
        }
    }
}
