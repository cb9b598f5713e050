//! The C interface: packs of kernels, launched from C and C++ on one's own streams (docs/my-data-my-stream.md, "From C").
//!
//! `include/tilewright.h` is the header. A test makes it of the same table as the functions, and compares. `libtilewright_capi.so` and `.a` are the library; it loads the CUDA
//! driver when a kernel is first asked for.
//!
//! No panic leaves a function; a pointer that is null, a handle of another kind and a struct of another size are refused with a code.
#![allow(unsafe_code, reason = "these are functions of a C library")]
#![allow(clippy::missing_safety_doc, reason = "the header says what its callers owe, once for all functions")]

mod failure;
mod handle;
#[cfg(test)]
mod header;
mod launch;
mod library;
mod table;
mod types;

use std::ffi::{CStr, c_char, c_void};
use std::slice;
use std::sync::Arc;

use tilewright_launch::Gpu;
use tilewright_twpack::{Operators, PackFile};

use crate::failure::{Failure, guarded};
use crate::handle::{free, give, held};

pub use crate::failure::{
    TW_ARGUMENTS, TW_DRIVER, TW_FILE, TW_HANDLE, TW_INTERNAL, TW_NO_CONTEXT, TW_NO_DRIVER, TW_NO_KERNEL,
    TW_NOT_FOR_GPU, TW_NULL, TW_OK, TW_PACK, TW_SIZES, TW_STRUCT, TW_VALUE, TW_WORKSPACE,
};
pub use crate::handle::{Handle, tw_kernel_t, tw_library_t, tw_pack_t, tw_plan_t};
pub use crate::types::*;

/// The text at an address.
unsafe fn text<'a>(address: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if address.is_null() {
        return Err(Failure::new(TW_NULL, format!("{what} is null")));
    }
    // SAFETY: the caller's texts end with NUL.
    let text = unsafe { CStr::from_ptr(address) };
    text.to_str().map_err(|_| Failure::new(TW_VALUE, format!("{what} is no UTF-8")))
}

/// The elements at an address, which may be null if there are none.
unsafe fn elements<'a, T>(address: *const T, count: usize, what: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if address.is_null() {
        return Err(Failure::new(TW_NULL, format!("{what} is null")));
    }
    if !address.is_aligned() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::new(TW_VALUE, format!("{what} is no array of {count} elements")));
    }
    // SAFETY: the caller has as many elements as it says.
    Ok(unsafe { slice::from_raw_parts(address, count) })
}

table::functions! {
    /// Opens a pack in memory. The bytes are copied. Everything but the kernels is checked now, a kernel when it is asked for.
    fn tw_pack_open_memory(bytes: *const c_void, length: usize, pack: *mut *mut tw_pack_t) -> i32 {
        guarded(|| unsafe {
            let bytes = elements(bytes.cast::<u8>(), length, "the address of the pack")?;
            give(pack, Arc::new(PackFile::open(bytes.to_vec())?))
        })
    }

    /// Opens the pack of a file, whose path is UTF-8.
    fn tw_pack_open_file(path: *const c_char, pack: *mut *mut tw_pack_t) -> i32 {
        guarded(|| unsafe {
            let path = text(path, "the path")?;
            let bytes = std::fs::read(path)
                .map_err(|error| Failure::new(TW_FILE, format!("`{path}` cannot be read: {error}")))?;
            give(pack, Arc::new(PackFile::open(bytes)?))
        })
    }

    /// Loads the kernel of a name on the GPU of the context that is current in this thread, which must live as long as the kernel. Its code does what its author wrote: trust the pack.
    fn tw_pack_kernel(pack: *const tw_pack_t, name: *const c_char, kernel: *mut *mut tw_kernel_t) -> i32 {
        guarded(|| unsafe {
            let pack = held(pack)?;
            let name = text(name, "the name")?;
            give(kernel, pack.load(&Gpu::current()?, name)?)
        })
    }

    /// The plan of launches at these sizes, in the order in which the pack lists them (`tilewright pack list`). A kernel keeps its plans: the second for the same sizes is found.
    fn tw_plan(kernel: *const tw_kernel_t, sizes: *const i64, count: usize, plan: *mut *mut tw_plan_t) -> i32 {
        guarded(|| unsafe {
            let kernel = held(kernel)?;
            give(plan, kernel.plan(elements(sizes, count, "the address of the sizes")?)?)
        })
    }

    /// Bytes of the workspace that a launch of the plan needs.
    fn tw_plan_workspace(plan: *const tw_plan_t, bytes: *mut u64) -> i32 {
        guarded(|| unsafe {
            let plan = held(plan)?;
            if bytes.is_null() {
                return Err(Failure::new(TW_NULL, "the place for the number of bytes is null"));
            }
            bytes.write(plan.workspace_bytes());
            Ok(())
        })
    }

    /// Makes the table of an array of tensors, the parameter of this name, which lie at these addresses of the GPU: bytes that the caller copies into the GPU's memory, at a multiple of 128, where a launch by
    /// the plan finds them (TW_TABLE). Their number is written in any case, and they are if the table is not null. Nothing is copied here.
    fn tw_plan_table(plan: *const tw_plan_t, param: *const c_char, addresses: *const u64, count: usize, table: *mut c_void, room: usize, bytes: *mut u64) -> i32 {
        guarded(|| unsafe {
            let (plan, param) = (held(plan)?, text(param, "the name of the parameter")?);
            let addresses = elements(addresses, count, "the address of the addresses")?;
            launch::table(plan, param, addresses, (table, room), bytes)
        })
    }

    /// Puts a launch on a stream (a CUstream or cudaStream_t, also 0, 1 and 2), which is one of the current context, that of the kernel's GPU. Nothing waits: memory stays where it is until the work has
    /// ended. The arguments are one for each parameter that is no part of the workspace: addresses and numbers, or tensors, tables of them and numbers. The options may be null.
    fn tw_launch(plan: *const tw_plan_t, stream: *mut c_void, args: *const tw_arg_t, count: usize, options: *const tw_launch_options_t) -> i32 {
        guarded(|| unsafe {
            let plan = held(plan)?;
            launch::launch(plan, stream, elements(args, count, "the address of the arguments")?, options)
        })
    }

    /// The operators of a pack on the GPU of the context that is current in this thread, which must live as long as the library. Its code does what its author wrote: trust the pack.
    fn tw_library_open(pack: *const tw_pack_t, library: *mut *mut tw_library_t) -> i32 {
        guarded(|| unsafe {
            let pack = held(pack)?;
            give(library, Operators::new(pack.clone(), &Gpu::current()?))
        })
    }

    /// Puts `c = a b^T` on a stream, by the kernels of the pack for its sizes, types and options: c[m, n], a[m, k], b[n, k], or as the options say. The first product of its kind loads and plans them;
    /// the others call the driver once a launch. A workspace that is too small is TW_WORKSPACE, with the bytes that are needed in the text. The options may be null.
    fn tw_library_gemm(library: *const tw_library_t, stream: *mut c_void, a: *const tw_tensor_t, b: *const tw_tensor_t, c: *const tw_tensor_t, options: *const tw_gemm_options_t) -> i32 {
        guarded(|| unsafe { library::gemm(held(library)?, stream, ([a, b, c], options)) })
    }

    /// Makes the table of an array of tensors of a product with these arguments (as `batch=pointers` takes them), the one of this name (`a`, `b`, `c` or an operand), which lie at these addresses of the GPU: bytes
    /// that the caller copies into the GPU's memory, at a multiple of 128, whose address is that of the array for tw_library_gemm. Of the product only types, shapes and options count here. Their number is
    /// written in any case, and they are if the table is not null. Nothing is copied and nothing launched; the kernels are loaded if they are not.
    fn tw_library_table(library: *const tw_library_t, a: *const tw_tensor_t, b: *const tw_tensor_t, c: *const tw_tensor_t, options: *const tw_gemm_options_t, name: *const c_char, addresses: *const u64, count: usize, table: *mut c_void, room: usize, bytes: *mut u64) -> i32 {
        guarded(|| unsafe {
            let (library, name) = (held(library)?, text(name, "the name of the operand")?);
            let addresses = elements(addresses, count, "the address of the addresses")?;
            library::table(library, ([a, b, c], options), name, addresses, (table, room), bytes)
        })
    }

    /// The text of this thread's last failure; empty if there was none. It is valid until the next call in this thread.
    fn tw_last_error() -> *const c_char {
        failure::last()
    }

    /// Frees a pack; its kernels live on. Null is left alone.
    fn tw_pack_free(pack: *mut tw_pack_t) -> i32 {
        guarded(|| unsafe { free(pack) })
    }

    /// Frees a kernel; its plans live on, and its code stays loaded, for graphs may hold it. Null is left alone.
    fn tw_kernel_free(kernel: *mut tw_kernel_t) -> i32 {
        guarded(|| unsafe { free(kernel) })
    }

    /// Frees a library; its kernels stay loaded, for graphs may hold them. Null is left alone.
    fn tw_library_free(library: *mut tw_library_t) -> i32 {
        guarded(|| unsafe { free(library) })
    }

    /// Frees a plan. Null is left alone.
    fn tw_plan_free(plan: *mut tw_plan_t) -> i32 {
        guarded(|| unsafe { free(plan) })
    }
}
