//! The native half of the Python package `tilewright`: layouts, programs, kernels and runs as objects. Reports cross as JSON, arrays as
//! bytes; the package's Python half makes its classes of them (`tilewright/*.py`). *Imports the facade, and the command that comes with the wheel; nothing imports it.*

mod call;
mod command;
mod error;
mod exchange;
mod experts;
mod kernel;
mod launch;
mod layout;
mod operation;
mod ops;
mod program;
mod simulate;
mod tensor;
mod tune;
mod weights;

/// The module `tilewright._core`.
#[pyo3::pymodule(name = "_core")]
mod core {
    #[pymodule_export]
    use crate::call::Callable;
    #[pymodule_export]
    use crate::command::command;
    #[pymodule_export]
    use crate::experts::Experts;
    #[pymodule_export]
    use crate::kernel::Kernel;
    #[pymodule_export]
    use crate::launch::{Launcher, gpus};
    #[pymodule_export]
    use crate::layout::{Value, evaluate, functions};
    #[pymodule_export]
    use crate::operation::{Operation, Plain};
    #[pymodule_export]
    use crate::ops::Library;
    #[pymodule_export]
    use crate::program::{Program, architectures, explain, types, words};
    #[pymodule_export]
    use crate::tune::tuned;
    #[pymodule_export]
    use crate::weights::{read_checkpoint, stored_weights};

    /// The version of the package.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
