//! C = A · Bᵀ in f16, bf16, f32 or 8-bit floats with f32 sums, or in 8-bit integers with i32 sums, by TMA and wgmma:
//! `examples/gemm_hopper.tile` with everything about it a parameter. One warpgroup loads tiles of A and B into a ring of stages,
//! others multiply them and store their results in chunks. The grid is persistent: a block takes one tile of C after another, and may
//! store one during the mainloop of the next (epilogue overlap). With few rows of A the operands may be swapped, so that the rows of B
//! meet the 64 rows of `wgmma`. On Blackwell sums are in tensor memory, and one store of a tile overlaps with the next one's products always.

mod dual;
mod estimate;
mod form;
mod function;
mod gather;
mod gemv;
mod multiplied;
mod outer;
mod pack;
mod precision;
mod reference;
mod scales;
mod space;
mod sparse;
mod split_sum;
mod square;
mod sums_a;
mod tcgen05;
mod tile;

use tilewright_machine::{Arch, CacheHint, DType};
use tilewright_tile::Program;

pub use crate::epilogue::{Epilogue, Part};
pub use crate::interned::Text;
pub use crate::warp_specialized::{Batch, Cluster, Dual, FillMode, Major, Rasterization, Schedule, Triangle};
pub(crate) use estimate::PerStep;
pub use form::Form;
pub use pack::Pack;
pub use precision::Precision;
pub use reference::{Inputs, combined, edge_sizes, finish, finish_with, row_sums, sums};
pub(crate) use split_sum::{Parts, add_parts};
pub(crate) use tile::{Adds, Finish, Tile};

use crate::config::{Codec, ConfigError, dtype_of, optional, optional_text, parameters};
use crate::epilogue::{Chain, EpilogueOp};
use crate::warp_specialized::{
    BARRIERS, CLUSTER_REDUCE_BYTES, GemmKernel, Mainloop, Needs, Nesting, ROW_BYTES, Tiling, TmaWgmma,
    aligned, bytes, bytes_of, lacking, scattering_registers, tiling, within,
};

parameters! {
    /// The tiling of a matrix product and its distribution over blocks. The default, 128 × 256 × 64 in four stages, is fastest or nearly so
    /// wherever c has a few hundred tiles of that size.
    #[derive(Copy)]
    pub struct HopperGemmConfig, "gemm_hopper", programs {
        /// The type of a and b: f16, bf16, f32, e4m3 or e5m2, whose sums are f32, i8 or u8, whose sums are i32, e3m2 or e2m3, which a first kernel makes e5m2 and e4m3, or with scales
        /// e2m1.
        dtype: DType as FACTOR = DType::F16,
        /// The type of b: same, or of floats of 8 and 6 bits any other of these.
        dtype_b: Option<DType> as FACTOR_OR_SAME = None,
        /// The type of c: f16, bf16, f32 or i32; same: that of a and b, of floats of 8 and 4 bits bf16, of integers i32.
        out: Option<DType> as RESULT_OR_SAME = None,
        /// The products that one of f32 is made of: tf32, one of the factors' upper 19 bits; tf32x3, of two parts of each; or bf16x6 or bf16x9, of three parts.
        precision: Precision as OWN = Precision::Tf32,
        /// Adds the sums of each stage to f32 sums in the threads, since tensor cores cut bits off: true, false, or auto: with products of parts.
        promote: Option<bool> as AUTO = None,
        /// Multiplies complex numbers, whose real and imaginary parts are neighbours in memory: pairs of f16, bf16 or f32.
        complex: bool as FLAG = false,
        /// Multiplies by the conjugate of a.
        conj_a: bool as FLAG = false,
        /// Multiplies by the conjugate of b.
        conj_b: bool as FLAG = false,
        /// A sparse a, two elements of every four along k (`tilewright_kernels::sparse`): a has half its columns, and meta, of u2, the place of
        /// each in its group of four.
        sparse: bool as FLAG = false,
        /// Scales of blocks of a and b along k, with form=tcgen05, which are tensors a_scale[m, ceil_div(k, block)], b_scale, and of dual up_scale: none; ue8m0, blocks of 32, of
        /// e4m3, e5m2 and e2m1 (MXFP8, MXFP4); or ue4m3, blocks of 16, of e2m1 (NVFP4).
        scales: Option<DType> as SCALES = None,
        /// Warps read a sparse a from its stage to registers ahead of the products, which read it from shared memory otherwise.
        register_a: bool as FLAG = false,
        /// The mode along which a is contiguous: k or m.
        a: Major as K_OR_M = Major::K,
        /// The mode along which b is contiguous: k or n.
        b: Major as K_OR_N = Major::K,
        /// Batching: none; packed (l products, one behind the other); strided (l products a number of elements apart); pointers (l products whose
        /// matrices lie anywhere in memory, arrays of tensors); grouped (each tile of rows of a has the matrix b of its group); ragged (the same for
        /// groups that are not padded).
        batch: Batch as OWN = Batch::None,
        /// Rows of a lie anywhere: `rows[m]`, of i32, has for each row of c the number of its row among the r rows of a, a negative number for a row of
        /// zeros. Threads copy them, and need load_registers.
        gather: bool as FLAG = false,
        /// Row i of the product, times `factor[i]`, of f32, is added to row `to[i]`, of i32, of the q rows of c, in an open order; to none where that is negative.
        scatter: bool as FLAG = false,
        /// A second matrix that a is multiplied by in the same pass, and the value of both sums: none; add (a · bᵀ + a · upᵀ); or mul, relu_mul, gelu_mul,
        /// silu_mul: f(a · bᵀ) · (a · upᵀ). `up` is as large as b, and stored as it is.
        dual: Dual as OWN = Dual::None,
        /// Both matrices of dual are one tensor b[2, n, k], the memory of [2 n, k]: b's rows, then up's.
        fused: bool as FLAG = false,
        /// Adds vectors along n, gate_bias to the product with b and up_bias to that with up, ahead of their product.
        dual_bias: bool as FLAG = false,
        /// Adds up the rows of a in the same pass, as the vector sums_a: of floats in f32, of integers in i32.
        sums_a: bool as FLAG = false,
        /// The part of c that is computed: full; or, where n is m, lower, the tiles that hold elements on the diagonal or below it; or symmetric, c = a · aᵀ,
        /// by the same tiles, which are stored in both places. A residual is then symmetric too.
        fill: FillMode as OWN = FillMode::Full,
        /// The triangle of a outside of which there are zeros, whose products are left out: none, lower or upper.
        triangular: Triangle as OWN = Triangle::None,
        /// Operations on the sums, in order: none, or of alpha, row_scale, col_scale, bias, relu, gelu, silu, residual, beta, row_sums,
        /// col_sums some joined with +.
        epilogue: Epilogue as OWN = Epilogue::default(),
        /// The value of c instead of x, what the epilogue made of the sums: an expression over x, the row i and the column j of c, and what tensors
        /// and scalars declare, such as x * tanh(gate) - 0.1 * float(i - j); or none.
        function: Option<Text> as FUNCTION = None,
        /// Scalar parameters for the function, such as slope: f32 = 0.5.
        scalars: Text as SCALARS = Text::default(),
        /// Vectors and matrices whose elements the function has by name, such as `gate: f32[n], weight: f32[m], mask: f16[m, n]`.
        tensors: Text as TENSORS = Text::default(),
        /// The program: wgmma, tiles by TMA and wgmma; tcgen05, tiles by TMA with sums in tensor memory (Blackwell); gemv, for at most 8 columns (with
        /// swap, rows) of c; or outer, for short sums.
        form: Form as OWN = Form::Wgmma,
        /// Computes cᵀ = b · aᵀ: the tile's rows are along n and its columns along m, for small m.
        swap: bool as FLAG = false,
        /// Rows of a block's tile of c, a multiple of 64 for each math warpgroup.
        bm: i64 as INT = 128,
        /// Columns of a block's tile of c, a multiple of 8.
        bn: i64 as INT = 256,
        /// Columns of a and b in a stage, a multiple of 32 bytes; 128 bytes are best.
        bk: i64 as INT = 64,
        /// Stages between the copies and the products.
        stages: i64 as INT = 4,
        /// Warpgroups that multiply, or with form=tcgen05 store.
        warpgroups: i64 as INT = 2,
        /// Blocks that share an operand: none, m2 (b is shared), n2 (a is shared), m4 …; both: m2n2, m2n4 …; or a tile: k2, k4 …
        cluster: Cluster as OWN = Cluster::None,
        /// The two blocks of a cluster along the tile's rows multiply together, with form=tcgen05: each has its 128 rows, and half of the other factor's tile
        /// (m2, or n2 with swap; m2n2, m2n4 or m4n2: several pairs, which share the rows).
        pair: bool as FLAG = false,
        /// Split-k: parts of k whose sums meet in global memory; more than 1 for few tiles and a long k.
        split: i64 as INT = 1,
        /// The work of a block: data_parallel, whole tiles; stream_k, whole tiles and then a share of the steps along k of the rest; or remainder, the same with as
        /// few of these as can be.
        schedule: Schedule as OWN = Schedule::DataParallel,
        /// Factors that a first kernel copies to rows of whole lines, for TMA to read: none, a, b or ab. For rows that are no multiples of 16
        /// bytes.
        pack: Pack as OWN = Pack::None,
        /// The order of tiles: grouped(rows), serpentine(rows) or hilbert(order).
        rasterization: Rasterization as OWN = Rasterization::Grouped(12),
        /// Groups of wgmma in flight while the next one is issued.
        in_flight: i64 as INT = 1,
        /// A tile's results leave while the next tile is multiplied, a chunk after each of its first steps along k.
        overlap_epilogue: bool as FLAG = false,
        /// Columns of the tile that leave at a time: 8, 16, 32, 64, or widest.
        chunk: Option<i64> as WIDEST = None,
        /// Chunks on their way to memory or being written for it.
        buffers: i64 as INT = 2,
        /// L2 cache hint of reads of a: none, evict_first or evict_last.
        hint_a: Option<CacheHint> as HINT = None,
        /// L2 cache hint of reads of b.
        hint_b: Option<CacheHint> as HINT = None,
        /// L2 cache hint of writes of c.
        hint_c: Option<CacheHint> as HINT = None,
        /// Programmatic dependent launch: the kernel may be launched before the one ahead of it has ended, and waits for its results.
        dependent: bool as FLAG = false,
        /// Registers of a thread that copies.
        load_registers: i64 as INT = 24,
        /// Registers of a thread that multiplies; with form=tcgen05 of one that stores, as far as there are as many beside the others.
        math_registers: i64 as INT = 240,
        /// Blocks that are launched, at most.
        sm_count: i64 as INT = 132,
    }
}

impl Codec<DType> {
    const FACTOR: Self = Codec {
        read: |field, text| dtype_of(&HopperGemmConfig::FACTORS, field, text),
        write: DType::to_string,
    };
}

impl Codec<Option<DType>> {
    const FACTOR_OR_SAME: Self = Codec {
        read: |field, text| optional("same", text, |text| dtype_of(&HopperGemmConfig::FACTORS, field, text)),
        write: |dtype| optional_text("same", dtype),
    };
    const RESULT_OR_SAME: Self = Codec {
        read: |field, text| optional("same", text, |text| dtype_of(&HopperGemmConfig::RESULTS, field, text)),
        write: |dtype| optional_text("same", dtype),
    };
}

impl Codec<Major> {
    pub const K_OR_M: Self = Codec {
        read: |field, text| Major::read("m", field, text),
        write: |major| major.name("m").to_string(),
    };
    pub const K_OR_N: Self = Codec {
        read: |field, text| Major::read("n", field, text),
        write: |major| major.name("n").to_string(),
    };
}

impl Major {
    fn read(rows: &str, field: &'static str, text: &str) -> Result<Self, ConfigError> {
        let found = [Major::K, Major::Mn].into_iter().find(|major| major.name(rows) == text);
        found.ok_or_else(|| ConfigError::value(field, text, format!("must be k or {rows}")))
    }

    fn name(self, rows: &str) -> &str {
        if self == Major::K { "k" } else { rows }
    }
}

/// Registers reserved for addresses, counters and temporaries.
const SPARE_REGISTERS: i64 = 16;

/// Registers of promoted sums beside values that leave later, for the addresses of both (tiles of 104 columns spill 12 bytes, of 96 none).
const BESIDE_PROMOTED: i64 = 20;

impl HopperGemmConfig {
    /// The types that factors can have.
    pub const FACTORS: [DType; 10] = [
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::E4M3,
        DType::E5M2,
        DType::I8,
        DType::U8,
        DType::E3M2,
        DType::E2M3,
        DType::E2M1,
    ];

    /// The types that results can have.
    pub const RESULTS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::I32];

    /// The type of C.
    pub fn result(&self) -> DType {
        self.out.unwrap_or(match self.dtype {
            DType::E4M3 | DType::E5M2 | DType::E3M2 | DType::E2M3 | DType::E2M1 => DType::BF16,
            DType::I8 | DType::U8 => DType::I32,
            same => same,
        })
    }

    /// The type of B.
    pub fn right(&self) -> DType {
        self.dtype_b.unwrap_or(self.dtype)
    }

    /// The type of sums.
    fn sum(&self) -> DType {
        if self.multiplies_integers() { DType::I32 } else { DType::F32 }
    }

    fn multiplies_integers(&self) -> bool {
        self.dtype.range().is_some()
    }

    /// The type of what the product's kernel stores: C's, or that of sums of parts of k.
    fn stored(&self) -> DType {
        if self.split > 1 { DType::F32 } else { self.result() }
    }

    /// Columns of the tile that leave at a time.
    pub(crate) fn columns(&self) -> i64 {
        let most = ROW_BYTES / bytes(self.stored());
        let wide = |c: &i64| *c <= most && self.bn % c == 0;
        self.chunk.unwrap_or_else(|| [64, 32, 16].into_iter().find(wide).unwrap_or(8))
    }

    /// Bytes of shared memory of a block, where the kernel applies this epilogue.
    fn shared_bytes(&self, chain: &Chain<'_>) -> i64 {
        let of_tile = |elements: i64, dtype: DType| aligned(bytes_of(elements, dtype));
        let (of_a, of_b) = self.sides((self.bm, self.tiling().columns_held()));
        let [a, b] = self.multiplied();
        let parts = self.parts() as i64;
        let stage = parts * of_tile(of_a * self.columns_of_a(self.bk), a)
            + parts * self.dual.matrices() * of_tile(of_b * self.bk, b)
            + aligned(self.bytes_of_metadata())
            + self.bytes_of_scales()
            + BARRIERS;
        let reduction = match self.cluster {
            Cluster::AlongK(_) => CLUSTER_REDUCE_BYTES * 128 * self.warpgroups,
            _ => 0,
        };
        self.stages * stage
            + self.tiling().epilogue_bytes(chain, self.result())
            + reduction
            + self.tiling().bytes_of_sums()
    }

    /// See [`Tiling::sides`].
    fn sides<T>(&self, both: (T, T)) -> (T, T) {
        self.tiling().sides(both)
    }

    /// Returns whether the product's kernel is launched before the one ahead has ended, and lets the one behind begin: always where one of these is
    /// its own, which packs factors or adds parts.
    fn launches_overlap(&self) -> bool {
        self.dependent || self.packs() != [false; 2] || self.split > 1
    }

    fn tiling(&self) -> Tiling {
        let tiling = tiling!(self; {
            bk: self.bk,
            fill: self.fill,
            chunk: self.columns(),
            dependent: self.launches_overlap(),
            accumulator: self.sum(),
            stored: self.stored(),
        });
        if self.form == Form::Tcgen05 { tiling.in_tensor_memory(self.pair) } else { tiling }
    }

    /// 32-bit registers of a math thread for its sums, for rounded values that leave later, and for a chunk on its way.
    fn fragments(&self, chain: &Chain<'_>) -> i64 {
        let sums = self.bm * self.bn / (128 * self.warpgroups);
        let chunk = self.bm * self.columns() / (128 * self.warpgroups);
        let partial = match (self.promotes(), self.overlap_epilogue) {
            (false, _) => 0,
            (true, false) => sums,
            // `ptxas` keeps two copies beside values that leave later.
            (true, true) => 2 * sums + BESIDE_PROMOTED,
        };
        let rounded = |values: i64| values * bytes(self.stored()) / 4;
        // A second sum has a chunk of its own.
        let as_they_are = chain.is_empty() && !self.scatter;
        let chunks = if as_they_are { rounded(chunk) } else { (1 + self.dual.sums()) * chunk };
        // A chunk of others' sums on its way.
        let theirs = if self.schedule != Schedule::DataParallel { 2 * chunk } else { 0 };
        let chunks = chunks.max(theirs);
        let waiting = if self.overlap_epilogue { rounded(sums) } else { 0 };
        // All values that leave later are live beside the last chunk, as the epilogue leaves it and rounded. Such tiles need nothing to
        // spare (256 × 144 takes all 240 registers, and does not spill).
        let applied = match self.overlap_epilogue && !chain.is_empty() {
            true => waiting + chunk + rounded(chunk) - SPARE_REGISTERS,
            false => 0,
        };
        let rows = match self.scatter {
            true => scattering_registers(self.sides((self.bm, self.bn)).0, self.swap),
            false => 0,
        };
        let multiplying = waiting + partial + self.registers_of_a() + self.registers_of_sparse();
        self.dual.sums() * sums + rows + waiting.max(chunks).max(applied).max(multiplying)
    }

    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.with_function(&[], |all| self.check(all))
    }

    fn check(&self, custom: &[&dyn EpilogueOp]) -> Result<(), ConfigError> {
        self.check_types(!custom.is_empty())?;
        self.check_scales()?;
        self.check_sparse()?;
        self.check_precision(!custom.is_empty())?;
        self.check_dual()?;
        self.check_sums_a()?;
        self.check_triangles(!custom.is_empty())?;
        self.check_sums_of_c(!custom.is_empty())?;
        self.check_in_place(custom)?;
        self.check_gather()?;
        self.check_scatter(custom)?;
        self.check_pair()?;
        if !self.form.tiles() {
            return self.check_form();
        }
        self.check_tcgen05()?;
        let tiling = self.tiling();
        tiling.check_tile()?;
        within("bk", self.bk, [16, 256], self.columns_of_step())?;
        if !(0..self.stages).contains(&self.in_flight) {
            let wanted = format!("must be from 0 to {}: fewer than the stages", self.stages - 1);
            return Err(ConfigError::value("in_flight", self.in_flight, wanted));
        }
        within("split", self.split, [1, 64], 1)?;
        if self.split > 1 && self.batch != Batch::None {
            return Err(ConfigError::value("split", self.split, "one product at a time: batch must be none"));
        }
        self.check_schedule()?;
        if self.batch.has_groups() && self.cluster.shape()[0] > 1 {
            let wanted = "neighbours along m may be of different groups: use n2, k2 or none";
            return Err(ConfigError::value("cluster", self.cluster, wanted));
        }
        let (of_a, of_b) = self.sides((self.bm, self.bn));
        // Each block copies the same number of rows of what they share.
        let [major_a, major_b] = self.majors();
        let rows = |major: Major, rows: i64| if major == Major::K { rows } else { self.bk };
        let chain = self.applied(custom);
        self.check_sums(|config| config.fragments(&chain) + SPARE_REGISTERS)?;
        tiling.check_resources(&Needs {
            chunk_of: ("bn", self.bn),
            shared_rows: tiling.shared_rows(rows(major_a, of_a), rows(major_b, of_b)),
            fragments: self.fragments(&chain),
            spare: SPARE_REGISTERS,
            instruction: tiling.widest(),
            shared_bytes: self.shared_bytes(&chain),
        })
    }

    /// Checks what goes with the schedule.
    fn check_schedule(&self) -> Result<(), ConfigError> {
        let wanted = if self.schedule == Schedule::DataParallel {
            return Ok(());
        } else if self.batch != Batch::None {
            "steps of one product are shared: batch must be none"
        } else if self.split > 1 {
            "blocks that share steps split k by themselves: split must be 1"
        } else if matches!(self.cluster, Cluster::AlongK(_)) {
            "the blocks of k2 share a tile already: cluster must be none, along m or n, or both"
        } else if self.dual.sums() > 1 {
            "one sum of a tile is shared out: dual must be none or add"
        } else if self.schedule == Schedule::Remainder && self.epilogue.parts().any(Part::sums) {
            "several blocks finish a tile: must be data_parallel or stream_k with sums in the epilogue"
        } else {
            return Ok(());
        };
        Err(ConfigError::value("schedule", self.schedule, wanted))
    }

    /// Checks that what is outside of C does not count in sums of its rows and columns.
    fn check_sums_of_c(&self, custom: bool) -> Result<(), ConfigError> {
        let wanted = match self.epilogue.parts().any(Part::sums) {
            true if self.batch == Batch::Ragged => {
                "rows of other groups would count: batch must not be ragged"
            }
            true if custom => {
                "what an operation of one's own, or function, makes of elements outside of c would count: no sums"
            }
            _ => return Ok(()),
        };
        Err(ConfigError::value("epilogue", self.epilogue, wanted))
    }

    /// Checks what a C goes with that is read before it is written.
    fn check_in_place(&self, custom: &[&dyn EpilogueOp]) -> Result<(), ConfigError> {
        let chain = Chain::new(&self.epilogue, custom);
        let wanted = if !chain.in_place(self.result()) {
            return Ok(());
        } else if self.batch == Batch::Ragged {
            "c is read in place, and tiles reach into rows of other groups: batch must not be ragged"
        } else if !chain.sums.is_empty() && matches!(self.cluster, Cluster::AlongK(_)) {
            "c is read in place, by each block of a cluster along k what it stores, and sums need all: cluster must be none, along m or n, or both"
        } else {
            return Ok(());
        };
        Err(ConfigError::value("epilogue", self.epilogue, wanted))
    }

    /// The epilogue of the product's kernel: none where its sums are those of parts of k.
    fn applied<'a>(&self, custom: &[&'a dyn EpilogueOp]) -> Chain<'a> {
        if self.split > 1 {
            return Chain::default();
        }
        Chain { combine: self.combine(), ..Chain::new(&self.epilogue, custom) }
    }

    /// The program that multiplies, with the sizes `m`, `n` and `k` (and `l`, the number of products): the only one, but where
    /// [`split`](Self::split) says that others add what it writes, or [`pack`](Self::pack) that it reads what others copied.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn program(&self) -> Result<Program, ConfigError> {
        self.with_function(&[], |all| self.product(all))
    }

    /// The programs that compute C, to be launched in this order; tensors of the same name are the same. `packed_a`, `packed_b` and
    /// `partial` are no operands of the product: one program writes them for the next.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        self.programs_with(&[])
    }

    /// The same with operations of the caller's own, which are applied in this order behind those of [`epilogue`](Self::epilogue)
    /// and the [`function`](Self::function).
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate), and mistakes in what the operations write.
    pub fn programs_with(&self, custom: &[&dyn EpilogueOp]) -> Result<Vec<Program>, ConfigError> {
        self.with_function(custom, |all| {
            let product = self.product(all)?;
            let pack = (self.packs() != [false; 2]).then(|| self.packing()).transpose()?;
            let sum = (self.split > 1).then(|| self.split_sum(all)).transpose()?;
            Ok(pack.into_iter().chain([product]).chain(sum).collect())
        })
    }

    fn product(&self, custom: &[&dyn EpilogueOp]) -> Result<Program, ConfigError> {
        self.check(custom)?;
        if let Some(program) = self.formed(custom) {
            return program;
        }
        let name = if self.form == Form::Tcgen05 { "gemm_tcgen05" } else { "gemm_hopper" };
        self.tiled(custom, name, None)
    }

    /// The program of a product whose m, n and k are groups of modes.
    pub(crate) fn nested(&self, name: &'static str, nesting: &Nesting) -> Result<Program, ConfigError> {
        self.check(&[])?;
        self.tiled(&[], name, Some(nesting))
    }

    fn tiled(
        &self,
        custom: &[&dyn EpilogueOp],
        name: &'static str,
        nesting: Option<&Nesting>,
    ) -> Result<Program, ConfigError> {
        if self.sparse {
            return self.kernel(name, self.sparse_mainloop(), &self.applied(custom), nesting).program();
        }
        let mainloop = TmaWgmma {
            tiling: self.tiling(),
            dtypes: self.multiplied(),
            majors: self.majors(),
            parts: self.parts(),
            scales: self.scales.zip(self.block()),
            terms: self.terms(),
            promote: self.promotes(),
            complex: self.complex,
            second: self.second(),
            same: self.squares(),
            triangle: self.triangular,
            sums_a: self.sums_a,
            gathered: self.gather,
            packed: self.packs(),
            hints: [self.hint_a, self.hint_b],
            in_flight: self.in_flight,
        };
        self.kernel(name, mainloop, &self.applied(custom), nesting).program()
    }

    fn kernel<'a, M: Mainloop>(
        &self,
        name: &'static str,
        mainloop: M,
        chain: &'a Chain<'a>,
        nesting: Option<&'a Nesting>,
    ) -> GemmKernel<'a, M> {
        GemmKernel {
            name,
            tiling: self.tiling(),
            batch: self.batch,
            nesting,
            split: self.split,
            schedule: self.schedule,
            stream_k: self.tiling().exchanged_at_once(self.schedule, SPARE_REGISTERS),
            result: self.result(),
            scatter: self.scatter,
            mainloop,
            chain,
        }
    }

    /// Checks the types, and what goes with them.
    fn check_types(&self, custom: bool) -> Result<(), ConfigError> {
        let integers = self.multiplies_integers();
        if !Self::FACTORS.contains(&self.dtype) {
            return Err(ConfigError::value(
                "dtype",
                self.dtype,
                "must be f16, bf16, f32, e4m3, e5m2, e3m2, e2m3, i8 or u8, or e2m1 with scales",
            ));
        }
        let small = |dtype: DType| matches!(dtype, DType::E4M3 | DType::E5M2 | DType::E3M2 | DType::E2M3);
        if self.right() != self.dtype && !(small(self.dtype) && small(self.right())) {
            return Err(ConfigError::value(
                "dtype_b",
                self.right(),
                match self.dtype {
                    dtype if small(dtype) => "must be `same`, e4m3, e5m2, e3m2 or e2m3",
                    _ => "must be `same`: of two types are floats of 8 and 6 bits alone",
                },
            ));
        }
        if !Self::RESULTS.contains(&self.result()) || (self.result() == DType::I32 && !integers) {
            return Err(ConfigError::value(
                "out",
                self.result(),
                "must be f16, bf16 or f32, or i32 of integers",
            ));
        }
        if self.result() == DType::I32 && (custom || !self.epilogue.is_empty()) {
            return Err(ConfigError::value(
                "epilogue",
                self.epilogue,
                "is in f32: out must be f16, bf16 or f32",
            ));
        }
        // What is copied ahead lies along k.
        for (field, major) in ["a", "b"].into_iter().zip(self.majors()) {
            let wanted = match (self.dtype.bits(), self.form) {
                (4, _) => "two elements of 4 bits are neighbours along k: must be k",
                (8, form) if form != Form::Tcgen05 => {
                    "wgmma takes 8-bit factors contiguous along k: must be k"
                }
                _ => continue,
            };
            if major != Major::K {
                return Err(ConfigError::value(field, "mn", wanted));
            }
        }
        if integers && self.split > 1 {
            return Err(ConfigError::value(
                "split",
                self.split,
                "sums of integers do not meet in memory: must be 1",
            ));
        }
        if integers && matches!(self.cluster, Cluster::AlongK(_)) {
            return Err(ConfigError::value("cluster", self.cluster, "only f32 is summed over a cluster"));
        }
        Ok(())
    }

    /// The reason why the configuration cannot run on this architecture, if it cannot.
    pub fn reject(&self, arch: Arch) -> Option<String> {
        lacking(arch, self.features()).or_else(|| self.validate().err().map(|e| e.to_string()))
    }
}
