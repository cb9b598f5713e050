//! The kernels of a step: the engine's own, which are files in `kernels/`, and operators of `tilewright-kernels`.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::sync::Arc;

use tilewright::kernels::attention_decode::{AttentionDecodeConfig, DecodeLengths, QueryTokens};
use tilewright::machine::Arch;
use tilewright::prelude::{Kernel, Options, Program, compile, parse};
use tilewright::runtime::Sizes;
use tilewright::tune::{Problem, Target, choose};

use crate::config::Config;
use crate::error::LlamaError;

/// Keys of a page of the cache.
pub(crate) const PAGE: usize = 64;
/// Parts of a row of scores whose largest are found apart.
const PARTS: usize = 64;
/// Blocks of a cluster that share a head's keys.
const ATTENDING: usize = 8;
/// The heads of queries that share keys, at most, where a cluster attends.
pub(crate) const MOST_SHARING: usize = 16;
/// Rows of weights of a tile.
const ROWS: usize = 2;
/// Tiles of a block: one that is multiplied, and those on their way.
const TILES: usize = 3;
/// Elements of a row from which on a block has more threads.
const LONG: usize = 8192;
/// Bytes of shared memory of a multiprocessor that tiles of weights take.
const STAGED: usize = 192 << 10;

/// The file of a kernel of the engine's own.
macro_rules! own {
    ($name:literal) => {
        ($name, include_str!(concat!("../kernels/", $name, ".tile")))
    };
}

pub(crate) const EMBED: (&str, &str) = own!("embed");
const NORM: (&str, &str) = own!("norm");
pub(crate) const ROPE: (&str, &str) = own!("rope");
pub(crate) const ATTEND: (&str, &str) = own!("attend");
pub(crate) const SILU: (&str, &str) = own!("silu");
pub(crate) const QKV: (&str, &str) = own!("qkv");
pub(crate) const ADD: (&str, &str) = own!("add");
pub(crate) const GATE: (&str, &str) = own!("gate");
pub(crate) const LOGITS: (&str, &str) = own!("logits");
pub(crate) const TOP: (&str, &str) = own!("top");
pub(crate) const ADVANCE: (&str, &str) = own!("advance");

/// The layout of a row of weights in the files, which is that of their constants' defaults.
const PINNED: &str = "layout = ((32), (8, 4)) : ((8), (1, 256))";

/// Constants of a kernel by name.
pub(crate) type Numbers<'a> = &'a [(&'a str, usize)];

/// A kernel with the sizes of its launch.
pub(crate) type Sized = (Arc<Kernel>, Sizes);

/// Kernels that are compiled, each once.
pub(crate) struct Programs {
    target: Target,
    multiprocessors: usize,
    /// By what was asked for.
    made: HashMap<String, Vec<Sized>>,
}

/// The error of a kernel.
fn failed<E: Error + Send + Sync + 'static>(kernel: &str) -> impl Fn(E) -> LlamaError {
    move |error| LlamaError::Kernel { kernel: kernel.to_string(), source: Box::new(error) }
}

impl Programs {
    /// For a device of this name.
    pub(crate) fn new(device: &str, arch: Arch, multiprocessors: usize) -> Self {
        Programs { target: Target::new(device, arch), multiprocessors, made: HashMap::new() }
    }

    fn compile(
        &self,
        program: &Program,
        constants: Numbers<'_>,
        sizes: Numbers<'_>,
    ) -> Result<Sized, LlamaError> {
        let sizes: Vec<(&str, i64)> = sizes.iter().map(|(name, value)| (*name, *value as i64)).collect();
        let mut options = Options::new(self.target.arch).for_sizes(program, &sizes);
        for (name, value) in constants {
            options = options.constant(*name, *value as i64);
        }
        let kernel = compile(program, &options).map_err(failed(&program.name))?;
        Ok((Arc::new(kernel), sizes.iter().map(|(name, value)| (name.to_string(), *value)).collect()))
    }

    /// The value that was made for a request, or is made now.
    fn once(
        &mut self,
        request: String,
        make: impl FnOnce(&Self) -> Result<Vec<Sized>, LlamaError>,
    ) -> Result<Vec<Sized>, LlamaError> {
        if let Some(made) = self.made.get(&request) {
            return Ok(made.clone());
        }
        let made = make(self)?;
        self.made.insert(request, made.clone());
        Ok(made)
    }

    /// A kernel of the engine's own.
    pub(crate) fn own(
        &mut self,
        (name, text): (&str, &str),
        constants: Numbers<'_>,
        sizes: Numbers<'_>,
    ) -> Result<Vec<Sized>, LlamaError> {
        self.once(format!("{name} {constants:?} {sizes:?}"), |programs| {
            let program = parse(text).map_err(failed(name))?;
            Ok(vec![programs.compile(&program, constants, sizes)?])
        })
    }

    /// The norm of m rows.
    pub(crate) fn norm(&mut self, hidden: usize, m: usize) -> Result<Vec<Sized>, LlamaError> {
        let width = hidden.next_power_of_two();
        let constants = [("H", hidden), ("BN", width), ("THREADS", (width / 8).clamp(32, 512))];
        self.own(NORM, &constants, &[("m", m)])
    }

    /// A kernel of the engine's own that multiplies one token's vector, of k elements, by weights: `rows` names the constant that says how many of `results`
    /// a tile has, `pairs` is 2 where each of these is two rows of weights.
    pub(crate) fn rows(
        &mut self,
        (name, text): (&str, &str),
        (rows, pairs, k): (&str, usize, usize),
        constants: Numbers<'_>,
        sizes: Numbers<'_>,
    ) -> Result<Vec<Sized>, LlamaError> {
        let tile = RowTile::of(k);
        let blocks = self.multiprocessors * tile.blocks;
        let own = [
            (rows, tile.rows / pairs),
            ("BK", tile.columns),
            ("STAGES", tile.stages),
            ("THREADS", tile.threads),
            ("BLOCKS", blocks),
        ];
        let constants = [&own, constants].concat();
        self.once(format!("{name} {constants:?} {sizes:?}"), |programs| {
            let Some((before, after)) = text.split_once(PINNED) else {
                let what = format!("`kernels/{name}.tile` has not the text `{PINNED}`");
                return Err(LlamaError::Kernel { kernel: name.to_string(), source: what.into() });
            };
            let program = parse(&format!("{before}{}{after}", tile.layout())).map_err(failed(name))?;
            Ok(vec![programs.compile(&program, &constants, sizes)?])
        })
    }

    /// The launches of a product of m rows of activations by an operator, with some of its parameters.
    pub(crate) fn product(
        &mut self,
        operator: &'static str,
        [m, n, k]: [usize; 3],
        pinned: &[(&str, &str)],
    ) -> Result<Vec<Sized>, LlamaError> {
        let sizes = [("m", m), ("n", n), ("k", k)];
        let pinned = [pinned, &[("dependent", "true")]].concat();
        self.once(format!("{operator} {sizes:?} {pinned:?}"), |programs| {
            let problem = BTreeMap::from(sizes.map(|(name, value)| (name.to_string(), value as i64)));
            let refused = failed(operator);
            let problem = Problem::new(operator, &problem, &pinned).map_err(&refused)?;
            let choice = choose(&problem, &programs.target, None).map_err(&refused)?;
            let made = choice.candidate.programs(problem.operator()).map_err(failed(operator))?;
            made.iter().map(|program| programs.compile(program, &[], &sizes)).collect()
        })
    }

    /// Attention of one token of one sequence.
    pub(crate) fn attention_of_one(
        &mut self,
        config: &Config,
        [pages, reach]: [usize; 2],
    ) -> Result<Vec<Sized>, LlamaError> {
        let constants = [
            ("HQ", config.heads),
            ("HK", config.kv_heads),
            ("D", config.head),
            ("PAGE", PAGE),
            ("KB", PAGE),
            ("C", ATTENDING),
        ];
        self.own(ATTEND, &constants, &[("pages", pages), ("mb", reach)])
    }

    /// The launches of attention of `tokens` query tokens of each of some sequences over a cache of `pages` pages, of which a sequence has up to
    /// `reach`.
    pub(crate) fn attention(
        &mut self,
        config: &Config,
        [sequences, tokens]: [usize; 2],
        [pages, reach]: [usize; 2],
    ) -> Result<Vec<Sized>, LlamaError> {
        let shape = [sequences, tokens, pages, reach];
        self.once(format!("attention_decode {shape:?}"), |programs| {
            let group = config.heads / config.kv_heads;
            let rows = [16, 32, 64].into_iter().find(|rows| *rows >= tokens * group).unwrap_or(64);
            let shape = AttentionDecodeConfig {
                d: config.head as i64,
                group: group as i64,
                hk: Some(config.kv_heads as i64),
                page: Some(PAGE as i64),
                rows: rows as i64,
                dependent: true,
                ..AttentionDecodeConfig::default()
            };
            let capacity = (reach * PAGE) as i64;
            let lengths = vec![capacity; sequences];
            let lengths = DecodeLengths {
                lengths: &lengths,
                capacity,
                heads: config.kv_heads as i64,
                tokens: QueryTokens::All(tokens as i64),
            };
            let plan = lengths.plan(&shape, programs.target.arch, programs.multiprocessors as i64);
            let plan = plan.map_err(failed("attention_decode"))?;
            let made = plan.config.programs().map_err(failed("attention_decode"))?;
            let all = [
                ("b", sequences),
                ("sq", tokens),
                ("pages", pages),
                ("mb", reach),
                ("splits", plan.schedule.splits as usize),
                ("chunk", plan.schedule.chunk as usize),
            ];
            let sizes_of = |program: &Program| -> Vec<(&str, usize)> {
                let has = |name: &str| program.sizes().any(|(_, symbol, _)| symbol.name == name);
                all.iter().filter(|(name, _)| has(name)).copied().collect()
            };
            made.iter().map(|program| programs.compile(program, &[], &sizes_of(program))).collect()
        })
    }

    /// The parts of a row of scores, as constants.
    pub(crate) fn parts() -> (&'static str, usize) {
        ("PARTS", PARTS)
    }
}

/// A tile of rows of weights of k elements: one vector of 16 bytes of each row a thread at a time.
#[derive(Debug, PartialEq)]
struct RowTile {
    rows: usize,
    columns: usize,
    stages: usize,
    threads: usize,
    /// Blocks of a multiprocessor.
    blocks: usize,
}

impl RowTile {
    /// The tile for rows of k elements: as many threads as leave each several vectors of a row, and as many blocks as have room.
    fn of(k: usize) -> Self {
        let threads = (k / 32).next_power_of_two().clamp(32, if k > LONG { 256 } else { 128 });
        let columns = 8 * threads;
        let bytes = ROWS * 2 * k.next_multiple_of(columns) * TILES;
        RowTile { rows: ROWS, columns, stages: TILES, threads, blocks: (STAGED / bytes).clamp(1, 4) }
    }

    fn layout(&self) -> String {
        let RowTile { rows, columns, threads, .. } = self;
        format!("layout = (({threads}), (8, {rows})) : ((8), (1, {columns}))")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_of_rows_fill_a_multiprocessor() {
        let tile = |rows, columns, threads, blocks| RowTile { rows, columns, stages: 3, threads, blocks };
        assert_eq!(RowTile::of(4096), tile(2, 1024, 128, 4));
        assert_eq!(RowTile::of(14336), tile(2, 2048, 256, 1));
        assert_eq!(RowTile::of(64), tile(2, 256, 32, 4));
        let pinned = RowTile { rows: 4, ..RowTile::of(256) }.layout();
        assert_eq!(pinned, PINNED);
    }
}
