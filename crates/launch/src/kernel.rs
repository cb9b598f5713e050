//! Kernels on a GPU: code with its recipe, and the plans of its launches.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use crate::error::LaunchError;
use crate::gpu::Gpu;
use crate::memo::{Memo, Reading, hash};
use crate::module::{Code, Log, Module, supported};
use crate::plan::Plan;
use crate::recipe::Recipe;
use crate::stream::Stream;
use crate::view::Args;

/// Plans that a kernel keeps: those of the sizes that were used last.
const PLANS_KEPT: usize = 4096;

/// Code with its recipe: what every plan of it needs.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) module: Module,
    pub(crate) recipe: Arc<Recipe>,
    /// Blocks that the GPU holds at once, of a kernel all of whose blocks must run at once.
    pub(crate) resident: Option<u32>,
}

/// A kernel on a GPU.
#[derive(Clone)]
pub struct Kernel(Arc<Inner>);

struct Inner {
    ready: Arc<Ready>,
    plans: Memo<Box<[i64]>, Plan>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &self.0.ready.recipe.name).finish_non_exhaustive()
    }
}

impl Gpu {
    /// Loads a kernel.
    ///
    /// # Safety
    ///
    /// As of [`Module::load`]: the code does what the recipe says.
    ///
    /// # Errors
    ///
    /// A recipe that no launch can follow, or code that the GPU or the driver does not take.
    pub unsafe fn load(&self, recipe: &Recipe, code: Code<'_>) -> Result<Kernel, LaunchError> {
        // SAFETY: as the caller says.
        let module = unsafe { Module::load(self, recipe, code, Log::Errors) }?;
        Kernel::new(&module, Arc::new(recipe.clone()))
    }
}

impl Kernel {
    /// The kernel of a recipe whose code is loaded.
    ///
    /// # Errors
    ///
    /// A recipe that no launch can follow, or that asks for more than the GPU has.
    pub fn new(module: &Module, recipe: Arc<Recipe>) -> Result<Kernel, LaunchError> {
        supported(module.gpu(), &recipe)?;
        module.gpu().within(|| module.admit(&recipe))?;
        let resident = if recipe.resident { Some(module.resident_blocks(&recipe)?) } else { None };
        let ready = Arc::new(Ready { module: module.clone(), recipe, resident });
        Ok(Kernel(Arc::new(Inner { ready, plans: Memo::new(PLANS_KEPT) })))
    }

    /// The same kernel on another GPU.
    ///
    /// # Errors
    ///
    /// As of [`Kernel::new`] and [`Module::on`].
    pub fn on(&self, gpu: &Gpu) -> Result<Kernel, LaunchError> {
        supported(gpu, self.recipe())?;
        Kernel::new(&self.0.ready.module.on(gpu)?, self.0.ready.recipe.clone())
    }

    /// The recipe.
    pub fn recipe(&self) -> &Recipe {
        &self.0.ready.recipe
    }

    /// The code.
    pub fn module(&self) -> &Module {
        &self.0.ready.module
    }

    /// Blocks that the GPU holds at once, in whole clusters: the grid of a kernel whose blocks take one tile after another.
    ///
    /// # Errors
    ///
    /// The driver fails.
    pub fn resident_blocks(&self) -> Result<u32, LaunchError> {
        self.module().resident_blocks(self.recipe())
    }

    /// The number of plans that are kept.
    pub fn plans(&self) -> usize {
        self.0.plans.len()
    }

    fn known(&self, number: u64, sizes: &[i64]) -> Option<Reading<'_, Box<[i64]>, Plan>> {
        self.0.plans.get(number, |known| **known == *sizes)
    }

    /// The plan of launches at these sizes, in the order of [`Recipe::sizes`]. Sizes, grid, ranges, assumptions and what tensor maps say of tensors are checked when it is made, which is once
    /// for as long as it is kept. The driver is not called.
    ///
    /// # Errors
    ///
    /// Sizes that the kernel does not take.
    pub fn plan(&self, sizes: &[i64]) -> Result<Plan, LaunchError> {
        let number = hash(sizes.iter().map(|size| size.cast_unsigned()));
        if let Some(known) = self.known(number, sizes) {
            return Ok(known.clone());
        }
        let plan = Plan::new(&self.0.ready, sizes)?;
        // Where others use all plans that it could take the place of, it is made anew next time.
        drop(self.0.plans.insert(number, sizes.into(), plan.clone()));
        Ok(plan)
    }

    /// Puts a launch on a stream, by the plan of these sizes. While the stream is captured no plan is made.
    ///
    /// # Errors
    ///
    /// As of [`Kernel::plan`] and [`Plan::launch`]; [`LaunchError::NotReady`] during a capture, without a plan.
    pub fn launch<'a>(
        &self,
        stream: Stream<'_>,
        sizes: &[i64],
        args: impl Args<'a>,
    ) -> Result<(), LaunchError> {
        let number = hash(sizes.iter().map(|size| size.cast_unsigned()));
        if let Some(known) = self.known(number, sizes) {
            return known.launch(stream, args);
        }
        if stream.is_capturing(self.module().gpu().driver()) {
            return Err(LaunchError::NotReady { kernel: self.recipe().name.clone() });
        }
        self.plan(sizes)?.launch(stream, args)
    }
}
