//! C = A · (S ∘ W)ᵀ with f16 activations and signed 4-bit weights in plain row-major order. Weights stay packed in global memory,
//! shared memory and registers until a lane makes f16 of its own; synthesis finds the layouts in which none has to be moved, so
//! nothing is repacked beforehand (as Marlin and Machete do). A scale is shared by `group` neighbours along k.

mod program;

use std::fmt;
use std::str::FromStr;

use tilewright_machine::{Arch, DType};
use tilewright_tile::Program;

use crate::config::{Codec, ConfigError, number, optional, optional_text, parameters};
use crate::estimate;
use crate::moe::ExpertsProblem;
use crate::tiles::{Loads, Path, Tiles};
use crate::tuning::{Chip, Launch, MNKL, SizeKind, Tunable, three};
use crate::warp_specialized::Batch;

parameters! {
    /// The tiling of a matrix product with 4-bit weights. The default, 16 × 128 × 128 in four stages with groups of 128, is for few rows,
    /// where reading the weights is all the time.
    #[derive(Copy)]
    pub struct W4A16Config, "w4a16", programs {
        /// Weights along k that share a scale, a multiple of bk, or of kk and a divisor of bk; or k, for the whole of it.
        group: Option<i64> as GROUP = Some(128),
        /// Zero points `z[ceil_div(k, group), n]` are taken from the weights before they are scaled.
        zeros: bool as FLAG = false,
        /// none, or ragged: rows of a by experts, each with weights of its own, in tiles of bm rows: `groups[t]` has the expert of each tile, `first[t]` its
        /// first row, `ends[g]` the row behind each expert's last.
        batch: Batch as OWN = Batch::None,
        /// With ragged: row i of the product is that of row `rows[i]` of `a[r, k]`; −1 for none.
        gather: bool as FLAG = false,
        /// Rows of a block's tile of c, a multiple of 8.
        bm: i64 as INT = 16,
        /// Columns of a block's tile of c, a multiple of 16.
        bn: i64 as INT = 128,
        /// Columns of a and w in a stage, a multiple of kk.
        bk: i64 as INT = 128,
        /// Columns that go to registers at a time: 16, 32 or 64.
        kk: i64 as INT = 64,
        /// Tiles in shared memory: one in use, the others in flight; 1 is no pipeline.
        stages: i64 as INT = 4,
        /// Threads of a block.
        threads: i64 as INT = 128,
        /// The way of the weights: staged in shared memory (by `cp.async`; through registers where rows begin within bytes), direct, or cast: through registers,
        /// where they become f16 and are scaled, into shared memory, and from there to those that multiply them.
        weights: Way as OWN = Way::Staged,
        /// The way of the results: staged (through shared memory, to be written in long rows) or direct.
        epilogue: Path as OWN = Path::Staged,
    }
}

/// The way of weights from global memory to the products.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// In shared memory as they are; lanes cast those that they multiply.
    Staged,
    /// Straight; lanes cast those that they multiply.
    Direct,
    /// Through registers, where they become f16, and through shared memory, as Triton has them (*Hexcute*, CGO 2026, Fig. 4 a).
    Cast,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Staged => "staged",
            Way::Direct => "direct",
            Way::Cast => "cast",
        })
    }
}

impl FromStr for Way {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = [Way::Staged, Way::Direct, Way::Cast].into_iter().find(|way| way.to_string() == text);
        found.ok_or("must be staged, direct or cast")
    }
}

impl Codec<Option<i64>> {
    /// A number of neighbours along k, or `k`, for all of them.
    pub const GROUP: Self = Codec {
        read: |field, text| optional("k", text, |text| number(field, text)),
        write: |group| optional_text("k", group),
    };
}

impl W4A16Config {
    pub(crate) fn tiles(&self) -> Tiles {
        let W4A16Config { bm, bn, bk, kk, stages, threads, epilogue, .. } = *self;
        Tiles {
            bm,
            bn,
            bk,
            kk,
            stages,
            threads,
            a_bits: 16,
            b_bits: 4,
            sum_bits: 32,
            result_bits: 16,
            products: 1,
            widened: false,
            sparse: false,
            residual: false,
            results: epilogue,
            loads: Loads::Threads,
            split: 1,
            swapped: true,
            vectors: self.vector_bytes(),
        }
    }

    /// Bytes of shared memory for scales and zero points, and for weights that were cast.
    fn vector_bytes(&self) -> i64 {
        let vectors = self.stages * self.bn * self.groups() * 2 * if self.zeros { 2 } else { 1 };
        vectors + if self.weights == Way::Cast { self.bn * self.bk * 2 } else { 0 }
    }

    /// True where a stage lies within a group, or has whole groups of whole parts.
    fn divides(&self, group: i64) -> bool {
        group % self.bk == 0 || self.bk % group == 0 && group % self.kk == 0
    }

    /// Groups of a stage: one where it lies within a group.
    fn groups(&self) -> i64 {
        self.group.map_or(1, |group| (self.bk / group).max(1))
    }

    /// Checks the configuration, whatever the architecture.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.tiles().check()?;
        if !matches!(self.batch, Batch::None | Batch::Ragged) {
            return Err(ConfigError::value("batch", self.batch, "must be none or ragged"));
        }
        if self.gather && self.batch != Batch::Ragged {
            let wanted = "rows lie anywhere in tiles of experts alone: needs batch=ragged";
            return Err(ConfigError::value("gather", true, wanted));
        }
        match self.group {
            Some(group) if !(1..=1 << 20).contains(&group) || !self.divides(group) => {
                let wanted = format!(
                    "must be a multiple of bk = {} up to {}, a multiple of kk = {} that divides bk, or k",
                    self.bk,
                    1 << 20,
                    self.kk
                );
                Err(ConfigError::value("group", group, wanted))
            }
            _ => Ok(()),
        }
    }

    /// The reason why the configuration cannot run on this architecture, if it cannot.
    pub fn reject(&self, arch: Arch) -> Option<String> {
        self.validate().and_then(|()| self.tiles().check_for(arch)).err().map(|e| e.to_string())
    }

    fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        Ok(vec![self.program()?])
    }

    /// The configurations worth trying for a problem with this group, in no order of merit; see
    /// [`GemmConfig::space`](crate::gemm::GemmConfig::space).
    pub fn space(
        arch: Arch,
        m: i64,
        n: i64,
        k: i64,
        group: Option<i64>,
    ) -> impl Iterator<Item = W4A16Config> {
        Self::grid(group).filter(move |c| c.tiles().suits(m, n, k) && c.reject(arch).is_none())
    }

    /// The points of which [`space`](Self::space) keeps the valid ones.
    pub fn grid(group: Option<i64>) -> impl Iterator<Item = W4A16Config> {
        let points =
            [8, 16, 32, 64, 128].into_iter().flat_map(|bm| [64, 96, 128, 192, 256].map(|bn| (bm, bn)));
        let points = points.flat_map(|(bm, bn)| {
            [(32, 32), (64, 32), (64, 64), (128, 32), (128, 64), (256, 32), (256, 64)]
                .map(|(bk, kk)| (bm, bn, bk, kk))
        });
        let points = points.flat_map(|tile| {
            (2..=6).flat_map(move |stages| [128, 256].map(|threads| (tile, stages, threads)))
        });
        points.map(move |((bm, bn, bk, kk), stages, threads)| W4A16Config {
            group,
            bm,
            bn,
            bk,
            kk,
            stages,
            threads,
            ..Self::default()
        })
    }
}

impl Tunable for W4A16Config {
    const SIZES: &'static [(&'static str, SizeKind)] = MNKL;
    const MEANING: &'static [&'static str] = &["group", "zeros", "batch", "gather"];
    const FAMILY: &'static [&'static str] = &["bm", "bn", "threads"];
    const SECONDARY: &'static [(&'static str, &'static [&'static str])] = &[
        ("weights", &["staged", "direct"]),
        ("epilogue", &["staged", "direct"]),
        ("stages", &["2", "3", "4", "5", "6"]),
        ("kk", &["16", "32", "64"]),
        ("bk", &["32", "64", "128", "256", "512"]),
    ];

    fn points() -> impl Iterator<Item = Self> {
        W4A16Config::grid(W4A16Config::default().group)
    }

    fn suits(&self, sizes: &[i64]) -> bool {
        let [m, n, k] = match self.batch {
            Batch::Ragged => ExpertsProblem::of(sizes).each(),
            _ => three(sizes),
        };
        self.tiles().suits(m, n, k)
    }

    fn reject(&self, arch: Arch) -> Option<String> {
        W4A16Config::reject(self, arch)
    }

    fn launch(&self, _: Arch, sizes: &[i64]) -> Result<Option<Launch>, ConfigError> {
        let launch = || ExpertsProblem::of(sizes).launch_in_tiles(self.bm, self.gather);
        Ok((self.batch == Batch::Ragged).then(launch))
    }

    fn estimate(&self, chip: Chip<'_>, sizes: &[i64]) -> f64 {
        let sizes = match self.batch {
            Batch::Ragged => ExpertsProblem::of(sizes).in_tiles(self.bm),
            _ => three(sizes),
        };
        estimate::tiles(&self.tiles(), chip.arch, estimate::Work::of(DType::F16, DType::F32, sizes))
    }
}

/// Sizes at which the tiles meet every kind of edge. With an odd k the rows of the weights begin within bytes.
pub fn edge_sizes(config: &W4A16Config) -> Vec<[i64; 3]> {
    let W4A16Config { bm, bn, bk, .. } = *config;
    vec![
        [1, 1, 2],
        [1, 17, bk],
        [bm, bn, bk * 2],
        [bm - 1, bn + 1, bk + 2],
        [bm + 1, bn - 1, bk - 2],
        [bm, bn + 8, 3 * bk + 8],
        [17, 40, 2 * bk + 2],
        [1, 1, 1],
        [bm + 1, bn - 1, bk - 1],
        [3, 33, bk + 1],
        [3, 33, 5],
    ]
}

/// C = A · (S ∘ (W − Z))ᵀ in f64, row-major, with `n` and `k` of the shapes A[m, k], W[n, k], S and Z[groups, n]; `group` as in [`W4A16Config`], `z` empty
/// without zero points.
pub fn reference(
    a: &[f64],
    w: &[f64],
    [s, z]: [&[f64]; 2],
    [n, k]: [usize; 2],
    group: Option<usize>,
) -> Vec<f64> {
    let group = group.unwrap_or(k);
    let mut c = Vec::new();
    for row in a.chunks(k) {
        for (column, weights) in w.chunks(k).enumerate().take(n) {
            let terms = row.iter().zip(weights).enumerate().map(|(i, (x, w))| {
                let at = i / group * n + column;
                x * (w - z.get(at).unwrap_or(&0.0)) * s[at]
            });
            c.push(terms.sum());
        }
    }
    c
}
