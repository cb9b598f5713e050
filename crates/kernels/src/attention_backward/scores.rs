//! The text of scores, weights and masks, in tiles of either orientation.

use super::Writer;
use crate::attention::{LOG2E, Mask, Names, capped, of_head};

/// A tile of scores: the extents of its keys and queries, by name, and their modes. `key` is its first key, `place` the place of its first query among the keys.
pub(super) struct Tile {
    /// Keys and their mode.
    pub keys: (&'static str, usize),
    /// Queries and their mode.
    pub queries: (&'static str, usize),
}

/// The tile of the main program, which has keys as rows.
pub(super) const BY_KEYS: Tile = Tile { keys: ("BN", 0), queries: ("BM", 1) };

/// The tile of the program that computes dq, which has queries as rows.
pub(super) const BY_QUERIES: Tile = Tile { keys: ("BK", 1), queries: ("BQ", 0) };

impl Tile {
    fn key(&self) -> String {
        format!("key + index({})", self.keys.1)
    }

    fn place(&self) -> String {
        format!("place + index({})", self.queries.1)
    }
}

impl Writer<'_> {
    /// The scalars of a program that computes weights.
    pub(super) fn scalars(&self) -> String {
        let scale = (self.config.d as f64).sqrt().recip();
        let cap = if self.config.softcap { ", cap: f32 = 50.0" } else { "" };
        let own = &self.config.scalars.0;
        let own = if own.is_empty() { String::new() } else { format!(", {own}") };
        format!("scale: f32 = {scale:.9}{cap}{own}")
    }

    /// Parameters of a program that computes weights: where sequences begin, and what is added to scores.
    pub(super) fn added(&self) -> String {
        let config = self.config;
        let mut text = self.begins(true).to_string();
        if config.bias {
            text += &format!(", bias: {}[bb, bh, sq, sk]", config.dtype);
        }
        if config.alibi {
            text += ", slopes: f32[hq]";
        }
        text
    }

    /// The view of the bias by tiles.
    pub(super) fn view_of_bias(&self, tile: &Tile) -> String {
        if !self.config.bias {
            return String::new();
        }
        let part = |(rows, _): (&str, usize), size: &str, mode: &str| {
            (format!("{rows}, ceil_div({size}, {rows})"), format!("{mode}, {rows} * {mode}"))
        };
        let mut parts = [part(tile.queries, "sq", "e2"), part(tile.keys, "sk", "e3")];
        if tile.keys.1 == 0 {
            parts.reverse();
        }
        let [(rows, of_rows), (columns, of_columns)] = parts;
        format!(
            "    gbias = global_view(bias, (bb, bh, {rows}, {columns}) : (e0, e1, {of_rows}, {of_columns}))\n"
        )
    }

    /// True if a tile's numbers have the place of its first query.
    pub(super) fn has_places(&self) -> bool {
        let config = self.config;
        config.mask != Mask::None || config.attends.is_some() || config.alibi || config.score.is_some()
    }

    /// True if scores and masks ask for the head of q.
    pub(super) fn has_heads(&self) -> bool {
        let config = self.config;
        config.attends.is_some() || config.score.is_some() || config.alibi || config.bias
    }

    /// The statements of a head, behind its number: its slope.
    pub(super) fn of_head(&self) -> String {
        if self.config.alibi { of_head("rise", "slopes") } else { String::new() }
    }

    /// True if a tensor has the derivative of scores from the scores to the weights.
    pub(super) fn keeps_change(&self) -> bool {
        self.config.softcap || self.change.as_ref().is_some_and(|change| change.varies)
    }

    /// Statements that make weights of scores and logarithms: `weights = exp2(…)`. `slope` is a cap's tangent, whose square is one minus its
    /// derivative, and `change` the derivative of a user's score, where it varies. `blocks` are the numbers of the tile among queries and keys.
    pub(super) fn weights(
        &self,
        tile: &Tile,
        [weights, scores, logarithms]: [&str; 3],
        blocks: [&str; 2],
    ) -> String {
        let config = self.config;
        let slope = capped(scores, "scale / cap", "1.0");
        if !config.adds_to_scores() {
            return if config.softcap {
                format!(
                    "slope = {slope}\n\
                     {weights} = exp2(slope * (cap * 1.4426950408889634) - {logarithms})\n"
                )
            } else {
                format!("{weights} = exp2({scores} * (scale * 1.4426950408889634) - {logarithms})\n")
            };
        }
        let mut text = match config.softcap {
            true => format!("slope = {slope}\nscores = slope * cap\n"),
            false => format!("scores = {scores} * scale\n"),
        };
        if config.alibi {
            text += &format!(
                "scores = scores + rise * float({} - place - index({}))\n",
                tile.key(),
                tile.queries.1
            );
        }
        if config.bias {
            let by_keys = tile.keys.1 == 0;
            let [rows, columns] =
                if by_keys { [tile.keys.0, tile.queries.0] } else { [tile.queries.0, tile.keys.0] };
            let [row, column] = if by_keys { [blocks[1], blocks[0]] } else { blocks };
            text += &format!(
                "added = register_tensor({}, [{rows}, {columns}])\n\
                 copy(gbias[batch % bb, head % bh, :, {row}, :, {column}], added)\n\
                 scores = scores + cast(added, f32)\n",
                config.dtype
            );
        }
        let (i, j) = (format!("({})", tile.place()), format!("({})", tile.key()));
        let names = Names { i: &i, j: &j, x: "scores" };
        if let Some(change) = self.change.as_ref().filter(|change| change.varies) {
            let capped = if config.softcap { "(1.0 - slope * slope) * " } else { "" };
            text += &format!("change = {capped}{}\n", change.expression.text(&names));
        }
        if let Some(score) = &config.score {
            text += &format!("scores = {}\n", score.text(&names));
        }
        text + &format!("{weights} = exp2(scores * {LOG2E} - {logarithms})\n")
    }

    /// The product of gradients, or of weights, with the derivative of scores by the products of queries and keys over `scale`. Where there is no weight, a
    /// user's derivative may be anything.
    pub(super) fn changed(&self, tile: &Tile, gradients: &str) -> String {
        let capped = if self.config.softcap { " * (1.0 - slope * slope)" } else { "" };
        let Some(change) = &self.change else { return format!("{gradients}{capped}") };
        let factor = match change.varies {
            true => " * change".to_string(),
            false => {
                let (i, j) = (format!("({})", tile.place()), format!("({})", tile.key()));
                format!("{capped} * {}", change.expression.text(&Names { i: &i, j: &j, x: "scores" }))
            }
        };
        format!("where(p > 0.0, {gradients}{factor}, 0.0)")
    }

    /// True if scores have a derivative that is not 1.
    pub(super) fn changes(&self) -> bool {
        self.config.softcap || self.change.is_some()
    }

    /// Statements that give keys that are not attended to no weight.
    pub(super) fn masked(&self, tile: &Tile, weights: &str) -> String {
        let place = |condition: &str, holds: &str| {
            format!("if {condition} {{ {weights} = where({holds}, {weights}, 0.0) }}\n")
        };
        let ((bn, _), (bm, _)) = (tile.keys, tile.queries);
        let ([_, nk], key, query) = (self.lengths(), tile.key(), tile.place());
        let mut text = match self.config.mask {
            Mask::None => place(&format!("key + {bn} > {nk}"), &format!("{key} < {nk}")),
            Mask::Causal | Mask::Window(_) => {
                place(&format!("key + {bn} > place + 1"), &format!("{key} <= {query}"))
            }
        };
        if let Mask::Window(window) = self.config.mask {
            let holds = format!("{key} > {query} - {window}");
            text += &place(&format!("key < place + {bm} - {window}"), &holds);
        }
        if let (Some((_, all)), Some(mask)) = (self.conditions(tile), &self.config.attends) {
            let (i, j) = (format!("({query})"), format!("({key})"));
            text += &place(&format!("not ({all})"), &mask.text(&Names { i: &i, j: &j, x: "scores" }));
        }
        text
    }

    /// The conditions under which the further mask lets some query of a tile attend to some key, and all to all.
    fn conditions(&self, tile: &Tile) -> Option<(String, String)> {
        let rows = format!("(place + {} - 1)", tile.queries.0);
        let keys = format!("(key + {} - 1)", tile.keys.0);
        self.attends.as_ref().map(|mask| mask.conditions(["place", &rows], ["key", &keys]))
    }

    /// Statements for the tiles with a pair that the further mask lets attend.
    pub(super) fn skipped(&self, tile: &Tile, body: &str) -> String {
        match self.conditions(tile) {
            Some((some, _)) => format!("if {some} {{\n{body}}}\n"),
            None => body.to_string(),
        }
    }
}
