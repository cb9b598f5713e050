//! Measurements as a table and as JSON.

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use tilewright::lab::measure::{Condition, Score};

use super::shapes::Shape;

/// Measurements of a peer.
pub struct Peer {
    /// Its name, e.g. `cuBLASLt`.
    pub name: String,
    /// The fastest of its configurations.
    pub config: String,
    /// Its time.
    pub score: Score,
    /// Its relative error at sampled places.
    pub error: f64,
    /// The relative difference of our result to its, everywhere.
    pub difference: f64,
}

/// Measurements at a shape under a condition.
pub struct Row {
    /// The shape.
    pub shape: Shape,
    /// The condition.
    pub condition: Condition,
    /// Our configuration.
    pub config: String,
    /// Our time.
    pub score: Score,
    /// Our relative error at sampled places.
    pub error: f64,
    /// The largest error that counts as right.
    pub tolerance: f64,
    /// Elements of our result that are no finite numbers.
    pub not_finite: usize,
    /// The peer.
    pub peer: Option<Peer>,
}

impl Row {
    /// The peer's time over ours: more is better.
    pub fn ratio(&self) -> Option<f64> {
        self.peer.as_ref().map(|peer| peer.score.median_ms / self.score.median_ms)
    }

    fn tflops(&self) -> f64 {
        self.shape.operations() / self.score.median_ms / 1e9
    }

    /// Fault of our result, if any.
    pub fn wrong(&self) -> Option<String> {
        if self.not_finite > 0 {
            return Some(format!("{} elements are not written, or no numbers", self.not_finite));
        }
        let far = |error: f64, tolerance: f64| error.is_nan() || error > tolerance;
        if far(self.error, self.tolerance) {
            return Some(format!("the error is above {:.1e}", self.tolerance));
        }
        // Both may err, in opposite directions.
        let apart = self.peer.as_ref().filter(|peer| far(peer.difference, 2.0 * self.tolerance));
        apart.map(|peer| format!("{} has another result", peer.name))
    }
}

/// A shape that could not be measured, with the reason.
pub struct Missing {
    /// The shape.
    pub shape: Shape,
    /// The reason.
    pub reason: String,
}

/// A geometric mean; `None` of nothing.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let logs: Vec<f64> = values.into_iter().map(f64::ln).collect();
    if logs.is_empty() { None } else { Some((logs.iter().sum::<f64>() / logs.len() as f64).exp()) }
}

/// Means of the ratios under a condition, with what they are of.
fn means(rows: &[Row], condition: Condition) -> Vec<(&'static str, usize, f64)> {
    let of = |least: usize| {
        let of_condition = rows.iter().filter(|row| row.condition == condition && row.shape.m >= least);
        of_condition.filter_map(Row::ratio).collect::<Vec<f64>>()
    };
    let (all, large) = (of(0), of(1024));
    let mut found = Vec::new();
    if let Some(mean) = geometric_mean(all.iter().copied()) {
        found.push(("all", all.len(), mean));
    }
    if large.len() < all.len() {
        found.extend(geometric_mean(large.iter().copied()).map(|mean| ("M ≥ 1024", large.len(), mean)));
    }
    found
}

fn percent(part: f64) -> String {
    format!("±{:.1}%", 50.0 * part)
}

/// A table for each condition, with the geometric means of its ratios.
pub fn text(rows: &[Row], missing: &[Missing], conditions: &[Condition]) -> String {
    let mut text = String::new();
    for condition in conditions {
        let of_condition: Vec<&Row> = rows.iter().filter(|row| row.condition == *condition).collect();
        if of_condition.is_empty() {
            continue;
        }
        let versus = of_condition.iter().any(|row| row.peer.is_some());
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let mut header = vec!["shape", "config", "ms", "", "TFLOP/s"];
        if versus {
            header.extend(["peer ms", "", "ratio"]);
        }
        header.push("error");
        if versus {
            header.extend(["apart", "peer"]);
        }
        header.push("");
        let width = header.len();
        table.set_header(header);
        for row in &of_condition {
            let mut cells = vec![
                row.shape.to_string(),
                row.config.clone(),
                format!("{:.4}", row.score.median_ms),
                percent(row.score.spread),
                format!("{:.1}", row.tflops()),
            ];
            let peer = row.peer.as_ref();
            if versus {
                cells.extend([
                    peer.map_or(String::new(), |peer| format!("{:.4}", peer.score.median_ms)),
                    peer.map_or(String::new(), |peer| percent(peer.score.spread)),
                    row.ratio().map_or(String::new(), |ratio| format!("{ratio:.3}")),
                ]);
            }
            cells.push(format!("{:.1e}", row.error));
            if versus {
                cells.extend([
                    peer.map_or(String::new(), |peer| format!("{:.1e}", peer.difference)),
                    peer.map_or(String::new(), |peer| format!("{}: {}", peer.name, peer.config)),
                ]);
            }
            cells.push(row.wrong().map_or(String::new(), |wrong| format!("WRONG: {wrong}")));
            table.add_row(cells);
        }
        for column in 2..width - if versus { 2 } else { 1 } {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        text.push_str(&format!("{condition}\n{table}\n"));
        for (of, count, mean) in means(rows, *condition) {
            text.push_str(&format!("geometric mean of the ratio, {condition}, {of} ({count}): {mean:.3}\n"));
        }
    }
    for Missing { shape, reason } in missing {
        text.push_str(&format!("missing at {shape}: {reason}\n"));
    }
    text
}

/// Numbers of a shape.
fn numbers(shape: &Shape) -> Value {
    let Shape { m, n, k, batches } = *shape;
    if batches > 1 { json!([m, n, k, batches]) } else { json!([m, n, k]) }
}

/// A row as JSON: what `bench/plot.py` reads, and every launch.
pub fn as_json(row: &Row) -> Value {
    let mut peers = serde_json::Map::new();
    let (mut base, mut ratios) = (Value::Null, serde_json::Map::new());
    if let Some(peer) = &row.peer {
        let name = peer.name.to_lowercase();
        let measured = json!({
            "ms": peer.score.median_ms,
            "rounds": peer.score.turns_ms,
            "runs": peer.score.runs_ms,
            "config": peer.config,
            "error": peer.error,
            "difference": peer.difference,
        });
        peers.insert(name.clone(), measured);
        ratios.insert(name.clone(), json!(row.ratio()));
        base = json!(name);
    }
    json!({
        "shape": numbers(&row.shape),
        "condition": row.condition.to_string(),
        "config": row.config,
        "ms": row.score.median_ms,
        "rounds": row.score.turns_ms,
        "runs": row.score.runs_ms,
        "tflops": row.tflops(),
        "error": row.error,
        "tolerance": row.tolerance,
        "right": row.wrong().is_none(),
        "notes": row.wrong().into_iter().collect::<Vec<String>>(),
        "peers": peers,
        "base": base,
        "ratio": row.ratio(),
        "ratios": ratios,
    })
}

/// A shape that was not measured, as JSON.
pub fn gap_as_json(gap: &Missing) -> Value {
    json!({ "shape": numbers(&gap.shape), "notes": [gap.reason] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(ms: f64) -> Score {
        Score { median_ms: ms, spread: 0.012, turns_ms: vec![ms], runs_ms: vec![vec![ms, ms]] }
    }

    fn row(shape: &str, ours: f64, theirs: Option<f64>) -> Row {
        let peer = theirs.map(|ms| Peer {
            name: "cuBLASLt".to_string(),
            config: "1 of 8".to_string(),
            score: took(ms),
            error: 2.1e-4,
            difference: 3e-4,
        });
        Row {
            shape: shape.parse().unwrap(),
            condition: Condition::Rested,
            config: "bn=192".to_string(),
            score: took(ours),
            error: 2.1e-4,
            tolerance: 1e-3,
            not_finite: 0,
            peer,
        }
    }

    #[test]
    fn the_table_has_ratios_and_their_means() {
        let rows = [row("4096,4096,4096", 0.2, Some(0.22)), row("16,4096,4096", 0.02, Some(0.018))];
        let missing = [Missing { shape: rows[1].shape, reason: "no memory".to_string() }];
        let text = text(&rows, &missing, &[Condition::Rested, Condition::Clean]);
        let lines: Vec<String> =
            text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "rested",
                "shape config ms TFLOP/s peer ms ratio error apart peer",
                "4096,4096,4096 bn=192 0.2000 ±0.6% 687.2 0.2200 ±0.6% 1.100 2.1e-4 3.0e-4 cuBLASLt: 1 of 8",
                "16,4096,4096 bn=192 0.0200 ±0.6% 26.8 0.0180 ±0.6% 0.900 2.1e-4 3.0e-4 cuBLASLt: 1 of 8",
                "geometric mean of the ratio, rested, all (2): 0.995",
                "geometric mean of the ratio, rested, M ≥ 1024 (1): 1.100",
                "missing at 16,4096,4096: no memory",
            ]
        );
    }

    #[test]
    fn alone_there_is_no_ratio() {
        let text = text(&[row("64,64,64", 0.1, None)], &[], &[Condition::Rested]);
        let lines: Vec<String> =
            text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            ["rested", "shape config ms TFLOP/s error", "64,64,64 bn=192 0.1000 ±0.6% 0.0 2.1e-4"]
        );
    }

    #[test]
    fn wrong_results_are_told() {
        let base = || row("64,64,64", 0.1, Some(0.1));
        assert_eq!(base().wrong(), None);
        let far = Row { error: 0.5, ..base() };
        assert_eq!(far.wrong().as_deref(), Some("the error is above 1.0e-3"));
        assert!(Row { error: f64::NAN, ..base() }.wrong().is_some());
        let holes = Row { not_finite: 3, ..base() };
        assert_eq!(holes.wrong().as_deref(), Some("3 elements are not written, or no numbers"));
        let mut apart = base();
        apart.peer.as_mut().unwrap().difference = 0.1;
        assert_eq!(apart.wrong().as_deref(), Some("cuBLASLt has another result"));
        let text = text(&[far], &[], &[Condition::Rested]);
        assert!(text.contains("WRONG: the error is above"), "{text}");
    }

    #[test]
    fn json_has_every_run() {
        let value = as_json(&row("64,32,16", 0.1, Some(0.2)));
        assert_eq!(value["shape"], json!([64, 32, 16]));
        assert_eq!((&value["ms"], &value["rounds"]), (&json!(0.1), &json!([0.1])));
        assert_eq!(value["runs"], json!([[0.1, 0.1]]));
        assert_eq!(value["peers"]["cublaslt"]["ms"], json!(0.2));
        assert_eq!((&value["base"], &value["ratio"]), (&json!("cublaslt"), &json!(2.0)));
        assert_eq!((&value["right"], &value["notes"]), (&json!(true), &json!([])));
        let alone = as_json(&row("64,32,16,3", 0.1, None));
        assert_eq!(alone["shape"], json!([64, 32, 16, 3]));
        assert_eq!((&alone["peers"], &alone["base"]), (&json!({}), &json!(null)));
        let shape = "1,2,3".parse().unwrap();
        let gap = gap_as_json(&Missing { shape, reason: "why".to_string() });
        assert_eq!(gap, json!({ "shape": [1, 2, 3], "notes": ["why"] }));
    }
}
