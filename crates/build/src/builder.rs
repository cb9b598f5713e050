//! The pack of a build script, kernel by kernel.

use std::io;
use std::path::{Path, PathBuf};

use tilewright_compiler::{NoRecipe, Options, compile};
use tilewright_kernels::{ConfigError, operator};
use tilewright_tile::{Diagnostics, Program, Sources, decoded, parse_module, read_beside};
use tilewright_twpack::{Entry, Pack, PackError};

use crate::again::entry;

/// A pack that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A file cannot be read or written.
    #[error("cannot {action} `{}`: {error}", path.display())]
    File {
        /// Activity that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// A file is no text.
    #[error("{message}; {help}")]
    Text {
        /// The message.
        message: String,
        /// The remedy.
        help: String,
    },
    /// A program is wrong.
    #[error("{of}: {diagnostics}")]
    Program {
        /// The file, operator or kernel.
        of: String,
        /// Its mistakes.
        diagnostics: Diagnostics,
    },
    /// An operator has no such configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no recipe of a kernel.
    #[error(transparent)]
    NoRecipe(#[from] NoRecipe),
    /// The pack does not take a kernel, or is too large.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// This is no build script.
    #[error("there is no `OUT_DIR`: Cargo sets it for build scripts, and `Builder::pack` does without")]
    NoScript,
}

/// The pack of a build script.
#[derive(Clone, Debug)]
pub struct Builder {
    pack: Pack,
    /// Files that were read, as the program names them.
    files: Vec<String>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder::new()
    }
}

impl Builder {
    /// No kernels yet.
    pub fn new() -> Self {
        Builder { pack: Pack::new(concat!("tilewright ", env!("CARGO_PKG_VERSION"))), files: Vec::new() }
    }

    /// With the kernels of a file, whose path is relative to the package, as that of every file of a build script.
    ///
    /// # Errors
    ///
    /// The file, or one that it uses, cannot be read or is wrong, or a kernel does not go into the pack.
    pub fn file(mut self, path: impl AsRef<Path>, options: &Options) -> Result<Self, BuildError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let failed = |error| BuildError::File { action: "read", path: path.to_path_buf(), error };
        let bytes = std::fs::read(path).map_err(failed)?;
        let text = decoded(&name, bytes).map_err(|(message, help)| BuildError::Text { message, help })?;
        self.files.push(name.clone());
        let files = &mut self.files;
        let mut reader = |from: &str, name: &str| {
            let (path, text) = read_beside(from, name)?;
            files.push(path.clone());
            Ok((path, text))
        };
        let module = parse_module(Sources::new(&name, text), &mut reader)
            .map_err(|misread| BuildError::Program { of: name.clone(), diagnostics: misread.diagnostics })?;
        module.programs.iter().try_fold(self, |builder, program| builder.program(program, options))
    }

    /// With the kernels of an operator (`tilewright kernels`), for values of its parameters by name.
    ///
    /// # Errors
    ///
    /// There is no such operator or configuration, or a kernel does not go into the pack.
    pub fn operator(
        self,
        name: &str,
        parameters: &[(&str, &str)],
        options: &Options,
    ) -> Result<Self, BuildError> {
        let programs = (operator(name)?.programs)(parameters)?;
        programs.iter().try_fold(self, |builder, program| builder.program(program, options))
    }

    /// With the kernel of a program.
    ///
    /// # Errors
    ///
    /// It does not compile, or does not go into the pack.
    pub fn program(self, program: &Program, options: &Options) -> Result<Self, BuildError> {
        let failed =
            |diagnostics| BuildError::Program { of: format!("kernel `{}`", program.name), diagnostics };
        // The same bytes come of the same program in every folder.
        let mut options = options.clone();
        options.lines = None;
        let kernel = compile(program, &options).map_err(failed)?;
        self.entry(entry(&kernel, &options)?)
    }

    /// With a kernel as it is: under another name, or with a tensor in the workspace.
    ///
    /// # Errors
    ///
    /// The pack does not take it.
    pub fn entry(mut self, entry: Entry) -> Result<Self, BuildError> {
        self.pack.add(entry)?;
        Ok(self)
    }

    /// The pack.
    pub fn pack(&self) -> &Pack {
        &self.pack
    }

    /// The files that were read: those that were named, and those that these use.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Writes the pack to a file in the build script's `OUT_DIR`, and tells Cargo which files it was made of.
    ///
    /// # Errors
    ///
    /// This is no build script, or the file cannot be written.
    pub fn write(&self, name: &str) -> Result<PathBuf, BuildError> {
        let folder = std::env::var_os("OUT_DIR").ok_or(BuildError::NoScript)?;
        let path = Path::new(&folder).join(name);
        let bytes = self.pack.to_bytes()?;
        std::fs::write(&path, bytes).map_err(|error| BuildError::File {
            action: "write",
            path: path.clone(),
            error,
        })?;
        println!("cargo:rerun-if-changed=build.rs");
        for file in &self.files {
            println!("cargo:rerun-if-changed={file}");
        }
        Ok(path)
    }
}
