//! Use of buffers by the launches of a sequence: a parameter that is `constant` is of a buffer that none of them writes.

use std::collections::HashMap;

use tilewright_compiler::Kernel;
use tilewright_tile::ParamId;

use crate::arg::Arg;
use crate::buffer::Buffer;
use crate::error::{ParamOf, RuntimeError};

/// Uses of one buffer: a parameter for which it is constant, and one through which it is written.
#[derive(Clone, Debug, Default)]
struct Use {
    constant: Option<ParamOf>,
    written: Option<ParamOf>,
}

/// The buffers of the launches of a sequence, which keeps them.
#[derive(Debug, Default)]
pub(crate) struct Uses(HashMap<usize, Use>);

impl Uses {
    /// Adds a launch, whose arguments were checked.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::ConstantWritten`] if a buffer that is constant for one launch is written by one; nothing is added then.
    pub(crate) fn add(&mut self, kernel: &Kernel, args: &[Arg<'_>]) -> Result<(), RuntimeError> {
        let mut changed: HashMap<usize, Use> = HashMap::new();
        for (i, (param, arg)) in kernel.program().params.iter().zip(args).enumerate() {
            for key in arg.buffers().into_iter().map(Buffer::key) {
                let known =
                    changed.entry(key).or_insert_with(|| self.0.get(&key).cloned().unwrap_or_default());
                let of = || ParamOf { param: param.name.clone(), kernel: kernel.program().name.clone() };
                if param.is_constant() {
                    known.constant.get_or_insert_with(of);
                }
                if kernel.verified.outputs().contains(&ParamId(i as u32)) {
                    known.written.get_or_insert_with(of);
                }
                if let Use { constant: Some(constant), written: Some(written) } = known {
                    let (constant, written) = (constant.clone(), written.clone());
                    return Err(RuntimeError::ConstantWritten { constant, written });
                }
            }
        }
        self.0.extend(changed);
        Ok(())
    }

    /// True if a launch of the sequence writes the buffer.
    pub(crate) fn writes(&self, buffer: &Buffer) -> bool {
        self.0.get(&buffer.key()).is_some_and(|known| known.written.is_some())
    }
}
