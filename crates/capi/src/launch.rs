//! Launches: arguments of C as those of a plan, without an allocation.

use std::ffi::c_void;

use tilewright_launch::{
    Arg, LaunchError, LaunchOptions, MAX_RANK, MOST_PARAMS, Plan, Raw, Stream, TensorArray, View, ViewMut,
    Workspace,
};

use crate::elements;
use crate::failure::{Failure, TW_ARGUMENTS, TW_NULL, TW_STRUCT, TW_VALUE};
use crate::types::{
    TW_F32, TW_F64, TW_I32, TW_I64, TW_POINTER, TW_TABLE, TW_TENSOR, TW_U32, TW_U64, dtype, tw_arg_t,
    tw_launch_options_t, tw_tensor_t,
};

/// A tensor that an argument describes.
pub(crate) enum Tensor {
    Read(View<'static>),
    Write(ViewMut<'static>),
    Array(TensorArray<'static>),
}

/// Refuses a struct of another size than this library's.
pub(crate) fn sized<T>(given: u32, name: &str) -> Result<(), Failure> {
    let known = size_of::<T>();
    if given as usize == known {
        return Ok(());
    }
    Err(Failure::new(TW_STRUCT, format!("`size` of a {name} is {given}; this library's have {known} bytes")))
}

/// The struct at an address.
pub(crate) unsafe fn at<'a, T>(address: *const T, what: &str) -> Result<&'a T, Failure> {
    let null = || Failure::new(TW_NULL, format!("{what} is null"));
    if !address.is_aligned() {
        return Err(Failure::new(TW_VALUE, format!("{what} is at an address that it cannot have")));
    }
    // SAFETY: the caller's addresses are null, or those of what they say.
    unsafe { address.as_ref() }.ok_or_else(null)
}

/// The tensor that a description says.
pub(crate) unsafe fn tensor(of: *const tw_tensor_t, number: usize) -> Result<Tensor, Failure> {
    // SAFETY: the caller's description, and what it leads to, is what it says.
    unsafe {
        let of = at(of, &format!("the tensor of argument {number}"))?;
        sized::<tw_tensor_t>(of.size, "tw_tensor_t")?;
        let wrong = |text: String| Failure::new(TW_VALUE, text);
        let dtype = dtype(of.dtype).ok_or_else(|| {
            wrong(format!("the element type of argument {number} is {}, which is none", of.dtype))
        })?;
        let rank = of.rank as usize;
        if rank > MAX_RANK {
            return Err(wrong(format!(
                "the tensor of argument {number} has {rank} modes; {MAX_RANK} is the most"
            )));
        }
        let shape = elements(of.shape, rank, "the address of a shape")?;
        let strides = if of.strides.is_null() {
            None
        } else {
            Some(elements(of.strides, rank, "the address of strides")?)
        };
        if of.reserved != 0 || of.array > 1 {
            let words = "`array` is 0 or 1, and `reserved` is 0";
            return Err(wrong(format!("of the tensor of argument {number} {words}")));
        }
        Ok(if of.array != 0 {
            let array = TensorArray::new(of.address, dtype, shape);
            let array = if of.writable != 0 { array.writable() } else { array };
            Tensor::Array(match strides {
                Some(strides) => array.with_strides(strides),
                None => array,
            })
        } else if of.writable != 0 {
            let view = ViewMut::new(of.address, dtype, shape);
            Tensor::Write(match strides {
                Some(strides) => view.with_strides(strides),
                None => view,
            })
        } else {
            let view = View::new(of.address, dtype, shape);
            Tensor::Read(match strides {
                Some(strides) => view.with_strides(strides),
                None => view,
            })
        })
    }
}

/// The number of an argument, for either kind of launch.
macro_rules! number {
    ($of:ident, $arg:expr, $number:expr) => {
        match $arg.kind {
            TW_F32 => $of!(F32, $arg.value.f32),
            TW_F64 => $of!(F64, $arg.value.f64),
            TW_I32 => $of!(I32, $arg.value.i32),
            TW_U32 => $of!(U32, $arg.value.u32),
            TW_I64 => $of!(I64, $arg.value.i64),
            TW_U64 => $of!(U64, $arg.value.u64),
            kind => {
                let text = format!("the kind of argument {} is {kind}, which is none", $number);
                return Err(Failure::new(TW_VALUE, text));
            }
        }
    };
}

/// The argument of a tensor, or of the number that C gives.
///
/// # Safety
///
/// The value of the argument is of its kind.
pub(crate) unsafe fn checked<'t>(
    tensor: Option<&'t mut Tensor>,
    arg: Option<&tw_arg_t>,
    number: usize,
) -> Result<Arg<'t>, Failure> {
    macro_rules! of_checked {
        ($kind:ident, $value:expr) => {
            Arg::from($value)
        };
    }
    match (tensor, arg) {
        (Some(Tensor::Read(view)), _) => Ok(Arg::from(&*view)),
        (Some(Tensor::Write(view)), _) => Ok(Arg::from(view)),
        (Some(Tensor::Array(array)), _) => Ok(Arg::from(&*array)),
        // SAFETY: as the caller says, here and below.
        (None, Some(arg)) if arg.kind == TW_TABLE => Ok(unsafe { Arg::table(arg.value.pointer) }),
        (None, Some(arg)) => Ok(unsafe { number!(of_checked, arg, number) }),
        (None, None) => Err(Failure::new(TW_VALUE, format!("argument {number} is nothing"))),
    }
}

/// Writes the table of an array of tensors.
///
/// # Safety
///
/// As the header says of `tw_plan_table`.
pub(crate) unsafe fn table(
    plan: &Plan,
    param: &str,
    addresses: &[u64],
    place: (*mut c_void, usize),
    bytes: *mut u64,
) -> Result<(), Failure> {
    let params = &plan.recipe().params;
    let number = params.iter().position(|other| other.name == param).ok_or_else(|| {
        let names: Vec<&str> = params.iter().map(|param| param.name.as_str()).collect();
        let (kernel, names) = (&plan.recipe().name, names.join(", "));
        Failure::new(TW_ARGUMENTS, format!("kernel `{kernel}` has no parameter `{param}`; it has {names}"))
    })?;
    let made = plan.table(number, addresses)?;
    // SAFETY: as the caller says.
    unsafe { hand_out(param, &made, place, bytes) }
}

/// Writes the table of a parameter into a place with room for so many bytes, if it is not null, and their number.
///
/// # Safety
///
/// The places are null, or have as much room as is said.
pub(crate) unsafe fn hand_out(
    param: &str,
    table: &[u8],
    (place, room): (*mut c_void, usize),
    bytes: *mut u64,
) -> Result<(), Failure> {
    if bytes.is_null() {
        return Err(Failure::new(TW_NULL, "the place for the number of bytes is null"));
    }
    // SAFETY: as the caller says, here and below.
    unsafe { bytes.write(table.len() as u64) };
    if place.is_null() {
        return Ok(());
    }
    if room < table.len() {
        let text = format!("the table of `{param}` has {} bytes; there is room for {room}", table.len());
        return Err(Failure::new(TW_VALUE, text));
    }
    unsafe { place.cast::<u8>().copy_from_nonoverlapping(table.as_ptr(), table.len()) };
    Ok(())
}

/// Puts a launch on a stream.
///
/// # Safety
///
/// As the header says of `tw_launch`.
pub(crate) unsafe fn launch(
    plan: &Plan,
    stream: *mut c_void,
    args: &[tw_arg_t],
    options: *const tw_launch_options_t,
) -> Result<(), Failure> {
    for arg in args {
        sized::<tw_arg_t>(arg.size, "tw_arg_t")?;
    }
    if args.len() > MOST_PARAMS {
        let (kernel, expected) = (plan.recipe().name.clone(), plan.recipe().params.len());
        let params: Vec<&str> = plan.recipe().params.iter().map(|param| param.name.as_str()).collect();
        let (params, given) = (params.join(", "), args.len());
        return Err(LaunchError::ArgumentCount { kernel, expected, params, given }.into());
    }
    // SAFETY: the caller's addresses are those of what they say, here and below, and its memory lives until the work has ended.
    unsafe {
        let mut workspace = None;
        let mut more = LaunchOptions::new();
        if !options.is_null() {
            let given = at(options, "the options")?;
            sized::<tw_launch_options_t>(given.size, "tw_launch_options_t")?;
            more = more.dependent(given.dependent != 0);
            if given.records != 0 {
                more = more.records(given.records);
            }
            if given.workspace != 0 {
                more =
                    more.workspace(workspace.insert(Workspace::new(given.workspace, given.workspace_bytes)));
            }
        }
        let stream = Stream::borrow(stream);
        if args.iter().any(|arg| arg.kind == TW_POINTER) {
            let mut raw = [Raw::U32(0); MOST_PARAMS];
            macro_rules! of_raw {
                ($kind:ident, $value:expr) => {
                    Raw::$kind($value)
                };
            }
            for (number, (to, arg)) in raw.iter_mut().zip(args).enumerate() {
                *to = match arg.kind {
                    TW_POINTER | TW_TABLE => Raw::Ptr(arg.value.pointer),
                    TW_TENSOR => {
                        let text = "the arguments are addresses and tensors: give the one or the other, for nothing of an address is checked";
                        return Err(Failure::new(TW_ARGUMENTS, text));
                    }
                    _ => number!(of_raw, arg, number),
                };
            }
            return Ok(plan.launch_raw(stream, &raw[..args.len()], &more)?);
        }
        let mut tensors = [const { None }; MOST_PARAMS];
        for (number, (to, arg)) in tensors.iter_mut().zip(args).enumerate() {
            if arg.kind == TW_TENSOR {
                *to = Some(tensor(arg.value.tensor, number)?);
            }
        }
        let mut arguments = [Arg::from(0u32); MOST_PARAMS];
        for (number, ((to, tensor), arg)) in arguments.iter_mut().zip(&mut tensors).zip(args).enumerate() {
            *to = checked(tensor.as_mut(), Some(arg), number)?;
        }
        Ok(plan.launch_with(stream, &arguments[..args.len()], &more)?)
    }
}
