//! C = A · (S ∘ W)ᵀ with f16 activations and signed 4-bit weights in plain row-major order. Weights stay packed in global memory,
//! shared memory and registers until a lane makes f16 of its own; synthesis finds the layouts in which none has to be moved, so
//! nothing is repacked beforehand (as Marlin and Machete do). A scale is shared by `group` neighbours along k.

use tilewright_machine::{Arch, DType};
use tilewright_tile::dsl::{KernelBuilder, Tensor, block_x, block_y, steps, tile};
use tilewright_tile::{Expr, Program};

use crate::config::{Codec, ConfigError, number, optional, optional_text, parameters};
use crate::estimate;
use crate::gemm::{part_of, store};
use crate::tiles::{Path, Tiles};
use crate::tuning::{Chip, MNK, SizeKind, Tunable, three};

parameters! {
    /// The tiling of a matrix product with 4-bit weights. The default, 16 × 128 × 128 in four stages with groups of 128, is for few rows,
    /// where reading the weights is all the time.
    #[derive(Copy)]
    pub struct W4A16Config, "w4a16", programs {
        /// Weights along k that share a scale, a multiple of bk, or of kk and a divisor of bk; or k, for the whole of it.
        group: Option<i64> as GROUP = Some(128),
        /// Rows of a block's tile of c, a multiple of 16.
        bm: i64 as INT = 16,
        /// Columns of a block's tile of c, a multiple of 8.
        bn: i64 as INT = 128,
        /// Columns of a and w in a stage, a multiple of kk.
        bk: i64 as INT = 128,
        /// Columns that go to registers at a time: 16, 32 or 64.
        kk: i64 as INT = 64,
        /// Tiles in shared memory: one in use, the others in flight; 1 is no pipeline.
        stages: i64 as INT = 4,
        /// Threads of a block.
        threads: i64 as INT = 128,
        /// The way of the weights: staged in shared memory (by `cp.async`; through registers where rows begin within bytes) or direct.
        weights: Path as OWN = Path::Staged,
        /// The way of the results: staged (through shared memory, to be written in long rows) or direct.
        epilogue: Path as OWN = Path::Direct,
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
            split: 1,
        }
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

    /// The program, with the sizes `m`, `n` and `k`.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn program(&self) -> Result<Program, ConfigError> {
        self.validate()?;
        let mut t = KernelBuilder::new("w4a16");
        let (m, n, k) = (t.size("m", 16), t.size("n", 4096), t.size("k", 4096));
        let (bm, bn, bk) = (t.constant("BM", self.bm), t.constant("BN", self.bn), t.constant("BK", self.bk));
        let (kk, stages) = (t.constant("KK", self.kk), t.constant("STAGES", self.stages));
        let group = self.group.map(|group| t.constant("GROUP", group));
        let groups = group.as_ref().map_or(Expr::Int(1), |group| k.ceil_div(group));
        let a = t.tensor("a", DType::F16, [&m, &k]);
        let w = t.tensor("w", DType::I4, [&n, &k]);
        let s = t.tensor("s", DType::F16, [&n, &groups]);
        let c = t.tensor("c", DType::F16, [&m, &n]);
        t.grid([m.ceil_div(&bm), n.ceil_div(&bn)]);
        t.threads(self.threads);

        let (tiles, parts) = (k.ceil_div(&bk), &bk / &kk);
        let rows = |rows| [tile(0, rows), tile(1, &kk), steps(1, &parts, &kk), steps(1, &tiles, &bk)];
        let ga = t.global_view("ga", a.from([block_x() * &bm, 0.into()]), rows(&bm));
        let gw = t.global_view("gw", w.from([block_y() * &bn, 0.into()]), rows(&bn));
        // Groups of a stage, each a vector.
        let several = self.groups();
        let modes = [tile(0, &bn), tile(1, &groups)];
        let gs = t.global_view("gs", s.from([block_y() * &bn, 0.into()]), modes);
        let gc =
            t.global_view("gc", c.from([block_x() * &bm, block_y() * &bn]), [tile(0, &bm), tile(1, &bn)]);
        let sa = t.shared_tensor("sa", DType::F16, [&bm, &kk, &parts, &stages]);
        let staged = self.weights == Path::Staged;
        let sw = staged.then(|| t.shared_tensor("sw", DType::I4, [&bn, &kk, &parts, &stages]));
        let ra = t.register_tensor("ra", DType::F16, [&bm, &kk, &2.into()]);
        let rw = t.register_tensor("rw", DType::I4, [&bn, &kk, &2.into()]);
        let wf = t.register_tensor("wf", DType::F16, [&bn, &kk]);
        let scales: Vec<Tensor> =
            (0..several).map(|which| t.register_tensor(&numbered("rs", which), DType::F16, [&bn])).collect();
        let rc = t.register_tensor("rc", DType::F32, [&bm, &bn]);
        t.fill(&rc, 0.0);

        let fetch = |t: &mut KernelBuilder, i: &Expr| {
            t.copy_async(ga.at(i), sa.at(i % &stages));
            if let Some(sw) = &sw {
                t.copy_async(gw.at(i), sw.at(i % &stages));
            }
            t.commit_group();
        };
        // The scales of a round; there are none to read past the end.
        let next = |t: &mut KernelBuilder, round: &Expr| {
            for (which, rs) in scales.iter().enumerate() {
                let first = group.as_ref().map_or(Expr::Int(0), |group| round * &bk / group);
                t.copy(gs.at(first + which as i64), *rs);
            }
        };
        next(&mut t, &0.into());
        t.unroll_for("p", 0, &stages - 1, |t, p| fetch(t, &p));
        t.for_range("ki", 0, &tiles, |t, ki| {
            if self.stages == 1 {
                // No pipeline: the last round's tile is read to the end before this round's takes its place.
                t.syncthreads();
                fetch(t, &ki);
                t.wait_group(0);
                t.syncthreads();
            } else {
                // The oldest group in flight is this round's tile; after the barrier nobody reads the last round's any more.
                t.wait_group(&stages - 2);
                t.syncthreads();
                fetch(t, &(&ki + &stages - 1));
            }
            let factors: Vec<Tensor> = (0..several)
                .map(|which| {
                    let column = t.expand(&numbered("column", which), scales[which as usize], 1);
                    t.broadcast(&numbered("sf", which), column, [&bn, &kk])
                })
                .collect();
            if group.is_some() {
                next(t, &(&ki + 1));
            }
            let load = |t: &mut KernelBuilder, p: &Expr| {
                t.copy(part_of(&sa, p, &ki % &stages), ra.at(p % 2));
                let weights = sw.as_ref().map(|sw| part_of(sw, p, &ki % &stages));
                t.copy(weights.unwrap_or_else(|| part_of(&gw, p, ki.clone())), rw.at(p % 2));
            };
            let multiply = |t: &mut KernelBuilder, p: Expr, sf: Tensor| {
                let rw = t.part(rw.at(&p % 2));
                t.cast_to(&wf, rw);
                t.assign(&wf, wf * sf);
                let ra = t.part(ra.at(&p % 2));
                t.gemm(&rc, ra, wf);
            };
            load(t, &0.into());
            let of_group = self.bk / self.kk / several;
            for (which, sf) in (0..several).zip(&factors) {
                let end =
                    if which + 1 < several { Expr::Int((which + 1) * of_group + 1) } else { parts.clone() };
                t.unroll_for("q", which * of_group + 1, &end, |t, q| {
                    load(t, &q);
                    multiply(t, q - 1, *sf);
                });
            }
            if let Some(sf) = factors.last() {
                multiply(t, &parts - 1, *sf);
            }
        });
        store(&mut t, self.epilogue, &rc, &gc, DType::F16, [&bm, &bn]);
        Ok(t.finish()?)
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
        let points = [16, 32, 64, 128].into_iter().flat_map(|bm| [64, 96, 128, 192, 256].map(|bn| (bm, bn)));
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
    const SIZES: &'static [(&'static str, SizeKind)] = MNK;
    const MEANING: &'static [&'static str] = &["group"];
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
        let [m, n, k] = three(sizes);
        self.tiles().suits(m, n, k)
    }

    fn reject(&self, arch: Arch) -> Option<String> {
        W4A16Config::reject(self, arch)
    }

    fn estimate(&self, chip: Chip<'_>, sizes: &[i64]) -> f64 {
        estimate::tiles(&self.tiles(), chip.arch, estimate::Work::of(DType::F16, DType::F32, three(sizes)))
    }
}

/// The name of one of several tensors; of the first, or only one, the word alone.
fn numbered(word: &str, which: i64) -> String {
    if which == 0 { word.to_string() } else { format!("{word}_{which}") }
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

/// C = A · (S ∘ W)ᵀ in f64, row-major, with `n` and `k` of the shapes A[m, k] and W[n, k]; `group` as in [`W4A16Config`].
pub fn reference(a: &[f64], w: &[f64], s: &[f64], n: usize, k: usize, group: Option<usize>) -> Vec<f64> {
    let group = group.unwrap_or(k);
    let groups = k.div_ceil(group);
    let mut c = Vec::new();
    for row in a.chunks(k) {
        for (weights, scales) in w.chunks(k).zip(s.chunks(groups)).take(n) {
            let terms = row.iter().zip(weights).enumerate().map(|(i, (x, w))| x * w * scales[i / group]);
            c.push(terms.sum());
        }
    }
    c
}
