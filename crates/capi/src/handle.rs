//! Handles: objects whose first word says what they are, so that one of another kind, or one that was freed, is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tilewright_launch::{Kernel, Plan};
use tilewright_twpack::{Operators, PackFile};

use crate::failure::{Failure, TW_HANDLE, TW_NULL};

/// Something with handles.
pub(crate) trait Held {
    /// The first word of its handles.
    const MARK: u64;
    /// The words for it in messages.
    const NAME: &'static str;
}

/// An object of which C has the address.
#[repr(C)]
pub struct Handle<T> {
    mark: AtomicU64,
    object: T,
}

macro_rules! handles {
    ($($(#[doc = $doc:literal])* $name:ident = $object:ty, $mark:literal, $words:literal;)*) => {
        $(
            $(#[doc = $doc])*
            #[allow(non_camel_case_types, reason = "it is the name in C")]
            pub type $name = Handle<$object>;

            impl Held for $object {
                const MARK: u64 = u64::from_le_bytes(*$mark);
                const NAME: &'static str = $words;
            }

            #[cfg(test)]
            impl crate::table::InC for $name {
                fn declare(name: &str) -> String {
                    format!("{} {name}", stringify!($name))
                }
            }
        )*

        /// The handles of the header.
        #[cfg(test)]
        pub(crate) fn handles() -> Vec<crate::table::Item> {
            vec![$(crate::table::Item {
                doc: vec![$($doc),*],
                text: format!("typedef struct {0} {0};", stringify!($name)),
            }),*]
        }
    };
}

handles! {
    /// A pack: kernels as a file.
    tw_pack_t = Arc<PackFile<'static>>, b"tw pack\0", "a pack";
    /// A kernel on a GPU.
    tw_kernel_t = Kernel, b"twkernel", "a kernel";
    /// The launches of a kernel at fixed sizes.
    tw_plan_t = Plan, b"tw plan\0", "a plan";
    /// The operators of a pack on a GPU.
    tw_library_t = Operators<'static>, b"tw opers", "a library";
}

/// Hands an object out.
///
/// # Safety
///
/// The pointer is null, or one to a handle that may be written.
pub(crate) unsafe fn give<T: Held>(out: *mut *mut Handle<T>, object: T) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::new(TW_NULL, format!("the place for {} is null", T::NAME)));
    }
    let handle = Box::new(Handle { mark: AtomicU64::new(T::MARK), object });
    // SAFETY: as the caller says.
    unsafe { out.write(Box::into_raw(handle)) };
    Ok(())
}

/// The handle at an address.
///
/// # Safety
///
/// The address is null, or that of memory with at least a word that may be read.
unsafe fn handle<'a, T: Held>(address: *const Handle<T>) -> Result<&'a Handle<T>, Failure> {
    if address.is_null() {
        return Err(Failure::new(TW_NULL, format!("the handle of {} is null", T::NAME)));
    }
    let wrong = || {
        Failure::new(
            TW_HANDLE,
            format!("the handle is none of {}: it is another one's, or was freed", T::NAME),
        )
    };
    if !address.is_aligned() {
        return Err(wrong());
    }
    // SAFETY: as the caller says; the first word of every handle is its mark.
    let mark = unsafe { address.cast::<AtomicU64>().as_ref() };
    if mark.is_none_or(|mark| mark.load(Ordering::Relaxed) != T::MARK) {
        return Err(wrong());
    }
    // SAFETY: it was given by this library, and is not freed.
    unsafe { address.as_ref() }.ok_or_else(wrong)
}

/// The object of a handle.
///
/// # Safety
///
/// As of [`handle`]; nobody frees the handle at the same time.
pub(crate) unsafe fn held<'a, T: Held>(address: *const Handle<T>) -> Result<&'a T, Failure> {
    // SAFETY: as the caller says.
    unsafe { handle(address) }.map(|handle| &handle.object)
}

/// Frees a handle; null and what is none are left alone.
///
/// # Safety
///
/// As of [`handle`]; nobody uses the handle at the same time or afterwards.
pub(crate) unsafe fn free<T: Held>(address: *mut Handle<T>) -> Result<(), Failure> {
    if address.is_null() {
        return Ok(());
    }
    // SAFETY: as the caller says.
    unsafe {
        handle(address)?.mark.store(0, Ordering::Relaxed);
        drop(Box::from_raw(address));
    }
    Ok(())
}
