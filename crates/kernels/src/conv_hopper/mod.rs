//! Convolutions as implicit products by TMA and wgmma or tcgen05, channels last: forward, the data gradient and the weight gradient, of one, two or three
//! modes. A tile of the result is a box of pixels, perhaps of several images, by output channels. For each tap of the filter and each run of channels
//! TMA loads the box of the image that the tap meets, straight into the layout that the product reads: the box is shifted by the tap, steps over pixels where
//! there is a stride, and reads as 0 outside of the image, which is the padding. So im2col is a view and nothing is copied. The rest is
//! [`gemm_hopper`](crate::gemm_hopper)'s: a persistent grid, roles, epilogues and parts of sums. A filter of one tap with nothing between
//! pixels is a product of matrices as it stands. With `im2col` a tile is of the next pixels instead, across rows and images: a view that folds these, which
//! TMA reads in its im2col mode, beside a result that is a matrix.

mod choices;
mod geometry;
mod mainloop;
mod pack;
mod phases;
mod reference;
mod space;

use std::cell::OnceCell;

use tilewright_machine::{Arch, CacheHint, Corners, DType};
use tilewright_tile::Program;
use tilewright_tile::dsl::KernelBuilder;

pub use crate::warp_specialized::Form;
pub use choices::{Padding, Pass, PerMode};
pub(crate) use choices::{Shape, Window};
pub use reference::{ConvSizes, edge_sizes, finish, reference};

use crate::config::{Codec, ConfigError, dtype_of, optional, optional_text, parameters};
use crate::epilogue::{Chain, Epilogue, Part};
use crate::gemm_hopper::add_parts;
use crate::warp_specialized::{
    BARRIERS, Batch, Cluster, FillMode, GemmKernel, Major, Needs, Problem, Products, ROW_BYTES,
    Rasterization, ResultTensor, Schedule, Tiling, aligned, bytes, lacking, within,
};
use geometry::Geometry;
use mainloop::Convolution;
use phases::gcd;

parameters! {
    /// The filter of a convolution, its tile and its distribution over blocks. Of several modes those of an image count slowest first: frames, rows, columns.
    #[derive(Copy)]
    pub struct HopperConvConfig, "conv_hopper", programs {
        /// The pass: fprop, y from x and f; dgrad, dx from dy and f; or wgrad, df from dy and x.
        pass: Pass as OWN = Pass::Fprop,
        /// Modes of an image: 1, x[nb, w, c]; 2, x[nb, h, w, c]; 3, x[nb, d, h, w, c].
        dims: i64 as INT = 2,
        /// Taps of the filter: a number, or one a mode, as 7x5.
        filter: PerMode<i64> as OWN = PerMode::all(3),
        /// Pixels from one output to the next: a number, or one a mode, 1 to 8.
        stride: PerMode<i64> as OWN = PerMode::all(1),
        /// Zeros around an image: a number, or one a mode, in front and behind apart where they differ, as 2:0x1x1.
        padding: PerMode<Padding> as OWN = PerMode::all(Padding::both(1)),
        /// Pixels from one tap to the next: a number, or one a mode.
        dilation: PerMode<i64> as OWN = PerMode::all(1),
        /// Groups of channels: output channels of a group depend on its input channels only. Sizes c and kout are those of a group.
        groups: i64 as INT = 1,
        /// Few channels: a kernel ahead copies images to rows with padding, whose channels are a multiple of this, a divisor of 64, and taps along them are
        /// channels of windows that TMA reads (fprop and wgrad); none: images are read where they lie.
        pack: Option<i64> as UNPACKED = None,
        /// The type of the factors: f16 or bf16. Sums are f32.
        dtype: DType as FLOAT16 = DType::F16,
        /// The type of the result: f16, bf16 or f32; same: that of the factors.
        out: Option<DType> as IMAGE_OR_SAME = None,
        /// Operations on the sums of fprop and dgrad, in order: none, or of alpha, col_scale, bias, relu, gelu, silu, residual, beta some joined with +. Columns
        /// are channels.
        epilogue: Epilogue as OWN = Epilogue::default(),
        /// Images and pixels of a tile, one number a mode, as 1x8x16, whose product is bm (of wgrad, bk); or fit: 16 columns of an image by
        /// as many rows.
        pixels: Option<PerMode<i64>> as FIT = None,
        /// Tiles of the next pixels, across rows and from image to image (the im2col mode of TMA), and not of the boxes of pixels=: fprop, wgrad, and dgrad with
        /// stride=1. Channels are multiples of 16 bytes.
        im2col: bool as FLAG = false,
        /// The program: wgmma, with sums in registers; or tcgen05, with sums in tensor memory (Blackwell).
        form: Form as OWN = Form::Wgmma,
        /// Rows of a block's tile of the result: pixels (of wgrad, output channels), a multiple of 64 for each math warpgroup.
        bm: i64 as INT = 128,
        /// Columns of a block's tile: channels, a multiple of 8.
        bn: i64 as INT = 128,
        /// Channels (of wgrad, pixels) of a stage, a multiple of 16.
        bk: i64 as INT = 64,
        /// Stages between the copies and the products.
        stages: i64 as INT = 4,
        /// Warpgroups that multiply, or with form=tcgen05 store.
        warpgroups: i64 as INT = 2,
        /// Blocks that share a factor: none, m2 (that of the columns), n2 (that of the rows), m4 …; or both: m2n2, m2n4 …
        cluster: Cluster as OWN = Cluster::None,
        /// The two blocks of a cluster along the tile's rows multiply together, with form=tcgen05: each has its 128 rows, and half of the columns' factor (m2; m2n2,
        /// m2n4: several pairs, which share the rows).
        pair: bool as FLAG = false,
        /// Parts of the sums that meet in global memory, added in a fixed order.
        split: i64 as INT = 1,
        /// The work of a block: data_parallel, whole tiles; stream_k, whole tiles and then a share of the steps of the rest; or remainder, the same with as few of
        /// these as can be.
        schedule: Schedule as OWN = Schedule::DataParallel,
        /// The order of tiles: grouped(rows), serpentine(rows) or hilbert(order).
        rasterization: Rasterization as OWN = Rasterization::Grouped(12),
        /// Groups of wgmma in flight while the next one is issued.
        in_flight: i64 as INT = 1,
        /// A tile's results leave while the next tile is multiplied, a chunk after each of its first steps.
        overlap_epilogue: bool as FLAG = false,
        /// Columns of the tile that leave at a time: 8, 16, 32, 64, or widest.
        chunk: Option<i64> as WIDEST = None,
        /// Chunks on their way to memory or being written for it.
        buffers: i64 as INT = 2,
        /// L2 cache hint of reads of the rows' factor: none, evict_first or evict_last.
        hint_a: Option<CacheHint> as HINT = None,
        /// L2 cache hint of reads of the columns' factor.
        hint_b: Option<CacheHint> as HINT = None,
        /// L2 cache hint of writes of the result.
        hint_c: Option<CacheHint> as HINT = None,
        /// Programmatic dependent launch: the kernel may be launched before the one ahead of it has ended, and waits for its results.
        dependent: bool as FLAG = false,
        /// Registers of a thread that copies.
        load_registers: i64 as INT = 40,
        /// Registers of a thread that multiplies; with form=tcgen05 of one that stores, as far as there are as many beside the others.
        math_registers: i64 as INT = 232,
        /// Blocks that are launched, at most.
        sm_count: i64 as INT = 132,
    }
}

impl Codec<Option<DType>> {
    const IMAGE_OR_SAME: Self = Codec {
        read: |field, text| optional("same", text, |text| dtype_of(&HopperConvConfig::RESULTS, field, text)),
        write: |dtype| optional_text("same", dtype),
    };
}

impl Codec<Option<i64>> {
    const UNPACKED: Self = Codec {
        read: |field, text| {
            optional("none", text, |text| {
                text.parse().map_err(|_| ConfigError::value(field, text, "must be none or a number"))
            })
        },
        write: |channels| optional_text("none", channels),
    };
}

impl Codec<Option<PerMode<i64>>> {
    const FIT: Self = Codec {
        read: |field, text| {
            optional("fit", text, |text| {
                text.parse().map_err(|wanted: &str| ConfigError::value(field, text, wanted))
            })
        },
        write: |pixels| optional_text("fit", pixels),
    };
}

/// Registers reserved for addresses, counters and temporaries.
const SPARE_REGISTERS: i64 = 16;

/// Columns of an image in a tile whose pixels are not given, where there are as many.
const COLUMNS: i64 = 16;

/// Taps, zeros and distances along a mode, at most.
const MOST: i64 = 1024;

impl HopperConvConfig {
    /// The types that results can have.
    pub const RESULTS: [DType; 3] = [DType::F16, DType::BF16, DType::F32];

    /// The type of the result.
    pub fn result(&self) -> DType {
        self.out.unwrap_or(self.dtype)
    }

    /// The type of what the product's kernel stores: the result's, or that of parts of sums.
    fn stored(&self) -> DType {
        if self.split > 1 { DType::F32 } else { self.result() }
    }

    /// The convolution along each mode of an image.
    pub(crate) fn shape(&self) -> Vec<Window> {
        let modes = usize::try_from(self.dims).unwrap_or(0);
        let along = |i: usize| {
            Some(Window {
                taps: *self.filter.of(modes)?.get(i)?,
                stride: *self.stride.of(modes)?.get(i)?,
                dilation: *self.dilation.of(modes)?.get(i)?,
                padding: *self.padding.of(modes)?.get(i)?,
            })
        };
        (0..modes).filter_map(along).collect()
    }

    /// Returns whether each output depends on the pixel at its place alone.
    pub(crate) fn pointwise(&self) -> bool {
        let plain = |one: &Window| one.taps == 1 && one.stride == 1 && one.padding == Padding::both(0);
        self.groups == 1 && self.pack.is_none() && self.shape().iter().all(plain)
    }

    /// The convolution and its tile.
    fn described(&self) -> Shape {
        let (windows, fold, im2col) = (self.shape(), self.fold(), self.im2col.then_some(self.pass));
        Shape { windows, groups: self.groups, pointwise: self.pointwise(), fold, pack: self.pack, im2col }
    }

    /// Returns whether tiles of dx have taps of their own.
    fn has_phases(&self) -> bool {
        self.pass == Pass::Dgrad && self.shape().iter().any(|one| one.stride > 1)
    }

    /// Pixels of a tile.
    fn tile_pixels(&self) -> i64 {
        if self.pass == Pass::Wgrad { self.bk } else { self.bm }
    }

    /// Images and pixels along each mode of a tile; all pixels in the first place where there are no modes.
    pub(crate) fn fold(&self) -> Vec<i64> {
        let all = self.tile_pixels();
        let modes = usize::try_from(self.dims).unwrap_or(1).max(1);
        if self.pointwise() || self.im2col {
            return vec![all];
        }
        if let Some(given) = self.pixels.as_ref().and_then(|pixels| pixels.of(modes + 1)) {
            return given.to_vec();
        }
        let columns = if modes == 1 { all } else { (1..=COLUMNS).rev().find(|n| all % n == 0).unwrap_or(1) };
        let mut fold = vec![1; modes + 1];
        fold[modes] = columns;
        if modes > 1 {
            fold[modes - 1] = all / columns;
        }
        fold
    }

    /// Columns of the tile that leave at a time.
    fn columns(&self) -> i64 {
        let most = ROW_BYTES / bytes(self.stored());
        let wide = |c: &i64| *c <= most && self.bn % c == 0;
        self.chunk.unwrap_or_else(|| [64, 32, 16].into_iter().find(wide).unwrap_or(8))
    }

    fn tiling(&self) -> Tiling {
        let tiling = Tiling {
            swap: false,
            bm: self.bm,
            bn: self.bn,
            bk: self.bk,
            stages: self.stages,
            warpgroups: self.warpgroups,
            cluster: self.cluster,
            rasterization: self.rasterization,
            fill: FillMode::Full,
            overlap: self.overlap_epilogue,
            chunk: self.columns(),
            buffers: self.buffers,
            hint_c: self.hint_c,
            // Its own kernels ahead and behind overlap with it.
            dependent: self.dependent || self.pack.is_some() || self.split > 1,
            ahead: false,
            tensor_memory: false,
            casting: 0,
            cast_registers: 0,
            pair: false,
            load_registers: self.load_registers,
            math_registers: self.math_registers,
            sm_count: self.sm_count,
            resident: 1,
            accumulator: DType::F32,
            stored: self.stored(),
        };
        if self.form == Form::Tcgen05 { tiling.in_tensor_memory(self.pair) } else { tiling }
    }

    fn shared_bytes(&self, chain: &Chain<'_>) -> i64 {
        let aligned = |elements: i64| aligned(bytes(self.dtype) * elements);
        let tiling = self.tiling();
        let stage = aligned(self.bm * self.bk) + aligned(tiling.columns_held() * self.bk) + BARRIERS;
        self.stages * stage + tiling.epilogue_bytes(chain, self.result()) + tiling.bytes_of_sums()
    }

    /// The modes along which the factors of the rows and of the columns are contiguous.
    fn majors(&self) -> [Major; 2] {
        let major = |along_k: bool| if along_k { Major::K } else { Major::Mn };
        [major(self.pass != Pass::Wgrad), major(self.pass == Pass::Fprop)]
    }

    fn fragments(&self, chain: &Chain<'_>) -> i64 {
        let sums = self.bm * self.bn / (128 * self.warpgroups);
        let chunk = self.bm * self.columns() / (128 * self.warpgroups);
        let rounded = |values: i64| values * bytes(self.stored()) / 4;
        // Of tiles that are shared by steps a chunk of others' sums is on its way.
        let whole = self.schedule == Schedule::DataParallel;
        let chunks = if chain.is_empty() && whole { rounded(chunk) } else { 2 * chunk };
        sums + if self.overlap_epilogue { rounded(sums).max(chunks) } else { chunks }
    }

    /// The epilogue of the product's kernel: none where its sums are parts.
    fn applied(&self) -> Chain<'_> {
        if self.split > 1 { Chain::default() } else { Chain::new(&self.epilogue, &[]) }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check_shape()?;
        self.check_passes()?;
        self.check_im2col()?;
        let tiling = self.tiling();
        tiling.check_pair(self.pair, None)?;
        tiling.check_tensor_memory(&Products {
            sums: 1,
            dtypes: [self.dtype; 2],
            majors: self.majors(),
            in_flight: self.in_flight,
        })?;
        tiling.check_tile()?;
        within("bk", self.bk, [16, 256], 16)?;
        if !(0..self.stages).contains(&self.in_flight) {
            let wanted = format!("must be from 0 to {}: fewer than the stages", self.stages - 1);
            return Err(ConfigError::value("in_flight", self.in_flight, wanted));
        }
        if let (Some(pixels), false) = (&self.pixels, self.pointwise() || self.im2col) {
            let (all, field) = (self.tile_pixels(), if self.pass == Pass::Wgrad { "bk" } else { "bm" });
            let modes = self.dims as usize + 1;
            let wanted = format!("must be {modes} numbers, images first, whose product is {field} = {all}");
            let right = pixels.given().len() == modes
                && pixels.given().iter().all(|n| (1..=all).contains(n))
                && pixels.given().iter().product::<i64>() == all;
            if !right {
                return Err(ConfigError::value("pixels", pixels, wanted));
            }
        }
        let chain = self.applied();
        // Each block of a cluster copies the same number of rows of what they share; in a weight gradient these are pixels.
        let rows = |rows: i64| if self.pass == Pass::Wgrad { self.bk } else { rows };
        let of_b = if self.pass == Pass::Fprop { self.bn } else { self.bk };
        tiling.check_resources(&Needs {
            chunk_of: ("bn", self.bn),
            shared_rows: tiling.shared_rows(rows(self.bm), of_b),
            fragments: self.fragments(&chain),
            spare: SPARE_REGISTERS,
            instruction: tiling.widest(),
            shared_bytes: self.shared_bytes(&chain),
        })
    }

    /// Checks the filter and what is along each mode.
    fn check_shape(&self) -> Result<(), ConfigError> {
        within("dims", self.dims, [1, 3], 1)?;
        let modes = self.dims as usize;
        let numbers = format!("must be one number, or {modes}, one a mode of an image");
        let per_mode: [(&'static str, &PerMode<i64>, i64); 3] =
            [("filter", &self.filter, MOST), ("stride", &self.stride, 8), ("dilation", &self.dilation, MOST)];
        for (field, values, most) in per_mode {
            let all = values.of(modes).ok_or_else(|| ConfigError::value(field, values, &*numbers))?;
            if !all.iter().all(|n| (1..=most).contains(n)) {
                return Err(ConfigError::value(field, values, format!("must be from 1 to {most}")));
            }
        }
        let padding = self.padding;
        let all = padding.of(modes).ok_or_else(|| ConfigError::value("padding", padding, &*numbers))?;
        if !all.iter().all(|p| (0..=MOST).contains(&p.front) && (0..=MOST).contains(&p.back)) {
            return Err(ConfigError::value("padding", padding, format!("must be from 0 to {MOST}")));
        }
        within("groups", self.groups, [1, 65_535], 1)?;
        if self.groups > 1 && self.dims > 2 {
            let wanted = "channels of groups are a mode more, and tensor maps have 5: dims must be 1 or 2";
            return Err(ConfigError::value("groups", self.groups, wanted));
        }
        self.check_pack()?;
        if self.groups > 1 && self.split > 1 {
            return Err(ConfigError::value("split", self.split, "one product at a time: groups must be 1"));
        }
        Ok(())
    }

    /// Checks that TMA can read the windows of packed images.
    fn check_pack(&self) -> Result<(), ConfigError> {
        let Some(pack) = self.pack else { return Ok(()) };
        let refuse = |wanted: &str| Err(ConfigError::value("pack", pack, wanted));
        let last = self.shape().pop();
        match last {
            _ if !(1..=64).contains(&pack) || 64 % pack != 0 => {
                refuse("must be none, or 1, 2, 4 … 64 channels")
            }
            _ if self.pass == Pass::Dgrad => {
                refuse("dy of a data gradient is read where it lies: must be none")
            }
            _ if self.groups > 1 => refuse("channels of groups are read where they lie: must be none"),
            Some(last) if last.dilation > 1 => {
                refuse("windows hold each pixel between their taps: dilation along the last mode must be 1")
            }
            Some(last) if last.stride * pack % geometry::VECTOR != 0 => {
                let least = geometry::VECTOR / gcd(last.stride, geometry::VECTOR);
                let wanted = format!(
                    "must be a multiple of {least}: windows of neighbours are multiples of 16 bytes apart"
                );
                Err(ConfigError::value("pack", pack, wanted))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the im2col mode has the corners and offsets.
    pub(super) fn check_im2col(&self) -> Result<(), ConfigError> {
        let refuse = |wanted: String| Err(ConfigError::value("im2col", self.im2col, wanted));
        if !self.im2col {
            return Ok(());
        }
        if self.pointwise() {
            return refuse("a filter of one tap is a product as it stands: must be false".into());
        }
        if self.has_phases() {
            return refuse(
                "tiles of a data gradient with strides have taps of their own: must be false".into(),
            );
        }
        if self.pack.is_some() {
            return refuse("packed rows are windows that boxes read: must be false".into());
        }
        let rank = 2 + self.dims as usize + usize::from(self.groups > 1);
        let (corners, offsets) = (Corners::range(rank), Corners::offsets(rank));
        let ends = format!(
            "with {rank} modes pixels begin and end within {} to {} of an image, and taps reach {}",
            corners.start(),
            corners.end(),
            offsets.end()
        );
        let within = |corner: i64| i32::try_from(corner).is_ok_and(|corner| corners.contains(&corner));
        for one in self.shape() {
            let (reach, Padding { front, back }) = ((one.taps - 1) * one.dilation, one.padding);
            // Of a data gradient, pixels of dy: as far in front as a tap leads.
            let (lower, upper, farthest) = match self.pass {
                Pass::Fprop | Pass::Wgrad => (-front, back - reach, reach),
                Pass::Dgrad => {
                    let before = (reach - front).max(0);
                    (-before, reach - front - back - before, before + front)
                }
            };
            if !within(lower) || !within(upper) || !offsets.contains(&farthest) {
                return refuse(format!("{ends}: must be false"));
            }
        }
        if self.groups > 1 && (!within(1 - self.groups) || !offsets.contains(&(self.groups - 1))) {
            return refuse(format!("{ends}, groups too: must be false"));
        }
        Ok(())
    }

    /// Checks the types and what goes with a pass.
    fn check_passes(&self) -> Result<(), ConfigError> {
        if ![DType::F16, DType::BF16].contains(&self.dtype) {
            return Err(ConfigError::value("dtype", self.dtype, "must be f16 or bf16"));
        }
        if !Self::RESULTS.contains(&self.result()) {
            return Err(ConfigError::value("out", self.result(), "must be f16, bf16 or f32"));
        }
        within("split", self.split, [1, 64], 1)?;
        let refused = match self.pass {
            Pass::Wgrad if self.epilogue.parts().any(|part| part != Part::Alpha) => {
                Some("the weight gradient has none but alpha")
            }
            _ if self.epilogue.has(Part::RowScale) || self.epilogue.parts().any(Part::sums) => {
                Some("tiles reach beyond images: of row_scale, row_sums and col_sums there is none")
            }
            _ => None,
        };
        if let Some(wanted) = refused {
            return Err(ConfigError::value("epilogue", self.epilogue, wanted));
        }
        if matches!(self.cluster, Cluster::AlongK(_)) {
            return Err(ConfigError::value(
                "cluster",
                self.cluster,
                "must be none, along m or n, or both: use split",
            ));
        }
        if self.schedule != Schedule::DataParallel {
            let wanted = if self.groups > 1 {
                "steps of one product are shared: groups must be 1"
            } else if self.split > 1 {
                "blocks that share steps split sums by themselves: split must be 1"
            } else if self.has_phases() {
                "tiles of a data gradient with strides have as many steps as their phase: must be data_parallel"
            } else {
                return Ok(());
            };
            return Err(ConfigError::value("schedule", self.schedule, wanted));
        }
        if self.has_phases() {
            let wanted = "tiles of a data gradient with strides have taps of their own: must be ";
            if self.cluster != Cluster::None {
                return Err(ConfigError::value("cluster", self.cluster, format!("{wanted}none")));
            }
            if self.overlap_epilogue {
                return Err(ConfigError::value("overlap_epilogue", true, format!("{wanted}false")));
            }
            if self.split > 1 {
                return Err(ConfigError::value("split", self.split, format!("{wanted}1")));
            }
        }
        Ok(())
    }

    /// The programs that compute the result, to be launched in this order; `partial` is written by one for the next.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        self.validate()?;
        let mainloop = Convolution { config: self, tiling: self.tiling(), geometry: OnceCell::new() };
        let kernel = GemmKernel {
            nesting: None,
            schedule: self.schedule,
            stream_k: self.tiling().exchanged_at_once(self.schedule, SPARE_REGISTERS),
            name: if self.form == Form::Tcgen05 { "conv_tcgen05" } else { "conv_hopper" },
            tiling: self.tiling(),
            batch: Batch::None,
            split: self.split,
            result: self.result(),
            scatter: false,
            mainloop,
            chain: &self.applied(),
        };
        let product = kernel.program()?;
        let sum = (self.split > 1).then(|| self.split_sum()).transpose()?;
        let (ahead, behind) = (self.packing()?, self.unpacking()?);
        Ok(ahead.into_iter().chain([product]).chain(sum).chain(behind).collect())
    }

    /// The name of what the product's kernel has for the filter's gradient.
    fn filter_gradient(&self) -> &'static str {
        if self.pack.is_some() { "packed_df" } else { "df" }
    }

    /// The result, as a matrix, from the parts of its sums.
    fn split_sum(&self) -> Result<Program, ConfigError> {
        let mut t = KernelBuilder::new("split_sum");
        let geometry = Geometry::declare(&mut t, &self.described(), false);
        let [m, n] = geometry.matrix(self.pass);
        let name = match self.pass {
            Pass::Fprop => "y",
            Pass::Dgrad => "dx",
            Pass::Wgrad => self.filter_gradient(),
        };
        let tensor = ResultTensor {
            name,
            shape: vec![m.clone(), n.clone()],
            rows: None,
            columns: (1, n.clone(), Vec::new()),
            products: None,
            steps: 0.into(),
        };
        let problem = Problem::one(m, n).of_tensor(tensor);
        add_parts(t, &problem, self.split, Chain::new(&self.epilogue, &[]), self.result())
    }

    /// The reason why the configuration cannot run on this architecture, if it cannot.
    pub fn reject(&self, arch: Arch) -> Option<String> {
        lacking(arch, self.form.needs()).or_else(|| self.validate().err().map(|e| e.to_string()))
    }
}
