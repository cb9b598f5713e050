//! Tensor maps: what the tensor memory accelerator must know of a tensor, and how a launch makes it.

use tilewright_simt::{Builder, TensorMap};
use tilewright_tile::{Expr, ParamId};

/// The recipe by which a launch makes a tensor map: the tensor as the map sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapRecipe {
    /// The parameter that is the tensor's buffer, or an array of such: a map of each then.
    pub param: ParamId,
    /// True for an array.
    pub array: bool,
    /// Extents, dimension 0 (which is contiguous) first, over sizes.
    pub extents: Vec<Expr>,
    /// Strides of the dimensions from 1 on, in elements, over sizes.
    pub strides: Vec<Expr>,
}

/// The tensor maps of a function, each once.
#[derive(Default)]
pub struct Maps {
    all: Vec<(TensorMap, MapRecipe)>,
}

impl Maps {
    /// The number of a map, which is added if it is new.
    pub fn index(&mut self, map: TensorMap, recipe: MapRecipe) -> u32 {
        let known = self.all.iter().position(|(m, r)| *r == recipe && m.shape == map.shape);
        known.unwrap_or_else(|| {
            self.all.push((map, recipe));
            self.all.len() - 1
        }) as u32
    }

    /// Adds the maps to the function, as its last parameters.
    pub fn finish(self, b: &mut Builder) -> Vec<MapRecipe> {
        let mut recipes = Vec::new();
        for (map, recipe) in self.all {
            if recipe.array {
                b.add_tensor_maps(map)
            } else {
                b.add_tensor_map(map)
            };
            recipes.push(recipe);
        }
        recipes
    }
}
