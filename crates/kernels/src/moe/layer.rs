//! The launches of a whole layer, from the logits or the experts of tokens to the sums of their results: a function of sizes alone.

use tilewright_machine::{Arch, DType};

use super::choose::{Machine, Products, Rows, Tiled};
use super::clear::MoeClearConfig;
use super::combine::MoeCombineConfig;
use super::gate::MoeGateConfig;
use super::gather::MoeGatherConfig;
use super::measured::MoeReason;
use super::quantise::MoeQuantiseConfig;
use super::quantise_rows::MoeQuantiseRowsConfig;
use super::reference::Places;
use super::routing::MoeRoutingConfig;
use super::sort::MoeSortConfig;
use crate::config::{ConfigError, differences};
use crate::gemm_fp8_blocks::BLOCK;
use crate::gemm_hopper::HopperGemmConfig;

/// The reason why a layer has no launches.
#[derive(Debug, thiserror::Error)]
pub enum MoeError {
    /// A number is not one that a layer can have.
    #[error("`{field}` = {value}: {wanted}")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        value: i64,
        /// The values that would be right.
        wanted: String,
    },
    /// An operator refuses what the layer asks of it.
    #[error("`{operator}`: {error}")]
    Operator {
        /// The operator.
        operator: &'static str,
        /// The reason.
        error: ConfigError,
    },
    /// Results are added in a type in which the second product has none.
    #[error(
        "`reduction`: products of {weights:?} with activations in {dtype} do not add in {sums}: must be {dtype}, or f32 where weights have 8 bits or more"
    )]
    Sums {
        /// The type of activations.
        dtype: DType,
        /// The type of sums.
        sums: DType,
        /// The weights.
        weights: MoeWeights,
    },
    /// No tile fits the products.
    #[error("no tile of {hidden} × {intermediate} in {dtype} fits a block")]
    NoTile {
        /// Elements of a token.
        hidden: i64,
        /// Elements between both products.
        intermediate: i64,
        /// The type.
        dtype: DType,
    },
}

/// The weights of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MoeWeights {
    /// Of the type of activations.
    #[default]
    Same,
    /// In e4m3, with scales of 128 × 128. Activations are rounded to e4m3 with scales of 128 columns of a row ahead of each product (DeepSeek-V3 technical report, section
    /// 3.3.2).
    Fp8Blocks,
    /// Of a few bits, stored as [`gemm_weights`](crate::gemm_weights) stores them, with scales of the type of activations.
    Few {
        /// The type.
        dtype: DType,
        /// Neighbours along a row that share a scale; `None`: all of a row.
        group: Option<i64>,
    },
    /// Of 8 bits, e4m3 or i8, with a scale in f32 for each row of a matrix. Activations are rounded to the same type with a scale for each row ahead of each product.
    Rows(DType),
}

/// The way in which the results of a token's experts become their sum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MoeReduction {
    /// A launch adds them in the order of the token's experts: launches repeat bit by bit.
    #[default]
    Ordered,
    /// The second product adds each to y, which has this type, f32 or that of activations, as it leaves. Each sum is rounded to the type, and the order is open: launches differ
    /// in the last bits.
    Added(DType),
}

/// A layer of experts: `y[t] = Σ weights · w2 · (silu(w1 · x[t]) ∘ (w3 · x[t]))` over the experts of a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MoeLayer {
    /// The type of activations: f16 or bf16.
    pub dtype: DType,
    /// The weights.
    pub weights: MoeWeights,
    /// Elements of a token.
    pub hidden: i64,
    /// Elements between both products.
    pub intermediate: i64,
    /// Experts whose weights are here.
    pub experts: i64,
    /// Experts of the model, where some lie elsewhere: `map[e]` has the number of each here, or −1.
    pub all_experts: Option<i64>,
    /// Experts of a token.
    pub k: i64,
    /// The choice of experts by logits; `None`: `ids` and `weights` are given.
    pub routing: Option<MoeRoutingConfig>,
    /// The sum of the results of a token's experts.
    pub reduction: MoeReduction,
}

/// A launch of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MoeLaunch {
    /// The operator.
    pub operator: &'static str,
    /// The operator's parameters by name; those not named have their defaults.
    pub parameters: Vec<(&'static str, String)>,
    /// The number of the program among the operator's, from 0.
    pub program: usize,
    /// The sizes.
    pub sizes: Vec<(&'static str, i64)>,
    /// The tensors of the layer that parameters of other names are: `("a", "x")`.
    pub tensors: Vec<(&'static str, &'static str)>,
}

/// A tensor of the workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MoeTensor {
    /// The name that launches know it by.
    pub name: &'static str,
    /// The type of its elements.
    pub dtype: DType,
    /// The extents.
    pub shape: Vec<i64>,
    /// Its place in the workspace in bytes.
    pub offset: i64,
}

/// The launches of a layer. Its tensors are `x[tokens, hidden]`, `w13[experts, 2, intermediate, hidden]` (the rows of w1, then those of w3),
/// `w2[experts, hidden, intermediate]`, with scales of blocks `s13[experts, ⌈2 · intermediate / 128⌉, ⌈hidden / 128⌉]` and `s2[experts, ⌈hidden / 128⌉, ⌈intermediate / 128⌉]`,
/// with weights of a few bits `s13[experts, ⌈hidden / group⌉, 2 · intermediate]` and `s2[experts, ⌈intermediate / group⌉, hidden]`,
/// with a scale for each row of a matrix `s13[experts, 2 · intermediate]` and `s2[experts, hidden]`,
/// `y[tokens, hidden]`, where experts lie elsewhere `map[all_experts]`, and `logits[tokens, experts]` with `bias`, or `ids` and
/// `weights[tokens, k]`.
#[derive(Clone, PartialEq, Debug)]
pub struct MoePlan {
    /// The launches, in their order.
    pub launches: Vec<MoeLaunch>,
    /// The tensors of the workspace, which need no values.
    pub workspace: Vec<MoeTensor>,
    /// Bytes of the workspace.
    pub bytes: i64,
    /// The estimated time of both products in microseconds: for ranking.
    pub estimate: f64,
    /// The reason why the plan is the first, if it is.
    pub reason: MoeReason,
}

/// The products of a layer, as they are chosen for a number of tokens. Layers for other numbers have launches by them, too.
#[derive(Clone, Debug)]
pub struct MoeChoice(Products);

/// Tokens of a layer at most: places are integers of 32 bits.
const MOST_TOKENS: i64 = 1 << 24;

/// Elements of a token at most.
const MOST_ELEMENTS: i64 = 1 << 20;

/// Bytes of which the tensors of a workspace begin at multiples.
const ALIGNMENT: i64 = 256;

/// Experts of tokens that one block sorts.
const ONE_BLOCK: i64 = 512;

impl MoeLayer {
    /// The launches for so many tokens on a GPU of so many multiprocessors. A function of its arguments alone.
    ///
    /// # Errors
    ///
    /// A [`MoeError`] that names what is out of range.
    pub fn plan(&self, tokens: i64, multiprocessors: i64) -> Result<MoePlan, MoeError> {
        let products = self.products(tokens, multiprocessors)?;
        let none =
            MoeError::NoTile { hidden: self.hidden, intermediate: self.intermediate, dtype: self.dtype };
        self.plan_of(products.first().ok_or(none)?, tokens)
    }

    /// The plans that the estimate takes for the fastest, behind those that were measured, at most so many, of which [`plan`](Self::plan) is the first: for those who measure.
    ///
    /// # Errors
    ///
    /// Those of [`plan`](Self::plan).
    pub fn plans(&self, tokens: i64, multiprocessors: i64, most: usize) -> Result<Vec<MoePlan>, MoeError> {
        let products = self.products(tokens, multiprocessors)?;
        products.iter().take(most).map(|products| self.plan_of(products, tokens)).collect()
    }

    /// The products that [`plan`](Self::plan) takes for so many tokens.
    ///
    /// # Errors
    ///
    /// Those of [`plan`](Self::plan).
    pub fn choice(&self, tokens: i64, multiprocessors: i64) -> Result<MoeChoice, MoeError> {
        let products = self.products(tokens, multiprocessors)?.into_iter().next();
        products.map(MoeChoice).ok_or(MoeError::NoTile {
            hidden: self.hidden,
            intermediate: self.intermediate,
            dtype: self.dtype,
        })
    }

    /// The launches for so many tokens by products that were chosen for a number near it.
    ///
    /// # Errors
    ///
    /// Those of [`plan`](Self::plan).
    pub fn plan_by(&self, choice: &MoeChoice, tokens: i64) -> Result<MoePlan, MoeError> {
        self.check(tokens, 1)?;
        self.plan_of(&choice.0, tokens)
    }

    /// The products of so many tokens by their estimated time.
    fn products(&self, tokens: i64, multiprocessors: i64) -> Result<Vec<Products>, MoeError> {
        self.check(tokens, multiprocessors)?;
        let all = self.all_experts.unwrap_or(self.experts);
        let rows = Rows { experts: self.experts, each: (tokens * self.k) as f64 / all as f64 };
        Ok(Machine { multiprocessors }.products(self, tokens, rows))
    }

    /// The launches around two products.
    fn plan_of(&self, products: &Products, tokens: i64) -> Result<MoePlan, MoeError> {
        let sort = self.sort(tokens, products.tile);
        let places = sort.places(tokens);
        let mut plan = MoePlan {
            launches: Vec::new(),
            workspace: Vec::new(),
            bytes: 0,
            estimate: products.microseconds,
            reason: products.reason.clone(),
        };
        self.route(&mut plan, tokens)?;
        self.order(&mut plan, &sort, tokens)?;
        self.clear(&mut plan, tokens)?;
        self.multiply(&mut plan, products, places, tokens)?;
        self.add(&mut plan, places, tokens)?;
        Ok(plan)
    }

    fn check(&self, tokens: i64, multiprocessors: i64) -> Result<(), MoeError> {
        let within = |field, value: i64, [low, high]: [i64; 2], of: i64| {
            if (low..=high).contains(&value) && value % of == 0 {
                return Ok(());
            }
            let multiple = if of > 1 { format!("a multiple of {of} ") } else { String::new() };
            Err(MoeError::Value { field, value, wanted: format!("must be {multiple}from {low} to {high}") })
        };
        within("tokens", tokens, [1, MOST_TOKENS], 1)?;
        within("multiprocessors", multiprocessors, [1, 1 << 16], 1)?;
        // Rows of 16 bytes.
        let elements = match self.weights {
            MoeWeights::Same | MoeWeights::Few { .. } => 8,
            MoeWeights::Fp8Blocks | MoeWeights::Rows(_) => 16,
        };
        within("hidden", self.hidden, [elements, MOST_ELEMENTS], elements)?;
        within("intermediate", self.intermediate, [elements, MOST_ELEMENTS], elements)?;
        if let Some(all) = self.all_experts {
            within("all_experts", all, [self.experts.max(1), 1 << 16], 1)?;
        }
        if let MoeReduction::Added(dtype) = self.reduction {
            let few = matches!(self.weights, MoeWeights::Few { .. });
            if dtype != self.dtype && (few || dtype != DType::F32) {
                let (dtype, sums, weights) = (self.dtype, dtype, self.weights);
                return Err(MoeError::Sums { dtype, sums, weights });
            }
        }
        let Some(routing) = &self.routing else { return Ok(()) };
        for (field, value, wanted) in [
            ("routing.k", routing.k, self.k),
            ("routing.experts", routing.experts, self.all_experts.unwrap_or(self.experts)),
        ] {
            if value != wanted {
                return Err(MoeError::Value {
                    field,
                    value,
                    wanted: format!("must be {wanted}, as the layer's"),
                });
            }
        }
        Ok(())
    }

    /// The launch that chooses experts.
    fn route(&self, plan: &mut MoePlan, tokens: i64) -> Result<(), MoeError> {
        let Some(routing) = &self.routing else { return Ok(()) };
        let config = MoeRoutingConfig { dependent: true, ..*routing };
        config.validate().map_err(refused("moe_routing"))?;
        plan.launch("moe_routing", differences(&config), 0, vec![("tokens", tokens)], vec![("x", "logits")]);
        plan.tensor("ids", DType::I32, vec![tokens, self.k]);
        plan.tensor("weights", DType::F32, vec![tokens, self.k]);
        Ok(())
    }

    /// The configuration that sorts so many tokens for tiles of these rows.
    pub(super) fn sort(&self, tokens: i64, tile: i64) -> MoeSortConfig {
        let all = tokens * self.k;
        let chunks = [128, 256, 512];
        let (chunk, split) = match chunks.into_iter().find(|chunk| all <= *chunk && all <= ONE_BLOCK) {
            Some(chunk) => (chunk, false),
            None if all <= 1 << 15 => (256, true),
            None if all <= 1 << 17 => (1024, true),
            None => (4096, true),
        };
        let threads = chunk.min(512);
        MoeSortConfig {
            experts: self.experts,
            k: self.k,
            map: self.all_experts.is_some(),
            weighted: self.reduction != MoeReduction::Ordered,
            tile,
            padded: false,
            chunk,
            split,
            threads,
            dependent: true,
        }
    }

    /// The launches that sort.
    fn order(&self, plan: &mut MoePlan, config: &MoeSortConfig, tokens: i64) -> Result<(), MoeError> {
        config.validate().map_err(refused("moe_sort"))?;
        let Places { rows, tiles } = config.places(tokens);
        let elsewhere = self.all_experts.map(|all| ("e", all));
        if config.split {
            let sizes = [("tokens", tokens)].into_iter().chain(elsewhere).collect();
            plan.launch("moe_sort", differences(config), 0, sizes, Vec::new());
            let chunks = (tokens * self.k + config.chunk - 1) / config.chunk;
            plan.tensor("counted", DType::I32, vec![chunks, config.counters()]);
        }
        let sizes = [("tokens", tokens), ("t", tiles), ("m", rows)].into_iter().chain(elsewhere).collect();
        plan.launch("moe_sort", differences(config), usize::from(config.split), sizes, Vec::new());
        if config.weighted {
            plan.tensor("factor", DType::F32, vec![rows]);
        }
        for (name, length) in [
            ("rows", rows),
            ("places", tokens * self.k),
            ("groups", tiles),
            ("first", tiles),
            ("ends", self.experts),
        ] {
            plan.tensor(name, DType::I32, vec![length]);
        }
        Ok(())
    }

    /// The launches of both products, and of the quantisations ahead of them.
    fn multiply(
        &self,
        plan: &mut MoePlan,
        products: &Products,
        Places { rows, tiles }: Places,
        tokens: i64,
    ) -> Result<(), MoeError> {
        let Products { up, down, .. } = products;
        let product = |plan: &mut MoePlan,
                       tiled: &Tiled,
                       [n, k]: [i64; 2],
                       tensors: Vec<(&'static str, &'static str)>| {
            tiled.validate().map_err(refused(tiled.operator()))?;
            let gathered = tiled.gathers().then_some(("r", tokens));
            let scattered = tiled.scatters().then_some(("q", tokens));
            let sizes = [("m", rows), ("n", n), ("k", k), ("g", self.experts), ("t", tiles)];
            let sizes = sizes.into_iter().chain(gathered).chain(scattered).collect();
            plan.launch(tiled.operator(), tiled.parameters(), 0, sizes, tensors);
            Ok(())
        };
        let (hidden, between) = (self.hidden, self.intermediate);
        // The results of the second product, or what they are added to.
        let results = |tensors: &[(&'static str, &'static str)]| {
            let to = match self.reduction {
                MoeReduction::Ordered => vec![("c", "z")],
                MoeReduction::Added(_) => vec![("c", "y"), ("to", "rows")],
            };
            [tensors, &to].concat()
        };
        // Rows that a product does not gather are copied ahead of it.
        let copied = matches!(self.weights, MoeWeights::Same | MoeWeights::Few { .. }) && !up.gathers();
        let x = if copied { "xr" } else { "x" };
        if copied {
            self.gather(plan, [rows, tokens])?;
        }
        match self.weights {
            MoeWeights::Same => {
                product(plan, up, [between, hidden], vec![("a", x), ("b", "w13"), ("c", "h")])?;
                plan.tensor("h", self.dtype, vec![rows, between]);
                product(plan, down, [hidden, between], results(&[("a", "h"), ("b", "w2")]))?;
            }
            MoeWeights::Few { .. } => {
                let tensors = vec![("a", x), ("w", "w13"), ("s", "s13"), ("c", "units")];
                product(plan, up, [2 * between, hidden], tensors)?;
                plan.tensor("units", self.dtype, vec![rows, 2 * between]);
                self.gate(plan, [rows, between])?;
                product(plan, down, [hidden, between], results(&[("a", "h"), ("w", "w2"), ("s", "s2")]))?;
            }
            MoeWeights::Rows(dtype) => {
                let ahead = MoeQuantiseRowsConfig { out: dtype, gather: true, ..Default::default() };
                self.quantise_rows(plan, ahead, ([rows, hidden], tokens), ["x", "xq", "xs"])?;
                let scaled = |[a, s, b, t]: [&'static str; 4]| {
                    vec![("a", a), ("row_scale", s), ("b", b), ("col_scale", t)]
                };
                let tensors = [scaled(["xq", "xs", "w13", "s13"]), vec![("c", "units")]].concat();
                product(plan, up, [2 * between, hidden], tensors)?;
                plan.tensor("units", self.dtype, vec![rows, 2 * between]);
                let behind = MoeQuantiseRowsConfig { gather: false, gated: true, ..ahead };
                self.quantise_rows(plan, behind, ([rows, between], tokens), ["units", "hq", "hs"])?;
                product(plan, down, [hidden, between], results(&scaled(["hq", "hs", "w2", "s2"])))?;
            }
            MoeWeights::Fp8Blocks => {
                self.quantise(plan, false, [tokens, hidden], ["x", "xq", "xs"])?;
                let tensors = vec![("a", "xq"), ("sa", "xs"), ("b", "w13"), ("sb", "s13"), ("c", "units")];
                product(plan, up, [2 * between, hidden], tensors)?;
                plan.tensor("units", self.dtype, vec![rows, 2 * between]);
                self.quantise(plan, true, [rows, between], ["units", "hq", "hs"])?;
                let tensors = results(&[("a", "hq"), ("sa", "hs"), ("b", "w2"), ("sb", "s2")]);
                product(plan, down, [hidden, between], tensors)?;
            }
        }
        if self.reduction == MoeReduction::Ordered {
            plan.tensor("z", self.dtype, vec![rows, hidden]);
        }
        Ok(())
    }

    /// The launch of zeros, where results are added to y.
    fn clear(&self, plan: &mut MoePlan, tokens: i64) -> Result<(), MoeError> {
        let MoeReduction::Added(dtype) = self.reduction else { return Ok(()) };
        let config = MoeClearConfig { dtype, dependent: true, ..Default::default() };
        config.validate().map_err(refused("moe_clear"))?;
        let sizes = vec![("m", tokens), ("n", self.hidden)];
        plan.launch("moe_clear", differences(&config), 0, sizes, Vec::new());
        Ok(())
    }

    /// The launch that rounds activations to 8 bits with a scale for each row.
    fn quantise_rows(
        &self,
        plan: &mut MoePlan,
        config: MoeQuantiseRowsConfig,
        ([m, n], tokens): ([i64; 2], i64),
        [x, y, s]: [&'static str; 3],
    ) -> Result<(), MoeError> {
        let config = MoeQuantiseRowsConfig { dtype: self.dtype, dependent: true, ..config };
        config.validate().map_err(refused("moe_quantise_rows"))?;
        let sizes = [("m", m), ("n", n)].into_iter().chain(config.gather.then_some(("r", tokens))).collect();
        let tensors = vec![("x", x), ("y", y), ("s", s)];
        plan.launch("moe_quantise_rows", differences(&config), 0, sizes, tensors);
        plan.tensor(y, config.out, vec![m, n]);
        plan.tensor(s, DType::F32, vec![m]);
        Ok(())
    }

    /// The launch that copies the rows of tokens into the order of their experts.
    fn gather(&self, plan: &mut MoePlan, [m, r]: [i64; 2]) -> Result<(), MoeError> {
        let config = MoeGatherConfig { dtype: self.dtype, dependent: true, ..Default::default() };
        config.validate().map_err(refused("moe_gather"))?;
        let sizes = vec![("m", m), ("r", r), ("n", self.hidden)];
        plan.launch("moe_gather", differences(&config), 0, sizes, vec![("y", "xr")]);
        plan.tensor("xr", self.dtype, vec![m, self.hidden]);
        Ok(())
    }

    /// The launch that makes gated units.
    fn gate(&self, plan: &mut MoePlan, [m, n]: [i64; 2]) -> Result<(), MoeError> {
        let config = MoeGateConfig { dtype: self.dtype, dependent: true, ..Default::default() };
        config.validate().map_err(refused("moe_gate"))?;
        let tensors = vec![("x", "units"), ("y", "h")];
        plan.launch("moe_gate", differences(&config), 0, vec![("m", m), ("n", n)], tensors);
        plan.tensor("h", self.dtype, vec![m, n]);
        Ok(())
    }

    /// The launch that rounds activations to 8 bits.
    fn quantise(
        &self,
        plan: &mut MoePlan,
        gated: bool,
        [m, n]: [i64; 2],
        [x, y, s]: [&'static str; 3],
    ) -> Result<(), MoeError> {
        let config = MoeQuantiseConfig { dtype: self.dtype, gated, dependent: true, ..Default::default() };
        config.validate().map_err(refused("moe_quantise"))?;
        let tensors = vec![("x", x), ("y", y), ("s", s)];
        plan.launch("moe_quantise", differences(&config), 0, vec![("m", m), ("n", n)], tensors);
        plan.tensor(y, DType::E4M3, vec![m, n]);
        plan.tensor(s, DType::F32, vec![(n + BLOCK - 1) / BLOCK, m]);
        Ok(())
    }

    /// The launch that adds the results of a token's experts in their order.
    fn add(&self, plan: &mut MoePlan, places: Places, tokens: i64) -> Result<(), MoeError> {
        if self.reduction != MoeReduction::Ordered {
            return Ok(());
        }
        let config = MoeCombineConfig { dtype: self.dtype, k: self.k, dependent: true, ..Default::default() };
        config.validate().map_err(refused("moe_combine"))?;
        let sizes = vec![("tokens", tokens), ("n", self.hidden), ("m", places.rows)];
        plan.launch("moe_combine", differences(&config), 0, sizes, vec![("c", "z")]);
        Ok(())
    }

    /// The reason why the layer cannot run on this architecture, if it cannot.
    pub fn reject(&self, arch: Arch) -> Option<String> {
        HopperGemmConfig::default().reject(arch)
    }
}

fn refused(operator: &'static str) -> impl Fn(ConfigError) -> MoeError {
    move |error| MoeError::Operator { operator, error }
}

impl MoePlan {
    fn launch(
        &mut self,
        operator: &'static str,
        parameters: Vec<(&'static str, String)>,
        program: usize,
        sizes: Vec<(&'static str, i64)>,
        tensors: Vec<(&'static str, &'static str)>,
    ) {
        self.launches.push(MoeLaunch { operator, parameters, program, sizes, tensors });
    }

    fn tensor(&mut self, name: &'static str, dtype: DType, shape: Vec<i64>) {
        let bytes = shape.iter().product::<i64>() * i64::from(dtype.bits()) / 8;
        self.workspace.push(MoeTensor { name, dtype, shape, offset: self.bytes });
        self.bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
}
