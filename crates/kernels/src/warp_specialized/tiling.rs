//! The numbers of a kernel: its tile and the distribution of the tile over blocks, threads and chunks.

use tilewright_machine::{CacheHint, DType};
use tilewright_tile::Expr;
use tilewright_tile::dsl::KernelBuilder;

use super::choices::{Cluster, FillMode, Rasterization, Schedule};

/// Chunks of other blocks' sums that are on their way at once, at most.
const EXCHANGED_AT_ONCE: i64 = 4;

/// The tile of a kernel, its distribution over blocks and threads, and its way out.
#[derive(Clone, Copy)]
pub(crate) struct Tiling {
    /// Puts the tile's rows along n and its columns along m.
    pub swap: bool,
    pub bm: i64,
    pub bn: i64,
    pub bk: i64,
    pub stages: i64,
    /// Math warpgroups.
    pub warpgroups: i64,
    pub cluster: Cluster,
    /// The two blocks of a cluster multiply together: each has half of the factor that they share.
    pub pair: bool,
    pub rasterization: Rasterization,
    /// The tiles of C that are computed; unless all are, clusters of tiles are square.
    pub fill: FillMode,
    /// Stores the previous tile during a tile's mainloop.
    pub overlap: bool,
    /// Columns of the tile that leave at a time.
    pub chunk: i64,
    /// Chunks on their way to memory or being written for it.
    pub buffers: i64,
    pub hint_c: Option<CacheHint>,
    pub dependent: bool,
    /// Constants have a ring of their own, which a role fills before the launches ahead have ended.
    pub ahead: bool,
    /// Sums are in tensor memory, into which a role of its own multiplies; the math warpgroups store them.
    pub tensor_memory: bool,
    /// Warpgroups that make left factors in tensor memory, and the registers of a thread of these.
    pub casting: i64,
    pub cast_registers: i64,
    pub load_registers: i64,
    pub math_registers: i64,
    /// Blocks at once, of all multiprocessors and of one.
    pub sm_count: i64,
    pub resident: i64,
    /// The types of accumulators and of what is stored.
    pub accumulator: DType,
    pub stored: DType,
}

/// The [`Tiling`] of a configuration: the fields of the same names, and the given ones.
macro_rules! tiling {
    ($config:expr; { $($field:ident: $value:expr,)+ }) => {{
        let config = $config;
        $crate::warp_specialized::Tiling {
            swap: config.swap,
            bm: config.bm,
            bn: config.bn,
            stages: config.stages,
            warpgroups: config.warpgroups,
            cluster: config.cluster,
            rasterization: config.rasterization,
            overlap: config.overlap_epilogue,
            buffers: config.buffers,
            hint_c: config.hint_c,
            ahead: false,
            tensor_memory: false,
            casting: 0,
            cast_registers: 0,
            pair: false,
            load_registers: config.load_registers,
            math_registers: config.math_registers,
            sm_count: config.sm_count,
            resident: 1,
            $($field: $value,)+
        }
    }};
}
pub(crate) use tiling;

impl Tiling {
    /// The type in which epilogues work: f32, but for integers that are stored as they are.
    pub fn finished(&self) -> DType {
        if self.stored == DType::I32 { DType::I32 } else { DType::F32 }
    }

    /// Exchanges two things if the operands are swapped: from those of a tile's rows and columns to those of m and n, or of A and B, and
    /// back.
    pub fn sides<T>(&self, (rows, cols): (T, T)) -> (T, T) {
        if self.swap { (cols, rows) } else { (rows, cols) }
    }

    /// Chunks of other blocks' sums that a math thread has registers for beside its own and so many others, if tiles are shared by steps.
    pub fn exchanged_at_once(&self, schedule: Schedule, spare: i64) -> Option<i64> {
        let of_thread = |columns: i64| self.bm * columns / (128 * self.warpgroups);
        let chunk = of_thread(self.chunk).max(1);
        let free = self.math_registers - spare - of_thread(self.bn) - chunk;
        (schedule != Schedule::DataParallel).then_some((free / chunk).clamp(1, EXCHANGED_AT_ONCE))
    }

    /// Warpgroups of a block: those that load, those that make left factors, and those that multiply and store.
    pub fn all_warpgroups(&self) -> i64 {
        1 + i64::from(self.ahead) + i64::from(self.tensor_memory) + self.casting + self.warpgroups
    }

    /// Steps along k that every tile has, if none may have fewer: each chunk of the previous tile has one to leave after, and sums in tensor memory begin with a
    /// product.
    pub fn least_steps(&self, numbers: &Numbers) -> Option<Expr> {
        match (self.overlap, self.tensor_memory) {
            (true, _) => Some(numbers.chunks.clone()),
            (false, true) => Some(1.into()),
            (false, false) => None,
        }
    }

    /// Blocks of a cluster along the tile's rows, its columns, and k.
    pub fn blocks(&self) -> [i64; 3] {
        let [m, n, k] = self.cluster.shape();
        let (rows, cols) = self.sides((m, n));
        [rows, cols, k]
    }
}

/// The constants of a kernel.
#[derive(Clone)]
pub(crate) struct Numbers {
    pub k: Expr,
    pub bm: Expr,
    pub bn: Expr,
    pub bk: Expr,
    pub stages: Expr,
    pub sm_count: Expr,
    pub chunk: Expr,
    pub chunks: Expr,
    pub buffers: Expr,
    /// Columns of an accumulator.
    pub width: Expr,
    /// Accumulators of a tile, and chunks of each.
    pub parts: usize,
    per: Expr,
    /// Names tell accumulators apart.
    tagged: bool,
}

/// A chunk of a tile's columns.
pub(crate) struct Chunk {
    /// Its accumulator.
    pub part: usize,
    /// Its number in the accumulator, and in the tile.
    pub within: Expr,
    pub index: Expr,
    /// The number of the accumulator for names.
    pub tag: String,
}

impl Chunk {
    /// A name in the statements for its accumulator.
    pub fn name(&self, word: &str) -> String {
        format!("{word}{}", self.tag)
    }
}

impl Numbers {
    pub fn declare(t: &mut KernelBuilder, tiling: &Tiling, k: Expr, part: Option<i64>) -> Self {
        let (bm, bn) = (t.constant("BM", tiling.bm), t.constant("BN", tiling.bn));
        let (bk, stages) = (t.constant("BK", tiling.bk), t.constant("STAGES", tiling.stages));
        let (sm_count, chunk) = (t.constant("SMS", tiling.sm_count), t.constant("CHUNK", tiling.chunk));
        let buffers = t.constant("BUFFERS", tiling.buffers);
        let chunks = &bn / &chunk;
        let (width, parts, per) = match part {
            None => (&chunk * &chunks, 1, chunks.clone()),
            Some(part) => {
                (t.constant("PART", part), (tiling.bn / part) as usize, (part / tiling.chunk).into())
            }
        };
        Numbers {
            k,
            bm,
            bn,
            bk,
            stages,
            sm_count,
            chunk,
            chunks,
            buffers,
            width,
            parts,
            per,
            tagged: part.is_some(),
        }
    }

    /// An unrolled loop over the chunks of each accumulator.
    pub fn for_chunks(
        &self,
        t: &mut KernelBuilder,
        counter: &str,
        mut body: impl FnMut(&mut KernelBuilder, &Chunk),
    ) {
        for part in 0..self.parts {
            self.for_chunks_of(t, part, counter, &mut body);
        }
    }

    /// The same of one of the accumulators.
    pub fn for_chunks_of(
        &self,
        t: &mut KernelBuilder,
        part: usize,
        counter: &str,
        body: impl FnOnce(&mut KernelBuilder, &Chunk),
    ) {
        let tag = self.tag(part);
        t.unroll_for(&format!("{counter}{tag}"), 0, &self.per, |t, within| {
            let index = if part == 0 { within.clone() } else { &within + &self.per * part as i64 };
            body(t, &Chunk { part, within, index, tag });
        });
    }

    /// The number of an accumulator in names.
    pub fn tag(&self, part: usize) -> String {
        if self.tagged { format!("_{part}") } else { String::new() }
    }
}
