//! Choosing a configuration for sizes of the letters: the points of `gemm_hopper`'s space, each with the tile along modes for which the
//! fewest elements lie outside, ranked by its estimate.

use std::collections::{BTreeMap, HashMap, HashSet};

use tilewright_machine::{Arch, DType};

use super::config::ContractionConfig;
use super::einsum::{Group, Operand};
use super::fold::Sizes;
use super::permute::Permute;
use super::plan::Plan;
use super::tile::TileExtents;
use crate::config::{Config, ConfigError, apply, configured, differences};
use crate::gemm_hopper::{Form, HopperGemmConfig, Pack, PerStep, Schedule};
use crate::model::{Model, Numbers};
use crate::parts::Estimate;
use crate::tuning::{Chip, HALVES, Launch, Point, SameProblem, SizeKind, Space, Tunable, Tuning};
use crate::warp_specialized::bytes;

/// Every letter, in the order of the alphabet.
const LETTERS: &[(&str, SizeKind)] = &{
    const NAMES: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut all = [("", SizeKind::Index); NAMES.len()];
    let mut i = 0;
    while i < all.len() {
        // Each name is one byte.
        all[i].0 = NAMES.split_at(i).1.split_at(1).0;
        i += 1;
    }
    all
};

/// Bytes of which strides of tensor copies are multiples, and modes of their tensors.
const STRIDE: i64 = 16;
const MODES: usize = 5;

/// Elements of rows of boxes: longer ones than a line cost as much, shorter ones leave fewer elements outside.
const ROWS: [i64; 4] = [64, 32, 16, 8];

/// Registers of a thread that begins tensor copies at the digits of a tile's number, and of those that multiply beside it, by warpgroups: a
/// block begins with an even share of all. Of three warpgroups that share is too small for tiles of several modes.
const BOXES: (i64, [i64; 2]) = (56, [240, 224]);

/// The same where it loads elements.
const ELEMENTS: (i64, [i64; 2]) = (96, [240, 200]);

/// The same beside a thread that multiplies into tensor memory, with which `ptxas` spills up to 24 bytes of 96 registers.
const ELEMENTS_ASIDE: (i64, [i64; 2]) = (120, [240, 176]);

/// Registers of a thread that multiplies beside its sums and the results that wait: those of `gemm_hopper`, and the digits of the tile's number.
const SPARE_REGISTERS: i64 = 24;

/// Columns of a tile whose elements threads copy, and those that leave at a time, at most.
const COPIED_COLUMNS: i64 = 128;
const STORED_COLUMNS: i64 = 8;

/// Cycles in which threads store an element of a result of several modes, at least: `cadg,bfge->fedcba` of 57 million elements, which has too many modes for
/// tensor copies, took more than three times as long as torch.einsum, which writes them twice and reads them once.
const STORED: f64 = 1.4;

/// Parameters that products of matrices do not have.
const OWN: [&str; 3] = ["einsum", "permute", "tile"];

/// The permutation of the result behind a product of nested modes, whose rows of c are as long as the factors let them be.
const RESULT_ALONE: Permute = Permute { a: false, b: false, c: true };

/// The tuning of contractions.
pub(crate) const TUNING: Tuning = Tuning {
    sizes: LETTERS,
    meaning: &["einsum", "dtype", "dtype_b", "out", "epilogue"],
    alike: HALVES,
    family: &["permute", "tile", "form", "pair", "swap", "bm", "bn", "bk", "warpgroups"],
    secondary: HopperGemmConfig::SECONDARY,
    space,
    point: |chip, sizes, given| {
        let config = configured::<ContractionConfig>(given)?;
        let estimate = Problem::new(&config, sizes)?.estimate(chip.model, &config).microseconds;
        Ok(Point { parameters: differences(&config), estimate, suits: true })
    },
    estimate: |chip, sizes, given| {
        let config = configured::<ContractionConfig>(given)?;
        Ok(Problem::new(&config, sizes)?.estimate(chip.model, &config))
    },
    reject: |arch, given| match configured::<ContractionConfig>(given) {
        Ok(config) => config.reject(arch),
        Err(error) => Some(error.to_string()),
    },
    launch: |_, sizes, given| {
        let config = configured::<ContractionConfig>(given)?;
        Ok(Launch::of(&Problem::new(&config, sizes)?.named))
    },
    same,
};

/// A contraction at sizes of its letters.
struct Problem {
    plan: Plan,
    /// The sizes of the programs.
    named: BTreeMap<String, i64>,
    /// The extents of the modes of M, N, K and L, fastest first.
    extents: [Vec<i64>; 4],
}

impl Problem {
    fn new(config: &ContractionConfig, sizes: &BTreeMap<String, i64>) -> Result<Self, ConfigError> {
        let letter = |(name, size): (&String, &i64)| name.chars().next().map(|letter| (letter, *size));
        let sizes: Sizes = sizes.iter().filter_map(letter).collect();
        let plan = config.plan()?;
        let wrong = |error| ConfigError::value("einsum", &config.einsum, error);
        // Says which tensor is too large.
        config.einsum.fold(&sizes, [None; 3]).map_err(wrong)?;
        let named = plan.program_sizes(&sizes).map_err(wrong)?;
        let extents = plan.extents(&sizes);
        Ok(Problem { plan, named, extents })
    }

    fn extent(&self, group: Group) -> i64 {
        self.extents[group as usize].iter().product()
    }

    /// Returns whether tensor copies can take a tensor with elements of so many bytes.
    fn by_tensor_copies(&self, operand: Operand, size: i64) -> bool {
        let modes = self.plan.axes(operand);
        let Some((group, mode)) = self.plan.contiguous(operand) else { return modes.len() == 1 };
        let extent = self.extents[group as usize][mode];
        modes.len() <= MODES && group != Group::L && mode == 0 && extent * size % STRIDE == 0
    }

    /// Microseconds of the kernels that permute.
    fn permuting(&self, model: &Numbers, config: &ContractionConfig) -> f64 {
        let (Permute { a, b, c }, product) = (config.permute, &config.product);
        let tensors = [
            (a, [Group::M, Group::K], product.dtype),
            (b, [Group::N, Group::K], product.right()),
            (c, [Group::M, Group::N], product.result()),
        ];
        let each = |(_, [rows, columns], dtype): (bool, [Group; 2], DType)| {
            let elements = [rows, columns, Group::L].map(|group| self.extent(group) as f64);
            model.permuting + 2.0 * elements.iter().product::<f64>() * bytes(dtype) as f64 / model.permuted
        };
        tensors.into_iter().filter(|(permuted, ..)| *permuted).map(each).sum()
    }

    /// The estimated time.
    fn estimate(&self, model: &Model, config: &ContractionConfig) -> Estimate {
        self.estimate_product(model, config).after(self.permuting(model.numbers(), config))
    }

    fn estimate_product(&self, model: &Model, config: &ContractionConfig) -> Estimate {
        let l = self.extent(Group::L);
        if let Some(product) = config.as_matrices(&self.plan) {
            let [m, n, k] = [Group::M, Group::N, Group::K].map(|group| self.extent(group));
            return product.estimated(model, PerStep::default(), [m, n, k, l]);
        }
        let Ok(tiles) = config.tiles(&self.plan) else { return Estimate::whole(f64::INFINITY) };
        let padded = |group: Group, tiles: &[i64]| -> i64 {
            let extents = &self.extents[group as usize];
            let of = |(extent, tile): (&i64, &i64)| (extent + tile - 1) / tile * tile;
            if extents.is_empty() { tiles[0] } else { extents.iter().zip(tiles).map(of).product() }
        };
        let [m, n, k] = &tiles;
        let sizes = [padded(Group::M, m), padded(Group::N, n), padded(Group::K, k), l];
        // A step is at least what its loads take: rows of boxes by the port, elements by threads.
        let product = &config.product;
        let size = bytes(product.dtype);
        let loads = [(Operand::A, m, Group::M), (Operand::B, n, Group::N)].map(|(operand, rows, group)| {
            let elements = (rows.iter().product::<i64>() * k.iter().product::<i64>()) as f64;
            if !self.by_tensor_copies(operand, size) {
                return elements / model.numbers().through_registers;
            }
            let along = self.plan.contiguous(operand).map_or(group, |(group, _)| group);
            let row = if along == Group::K { k[0] } else { rows[0] };
            model.numbers().port * elements / row.min(ROWS[0]) as f64
        });
        // Boxes of the result have the rows that its contiguous mode has in a tile.
        let tile_of = |group: Group| if group == Group::M { m[0] } else { n[0] };
        let row = self.plan.contiguous(Operand::C).map_or(1, |(group, _)| tile_of(group));
        let numbers = model.numbers();
        let store = match self.by_tensor_copies(Operand::C, bytes(product.result())) {
            true => numbers.port / row.clamp(1, ROWS[0]) as f64,
            false => STORED,
        };
        let store = Some(store).filter(|store| store * numbers.drained > 1.0);
        product.estimated(model, PerStep { turn: loads[0] + loads[1], store, ..PerStep::default() }, sizes)
    }

    /// The configurations of a point of `gemm_hopper`'s space.
    fn fitted(
        &self,
        base: &ContractionConfig,
        point: HopperGemmConfig,
        given: &dyn Fn(&str) -> bool,
        tiles: &mut HashMap<[i64; 3], Vec<TileExtents>>,
    ) -> Vec<ContractionConfig> {
        let size = bytes(base.product.dtype);
        let [load_a, load_b] = [Operand::A, Operand::B].map(|operand| self.by_tensor_copies(operand, size));
        let stored = self.by_tensor_copies(Operand::C, bytes(base.product.result()));
        let mut product = point;
        let loads = load_a && load_b;
        let (load_registers, math_registers) = match (loads, product.form) {
            (true, _) => BOXES,
            (false, Form::Tcgen05) => ELEMENTS_ASIDE,
            (false, _) => ELEMENTS,
        };
        if !given("load_registers") {
            product.load_registers = load_registers;
        }
        if !given("math_registers") {
            let Some(registers) =
                usize::try_from(product.warpgroups - 1).ok().and_then(|i| math_registers.get(i))
            else {
                return Vec::new();
            };
            product.math_registers = *registers;
        }
        if !stored && !given("chunk") {
            product.chunk = Some(STORED_COLUMNS);
        }
        if !(loads && stored) && product.bm * product.bn > COPIED_COLUMNS * 64 * product.warpgroups {
            return Vec::new();
        }
        let sums = product.bm * product.bn / (128 * product.warpgroups);
        let waiting = if product.overlap_epilogue { sums * bytes(product.result()) / 4 } else { 0 };
        if sums + waiting + SPARE_REGISTERS > product.storing_registers() {
            return Vec::new();
        }
        let product = product.fitted(given);
        let [m, n] = if product.swap { [product.bn, product.bm] } else { [product.bm, product.bn] };
        let whole = [m, n, product.bk];
        let tiles = match given("tile") {
            true => vec![base.tile.clone()],
            false => tiles.entry(whole).or_insert_with(|| self.tiles(whole)).clone(),
        };
        let config =
            |tile| ContractionConfig { einsum: base.einsum.clone(), permute: base.permute, tile, product };
        tiles.into_iter().map(config).collect()
    }

    /// The extents along modes of a tile with so many elements along M, N and K: for rows of boxes that are at least so long, those with the fewest
    /// elements outside.
    fn tiles(&self, whole: [i64; 3]) -> Vec<TileExtents> {
        let along =
            |group| Operand::ALL.iter().any(|of| self.plan.contiguous(*of).is_some_and(|(g, _)| g == group));
        let mut found = Vec::new();
        for row in ROWS {
            let least = [Group::M, Group::N, Group::K].map(|group| if along(group) { row } else { 1 });
            let tile = TileExtents::fitting(&self.plan, &self.extents, whole, least);
            if !found.contains(&tile) {
                found.push(tile);
            }
        }
        found
    }

    /// Returns whether the tile is in proportion to the problem.
    fn suits(&self, product: &HopperGemmConfig) -> bool {
        let [m, n, k] = [Group::M, Group::N, Group::K].map(|group| self.extent(group));
        HopperGemmConfig::suits(product, m, n, k)
    }
}

fn space(
    chip: Chip<'_>,
    sizes: &BTreeMap<String, i64>,
    pinned: &[(&str, &str)],
) -> Result<Space, ConfigError> {
    let base = configured::<ContractionConfig>(pinned)?;
    let given = |field: &str| pinned.iter().any(|(name, _)| *name == field);
    let mut space = of_order(chip, sizes, pinned, &base)?;
    let as_given = base.permute.is_none() && !given("permute");
    if as_given && base.as_matrices(&base.plan()?).is_none() {
        let mut matrices: Vec<Permute> = Vec::new();
        for permute in Permute::ALL.into_iter().skip(1) {
            let permuted = ContractionConfig { permute, ..base.clone() };
            // A tensor that is in order already is none to permute, nor is one more where fewer make matrices.
            let Ok(plan) = permuted.plan() else { continue };
            let enough = matrices.iter().any(|fewer| permute.covers(*fewer) && fewer.c == permute.c);
            if enough || permuted.as_matrices(&plan).is_none() && permute != RESULT_ALONE {
                continue;
            }
            if permuted.as_matrices(&plan).is_some() {
                matrices.push(permute);
            }
            let more = of_order(chip, sizes, pinned, &permuted)?;
            space.points.extend(more.points);
            space.refused += more.refused;
        }
    }
    // Of equals the one that is nearest to the defaults.
    space
        .points
        .sort_by(|a, b| a.estimate.total_cmp(&b.estimate).then(a.parameters.len().cmp(&b.parameters.len())));
    Ok(space)
}

/// The points for factors in the order that the configuration says.
fn of_order(
    chip: Chip<'_>,
    sizes: &BTreeMap<String, i64>,
    pinned: &[(&str, &str)],
    base: &ContractionConfig,
) -> Result<Space, ConfigError> {
    let problem = Problem::new(base, sizes)?;
    let given = |field: &str| pinned.iter().any(|(name, _)| *name == field);
    let of_product: Vec<(&str, &str)> =
        pinned.iter().filter(|(name, _)| !OWN.contains(name)).copied().collect();
    let (mut space, mut seen, mut tiles) = (Space::default(), HashSet::new(), HashMap::new());
    for mut point in HopperGemmConfig::grid() {
        apply(&mut point, &of_product)?;
        let whole = point.split == 1 && point.schedule == Schedule::DataParallel;
        // Where an architecture has another form, points of this one have the reason.
        let idle = point.form != Form::Wgmma && !chip.arch.has(point.form.needs());
        if !point.form.tiles() || idle || !whole || point.pack != Pack::None {
            continue;
        }
        let configs = problem.fitted(base, point, &given, &mut tiles);
        space.refused += usize::from(configs.is_empty());
        for config in configs {
            if !seen.insert((config.product, config.tile.clone())) {
                continue;
            }
            if !problem.suits(&config.product) || config.reject(chip.arch).is_some() {
                space.refused += 1;
                continue;
            }
            let estimate = problem.estimate(chip.model, &config).microseconds;
            space.points.push(Point { parameters: differences(&config), estimate, suits: true });
        }
    }
    Ok(space)
}

/// The product of `gemm_hopper` that a contraction is.
fn same(
    _: Arch,
    sizes: &BTreeMap<String, i64>,
    pinned: &[(&str, &str)],
) -> Result<Option<SameProblem>, ConfigError> {
    let config = configured::<ContractionConfig>(pinned)?;
    let problem = Problem::new(&config, sizes)?;
    let as_given = config.as_matrices(&problem.plan).filter(|_| config.permute.is_none());
    let Some(product) = as_given else { return Ok(None) };
    let kept = pinned.iter().filter(|(name, _)| !OWN.contains(name));
    let mut pinned: Vec<(String, String)> =
        kept.map(|(name, value)| ((*name).to_string(), (*value).to_string())).collect();
    let follows =
        HopperGemmConfig { a: product.a, b: product.b, batch: product.batch, ..HopperGemmConfig::default() };
    pinned.extend(differences(&follows).into_iter().map(|(name, value)| (name.to_string(), value)));
    Ok(Some(SameProblem { operator: HopperGemmConfig::NAME, sizes: problem.named, pinned }))
}
