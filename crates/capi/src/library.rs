//! Operators of packs: products by their tensors.

use std::ffi::c_void;

use tilewright_launch::{Arg, LaunchOptions, Stream, Workspace};
use tilewright_pack::{OperatorCall, Operators};

use crate::failure::{Failure, TW_ARGUMENTS, TW_VALUE};
use crate::launch::{Tensor, at, checked, sized, tensor};
use crate::types::{TW_TENSOR, tw_gemm_options_t, tw_operand_t, tw_tensor_t};
use crate::{elements, text};

/// The most options of a product.
const MOST_OPTIONS: usize = 16;
/// The most tensors and numbers of a product.
const MOST_OPERANDS: usize = 16;

/// Puts the launches of a product on a stream.
///
/// # Safety
///
/// As the header says of `tw_library_gemm`.
pub(crate) unsafe fn gemm(
    library: &Operators<'static>,
    stream: *mut c_void,
    [a, b, c]: [*const tw_tensor_t; 3],
    options: *const tw_gemm_options_t,
) -> Result<(), Failure> {
    // SAFETY: the caller's addresses are those of what they say, and its memory lives until the work has ended.
    unsafe {
        let mut words = [("", ""); MOST_OPTIONS];
        let (mut count, mut workspace, mut more) = (0, None, LaunchOptions::new());
        let mut operands: &[tw_operand_t] = &[];
        if !options.is_null() {
            let given = at(options, "the options")?;
            sized::<tw_gemm_options_t>(given.size, "tw_gemm_options_t")?;
            operands = elements(given.operands, given.operand_count, "the address of the operands")?;
            if !given.options.is_null() {
                for word in text(given.options, "the text of the options")?.split_ascii_whitespace() {
                    let too_many = || Failure::new(TW_VALUE, format!("{MOST_OPTIONS} options are the most"));
                    let place = words.get_mut(count).ok_or_else(too_many)?;
                    let wrong = || Failure::new(TW_VALUE, format!("`{word}` is no option: write name=value"));
                    *place = word.split_once('=').ok_or_else(wrong)?;
                    count += 1;
                }
            }
            more = more.dependent(given.dependent != 0);
            if given.workspace != 0 {
                more =
                    more.workspace(workspace.insert(Workspace::new(given.workspace, given.workspace_bytes)));
            }
        }
        let of_operands = operands.len() + 3;
        if of_operands > MOST_OPERANDS {
            let words =
                format!("the product has {of_operands} tensors and numbers; {MOST_OPERANDS} are the most");
            return Err(Failure::new(TW_ARGUMENTS, words));
        }
        let mut tensors: [Option<Tensor>; MOST_OPERANDS] = [const { None }; MOST_OPERANDS];
        for (number, (to, of)) in tensors.iter_mut().zip([a, b, c]).enumerate() {
            *to = Some(tensor(of, number)?);
        }
        for (number, (to, operand)) in (3..).zip(tensors.iter_mut().skip(3).zip(operands)) {
            if operand.arg.kind == TW_TENSOR {
                *to = Some(tensor(operand.arg.value.tensor, number)?);
            }
        }
        let mut arguments = [("", Arg::from(0u32)); MOST_OPERANDS];
        let mut tensors = tensors.iter_mut();
        for (number, (to, name)) in arguments.iter_mut().zip(["a", "b", "c"]).enumerate() {
            *to = (name, checked(tensors.next().and_then(Option::as_mut), None, number)?);
        }
        for (number, (to, operand)) in (3..).zip(arguments.iter_mut().skip(3).zip(operands)) {
            let name = text(operand.name, "the name of an operand")?;
            *to = (name, checked(tensors.next().and_then(Option::as_mut), Some(&operand.arg), number)?);
        }
        let call = OperatorCall::new("gemm", &words[..count], &arguments[..of_operands]);
        Ok(library.run(Stream::borrow(stream), &call, &more)?)
    }
}
