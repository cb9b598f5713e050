//! The operator: its parameters and programs.

use tilewright_machine::Arch;
use tilewright_tile::Program;

use super::einsum::{Einsum, Group, Operand};
use super::permute::{Permutation, Permute, permuted_name};
use super::plan::Plan;
use super::tile::TileExtents;
use crate::config::{Codec, Config, ConfigError, Field};
use crate::epilogue::{EpilogueOp, Part};
use crate::gemm_hopper::{Form, HopperGemmConfig, Major, Pack};
use crate::warp_specialized::{Axis, Nesting, bytes, lacking};

/// A contraction of two tensors, and the tiling of the matrix product that it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ContractionConfig {
    /// The contraction.
    pub einsum: Einsum,
    /// The tensors that kernels ahead and behind copy to and from the order of a product of matrices: those of the product, whose columns are c's
    /// contiguous index.
    pub permute: Permute,
    /// The extents of a tile along the modes of its groups.
    pub tile: TileExtents,
    /// The product. The order of its factors' modes (`a`, `b`) and its `batch` follow from the contraction.
    pub product: HopperGemmConfig,
}

impl Default for ContractionConfig {
    fn default() -> Self {
        let einsum = Einsum::matrix_product();
        let product = HopperGemmConfig::default();
        ContractionConfig { einsum, permute: Permute::default(), tile: TileExtents::default(), product }
    }
}

/// The number of the product's field of a name.
const fn number(name: &str) -> usize {
    const FIELDS: &[Field<HopperGemmConfig>] = HopperGemmConfig::FIELDS;
    let (mut field, wanted) = (0, name.as_bytes());
    while field < FIELDS.len() {
        let found = FIELDS[field].name.as_bytes();
        let mut same = 0;
        while same < wanted.len() && same < found.len() && found[same] == wanted[same] {
            same += 1;
        }
        if same == wanted.len() && same == found.len() {
            return field;
        }
        field += 1;
    }
    panic!("the product has no such field")
}

/// A field of the product as one of the contraction.
const fn of_product<const I: usize>() -> Field<ContractionConfig> {
    const FIELDS: &[Field<HopperGemmConfig>] = HopperGemmConfig::FIELDS;
    Field {
        name: FIELDS[I].name,
        about: FIELDS[I].about,
        get: |config| (FIELDS[I].get)(&config.product),
        set: |config, text| (FIELDS[I].set)(&mut config.product, text),
        take: |config, other| (FIELDS[I].take)(&mut config.product, &other.product),
    }
}

/// The fields of the contraction's own, and those of the product with these names.
macro_rules! fields {
    ($($name:literal)+) => {
        &[
            Field {
                name: "einsum",
                about: "The contraction, as torch.einsum writes it: two operands, a letter an index.",
                get: |config| config.einsum.to_string(),
                set: |config, text| {
                    config.einsum = (Codec::<Einsum>::OWN.read)("einsum", text)?;
                    Ok(())
                },
                take: |config, other| config.einsum = other.einsum.clone(),
            },
            Field {
                name: "permute",
                about: "Tensors that kernels of their own copy to and from the order of a product of matrices: factors ahead, to `permuted_a` and `permuted_b`, \
                        the result behind, from `permuted_c`: none, a, b, c, ab, ac, bc or abc.",
                get: |config| config.permute.to_string(),
                set: |config, text| {
                    config.permute = (Codec::<Permute>::OWN.read)("permute", text)?;
                    Ok(())
                },
                take: |config, other| config.permute = other.permute,
            },
            Field {
                name: "tile",
                about: "Extents of a tile along modes that are not the fastest of their group, by the letters of the mode: \
                        none, or a4+bc2. The fastest has what these leave of bm, bn or bk, and others 1.",
                get: |config| config.tile.to_string(),
                set: |config, text| {
                    config.tile = (Codec::<TileExtents>::OWN.read)("tile", text)?;
                    Ok(())
                },
                take: |config, other| config.tile = other.tile.clone(),
            },
            $(of_product::<{ number($name) }>(),)+
        ]
    };
}

impl Config for ContractionConfig {
    const NAME: &'static str = "contraction";
    /// Those of the product that go with contractions, whose majors and batch follow from the text.
    const FIELDS: &'static [Field<Self>] = fields!("dtype" "dtype_b" "out" "epilogue" "form" "swap" "bm" "bn" "bk" "stages" "warpgroups" "cluster" "pair" "split" "pack"
            "rasterization" "in_flight" "overlap_epilogue" "chunk" "buffers" "hint_a" "hint_b" "hint_c" "dependent" "load_registers" "math_registers" "sm_count");

    fn build(&self) -> Result<Vec<Program>, ConfigError> {
        self.programs()
    }
}

impl ContractionConfig {
    /// The matrix product that the contraction is, whatever its sizes.
    ///
    /// # Errors
    ///
    /// A contraction of tensors with too many indices.
    pub fn plan(&self) -> Result<Plan, ConfigError> {
        let wrong = |error| ConfigError::value("einsum", &self.einsum, error);
        let given = self.einsum.plan().map_err(wrong)?;
        if self.permute.is_none() {
            return Ok(given);
        }
        let mut plan = given.einsum.permuted(self.permute.tensors()).plan().map_err(wrong)?;
        plan.exchanged = given.exchanged;
        let modes = self.permutations()?.into_iter().flat_map(|(_, permutation)| permutation.modes);
        plan.permuted = modes.collect();
        plan.permuted.sort();
        plan.permuted.dedup();
        Ok(plan)
    }

    /// The contraction in the order of the product, of the factors as they are given.
    ///
    /// # Errors
    ///
    /// Those of [`plan`](Self::plan).
    pub fn given(&self) -> Result<Einsum, ConfigError> {
        let plan = self.einsum.plan().map_err(|error| ConfigError::value("einsum", &self.einsum, error))?;
        Ok(plan.einsum)
    }

    /// The permutations of tensors, with the tensors: those of factors from the given order, that of the result to it.
    fn permutations(&self) -> Result<Vec<(Operand, Permutation)>, ConfigError> {
        let given = self.given()?;
        let permuted = given.permuted(self.permute.tensors());
        let tensors = self.permute.tensors().into_iter().zip(Operand::ALL);
        let chosen = tensors.filter(|(chosen, _)| *chosen).map(|(_, operand)| {
            let orders = [given.indices(operand), permuted.indices(operand)];
            let [from, to] = if operand == Operand::C { [orders[1], orders[0]] } else { orders };
            let same = || {
                let wanted = format!("`{}` is as a product of matrices has it: leave it out", operand.name());
                ConfigError::value("permute", self.permute, wanted)
            };
            Ok((operand, Permutation::of(from, to).ok_or_else(same)?))
        });
        chosen.collect()
    }

    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let plan = self.plan()?;
        match self.as_matrices(&plan) {
            Some(product) => {
                self.check_no_tile(&plan)?;
                if self.permute.c {
                    self.check_epilogue("goes with results that are not permuted")?;
                }
                product.validate()
            }
            None => self.of_groups(&plan)?.validate(),
        }
    }

    /// The product of `gemm_hopper` where the contraction is one.
    pub fn as_matrices(&self, plan: &Plan) -> Option<HopperGemmConfig> {
        let ([a, b], batch) = plan.matrices()?;
        Some(HopperGemmConfig { a, b, batch, ..self.product })
    }

    fn check_no_tile(&self, plan: &Plan) -> Result<(), ConfigError> {
        let HopperGemmConfig { bm, bn, bk, .. } = self.product;
        self.tile
            .of_groups(plan, [("bm", bm), ("bn", bn), ("bk", bk)].map(|(name, n)| (name, n.min(256))))?;
        Ok(())
    }

    /// The product whose m, n and k are groups of modes.
    pub(super) fn of_groups(&self, plan: &Plan) -> Result<HopperGemmConfig, ConfigError> {
        let product = self.product;
        let wanted = "goes with contractions that are products of matrices as gemm_hopper has them";
        if !product.form.tiles() {
            let wanted = format!("{wanted}: must be wgmma or tcgen05");
            return Err(ConfigError::value("form", product.form, wanted));
        }
        if product.split != 1 {
            return Err(ConfigError::value(
                "split",
                product.split,
                format!("{wanted}: must be 1; cluster=k2 or k4 shares k"),
            ));
        }
        if product.pack != Pack::None {
            return Err(ConfigError::value("pack", product.pack, format!("{wanted}: must be none")));
        }
        product.check_uncopied(
            "a copy of factors goes with contractions that are products of matrices, as permute makes others",
        )?;
        self.check_epilogue(wanted)?;
        let along_k = |operand: Operand| plan.contiguous(operand).is_some_and(|(group, _)| group == Group::K);
        let major = |operand: Operand| if along_k(operand) { Major::K } else { Major::Mn };
        let (a, b) = (major(Operand::A), major(Operand::B));
        let chunk = self.chunk(plan)?;
        let by_wgmma = product.form == Form::Wgmma && bytes(product.dtype) != 2;
        if by_wgmma && (a, b) != (Major::K, Major::K) {
            let wanted = "wgmma takes factors of 8 and 32 bits contiguous along k: the last index of both operands must be summed";
            return Err(ConfigError::value("einsum", &self.einsum, wanted));
        }
        Ok(HopperGemmConfig { a, b, chunk, ..product })
    }

    /// Checks that an epilogue is made of operations on elements, for which the order of c's indices is nothing.
    fn check_epilogue(&self, wanted: &str) -> Result<(), ConfigError> {
        let product = self.product;
        let of_elements =
            |part: &Part| part.operands(product.result()).iter().all(|o| o.kind.is_scalar()) && !part.sums();
        match product.epilogue.parts().find(|part| !of_elements(part)) {
            Some(part) => {
                let wanted = format!("`{}` {wanted}: must be of alpha, relu, gelu and silu", part.name());
                Err(ConfigError::value("epilogue", product.epilogue, wanted))
            }
            None => Ok(()),
        }
    }

    /// Columns of the tile that leave at a time: the widest that are a box of c.
    fn chunk(&self, plan: &Plan) -> Result<Option<i64>, ConfigError> {
        let [m, n, _] = self.tiles(plan)?;
        let tiles = if self.product.swap { m } else { n };
        if self.product.bn % 8 != 0 {
            // Refused as a whole, whatever its chunks.
            return Ok(self.product.chunk);
        }
        let is_box = |columns: i64| {
            let mut room = columns;
            tiles.iter().all(|tile| {
                let part = (*tile).min(room);
                let divides = tile % part == 0 && room % part == 0;
                room /= part;
                divides
            })
        };
        if let Some(columns) = self.product.chunk.filter(|columns| *columns > 0 && !is_box(*columns)) {
            let wanted =
                format!("{columns} columns are no box of a tile of {tiles:?}: use fewer, or `widest`");
            return Err(ConfigError::value("chunk", columns, wanted));
        }
        let most = self.product.columns();
        let widest = [64, 32, 16, 8].into_iter().find(|columns| *columns <= most && is_box(*columns));
        let chunk = self.product.chunk.or(widest).ok_or_else(|| {
            let wanted =
                format!("no 8, 16, 32 or 64 columns are a box of a tile of {tiles:?}: use multiples of 8");
            ConfigError::value("tile", &self.tile, wanted)
        });
        chunk.map(Some)
    }

    /// The extents of a tile along the modes of M, N and K, fastest first.
    pub(super) fn tiles(&self, plan: &Plan) -> Result<[Vec<i64>; 3], ConfigError> {
        let HopperGemmConfig { bm, bn, bk, swap, .. } = self.product;
        let (of_m, of_n) = if swap { (("bn", bn), ("bm", bm)) } else { (("bm", bm), ("bn", bn)) };
        self.tile.of_groups(plan, [of_m, of_n, ("bk", bk)])
    }

    /// The modes and their tiles.
    fn nesting(&self, plan: &Plan) -> Result<Nesting, ConfigError> {
        let [m, n, k] = self.tiles(plan)?;
        let units = [Group::M, Group::N, Group::K].map(|group| plan.of(group).is_empty());
        let operands = Operand::ALL.map(|operand| plan.axes(operand)) as [Vec<Axis>; 3];
        Ok(Nesting { tiles: [m, n, k, vec![1; plan.of(Group::L).len()]], units, operands })
    }

    /// The programs: those of [`gemm_hopper`](crate::gemm_hopper) where the contraction is a product of matrices, else one, with the sizes
    /// `m`, `n`, `k` and `l`, or `m0`, `m1`, … of a group with several modes, the fastest first.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        self.validate()?;
        let plan = self.plan()?;
        let mut product = match self.as_matrices(&plan) {
            Some(product) => HopperGemmConfig { dependent: self.overlaps(&product), ..product }.programs()?,
            None => {
                let product = self.of_groups(&plan)?;
                let product = HopperGemmConfig { dependent: self.overlaps(&product), ..product };
                vec![product.nested("contraction", &self.nesting(&plan)?)?]
            }
        };
        let (mut ahead, mut behind) = (Vec::new(), Vec::new());
        for (operand, permutation) in self.permutations()? {
            let (name, workspace) = (operand.name(), permuted_name(operand.name()));
            let (dtype, list, buffers) = match operand {
                Operand::A => (self.product.dtype, &mut ahead, [name, &workspace]),
                Operand::B => (self.product.right(), &mut ahead, [name, &workspace]),
                Operand::C => (self.product.result(), &mut behind, [&workspace, name]),
            };
            list.push(permutation.program(name, buffers, dtype)?);
            let params = product.iter_mut().flat_map(|program| &mut program.params);
            params.filter(|param| param.name == name).for_each(|param| param.name.clone_from(&workspace));
        }
        Ok([ahead, product, behind].concat())
    }

    /// Returns whether the product's kernel may be launched before the one ahead of it has ended, and the one behind before it has.
    fn overlaps(&self, product: &HopperGemmConfig) -> bool {
        product.dependent || !self.permute.is_none()
    }

    /// The reason why the configuration cannot run on this architecture, if it cannot.
    pub fn reject(&self, arch: Arch) -> Option<String> {
        lacking(arch, self.product.form.needs()).or_else(|| self.validate().err().map(|e| e.to_string()))
    }
}
