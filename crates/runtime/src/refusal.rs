//! Errors of launches and devices as messages with their places in a program.

use tilewright_tile::{Code, Diagnostic, Origin, Program};

use crate::error::{RuntimeError, TensorMapError};

/// The place of a parameter's declaration.
fn param_of(program: &Program, name: &str) -> Origin {
    program.params.iter().find(|param| param.name == name).map_or(Origin::Unknown, |param| param.span)
}

/// The place of a size's declaration.
fn size_of(program: &Program, name: &str) -> Origin {
    program
        .sizes()
        .find(|(_, symbol, _)| symbol.name == name)
        .map_or(Origin::Unknown, |(_, symbol, _)| symbol.span)
}

impl RuntimeError {
    /// The kind of mistake.
    pub fn code(&self) -> Code {
        match self {
            RuntimeError::NoCuda { .. }
            | RuntimeError::NoSuchDevice { .. }
            | RuntimeError::UnknownDevice(_)
            | RuntimeError::NoLibrary { .. }
            | RuntimeError::UnsupportedArch { .. } => Code::NoDevice,
            RuntimeError::Driver { .. }
            | RuntimeError::Library { .. }
            | RuntimeError::Kernel { .. }
            | RuntimeError::Simulator { .. } => Code::DeviceFailed,
            RuntimeError::Load { .. } | RuntimeError::Inconsistent { .. } => Code::Internal,
            RuntimeError::SharedMemory { .. } => Code::SharedMemoryExceeded,
            RuntimeError::Sizes { error, .. } => error.code(),
            RuntimeError::NotResident { .. }
            | RuntimeError::ArgumentCount { .. }
            | RuntimeError::ArgumentKind { .. }
            | RuntimeError::Unbound { .. }
            | RuntimeError::ArgumentType { .. }
            | RuntimeError::BufferTooSmall { .. }
            | RuntimeError::TensorCount { .. }
            | RuntimeError::SharedResult { .. }
            | RuntimeError::TensorMap { .. }
            | RuntimeError::ConstantWritten { .. }
            | RuntimeError::ForeignBuffer { .. }
            | RuntimeError::DataLength { .. }
            | RuntimeError::SizeTooLarge { .. }
            | RuntimeError::NoRecipe { .. }
            | RuntimeError::Launch(_)
            | RuntimeError::BrokenAssumption { .. } => Code::BadLaunch,
        }
    }

    /// The place in a program that the error is about.
    fn place(&self, program: &Program) -> Origin {
        match self {
            RuntimeError::ArgumentKind { param, .. }
            | RuntimeError::Unbound { param, .. }
            | RuntimeError::ArgumentType { param, .. }
            | RuntimeError::BufferTooSmall { param, .. }
            | RuntimeError::TensorCount { param, .. }
            | RuntimeError::SharedResult { param, .. }
            | RuntimeError::TensorMap { param, .. } => param_of(program, param),
            RuntimeError::ConstantWritten { constant, .. } => param_of(program, &constant.param),
            RuntimeError::SizeTooLarge { what, .. } => what.span,
            RuntimeError::BrokenAssumption { size, .. } => size_of(program, size),
            RuntimeError::NotResident { .. } => program.grid_span,
            RuntimeError::SharedMemory { .. } => {
                let shared =
                    |row: &&tilewright_tile::Tensor| row.memory() == tilewright_machine::Memory::Shared;
                program.tensors.iter().find(shared).map_or(Origin::Unknown, |row| row.span)
            }
            _ => Origin::Unknown,
        }
    }

    /// The error as a message about a program, with the place of what it names and the remedy.
    pub fn diagnostic(&self, program: &Program) -> Diagnostic {
        if let RuntimeError::Sizes { error, .. } = self {
            return error.diagnostic();
        }
        let mut diagnostic = Diagnostic::new(self.code(), self.place(program), self.to_string());
        diagnostic.help = self.help();
        diagnostic
    }

    /// The remedy.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            RuntimeError::NoCuda { .. } => {
                "the simulator needs no GPU: `--device sim`, in Rust `DeviceChoice::Sim`".to_string()
            }
            RuntimeError::NoSuchDevice { count, .. } => match count {
                0 => "the simulator needs no GPU: `--device sim`, in Rust `DeviceChoice::Sim`".to_string(),
                count => {
                    let names: Vec<String> = (0..*count).take(6).map(|n| format!("`cuda:{n}`")).collect();
                    format!(
                        "take {}, or the simulator, `sim`; `tilewright devices` lists them",
                        names.join(", ")
                    )
                }
            },
            RuntimeError::UnsupportedArch { major, minor, .. } => match (major, minor) {
                (8, 9) => "compile for sm_89".to_string(),
                (8, _) => "compile for sm_80".to_string(),
                (9, 0) => "compile for sm_90a".to_string(),
                _ => "take another GPU, or the simulator, `sim`, which runs code for every architecture"
                    .to_string(),
            },
            RuntimeError::NotResident { resident, .. } => format!(
                "choose a grid of at most {resident} blocks, each of which does several tiles in a loop; smaller blocks leave room for more"
            ),
            RuntimeError::SharedMemory { .. } => {
                "choose smaller tiles, or fewer stages of pipelines".to_string()
            }
            RuntimeError::TensorMap { error: TensorMapError::Stride { multiple, .. }, .. } => format!(
                "make that extent a multiple of {multiple}, or leave `tma` out, so that other instructions copy it"
            ),
            RuntimeError::SharedResult { .. } => {
                "only tensors that the kernel does not write may be the same".to_string()
            }
            RuntimeError::BrokenAssumption { multiple, .. } => {
                format!("choose a multiple of {multiple}, or compile for sizes that are multiples of 1")
            }
            RuntimeError::SizeTooLarge { .. } => "choose smaller sizes".to_string(),
            RuntimeError::ArgumentCount { params, .. } => {
                format!("give one for each of {params}, in this order; sizes are given by name")
            }
            RuntimeError::Inconsistent { .. } | RuntimeError::Load { .. } => {
                "this is a mistake of the compiler: please report it with the program".to_string()
            }
            _ => return None,
        })
    }
}
