//! `tilewright pack`: kernels as files.

use std::path::Path;
use std::process::ExitCode;

use tilewright::build;
use tilewright::pack::{Image, Pack, PackFile};

use crate::args::{PackArgs, PackBuildArgs, PackCommand};
use crate::assembler::binary;
use crate::load::{load_all, timing};
use crate::messages::{Failure, cannot_write, error, print};
use crate::target::target_without_device;

/// Does what the command line asks of packs.
pub fn pack(args: &PackArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        PackCommand::Build(args) => made(args),
        PackCommand::List(args) => list(&args.file),
        PackCommand::Verify(args) => verify(&args.file),
    }
}

/// A pack that is read from a file.
fn read(file: &Path) -> Result<Pack, Failure> {
    opened(file)?.pack().map_err(|e| wrong(file, e))
}

/// The file of a pack.
fn opened(file: &Path) -> Result<PackFile<'static>, Failure> {
    let bytes = std::fs::read(file).map_err(|e| wrong(file, format!("cannot be read: {e}")))?;
    PackFile::open(bytes).map_err(|e| wrong(file, e))
}

fn wrong(file: &Path, reason: impl std::fmt::Display) -> Failure {
    Failure::program(error(format!("`{}`: {reason}", file.display())))
}

/// The compute capability that an architecture is named after: 8.6 of `sm_86`, 9.0 of `sm_90a`.
fn capability(arch: &str) -> Option<(u32, u32)> {
    let number: u32 = arch.strip_prefix("sm_")?.trim_end_matches(char::is_alphabetic).parse().ok()?;
    Some((number / 10, number % 10))
}

/// Compiles the kernels of a program into a pack, beside those of other packs.
fn made(args: &PackBuildArgs) -> Result<ExitCode, Failure> {
    let all = load_all(&args.program)?;
    let target = target_without_device(&args.program, &all)?;
    target.say();
    let failed = |e: &dyn std::fmt::Display| Failure::program(error(e));
    let mut pack = Pack::new(format!("tilewright {}", env!("CARGO_PKG_VERSION")));
    for file in &args.with {
        let other = read(file)?;
        for entry in other.entries() {
            pack.add(entry.clone()).map_err(|e| failed(&e))?;
        }
        for class in other.operators() {
            pack.add_class(class.clone()).map_err(|e| failed(&e))?;
        }
    }
    let mut found = vec![false; args.workspace.len()];
    for loaded in &all {
        let mut options = loaded.options(target.arch);
        // The same bytes come of the same program in every folder.
        options.lines = None;
        options.timing = timing(&args.program, target.arch)?;
        let kernel = loaded.compile(&options)?;
        let mut entry = build::entry(&kernel, &options).map_err(|e| failed(&e))?;
        for (number, name) in args.workspace.iter().enumerate() {
            if let Some(tensor) = entry.recipe.tensor_mut(name) {
                (tensor.workspace, found[number]) = (true, true);
            }
        }
        match (&args.name, all.len()) {
            (Some(name), 1) => entry.name = name.clone(),
            (Some(name), _) => entry.name = format!("{name}.{}", entry.name),
            (None, _) => {}
        }
        for arch in &args.binary {
            let unknown = || failed(&format!("`{arch}` is no architecture of `--binary`, as `sm_86` is"));
            let capability = capability(arch).ok_or_else(unknown)?;
            let made = binary(&kernel, arch);
            let reason = |e| failed(&format!("no binary of `{}` for {arch}: {e}", kernel.function.name));
            entry = entry.with_binary(capability, made.map_err(reason)?);
        }
        if loaded.core.is_some() {
            // The text of a core program is none of the surface's.
            entry.source = None;
        }
        pack.add(entry).map_err(|e| failed(&e))?;
    }
    if let Some((name, _)) = args.workspace.iter().zip(found).find(|(_, found)| !found) {
        return Err(failed(&format!(
            "no kernel has a tensor `{name}`, of which `--workspace` is to make a part of the workspace"
        )));
    }
    let bytes = pack.to_bytes().map_err(|e| failed(&e))?;
    std::fs::write(&args.output, &bytes).map_err(|e| cannot_write(&args.output, e))?;
    print(&format!(
        "{} kernels, {} bytes in {}\n",
        pack.entries().len(),
        bytes.len(),
        args.output.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Lists the kernels of a pack.
fn list(file: &Path) -> Result<ExitCode, Failure> {
    let opened = opened(file)?;
    let pack = opened.pack().map_err(|e| wrong(file, e))?;
    let mut text = format!("made by {}, hash {}\n", pack.made(), opened.hash());
    for entry in pack.entries() {
        let recipe = &entry.recipe;
        let sizes: Vec<String> = recipe
            .sizes
            .iter()
            .map(|size| match size.multiple {
                1 => size.name.clone(),
                multiple => format!("{} (multiples of {multiple})", size.name),
            })
            .collect();
        let params: Vec<&str> = recipe.params.iter().map(|param| param.name.as_str()).collect();
        let code = entry.images.iter().map(|image| match image {
            Image::Ptx(text) => format!("PTX of {} bytes", text.len()),
            Image::Binary { capability: (major, minor), bytes } => {
                format!("a binary for {major}.{minor} of {} bytes", bytes.len())
            }
            _ => "code".to_string(),
        });
        let id = entry.id().map_err(|e| Failure::program(error(e)))?;
        text += &format!(
            "{}: {}, {}, {} threads, parameters {}, sizes {}, {}\n    {id}\n",
            entry.name,
            recipe.target.name,
            code.collect::<Vec<_>>().join(", "),
            recipe.threads,
            params.join(", "),
            if sizes.is_empty() { "none".to_string() } else { sizes.join(", ") },
            if entry.source.is_some() { "with its program" } else { "without its program" },
        );
    }
    for class in pack.operators() {
        let device =
            if class.device.is_empty() { String::new() } else { format!(", chosen for {}", class.device) };
        text += &format!("{class}{device}\n    {}\n", class.kernels.join(", then "));
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Compiles the kernels of a pack again, and compares.
fn verify(file: &Path) -> Result<ExitCode, Failure> {
    let pack = read(file)?;
    let (mut text, mut same) = (String::new(), true);
    for entry in pack.entries() {
        let again = build::compiled_again(entry);
        same &= matches!(again, None | Some(Ok(true)));
        let verdict = match again {
            None => "no program to compile again".to_string(),
            Some(Ok(true)) => "the same code and recipe".to_string(),
            Some(Ok(false)) => "this version of Tilewright makes other code of its program".to_string(),
            Some(Err(reason)) => format!("its program does not compile: {reason}"),
        };
        let binaries = entry.images.iter().filter(|image| matches!(image, Image::Binary { .. })).count();
        let left = match binaries {
            0 => String::new(),
            1 => "; its binary is not compared".to_string(),
            _ => format!("; its {binaries} binaries are not compared"),
        };
        text += &format!("{}: {verdict}{left}\n", entry.name);
    }
    print(&text)?;
    Ok(ExitCode::from(u8::from(!same)))
}
