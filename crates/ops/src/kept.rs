//! Kernels of configurations: compiled once, or taken from a pack, and loaded once.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use tilewright_cache::{CompileError, Kernels, Warning};
use tilewright_compiler::{Options, compile};
use tilewright_kernels::{Before, Operator};
use tilewright_launch::{Gpu, Kernel, Recipe, Zeros};
use tilewright_machine::Arch;
use tilewright_tile::Program;
use tilewright_tune::Candidate;
use tilewright_twpack::{Entry, Pack};

use crate::error::OpsError;
use crate::sizes::Sizes;

/// The kernels of a configuration, in the order of their launches.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) operator: &'static Operator,
    /// The parameters that are no defaults.
    pub(crate) parameters: Candidate,
    /// The multiples that the kernels rely on.
    pub(crate) multiples: Sizes,
    /// The name in packs.
    pub(crate) key: String,
    pub(crate) entries: Vec<Entry>,
    /// Mishaps with files of the cache.
    pub(crate) warnings: Vec<Warning>,
    loaded: OnceLock<Vec<Kernel>>,
    loading: Mutex<()>,
}

/// The key of a configuration: operator, parameters, and multiples.
pub(crate) fn key_of(operator: &Operator, parameters: &Candidate, multiples: &Sizes) -> String {
    let multiples: Vec<String> =
        multiples.iter().map(|(name, multiple)| format!("{name}/{multiple}")).collect();
    let words = [operator.name.to_string(), parameters.to_string(), multiples.join(" ")];
    words.iter().filter(|words| !words.is_empty()).cloned().collect::<Vec<_>>().join(" | ")
}

/// The name of a kernel of a configuration in packs.
fn name_of(key: &str, number: usize) -> String {
    if number == 0 { key.to_string() } else { format!("{key} | {}", number + 1) }
}

/// The multiples that a program can rely on: those of its own sizes.
fn own_multiples(program: &Program, multiples: &Sizes) -> BTreeMap<String, i64> {
    let own = |name: &str| program.sizes().any(|(_, symbol, _)| symbol.name == name);
    multiples.iter().filter(|(name, _)| own(name)).map(|(name, value)| (name.clone(), *value)).collect()
}

/// Marks the tensors that are workspaces.
fn marked(mut recipe: Recipe, operator: &Operator) -> Recipe {
    for workspace in operator.workspaces() {
        if let Some(tensor) = recipe.tensor_mut(workspace.name) {
            tensor.workspace = true;
            tensor.zeros = match workspace.before {
                Before::Anything => Zeros::None,
                Before::Zeros => Zeros::Before,
                Before::ZerosLeft => Zeros::Left,
            };
        }
    }
    recipe
}

impl Kept {
    /// The kernels of a configuration: those of a pack, else those of a cache, else compiled.
    pub(crate) fn new(
        operator: &'static Operator,
        parameters: &Candidate,
        multiples: &Sizes,
        arch: Arch,
        pack: Option<&Pack>,
        cache: Option<&Kernels>,
    ) -> Result<Kept, OpsError> {
        let mut warnings = Vec::new();
        let key = key_of(operator, parameters, multiples);
        let packed = |pack: &Pack| -> Vec<Entry> {
            (0..).map_while(|number| pack.get(&name_of(&key, number)).cloned()).collect()
        };
        let mut entries = pack.map(packed).unwrap_or_default();
        entries.retain(|entry| entry.recipe.target.name == arch.name());
        if entries.is_empty() {
            for (number, program) in parameters.programs(operator)?.iter().enumerate() {
                let mut options = Options::new(arch);
                // Candidates of synthesis are compared at the program's default sizes: the kernel is the same for whatever sizes it is asked for first.
                options.multiples = own_multiples(program, multiples);
                let made = made(program, &options, cache, &mut warnings);
                let mut entry = made.map_err(|error| refused(operator, parameters, error))?;
                entry.recipe = marked(entry.recipe, operator);
                entries.push(entry.named(name_of(&key, number)));
            }
        }
        let (loaded, loading) = (OnceLock::new(), Mutex::new(()));
        Ok(Kept {
            operator,
            parameters: parameters.clone(),
            multiples: multiples.clone(),
            key,
            entries,
            warnings,
            loaded,
            loading,
        })
    }

    /// The kernels, if they are loaded.
    pub(crate) fn loaded(&self) -> Option<&[Kernel]> {
        self.loaded.get().map(Vec::as_slice)
    }

    /// The kernels, which are loaded if they are not.
    pub(crate) fn load(&self, gpu: &Gpu) -> Result<&[Kernel], OpsError> {
        if let Some(loaded) = self.loaded.get() {
            return Ok(loaded);
        }
        let _one = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = self.loaded.get() {
            return Ok(loaded);
        }
        let mut kernels = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            // SAFETY: code and recipe are of one kernel of the compiler; or of a pack, for which `Library::with_pack` has the caller's word.
            kernels.push(unsafe { entry.load(gpu) }?);
        }
        Ok(self.loaded.get_or_init(|| kernels))
    }
}

/// A kernel of the compiler, or of a cache.
fn made(
    program: &Program,
    options: &Options,
    cache: Option<&Kernels>,
    warnings: &mut Vec<Warning>,
) -> Result<Entry, CompileError> {
    if let Some(cache) = cache {
        let kept = cache.load_or_compile(program, options)?;
        warnings.extend(kept.warnings);
        return Ok(kept.entry);
    }
    let kernel = compile(program, options).map_err(CompileError::Diagnostics)?;
    Ok(Entry::of_ptx(kernel.recipe()?, kernel.ptx))
}

fn refused(operator: &Operator, parameters: &Candidate, error: CompileError) -> OpsError {
    let (operator, parameters) = (operator.name.to_string(), parameters.to_string());
    match error {
        CompileError::Diagnostics(diagnostics) => OpsError::Compile { operator, parameters, diagnostics },
        CompileError::NoRecipe(error) => OpsError::Recipe { operator, parameters, error },
        other => OpsError::Nothing { operator, reasons: other.to_string() },
    }
}
