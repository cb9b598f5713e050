//! The extents of a tile along the modes of its groups.

use std::fmt;
use std::str::FromStr;

use super::einsum::Group;
use super::plan::Plan;
use crate::config::ConfigError;

/// The extents of a tile along modes that are not the fastest of their group, by the letters of the mode. Those that are not named are 1,
/// and the fastest has what these leave.
///
/// The text form is `none`, or letters with extents joined with `+`: `a4+bc2`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TileExtents(pub Vec<(String, i64)>);

impl fmt::Display for TileExtents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let all: Vec<String> = self.0.iter().map(|(letters, extent)| format!("{letters}{extent}")).collect();
        f.write_str(&all.join("+"))
    }
}

impl FromStr for TileExtents {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(TileExtents::default());
        }
        let one = |word: &str| {
            let digits = word.find(|c: char| c.is_ascii_digit())?;
            let (letters, extent) = word.split_at(digits);
            let extent = extent.parse().ok().filter(|extent| (1..=256).contains(extent))?;
            let named = !letters.is_empty() && letters.chars().all(|c| c.is_ascii_alphabetic());
            named.then(|| (letters.to_string(), extent))
        };
        let all: Option<Vec<_>> = text.split('+').map(one).collect();
        let wanted = "must be none, or letters of modes with extents from 1 to 256 joined with `+`: a4+bc2";
        all.map(TileExtents).ok_or(wanted)
    }
}

/// Elements of a box of a tensor copy along a mode, at most.
pub(super) const MOST_OF_BOX: i64 = 256;

impl TileExtents {
    /// The extents along each mode of M, N and K, fastest first, of a tile with so many elements along each group, named by their parameters.
    ///
    /// # Errors
    ///
    /// Letters that are no mode, that stand twice or are the fastest mode of their group, and extents that do not divide the tile.
    pub(super) fn of_groups(
        &self,
        plan: &Plan,
        whole: [(&'static str, i64); 3],
    ) -> Result<[Vec<i64>; 3], ConfigError> {
        let groups = [Group::M, Group::N, Group::K];
        for (i, (letters, _)) in self.0.iter().enumerate() {
            let among = |modes: &[String]| modes.iter().skip(1).any(|mode| mode == letters);
            if !groups.iter().any(|group| among(plan.of(*group))) {
                return Err(ConfigError::value("tile", self, wrong_mode(letters, plan)));
            }
            if self.0[..i].iter().any(|(other, _)| other == letters) {
                return Err(ConfigError::value("tile", self, format!("`{letters}` stands twice")));
            }
        }
        let mut found = [const { Vec::new() }; 3];
        for ((group, (field, size)), tiles) in groups.into_iter().zip(whole).zip(&mut found) {
            let given = |mode: &String| self.0.iter().find(|(other, _)| other == mode).map_or(1, |(_, n)| *n);
            let slower: Vec<i64> = plan.of(group).iter().skip(1).map(given).collect();
            let product: i64 = slower.iter().product();
            if product < 1 || size % product != 0 {
                let wanted = format!(
                    "the extents of {group:?} are {product} elements, which must divide {field} = {size}"
                );
                return Err(ConfigError::value("tile", self, wanted));
            }
            tiles.push(size / product);
            tiles.extend(slower);
            if !plan.of(group).is_empty() && tiles[0] > MOST_OF_BOX {
                let wanted =
                    format!("{} elements along one mode: a tile has at most {MOST_OF_BOX}", tiles[0]);
                return Err(ConfigError::value(field, size, wanted));
            }
        }
        Ok(found)
    }
}

/// The modes that there are, where a name is none of them.
fn wrong_mode(letters: &str, plan: &Plan) -> String {
    let slower = |group: &Group| plan.of(*group).iter().skip(1).cloned().collect::<Vec<_>>();
    let known: Vec<String> = [Group::M, Group::N, Group::K].iter().flat_map(slower).collect();
    match known.is_empty() {
        true => format!(
            "`{letters}` is no mode to be named: every group is one mode, whose extent is bm, bn or bk"
        ),
        false => format!(
            "`{letters}` is none of the modes to be named, {}; the fastest mode of a group has what these leave",
            known.join(", ")
        ),
    }
}

/// The extents of a tile of so many elements along a group's modes of these extents, fastest first, for which the fewest elements lie
/// outside. The fastest has at least so many elements, or all of its own.
pub(super) fn fitting(extents: &[i64], whole: i64, least: i64) -> Vec<i64> {
    let Some((fastest, slower)) = extents.split_first() else { return vec![whole] };
    // Each choice of the slower modes' extents: powers of two, which leave the rest to the fastest.
    let mut choices: Vec<Vec<i64>> = vec![Vec::new()];
    for extent in slower {
        // The last power is the first that holds all of the mode.
        let powers = (0..=8).map(|power| 1i64 << power);
        let powers: Vec<i64> = powers.filter(|power| *power == 1 || power / 2 < *extent).collect();
        choices = choices
            .iter()
            .flat_map(|choice| powers.iter().map(move |power| [choice.as_slice(), &[*power]].concat()))
            .filter(|choice| whole % choice.iter().product::<i64>() == 0)
            .collect();
    }
    let padded = |tiles: &[i64]| -> f64 {
        let of = |(extent, tile): (&i64, &i64)| ((extent + tile - 1) / tile * tile) as f64;
        extents.iter().zip(tiles).map(of).product()
    };
    let tiles = choices.into_iter().map(|slower| {
        let product: i64 = slower.iter().product();
        [&[whole / product], slower.as_slice()].concat()
    });
    let fits = |tiles: &Vec<i64>| tiles[0] <= MOST_OF_BOX && (tiles[0] >= least || tiles[0] >= *fastest);
    // Of equals the one with the longest rows.
    let best = tiles.filter(fits).min_by(|a, b| padded(a).total_cmp(&padded(b)).then(b[0].cmp(&a[0])));
    best.unwrap_or_else(|| [vec![whole], vec![1; slower.len()]].concat())
}

impl TileExtents {
    /// The extents with the fewest elements outside, of a tile with so many along M, N and K, for modes of these extents.
    pub(super) fn fitting(
        plan: &Plan,
        extents: &[Vec<i64>; 4],
        whole: [i64; 3],
        least: [i64; 3],
    ) -> TileExtents {
        let groups = [Group::M, Group::N, Group::K];
        let of = |((group, whole), least): ((Group, i64), i64)| {
            let tiles = fitting(&extents[group as usize], whole, least);
            let named = plan.of(group).iter().cloned().zip(tiles).skip(1);
            named.filter(|(_, tile)| *tile > 1).collect::<Vec<_>>()
        };
        TileExtents(groups.into_iter().zip(whole).zip(least).flat_map(of).collect())
    }
}
