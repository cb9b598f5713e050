//! Kernels of packs with the programs that they were compiled from, and the comparison of both.

use tilewright_compiler::{Kernel, NoRecipe, Options, arch_named, compile};
use tilewright_launch::ParamKind;
use tilewright_tile::{Diagnostics, parse};
use tilewright_twpack::{Entry, Source};

/// The kernel of a pack that a compilation with these options has made, with its program, if the pack can say by what it comes to the same again.
///
/// # Errors
///
/// There is no recipe of the kernel.
pub fn entry(kernel: &Kernel, options: &Options) -> Result<Entry, NoRecipe> {
    let entry = Entry::of_ptx(kernel.recipe()?, kernel.ptx.clone());
    if !repeatable(options) {
        return Ok(entry);
    }
    let multiples = options.multiples.iter().map(|(name, value)| (name.clone(), *value)).collect();
    let sizes = options.sizes.iter().map(|(name, value)| (name.clone(), *value)).collect();
    Ok(entry.with_source(Source::new(kernel.program().to_string(), multiples, sizes)))
}

/// True if a compilation with nothing but constants, multiples and sizes comes to the same.
fn repeatable(options: &Options) -> bool {
    let plain = Options::new(options.arch);
    options.candidate.is_none()
        && options.timing.is_none()
        && options.lines.is_none()
        && !options.debug
        && options.budget == plain.budget
        && options.without == plain.without
}

/// Compiles the program of a kernel again: true if it comes to the same recipe and code. `None` if the pack does not have it.
///
/// # Errors
///
/// The program does not compile: the first reason.
pub fn compiled_again(entry: &Entry) -> Option<Result<bool, String>> {
    let source = entry.source.as_ref()?;
    Some(again(entry, source))
}

fn again(entry: &Entry, source: &Source) -> Result<bool, String> {
    let first = |diagnostics: Diagnostics| {
        diagnostics.0.first().map_or(String::new(), |diagnostic| diagnostic.message.clone())
    };
    let arch = arch_named(&entry.recipe.target.name).map_err(|diagnostic| diagnostic.message)?;
    let program = parse(&source.program).map_err(first)?;
    let mut options = Options::new(arch);
    options.multiples = source.multiples.iter().cloned().collect();
    options.sizes = source.sizes.iter().cloned().collect();
    let kernel = compile(&program, &options).map_err(first)?;
    let mut recipe = kernel.recipe().map_err(|error| error.to_string())?;
    // Tensors that the maker of the pack has put into the workspace are none in the program.
    for param in &entry.recipe.params {
        if let (ParamKind::Tensor(kept), Some(tensor)) = (&param.kind, recipe.tensor_mut(&param.name)) {
            tensor.workspace = kept.workspace;
        }
    }
    Ok(recipe == entry.recipe && Some(kernel.ptx.as_str()) == entry.ptx())
}
