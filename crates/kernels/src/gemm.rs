//! C = A · Bᵀ in f16 or bf16 with f32 sums: `examples/gemm_multistage.tile` with everything about it a parameter. While the
//! tensor cores work on one tile, `cp.async` brings the next `stages − 1` to shared memory, and the fragments of the next `kk`
//! columns are on their way to registers.

use tilewright_machine::{Arch, DType};
use tilewright_tile::dsl::{KernelBuilder, Reference, Tensor, block_x, block_y, steps, tile};
use tilewright_tile::{Expr, Program};

use crate::config::{Codec, ConfigError, dtype_of, parameters};
use crate::estimate;
use crate::tiles::{Path, Tiles};
use crate::tuning::{MNK, SizeKind, Tunable, three};

parameters! {
    /// The tiling of a matrix product. The default, 128 × 128 × 32 in four stages, is the largest tile of four warps that `ptxas` fits
    /// into 255 registers with room to spare.
    #[derive(Copy)]
    pub struct GemmConfig, "gemm", programs {
        /// The type of a, b and c: f16 or bf16. Sums are f32.
        dtype: DType as FLOAT16 = DType::F16,
        /// Rows of a block's tile of c, a multiple of 16.
        bm: i64 as INT = 128,
        /// Columns of a block's tile of c, a multiple of 8.
        bn: i64 as INT = 128,
        /// Columns of a and b in a stage, a multiple of kk.
        bk: i64 as INT = 32,
        /// Columns that go to registers at a time: 16, 32 or 64. From 32 on a lane can hold 8 neighbours along k.
        kk: i64 as INT = 16,
        /// Tiles in shared memory: one in use, the others in flight; 1 is no pipeline.
        stages: i64 as INT = 4,
        /// Threads of a block.
        threads: i64 as INT = 128,
        /// The way of the results: staged (through shared memory, to be written in long rows) or direct.
        epilogue: Path as OWN = Path::Staged,
    }
}

impl Codec<DType> {
    pub const FLOAT16: Self = Codec {
        read: |field, text| dtype_of(&[DType::F16, DType::BF16], field, text),
        write: DType::to_string,
    };
}

impl GemmConfig {
    pub(crate) fn tiles(&self) -> Tiles {
        let GemmConfig { bm, bn, bk, kk, stages, threads, epilogue, .. } = *self;
        Tiles { bm, bn, bk, kk, stages, threads, b_bits: 16, epilogue }
    }

    /// Checks the configuration, whatever the architecture.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if ![DType::F16, DType::BF16].contains(&self.dtype) {
            return Err(ConfigError::value("dtype", self.dtype, "must be f16 or bf16"));
        }
        self.tiles().check()
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
        let mut t = KernelBuilder::new("gemm");
        let (m, n, k) = (t.size("m", 1024), t.size("n", 1024), t.size("k", 1024));
        let (bm, bn, bk) = (t.constant("BM", self.bm), t.constant("BN", self.bn), t.constant("BK", self.bk));
        let (kk, stages) = (t.constant("KK", self.kk), t.constant("STAGES", self.stages));
        let a = t.tensor("a", self.dtype, [&m, &k]);
        let b = t.tensor("b", self.dtype, [&n, &k]);
        let c = t.tensor("c", self.dtype, [&m, &n]);
        t.grid([m.ceil_div(&bm), n.ceil_div(&bn)]);
        t.threads(self.threads);

        let (tiles, parts) = (k.ceil_div(&bk), &bk / &kk);
        let rows = |rows| [tile(0, rows), tile(1, &kk), steps(1, &parts, &kk), steps(1, &tiles, &bk)];
        let ga = t.global_view("ga", a.from([block_x() * &bm, 0.into()]), rows(&bm));
        let gb = t.global_view("gb", b.from([block_y() * &bn, 0.into()]), rows(&bn));
        let gc =
            t.global_view("gc", c.from([block_x() * &bm, block_y() * &bn]), [tile(0, &bm), tile(1, &bn)]);
        let sa = t.shared_tensor("sa", self.dtype, [&bm, &kk, &parts, &stages]);
        let sb = t.shared_tensor("sb", self.dtype, [&bn, &kk, &parts, &stages]);
        let ra = t.register_tensor("ra", self.dtype, [&bm, &kk, &2.into()]);
        let rb = t.register_tensor("rb", self.dtype, [&bn, &kk, &2.into()]);
        let rc = t.register_tensor("rc", DType::F32, [&bm, &bn]);
        t.fill(&rc, 0.0);

        let fetch = |t: &mut KernelBuilder, i: &Expr| {
            t.copy_async(ga.at(i), sa.at(i % &stages));
            t.copy_async(gb.at(i), sb.at(i % &stages));
            t.commit_group();
        };
        t.unroll_for("s", 0, &stages - 1, |t, s| fetch(t, &s));
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
            let load = |t: &mut KernelBuilder, p: &Expr| {
                t.copy(part_of(&sa, p, &ki % &stages), ra.at(p % 2));
                t.copy(part_of(&sb, p, &ki % &stages), rb.at(p % 2));
            };
            let multiply = |t: &mut KernelBuilder, p: Expr| {
                let (ra, rb) = (t.part(ra.at(&p % 2)), t.part(rb.at(&p % 2)));
                t.gemm(&rc, ra, rb);
            };
            load(t, &0.into());
            t.unroll_for("p", 1, &parts, |t, p| {
                load(t, &p);
                multiply(t, p - 1);
            });
            multiply(t, &parts - 1);
        });
        store(&mut t, self.epilogue, &rc, &gc, self.dtype, [&bm, &bn]);
        Ok(t.finish()?)
    }

    fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        Ok(vec![self.program()?])
    }

    /// The configurations worth trying for a problem, in no order of merit: every one compiles for the architecture, as far as the
    /// rules of [`reject`](Self::reject) know, and has tiles in proportion to the problem.
    pub fn space(arch: Arch, m: i64, n: i64, k: i64) -> impl Iterator<Item = GemmConfig> {
        Self::grid().filter(move |c| c.tiles().suits(m, n, k) && c.reject(arch).is_none())
    }

    /// The points of which [`space`](Self::space) keeps the valid ones.
    pub fn grid() -> impl Iterator<Item = GemmConfig> {
        let points = [16, 32, 64, 96, 128, 192, 256]
            .into_iter()
            .flat_map(|bm| [32, 64, 96, 128, 192, 256].map(|bn| (bm, bn)));
        let points = points
            .flat_map(|(bm, bn)| [(32, 16), (32, 32), (64, 16), (64, 32)].map(|(bk, kk)| (bm, bn, bk, kk)));
        let points = points.flat_map(|tile| {
            (2..=6).flat_map(move |stages| [128, 256].map(|threads| (tile, stages, threads)))
        });
        points.map(|((bm, bn, bk, kk), stages, threads)| GemmConfig {
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

/// `t[:, :, part, stage]`.
pub(crate) fn part_of(t: &Tensor, part: &Expr, stage: Expr) -> Reference {
    t.index([None, None, Some(part.clone()), Some(stage)])
}

/// Rounds the sums of a tile and writes them.
pub(crate) fn store(
    t: &mut KernelBuilder,
    epilogue: Path,
    sums: &Tensor,
    to: &Tensor,
    dtype: DType,
    shape: [&Expr; 2],
) {
    let rounded = t.cast("rounded", sums, dtype);
    match epilogue {
        Path::Direct => t.copy(rounded, to),
        Path::Staged => {
            let staged = t.shared_tensor("staged", dtype, shape);
            let rows = t.register_tensor("rows", dtype, shape);
            // The last copies have landed and nobody reads the tiles any more: the results may lie where they were.
            t.wait_group(0);
            t.syncthreads();
            t.copy(rounded, staged);
            t.syncthreads();
            t.copy(staged, rows);
            t.copy(rows, to);
        }
    }
}

impl Tunable for GemmConfig {
    const SIZES: &'static [(&'static str, SizeKind)] = MNK;
    const MEANING: &'static [&'static str] = &["dtype"];
    const FAMILY: &'static [&'static str] = &["bm", "bn", "threads"];
    const SECONDARY: &'static [(&'static str, &'static [&'static str])] = &[
        ("epilogue", &["staged", "direct"]),
        ("stages", &["2", "3", "4", "5", "6"]),
        ("kk", &["16", "32", "64"]),
        ("bk", &["32", "64", "128"]),
    ];

    fn points() -> impl Iterator<Item = Self> {
        GemmConfig::grid()
    }

    fn suits(&self, sizes: &[i64]) -> bool {
        let [m, n, k] = three(sizes);
        self.tiles().suits(m, n, k)
    }

    fn reject(&self, arch: Arch) -> Option<String> {
        GemmConfig::reject(self, arch)
    }

    fn estimate(&self, arch: Arch, sizes: &[i64]) -> f64 {
        estimate::tiles(&self.tiles(), arch, three(sizes))
    }
}

/// Sizes at which tiles of `bm` × `bn` × `bk` meet every kind of edge: one, one less and one more than a tile, rows that no
/// vector divides.
pub fn edge_sizes(config: &GemmConfig) -> Vec<[i64; 3]> {
    let GemmConfig { bm, bn, bk, .. } = *config;
    vec![
        [1, 1, 1],
        [1, 17, bk],
        [bm, bn, bk * 2],
        [bm - 1, bn + 1, bk + 1],
        [bm + 1, bn - 1, bk - 1],
        [bm + 8, bn + 8, 3 * bk + 8],
        [17, 2 * bn, 8],
    ]
}

/// C = A · Bᵀ in f64, row-major, with `n` and `k` of the shapes A[m, k] and B[n, k].
pub fn reference(a: &[f64], b: &[f64], n: usize, k: usize) -> Vec<f64> {
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum();
    a.chunks(k).flat_map(|row| b.chunks(k).take(n).map(move |column| dot(row, column))).collect()
}
