//! C = A · Bᵀ by `mma.sync`: `examples/gemm_multistage.tile` with everything about it a parameter. While the tensor cores work on one
//! tile, `cp.async` or a warpgroup's tensor copies bring the next `stages − 1` to shared memory, and the fragments of the next `kk` columns are on
//! their way to registers. Types, batches, epilogues and parts of k are those of [`gemm_hopper`](crate::gemm_hopper).

mod mainloop;
mod precision;
mod program;
mod space;

use tilewright_machine::{Arch, DType, MmaKind, product_needs};
use tilewright_tile::Program;

pub(crate) use mainloop::part_of;
pub use precision::Precision;
pub(crate) use program::store;

use crate::config::{Codec, ConfigError, dtype_of, optional, optional_text, parameters};
use crate::epilogue::{Epilogue, Part};
use crate::tiles::{Loads, Path, Tiles};
use crate::warp_specialized::{Batch, Major, within};

parameters! {
    /// The tiling of a matrix product. The default, 128 × 128 × 32 in four stages, is the largest tile of four warps that `ptxas` fits
    /// into 255 registers with room to spare.
    #[derive(Copy)]
    pub struct GemmConfig, "gemm", programs {
        /// The type of a and b: f16, bf16, f32, e4m3, e5m2, e3m2, e2m3 or e2m1, whose sums are f32; f64; or i8, u8, i4, u4 or u1, whose sums are i32.
        dtype: DType as MULTIPLIED = DType::F16,
        /// The type of b: same, or of e4m3, e5m2, e3m2 and e2m3 any other.
        dtype_b: Option<DType> as BYTE_OR_SAME = None,
        /// The way of f32 over tensor cores: tf32, one product of 11 bits each; or tf32x3, three products of parts, nearly f32's error.
        precision: Precision as OWN = Precision::Tf32,
        /// The type of c: f16, bf16, f32, f64 or i32; same: that of a and b, of floats of at most 8 bits bf16, of integers i32.
        out: Option<DType> as STORED_OR_SAME = None,
        /// A sparse a, two elements of every four along k (`tilewright_kernels::sparse`): a has half its columns, and meta, of u2, the place of
        /// each in its group of four.
        sparse: bool as FLAG = false,
        /// Scales of blocks of a and b along k, which are tensors a_scale[m, ceil_div(k, block)] and b_scale: none; ue8m0, blocks of 32, of e4m3, e5m2,
        /// e3m2, e2m3 and e2m1 (MXFP8, MXFP6, MXFP4); or ue4m3, blocks of 16, of e2m1 (NVFP4).
        scales: Option<DType> as SCALES = None,
        /// The mode along which a is contiguous: k or m.
        a: Major as K_OR_M = Major::K,
        /// The mode along which b is contiguous: k or n.
        b: Major as K_OR_N = Major::K,
        /// Batching: none; packed (l products, one behind the other); strided (l products a number of elements apart); or pointers (l products
        /// whose matrices lie anywhere in memory, arrays of tensors).
        batch: Batch as OWN = Batch::None,
        /// Operations on the sums, in order: none, or of alpha, row_scale, col_scale, bias, relu, gelu, silu, residual, beta, row_sums,
        /// col_sums some joined with +.
        epilogue: Epilogue as APPLIED = Epilogue::default(),
        /// Split-k: parts of k whose sums meet in global memory; more than 1 for few tiles and a long k.
        split: i64 as INT = 1,
        /// Rows of a block's tile of c, a multiple of 16.
        bm: i64 as INT = 128,
        /// Columns of a block's tile of c, a multiple of 8.
        bn: i64 as INT = 128,
        /// Columns of a and b in a stage, a multiple of kk.
        bk: i64 as INT = 32,
        /// Columns that go to registers at a time, in 32, 64 or 128 bytes: of 2 bytes 16, 32 or 64. From 64 bytes on a lane can hold 16 bytes of neighbours along k.
        kk: i64 as INT = 16,
        /// Casts factors of 4 bits to 8 bits in registers and multiplies those, for architectures that have no tensor cores for 4 bits: from sm_90a on.
        widen: bool as FLAG = false,
        /// Tiles in shared memory: one in use, the others in flight; 1 is no pipeline.
        stages: i64 as INT = 4,
        /// Threads that multiply.
        threads: i64 as INT = 128,
        /// The way of a and b to shared memory: threads (those that multiply, by cp.async) or tma (a warpgroup of its own, by tensor copies, for
        /// architectures that have them: from sm_90a on).
        loads: Loads as OWN = Loads::Threads,
        /// Rows of tiles that blocks go through column by column, before those of the next rows, so that those that run at once read few rows and few
        /// columns; or all.
        rows_together: Option<i64> as ROWS_OR_ALL = None,
        /// The way of the results: staged (through shared memory, to be written in long rows) or direct.
        results: Path as OWN = Path::Staged,
    }
}

impl Codec<DType> {
    pub const FLOAT16: Self = Codec {
        read: |field, text| dtype_of(&[DType::F16, DType::BF16], field, text),
        write: DType::to_string,
    };
    const MULTIPLIED: Self =
        Codec { read: |field, text| dtype_of(&GemmConfig::FACTORS, field, text), write: DType::to_string };
}

impl Codec<Epilogue> {
    /// The same, but for the words that are values of `results` now.
    const APPLIED: Self = Codec {
        read: |field, text| match text.parse::<Path>() {
            Ok(path) => Err(ConfigError::value(field, text, format!("is written results={path} now"))),
            Err(_) => (Self::OWN.read)(field, text),
        },
        ..Self::OWN
    };
}

impl Codec<Option<DType>> {
    const BYTE_OR_SAME: Self = Codec {
        read: |field, text| optional("same", text, |text| dtype_of(&GemmConfig::BYTES, field, text)),
        write: |dtype| optional_text("same", dtype),
    };
    const STORED_OR_SAME: Self = Codec {
        read: |field, text| optional("same", text, |text| dtype_of(&GemmConfig::RESULTS, field, text)),
        write: |dtype| optional_text("same", dtype),
    };
}

impl Codec<Option<DType>> {
    pub const SCALES: Self = Codec {
        read: |field, text| optional("none", text, |text| dtype_of(&GemmConfig::SCALES, field, text)),
        write: |dtype| optional_text("none", dtype),
    };
}

impl Codec<Option<i64>> {
    const ROWS_OR_ALL: Self = Codec {
        read: |field, text| {
            optional("all", text, |text| {
                text.parse().map_err(|_| ConfigError::value(field, text, "must be all or a number"))
            })
        },
        write: |rows| optional_text("all", rows),
    };
}

impl GemmConfig {
    /// The types that factors can have.
    pub const FACTORS: [DType; 14] = [
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::I8,
        DType::U8,
        DType::I4,
        DType::U4,
        DType::U1,
        DType::E4M3,
        DType::E5M2,
        DType::E3M2,
        DType::E2M3,
        DType::E2M1,
    ];

    /// The types of factors of which any two are multiplied: floats in a byte each.
    pub const BYTES: [DType; 4] = [DType::E4M3, DType::E5M2, DType::E3M2, DType::E2M3];

    /// The types that scales of blocks can have.
    pub const SCALES: [DType; 2] = [DType::UE8M0, DType::UE4M3];

    /// The types that results can have.
    pub const RESULTS: [DType; 5] = [DType::F16, DType::BF16, DType::F32, DType::F64, DType::I32];

    /// The type of C.
    pub fn result(&self) -> DType {
        self.out.unwrap_or(match self.dtype {
            DType::E4M3 | DType::E5M2 | DType::E3M2 | DType::E2M3 | DType::E2M1 => DType::BF16,
            integer if integer.range().is_some() => DType::I32,
            same => same,
        })
    }

    /// The type of sums.
    fn sum(&self) -> DType {
        match self.dtype {
            DType::F64 => DType::F64,
            integer if integer.range().is_some() => DType::I32,
            _ => DType::F32,
        }
    }

    /// The type of B.
    pub fn right(&self) -> DType {
        self.dtype_b.unwrap_or(self.dtype)
    }

    /// The types in which both factors are multiplied.
    fn factors(&self) -> [DType; 2] {
        [self.multiplied(), if self.right() == self.dtype { self.multiplied() } else { self.right() }]
    }

    /// The type in which A is multiplied.
    fn multiplied(&self) -> DType {
        match self.dtype {
            DType::I4 if self.widen => DType::I8,
            DType::U4 if self.widen => DType::U8,
            same => same,
        }
    }

    /// The type that the epilogue computes in.
    fn compute(&self) -> DType {
        if self.sum() == DType::I32 && self.result() != DType::I32 { DType::F32 } else { self.sum() }
    }

    /// The type of what the product's kernel stores: C's, or that of sums of parts of k.
    fn stored(&self) -> DType {
        if self.split > 1 { self.sum() } else { self.result() }
    }

    /// Elements of a block that has a scale: those of the formats MX, and of NVFP4.
    pub(crate) fn block(&self) -> Option<i64> {
        self.scales.map(|scale| if scale == DType::UE4M3 { 16 } else { 32 })
    }

    /// The kind of the product.
    pub(crate) fn kind(&self) -> MmaKind {
        match self.scales.zip(self.block()) {
            Some((scale, block)) => MmaKind::Scaled { scale, block },
            None => MmaKind::sparse(self.sparse),
        }
    }

    /// Products of a pair of tiles.
    fn products(&self) -> i64 {
        if self.dtype == DType::F32 { self.precision.products() } else { 1 }
    }

    pub(crate) fn tiles(&self) -> Tiles {
        let GemmConfig { bm, bn, bk, kk, stages, threads, results, loads, split, .. } = *self;
        let [factor, sum, stored] =
            [self.dtype, self.sum(), self.stored()].map(|dtype| i64::from(dtype.bits()));
        Tiles {
            bm,
            bn,
            bk,
            kk,
            stages,
            threads,
            a_bits: factor,
            b_bits: factor,
            sum_bits: sum,
            result_bits: stored,
            products: self.products(),
            widened: self.widen,
            residual: split == 1 && self.epilogue.parts().any(Part::reads_matrix),
            sparse: self.sparse,
            results,
            loads,
            split,
            swapped: false,
            vectors: self.block().map_or(0, |block| stages * (bk / block) * (bm + bn)),
        }
    }

    /// Checks the configuration, whatever the architecture.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check_types()?;
        if self.batch.has_groups() {
            let wanted = "must be none, packed, strided or pointers: only gemm_hopper has groups";
            return Err(ConfigError::value("batch", self.batch, wanted));
        }
        self.check_scales()?;
        let sparse = |factors| product_needs(factors, self.sum(), MmaKind::Sparse).is_some();
        if self.sparse && !sparse([self.dtype, self.right()]) {
            if sparse([self.dtype; 2]) {
                let wanted = "must be same with sparse=true, or sparse false";
                return Err(ConfigError::value("dtype_b", self.right(), wanted));
            }
            let wanted = "sparse products are of f16, bf16, i8, u8, e4m3 and e5m2: must be one of these, or sparse false";
            return Err(ConfigError::value("dtype", self.dtype, wanted));
        }
        if self.sparse && self.a != Major::K {
            let wanted = "a sparse a has its groups of elements along k: must be k";
            return Err(ConfigError::value("a", "m", wanted));
        }
        self.check_loads()?;
        within("split", self.split, [1, 64], 1)?;
        self.rows_together.map_or(Ok(()), |rows| within("rows_together", rows, [1, 1024], 1))?;
        if self.split > 1 && self.batch != Batch::None {
            return Err(ConfigError::value("split", self.split, "one product at a time: batch must be none"));
        }
        self.tiles().check()
    }

    /// Checks the scales, and what goes with them.
    fn check_scales(&self) -> Result<(), ConfigError> {
        let known = product_needs(self.factors(), self.sum(), self.kind()).is_some();
        let Some(scale) = self.scales else {
            let wanted = "are multiplied with scales alone: must be ue8m0 or ue4m3";
            return if known || self.dtype != DType::E2M1 {
                Ok(())
            } else {
                Err(ConfigError::value("scales", "none", format!("elements of {} {wanted}", self.dtype)))
            };
        };
        if self.sparse {
            return Err(ConfigError::value("scales", scale, "must be none with sparse=true"));
        }
        if !known {
            let wanted = match scale {
                DType::UE4M3 => "goes with e2m1",
                _ => "goes with e4m3, e5m2, e3m2, e2m3 and e2m1",
            };
            let wanted = format!("{wanted}: must be none with dtype={}", self.dtype);
            return Err(ConfigError::value("scales", scale, wanted));
        }
        if [self.a, self.b] != [Major::K; 2] {
            let wanted = "scales are of blocks along k: must be k with scales";
            let (field, value) = if self.a == Major::K { ("b", "n") } else { ("a", "m") };
            return Err(ConfigError::value(field, value, wanted));
        }
        Ok(())
    }

    /// Checks that tensor copies load what there is.
    fn check_loads(&self) -> Result<(), ConfigError> {
        let bits = i64::from(self.dtype.bits());
        let wanted = match self.loads {
            Loads::Threads => return Ok(()),
            Loads::Tma if bits < 8 => {
                format!("elements of {} are no whole bytes: must be threads", self.dtype)
            }
            Loads::Tma if self.sparse => {
                "metadata are no whole bytes: must be threads with sparse=true".into()
            }
            Loads::Tma if [self.a, self.b] != [Major::K; 2] => {
                "loads rows along k: must be threads, or a=k and b=k".into()
            }
            Loads::Tma => return Ok(()),
        };
        Err(ConfigError::value("loads", self.loads, wanted))
    }

    /// Checks the types, and what goes with them.
    fn check_types(&self) -> Result<(), ConfigError> {
        if !Self::FACTORS.contains(&self.dtype) {
            let wanted = format!("must be one of {}", Self::FACTORS.map(DType::name).join(", "));
            return Err(ConfigError::value("dtype", self.dtype, wanted));
        }
        let both = [self.dtype, self.right()];
        if both[0] != both[1] && !both.iter().all(|dtype| Self::BYTES.contains(dtype)) {
            let wanted = format!("must be same, or both of {}", Self::BYTES.map(DType::name).join(", "));
            return Err(ConfigError::value("dtype_b", self.right(), wanted));
        }
        if self.precision != Precision::default() && self.dtype != DType::F32 {
            let wanted = format!("says nothing with dtype={}: must be {}", self.dtype, Precision::default());
            return Err(ConfigError::value("precision", self.precision, wanted));
        }
        if self.widen && self.multiplied() == self.dtype {
            let wanted = format!("says nothing with dtype={}: must be false, or dtype i4 or u4", self.dtype);
            return Err(ConfigError::value("widen", self.widen, wanted));
        }
        let (sum, result) = (self.sum(), self.result());
        let known = match sum {
            DType::F64 => &[DType::F64, DType::F32][..],
            DType::I32 => &[DType::I32, DType::F32, DType::F16, DType::BF16],
            _ => &[DType::F32, DType::F16, DType::BF16],
        };
        if !known.contains(&result) {
            let names: Vec<&str> = known.iter().map(|dtype| dtype.name()).collect();
            let wanted = format!("sums of {} are {sum}: must be one of {}", self.dtype, names.join(", "));
            return Err(ConfigError::value("out", result, wanted));
        }
        if result == DType::I32 && !self.epilogue.is_empty() {
            return Err(ConfigError::value(
                "epilogue",
                self.epilogue,
                "is in f32: out must be f16, bf16 or f32",
            ));
        }
        Ok(())
    }

    /// The reason why the configuration cannot run on this architecture, if it cannot.
    pub fn reject(&self, arch: Arch) -> Option<String> {
        let lacks = |needs| format!("needs {}, which {arch} does not have", arch.lacks(needs));
        let exists = |()| match product_needs(self.factors(), self.sum(), self.kind()) {
            Some(needs) if !arch.has(needs) => Err(ConfigError::value("dtype", self.dtype, lacks(needs))),
            _ if !arch.has(self.loads.needs()) => {
                Err(ConfigError::value("loads", self.loads, lacks(self.loads.needs())))
            }
            _ => Ok(()),
        };
        let checked = self.validate().and_then(exists).and_then(|()| self.tiles().check_for(arch));
        checked.err().map(|e| e.to_string())
    }

    /// Rows and columns of which metadata have whole tiles: those of a block's tile (see [`compress`](crate::sparse::compress)).
    pub fn metadata_tile(&self) -> [usize; 2] {
        [self.bm, self.bk].map(|extent| usize::try_from(extent).unwrap_or(1))
    }

    /// The programs that compute C, to be launched in this order; tensors of the same name are the same. `partial` is no operand of the
    /// product: one program writes it for the next.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        let product = self.program()?;
        let sum = (self.split > 1).then(|| self.split_sum()).transpose()?;
        Ok([product].into_iter().chain(sum).collect())
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
