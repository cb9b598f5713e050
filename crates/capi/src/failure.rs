//! Failures: a code for programs, and a text for people that the thread keeps.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tilewright_launch::LaunchError;
use tilewright_twpack::PackError;

use crate::table::constants;

constants! { statuses:
    /// Everything went well.
    TW_OK: i32 = 0;
    /// A pointer is null that must not be.
    TW_NULL: i32 = 1;
    /// A handle is none of its kind: it is another one's, or was freed.
    TW_HANDLE: i32 = 2;
    /// A struct has another size than this library's: header and library are of different versions, or `size` was not set.
    TW_STRUCT: i32 = 3;
    /// A text is no UTF-8, or a number is none of those that the header lists.
    TW_VALUE: i32 = 4;
    /// A file cannot be read.
    TW_FILE: i32 = 5;
    /// The bytes are no pack, or are damaged.
    TW_PACK: i32 = 6;
    /// The pack has no kernel of the name.
    TW_NO_KERNEL: i32 = 7;
    /// The GPU does not run the kernel.
    TW_NOT_FOR_GPU: i32 = 8;
    /// There is no CUDA driver, or it is too old.
    TW_NO_DRIVER: i32 = 9;
    /// No context is current in this thread.
    TW_NO_CONTEXT: i32 = 10;
    /// The kernel does not take the sizes.
    TW_SIZES: i32 = 11;
    /// The kernel does not take the arguments.
    TW_ARGUMENTS: i32 = 12;
    /// The workspace is missing, too small, or not at a multiple of 256 bytes.
    TW_WORKSPACE: i32 = 13;
    /// The driver failed.
    TW_DRIVER: i32 = 14;
    /// A mistake of this library.
    TW_INTERNAL: i32 = 15;
}

/// A call that did not work.
pub(crate) struct Failure {
    code: i32,
    text: String,
}

impl Failure {
    pub(crate) fn new(code: i32, text: impl Into<String>) -> Self {
        Failure { code, text: text.into() }
    }
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Self {
        let code = match &error {
            LaunchError::NoDriver { .. } | LaunchError::DriverTooOld { .. } => TW_NO_DRIVER,
            LaunchError::NoContext => TW_NO_CONTEXT,
            LaunchError::UnsupportedTarget { .. } | LaunchError::SharedMemory { .. } => TW_NOT_FOR_GPU,
            LaunchError::SizeCount { .. }
            | LaunchError::Size { .. }
            | LaunchError::BrokenAssumption { .. }
            | LaunchError::NoValue { .. }
            | LaunchError::OutOfRange { .. }
            | LaunchError::PartOfCluster { .. }
            | LaunchError::NotResident { .. }
            | LaunchError::TooWide { .. }
            | LaunchError::MapStride { .. } => TW_SIZES,
            LaunchError::ArgumentCount { .. }
            | LaunchError::ArgumentKind { .. }
            | LaunchError::NotMutable { .. }
            | LaunchError::ArgumentType { .. }
            | LaunchError::Shape { .. }
            | LaunchError::Strides { .. }
            | LaunchError::Alignment { .. }
            | LaunchError::ConstantWritten { .. }
            | LaunchError::SharedResult { .. }
            | LaunchError::TensorCount { .. }
            | LaunchError::NoRecords { .. } => TW_ARGUMENTS,
            LaunchError::Workspace { .. } => TW_WORKSPACE,
            _ => TW_DRIVER,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<PackError> for Failure {
    fn from(error: PackError) -> Self {
        match error {
            PackError::Launch(error) => error.into(),
            PackError::NoKernel { .. } => Failure::new(TW_NO_KERNEL, error.to_string()),
            PackError::NoClass { .. } => Failure::new(TW_NO_KERNEL, error.to_string()),
            PackError::Argument { .. } => Failure::new(TW_ARGUMENTS, error.to_string()),
            PackError::NotForGpu { .. } => Failure::new(TW_NOT_FOR_GPU, error.to_string()),
            _ => Failure::new(TW_PACK, error.to_string()),
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The text of the thread's last failure.
pub(crate) fn last() -> *const c_char {
    let text = |last: &RefCell<CString>| last.try_borrow().map_or(c"".as_ptr(), |text| text.as_ptr());
    LAST.try_with(text).unwrap_or(c"".as_ptr())
}

/// Calls a function, and makes a code of what it returns; no panic goes on behind this.
pub(crate) fn guarded(call: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        Err(Failure::new(TW_INTERNAL, "a mistake of Tilewright: a function ended early"))
    });
    match result {
        Ok(()) => TW_OK,
        Err(Failure { code, text }) => {
            let bytes: Vec<u8> = text.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
            let text = CString::new(bytes).unwrap_or_default();
            // A thread that ends keeps no text.
            let _ = LAST.try_with(|last| last.replace(text));
            code
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_panic_goes_on_behind_a_call() {
        assert_eq!(guarded(|| panic!("no")), TW_INTERNAL);
        // SAFETY: the text is valid until the next call.
        let text = unsafe { std::ffi::CStr::from_ptr(last()) };
        assert_eq!(text, c"a mistake of Tilewright: a function ended early");
        assert_eq!(guarded(|| Err(Failure::new(TW_VALUE, "a\0b"))), TW_VALUE);
        // SAFETY: as above.
        assert_eq!(unsafe { std::ffi::CStr::from_ptr(last()) }, c"ab");
    }
}
