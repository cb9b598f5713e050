//! Operators of packs: products by their tensors.

use std::ffi::c_void;

use tilewright_launch::{Arg, LaunchOptions, Stream, Workspace};
use tilewright_twpack::{OperatorCall, Operators};

use crate::failure::{Failure, TW_ARGUMENTS, TW_VALUE};
use crate::launch::{Tensor, at, checked, hand_out, sized, tensor};
use crate::types::{TW_TENSOR, tw_gemm_options_t, tw_operand_t, tw_tensor_t};
use crate::{elements, text};

/// The most options of a product.
const MOST_OPTIONS: usize = 16;
/// The most tensors and numbers of a product.
const MOST_OPERANDS: usize = 16;

/// A product as C gives it: `a`, `b` and `c`, and the options, which may be null.
pub(crate) type Product = ([*const tw_tensor_t; 3], *const tw_gemm_options_t);

/// Puts the launches of a product on a stream.
///
/// # Safety
///
/// As the header says of `tw_library_gemm`.
pub(crate) unsafe fn gemm(
    library: &Operators<'static>,
    stream: *mut c_void,
    product: Product,
) -> Result<(), Failure> {
    // SAFETY: as the caller says.
    unsafe { with_call(product, |call, more| Ok(library.run(Stream::borrow(stream), call, more)?)) }
}

/// Writes the table of an array of tensors of a product.
///
/// # Safety
///
/// As the header says of `tw_library_table`.
pub(crate) unsafe fn table(
    library: &Operators<'static>,
    product: Product,
    operand: &str,
    addresses: &[u64],
    place: (*mut c_void, usize),
    bytes: *mut u64,
) -> Result<(), Failure> {
    // SAFETY: as the caller says.
    unsafe {
        with_call(product, |call, _| {
            hand_out(operand, &library.table(call, operand, addresses)?, place, bytes)
        })
    }
}

/// The result of a function on the call of a product and the options of its launches.
///
/// # Safety
///
/// The addresses are null, or those of what they say; the product's memory lives until what the function puts on a stream has ended.
unsafe fn with_call(
    ([a, b, c], options): Product,
    of: impl FnOnce(&OperatorCall<'_>, &LaunchOptions<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // SAFETY: as the caller says.
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
        of(&call, &more)
    }
}
