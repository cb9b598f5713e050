//! Layers whose products were measured: rows of `measured.txt`, each with the fastest products of those that were.

use std::fmt;

use super::choose::Tiled;
use super::layer::{MoeLayer, MoeReduction, MoeWeights};

/// The rows: a card and its multiprocessors, a layer, tokens, rows of a tile, what tells the products from other candidates, and their microseconds.
const ROWS: &str = include_str!("measured.txt");

/// Tokens of which a row tells the plan, over those that were measured, at most.
const NEAR: f64 = 1.5;

/// The reason why a plan is the first.
#[derive(Clone, PartialEq, Debug)]
pub enum MoeReason {
    /// Its estimate is the least.
    Estimated,
    /// Its products were the fastest of those that were measured.
    Measured {
        /// The card.
        card: &'static str,
        /// Tokens of the layer that was measured.
        tokens: i64,
        /// Microseconds of the product ahead and of the one behind.
        microseconds: [f64; 2],
    },
}

impl fmt::Display for MoeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MoeReason::Estimated => f.write_str("the least estimate"),
            MoeReason::Measured { card, tokens, microseconds: [up, down] } => {
                write!(f, "the fastest on an {card} at {tokens} tokens: {up} and {down} µs")
            }
        }
    }
}

/// A row.
pub(super) struct Measured {
    pub reason: MoeReason,
    /// Rows of a tile.
    pub tile: i64,
    /// Values of parameters of the product ahead and of the one behind.
    products: [Vec<(&'static str, &'static str)>; 2],
    /// Values of parameters that are others than the candidates'.
    pub others: [Vec<(&'static str, &'static str)>; 2],
}

impl Measured {
    /// Returns whether a candidate is the product, the first or the second.
    pub fn is(&self, which: usize, tiled: &Tiled) -> bool {
        self.products[which].iter().all(|(name, value)| tiled.value(name).as_deref() == Some(*value))
    }
}

/// The word of a row for weights.
fn word(weights: MoeWeights) -> String {
    match weights {
        MoeWeights::Same => "same".to_string(),
        MoeWeights::Fp8Blocks => "fp8".to_string(),
        MoeWeights::Few { dtype, group } => format!("{dtype}/{}", group.unwrap_or_default()),
        MoeWeights::Rows(dtype) => format!("rows-{dtype}"),
    }
}

/// The cells of a row.
fn cells(row: &'static str) -> Option<[&'static str; 7]> {
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    cells.try_into().ok()
}

/// A row's numbers of tokens, and what it says.
fn read(row: &'static str) -> Option<([&'static str; 3], i64, Measured)> {
    let [card, layer, tokens, tile, up, down, times] = cells(row)?;
    let (card, multiprocessors) = card.split_once(' ')?;
    let words = |cell: &'static str, others: bool| {
        let these = cell.split(' ').filter(|word| word.starts_with('+') == others);
        these.map(|word| word.trim_start_matches('+').split_once('=')).collect::<Option<Vec<_>>>()
    };
    let (first, second) = times.split_once(' ')?;
    let tokens = tokens.parse().ok()?;
    let microseconds = [first.parse().ok()?, second.parse().ok()?];
    let reason = MoeReason::Measured { card, tokens, microseconds };
    let (weights, layer) = layer.split_once(' ')?;
    let products = [words(up, false)?, words(down, false)?];
    let others = [words(up, true)?, words(down, true)?];
    let measured = Measured { reason, tile: tile.parse().ok()?, products, others };
    Some(([multiprocessors, weights, layer], tokens, measured))
}

/// The rows, without comments.
fn rows() -> impl Iterator<Item = &'static str> {
    ROWS.lines().filter(|row| !row.starts_with('#') && !row.is_empty())
}

/// The row of a layer with about so many tokens, of the nearest number of them.
pub(super) fn measured(layer: &MoeLayer, tokens: i64, multiprocessors: i64) -> Option<Measured> {
    if layer.all_experts.is_some() || layer.reduction != MoeReduction::Ordered {
        return None;
    }
    let MoeLayer { experts, k, hidden, intermediate, .. } = layer;
    let asked =
        [multiprocessors.to_string(), word(layer.weights), format!("{experts} {k} {hidden} {intermediate}")];
    let apart = |there: i64| (tokens.max(there) as f64) / tokens.min(there).max(1) as f64;
    let found = rows().filter_map(read).filter(|(of, there, _)| *of == asked && apart(*there) <= NEAR);
    let nearest = found.min_by(|(_, a, _), (_, b, _)| apart(*a).total_cmp(&apart(*b)));
    nearest.map(|(.., measured)| measured)
}

#[cfg(test)]
mod tests {
    use tilewright_machine::DType;

    use super::*;

    /// The layer of a row.
    fn layer(weights: &str, numbers: &str) -> MoeLayer {
        let all =
            [MoeWeights::Same, MoeWeights::Fp8Blocks, MoeWeights::Few { dtype: DType::I4, group: Some(128) }];
        let numbers: Vec<i64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        MoeLayer {
            dtype: DType::F16,
            weights: all.into_iter().find(|of| word(*of) == weights).unwrap(),
            hidden: numbers[2],
            intermediate: numbers[3],
            experts: numbers[0],
            all_experts: None,
            k: numbers[1],
            routing: None,
            reduction: MoeReduction::Ordered,
        }
    }

    #[test]
    fn every_row_is_a_plan_of_its_layer() {
        for row in rows() {
            let ([multiprocessors, weights, numbers], tokens, measured) =
                read(row).unwrap_or_else(|| panic!("{row}"));
            let plan = layer(weights, numbers).plan(tokens, multiprocessors.parse().unwrap()).unwrap();
            assert_eq!(plan.reason, measured.reason, "{row}");
        }
    }

    #[test]
    fn a_row_is_for_about_as_many_tokens_as_were_measured() {
        let layer = layer("same", "256 8 7168 256");
        let at = |tokens: i64| layer.plan(tokens, 132).unwrap().reason;
        let MoeReason::Measured { card, tokens: 64, microseconds: [up, down] } = at(64) else {
            panic!("{:?}", at(64))
        };
        assert_eq!(at(64).to_string(), format!("the fastest on an {card} at 64 tokens: {up} and {down} µs"));
        assert_eq!(at(90), at(64));
        assert_eq!((at(127), at(127).to_string()), (MoeReason::Estimated, "the least estimate".to_string()));
        assert_eq!(layer.plan(64, 120).unwrap().reason, MoeReason::Estimated);
    }
}
