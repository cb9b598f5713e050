//! Everything that C can do wrong and this library can see: each has a code and words.
#![allow(unsafe_code, reason = "these are calls of a C library")]

mod common;

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use tilewright_capi::*;
use tilewright_stand_in_driver::StandIn;

/// The stand-in as the system's driver, of which tests take turns.
fn turn() -> (StandIn, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    static SET: Once = Once::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let stand_in = StandIn::of_this_test();
    // SAFETY: tests of this process read the environment only behind this.
    SET.call_once(|| unsafe { std::env::set_var("TILEWRIGHT_LIBCUDA", stand_in.path()) });
    stand_in.set("capability", 90);
    stand_in.make_current(0);
    stand_in.calls();
    (stand_in, turn)
}

fn last() -> String {
    // SAFETY: the text is valid until the next call.
    unsafe { CStr::from_ptr(tw_last_error()) }.to_str().unwrap().to_string()
}

fn pack_of(bytes: &[u8]) -> Result<*mut tw_pack_t, i32> {
    let mut pack = null_mut();
    // SAFETY: the bytes are as many as is said.
    match unsafe { tw_pack_open_memory(bytes.as_ptr().cast(), bytes.len(), &raw mut pack) } {
        TW_OK => Ok(pack),
        code => Err(code),
    }
}

fn kernel_of(pack: *const tw_pack_t, name: &CStr) -> Result<*mut tw_kernel_t, i32> {
    let mut kernel = null_mut();
    // SAFETY: the pack is a handle.
    match unsafe { tw_pack_kernel(pack, name.as_ptr(), &raw mut kernel) } {
        TW_OK => Ok(kernel),
        code => Err(code),
    }
}

fn plan_of(kernel: *const tw_kernel_t, sizes: &[i64]) -> Result<*mut tw_plan_t, i32> {
    let mut plan = null_mut();
    // SAFETY: the sizes are as many as is said.
    match unsafe { tw_plan(kernel, sizes.as_ptr(), sizes.len(), &raw mut plan) } {
        TW_OK => Ok(plan),
        code => Err(code),
    }
}

fn arg(kind: u32, value: tw_value_t) -> tw_arg_t {
    tw_arg_t { size: size_of::<tw_arg_t>() as u32, kind, value }
}

fn pointer(address: u64) -> tw_arg_t {
    arg(TW_POINTER, tw_value_t { pointer: address })
}

fn number(value: f32) -> tw_arg_t {
    arg(TW_F32, tw_value_t { f32: value })
}

fn launch(plan: *const tw_plan_t, args: &[tw_arg_t], options: Option<&tw_launch_options_t>) -> (i32, String) {
    let options = options.map_or(null(), |options| options as *const _);
    // SAFETY: everything is as it is said, and nothing runs.
    let code = unsafe { tw_launch(plan, null_mut(), args.as_ptr(), args.len(), options) };
    (code, if code == TW_OK { String::new() } else { last() })
}

#[test]
fn packs_and_names() {
    let (stand_in, _turn) = turn();
    let bytes = common::pack();
    // SAFETY: null pointers are refused, here and below.
    unsafe {
        let mut pack = null_mut();
        assert_eq!(tw_pack_open_memory(null(), 8, &raw mut pack), TW_NULL);
        assert_eq!(last(), "the address of the pack is null");
        assert_eq!(tw_pack_open_memory(bytes.as_ptr().cast(), bytes.len(), null_mut()), TW_NULL);
        assert_eq!(tw_pack_open_memory(bytes.as_ptr().cast(), usize::MAX, &raw mut pack), TW_VALUE);
        assert_eq!(tw_pack_open_file(null(), &raw mut pack), TW_NULL);
        assert_eq!(tw_pack_open_file(c"\xff".as_ptr(), &raw mut pack), TW_VALUE);
        assert_eq!(last(), "the path is no UTF-8");
        assert_eq!(tw_pack_open_file(c"/nothing/here".as_ptr(), &raw mut pack), TW_FILE);
        assert!(last().starts_with("`/nothing/here` cannot be read: "), "{}", last());
        assert!(pack.is_null());
    }
    assert_eq!(pack_of(b""), Err(TW_PACK));
    assert_eq!(pack_of(&bytes[..bytes.len() - 1]), Err(TW_PACK));
    let mut damaged = bytes.clone();
    damaged[70] ^= 1;
    assert_eq!(pack_of(&damaged), Err(TW_PACK));
    assert_eq!(last(), "the pack is damaged: the hash of the header is not the one that it has");

    let pack = pack_of(&bytes).unwrap();
    assert_eq!(kernel_of(null(), c"scale"), Err(TW_NULL));
    assert_eq!(kernel_of(pack, c"gemm"), Err(TW_NO_KERNEL));
    assert_eq!(last(), "the pack has no kernel of the name `gemm`; it has kept, scale");
    // SAFETY: as above.
    unsafe {
        let mut kernel = null_mut();
        assert_eq!(tw_pack_kernel(pack, null::<c_char>(), &raw mut kernel), TW_NULL);
        assert_eq!(tw_pack_kernel(pack, c"scale".as_ptr(), null_mut()), TW_NULL);
    }
    stand_in.set("capability", 75);
    assert_eq!(kernel_of(pack, c"scale"), Err(TW_NOT_FOR_GPU));
    stand_in.set("capability", 90);
    stand_in.make_current(-1);
    assert_eq!(kernel_of(pack, c"scale"), Err(TW_NO_CONTEXT));
    stand_in.make_current(0);
    stand_in.set("fail cuLibraryLoadData", 2);
    assert_eq!(kernel_of(pack, c"scale"), Err(TW_DRIVER));
    stand_in.set("fail cuLibraryLoadData", 0);
    assert!(kernel_of(pack, c"scale").is_ok());
    // SAFETY: the pack is a handle.
    assert_eq!(unsafe { tw_pack_free(pack) }, TW_OK);
}

#[test]
fn handles_of_another_kind() {
    let (_stand_in, _turn) = turn();
    let pack = pack_of(&common::pack()).unwrap();
    let kernel = kernel_of(pack, c"scale").unwrap();
    let plan = plan_of(kernel, &[4096]).unwrap();
    assert_eq!(kernel_of(kernel.cast(), c"scale"), Err(TW_HANDLE));
    assert_eq!(last(), "the handle is none of a pack: it is another one's, or was freed");
    assert_eq!(plan_of(pack.cast(), &[4096]), Err(TW_HANDLE));
    assert_eq!(plan_of(kernel.cast::<u8>().wrapping_add(1).cast(), &[4096]), Err(TW_HANDLE));
    assert_eq!(launch(kernel.cast(), &[], None).0, TW_HANDLE);
    // SAFETY: the handles are of this library.
    unsafe {
        let mut bytes = 0;
        assert_eq!(tw_plan_workspace(kernel.cast(), &raw mut bytes), TW_HANDLE);
        assert_eq!(tw_plan_workspace(plan, null_mut()), TW_NULL);
        assert_eq!(tw_plan_free(kernel.cast()), TW_HANDLE);
        assert_eq!(tw_plan_free(null_mut()), TW_OK);
        // A plan outlives its kernel, and a kernel its pack.
        assert_eq!([tw_pack_free(pack), tw_kernel_free(kernel)], [TW_OK, TW_OK]);
        let args = [pointer(0x1000), pointer(0x9000), number(0.5)];
        assert_eq!(launch(plan, &args, None), (TW_OK, String::new()));
        assert_eq!(tw_plan_free(plan), TW_OK);
    }
}

#[test]
fn sizes_and_arguments() {
    let (stand_in, _turn) = turn();
    let pack = pack_of(&common::pack()).unwrap();
    let kernel = kernel_of(pack, c"scale").unwrap();
    assert_eq!(plan_of(kernel, &[]), Err(TW_SIZES));
    assert_eq!(plan_of(kernel, &[0]), Err(TW_SIZES));
    assert_eq!(last(), "size `n` of kernel `scale` is 0; it must be from 1 to 1073741824");
    // SAFETY: a null pointer is refused.
    assert_eq!(unsafe { tw_plan(kernel, null(), 1, null_mut()) }, TW_NULL);
    assert_eq!(last(), "the address of the sizes is null");
    let plan = plan_of(kernel, &[4096]).unwrap();

    let shape = [4096i64];
    let size = size_of::<tw_tensor_t>() as u32;
    let read = tw_tensor_t {
        size,
        dtype: TW_DTYPE_F32,
        address: 0x1000,
        rank: 1,
        writable: 0,
        array: 0,
        reserved: 0,
        shape: shape.as_ptr(),
        strides: null(),
    };
    let write = tw_tensor_t { address: 0x9000, writable: 1, ..read };
    let tensor = |of: &tw_tensor_t| arg(TW_TENSOR, tw_value_t { tensor: of });
    let right = [tensor(&read), tensor(&write), number(0.5)];
    assert_eq!(launch(plan, &right, None).0, TW_OK);
    let expected = "cuLaunchKernelEx grid=32,1,1 block=128,1,1 shared=0 stream=0x0 attributes=[] function=scale params=[\
                    0010000000000000 0090000000000000 0000003f 00100000]";
    assert_eq!(stand_in.calls().last().unwrap(), expected);

    let strides = [2i64];
    let with = |change: &dyn Fn(&mut tw_tensor_t)| {
        let mut changed = read;
        change(&mut changed);
        launch(plan, &[tensor(&changed), right[1], right[2]], None)
    };
    let older = tw_arg_t { size: 8, ..right[0] };
    let unknown = arg(99, tw_value_t { u64: 0 });
    for ((code, text), expected, words) in [
        (
            launch(plan, &[], None),
            TW_ARGUMENTS,
            "kernel `scale` takes 3 arguments (x, y, factor); 0 are given",
        ),
        (
            launch(plan, &vec![right[0]; 100], None),
            TW_ARGUMENTS,
            "kernel `scale` takes 3 arguments (x, y, factor); 100 are given",
        ),
        (
            launch(plan, &[older, right[1], right[2]], None),
            TW_STRUCT,
            "`size` of a tw_arg_t is 8; this library's have 16 bytes",
        ),
        (
            launch(plan, &[unknown, right[1], right[2]], None),
            TW_VALUE,
            "the kind of argument 0 is 99, which is none",
        ),
        (
            launch(plan, &[right[0], right[1], arg(TW_I32, tw_value_t { i32: 1 })], None),
            TW_ARGUMENTS,
            "parameter `factor` of kernel `scale` is ",
        ),
        (
            launch(plan, &[right[0], pointer(0x9000), right[2]], None),
            TW_ARGUMENTS,
            "the arguments are addresses and tensors: ",
        ),
        (launch(plan, &[right[0], right[0], right[2]], None), TW_ARGUMENTS, "kernel `scale` writes `y`: "),
        (
            launch(plan, &[arg(TW_TENSOR, tw_value_t { tensor: null() }), right[1], right[2]], None),
            TW_NULL,
            "the tensor of argument 0 is null",
        ),
        (
            with(&|tensor| tensor.size = 0),
            TW_STRUCT,
            "`size` of a tw_tensor_t is 0; this library's have 48 bytes",
        ),
        (with(&|tensor| tensor.dtype = 77), TW_VALUE, "the element type of argument 0 is 77, which is none"),
        (with(&|tensor| tensor.rank = 9), TW_VALUE, "the tensor of argument 0 has 9 modes; 8 is the most"),
        (with(&|tensor| tensor.shape = null()), TW_NULL, "the address of a shape is null"),
        (
            with(&|tensor| tensor.dtype = TW_DTYPE_F16),
            TW_ARGUMENTS,
            "`x` of kernel `scale` has elements of type f32; the tensor has f16",
        ),
        (
            with(&|tensor| tensor.rank = 0),
            TW_ARGUMENTS,
            "`x` of kernel `scale` has shape [4096] at these sizes; the tensor has []",
        ),
        (
            with(&|tensor| tensor.strides = strides.as_ptr()),
            TW_ARGUMENTS,
            "`x` of kernel `scale` has strides [1] at these sizes; the tensor has [2]",
        ),
        (
            with(&|tensor| tensor.address = 0x1001),
            TW_ARGUMENTS,
            "`x` of kernel `scale` begins at a multiple of 16 bytes; ",
        ),
    ] {
        assert_eq!(code, expected, "{words}: {text}");
        assert!(text.starts_with(words), "{words}: {text}");
    }
    assert!(!stand_in.calls().iter().any(|call| call.starts_with("cuLaunch")));

    let args = [pointer(0x1000), pointer(0x9000), number(0.5)];
    stand_in.set("fail cuLaunchKernelEx", 719);
    assert_eq!(launch(plan, &args, None).0, TW_DRIVER);
    stand_in.set("fail cuLaunchKernelEx", 0);
}

#[test]
fn workspaces_and_options() {
    let (stand_in, _turn) = turn();
    let pack = pack_of(&common::pack()).unwrap();
    let plan = plan_of(kernel_of(pack, c"kept").unwrap(), &[4096]).unwrap();
    let mut bytes = 0;
    // SAFETY: the plan is a handle.
    assert_eq!(unsafe { tw_plan_workspace(plan, &raw mut bytes) }, TW_OK);
    assert_eq!(bytes, 4 * 4096);
    let args = [pointer(0x1000), number(0.5)];
    assert_eq!(launch(plan, &args, None).0, TW_WORKSPACE);
    let size = size_of::<tw_launch_options_t>() as u32;
    let options =
        tw_launch_options_t { size, dependent: 1, workspace: 0x4000, workspace_bytes: bytes, records: 0 };
    stand_in.calls();
    assert_eq!(launch(plan, &args, Some(&options)).0, TW_OK);
    assert!(
        stand_in
            .calls()
            .last()
            .unwrap()
            .ends_with("params=[0010000000000000 0040000000000000 0000003f 00100000]")
    );
    let less = tw_launch_options_t { workspace_bytes: bytes - 1, ..options };
    assert_eq!(launch(plan, &args, Some(&less)).0, TW_WORKSPACE);
    let other = tw_launch_options_t { size: size + 8, ..options };
    assert_eq!(launch(plan, &args, Some(&other)).0, TW_STRUCT);
}

#[test]
fn arrays_of_tensors_are_tables() {
    let (stand_in, _turn) = turn();
    let pack = pack_of(&common::arrays()).unwrap();
    let plan = plan_of(kernel_of(pack, c"sum").unwrap(), &[4096]).unwrap();
    let (mut table, mut bytes) = ([0u64; 16], 0);
    let mut made = |name: &CStr, addresses: &[u64], room: usize| {
        let (names, at) = (name.as_ptr(), addresses.as_ptr());
        let place = if room == 0 { null_mut() } else { table.as_mut_ptr().cast() };
        // SAFETY: everything is as it is said.
        let code = unsafe { tw_plan_table(plan, names, at, addresses.len(), place, room, &raw mut bytes) };
        (code, bytes, table[..3].to_vec(), if code == TW_OK { String::new() } else { last() })
    };
    let addresses = [0x1000, 0x5000, 0x3000];
    assert_eq!(made(c"xs", &addresses, 0), (TW_OK, 24, vec![0; 3], String::new()));
    assert_eq!(made(c"xs", &addresses, 128), (TW_OK, 24, addresses.to_vec(), String::new()));
    for (name, addresses, room, code, words) in [
        (c"xs", &addresses[..], 23, TW_VALUE, "the table of `xs` has 24 bytes; there is room for 23"),
        (c"ys", &addresses, 128, TW_ARGUMENTS, "kernel `sum` has no parameter `ys`; it has xs, y, factor"),
        (c"y", &addresses, 128, TW_ARGUMENTS, "parameter `y` of kernel `sum` is no array"),
        (c"xs", &addresses[1..], 128, TW_ARGUMENTS, "`xs` of kernel `sum` "),
        (
            c"xs",
            &[0x1000, 0x1004, 0x2000],
            128,
            TW_ARGUMENTS,
            "`xs` of kernel `sum` begins at a multiple of 16 bytes",
        ),
    ] {
        let (given, _, _, text) = made(name, addresses, room);
        assert!(given == code && text.starts_with(words), "{given} {text}");
    }
    // The table lies at 0x7000; the result is a tensor that is compared.
    let shape = [4096];
    let y = tensor(&shape, 0x9000, TW_DTYPE_F32, 1);
    let of = |pointer| arg(TW_TABLE, tw_value_t { pointer });
    let args = [of(0x7000), arg(TW_TENSOR, tw_value_t { tensor: &raw const y }), number(0.5)];
    stand_in.calls();
    assert_eq!(launch(plan, &args, None).0, TW_OK);
    assert!(stand_in.calls().last().unwrap().contains("params=[0070000000000000 0090000000000000 0000003f "));
    let (code, text) = launch(plan, &[of(0x7040), args[1], args[2]], None);
    assert!(
        code == TW_ARGUMENTS && text.starts_with("`xs` of kernel `sum` begins at a multiple of 128 bytes"),
        "{text}"
    );
    let (code, text) = launch(plan, &[args[1], args[1], args[2]], None);
    assert!(code == TW_ARGUMENTS && text.contains("a table of tensors"), "{text}");
}

#[test]
fn failures_are_of_their_thread() {
    let (_stand_in, _turn) = turn();
    assert_eq!(pack_of(b"no"), Err(TW_PACK));
    let other = std::thread::spawn(last).join().unwrap();
    assert_eq!(other, "");
    assert!(last().starts_with("this is no pack"), "{}", last());
    let name = CString::new("x").unwrap();
    assert_eq!(kernel_of(null::<c_void>().cast(), &name), Err(TW_NULL));
    assert_eq!(last(), "the handle of a pack is null");
}

fn tensor(shape: &[i64], address: u64, dtype: u32, writable: u32) -> tw_tensor_t {
    tw_tensor_t {
        size: size_of::<tw_tensor_t>() as u32,
        dtype,
        address,
        rank: shape.len() as u32,
        writable,
        array: 0,
        reserved: 0,
        shape: shape.as_ptr(),
        strides: null(),
    }
}

#[test]
fn products_of_arrays_of_tensors() {
    let (stand_in, _turn) = turn();
    let pack = pack_of(&common::pointers()).unwrap();
    let mut library = null_mut();
    // SAFETY: everything is as it is said, and nothing runs, here and below.
    assert_eq!(unsafe { tw_library_open(pack, &raw mut library) }, TW_OK);
    let options = tw_gemm_options_t {
        size: size_of::<tw_gemm_options_t>() as u32,
        dependent: 0,
        options: c"batch=pointers".as_ptr(),
        operands: null(),
        operand_count: 0,
        workspace: 0,
        workspace_bytes: 0,
    };
    let shapes = [[3, 40, 64], [3, 256, 64], [3, 40, 256]];
    let array = |number: usize, address: u64| tw_tensor_t {
        array: 1,
        ..tensor(&shapes[number], address, TW_DTYPE_F16, u32::from(number == 2))
    };
    let made = |name: &CStr, addresses: &[u64], room: usize| {
        let [a, b, c] = [0, 1, 2].map(|number| array(number, 0));
        let (mut table, mut bytes) = ([0u64; 4], 0);
        let (place, count) = (table.as_mut_ptr().cast(), addresses.len());
        let (name, at, of) = (name.as_ptr(), addresses.as_ptr(), &raw const options);
        let code = unsafe {
            tw_library_table(library, &a, &b, &c, of, name, at, count, place, room, &raw mut bytes)
        };
        (code, bytes, table, if code == TW_OK { String::new() } else { last() })
    };
    let addresses = [0x1000, 0x9000, 0x5000];
    assert_eq!(made(c"a", &addresses, 32), (TW_OK, 24, [0x1000, 0x9000, 0x5000, 0], String::new()));
    for (name, addresses, room, code, words) in [
        (c"a", &addresses[..], 8, TW_VALUE, "the table of `a` has 24 bytes; there is room for 8"),
        (c"d", &addresses, 32, TW_ARGUMENTS, "parameter `d` of kernel `gemm` is no parameter"),
        (c"b", &addresses[1..], 32, TW_ARGUMENTS, "`b` of kernel `gemm` is an array of 3 tensors"),
        (c"c", &[0x1000, 0x2000, 0x1000], 32, TW_ARGUMENTS, "kernel `gemm` writes the tensors of `c`"),
    ] {
        let (given, _, _, text) = made(name, addresses, room);
        assert!(given == code && text.starts_with(words), "{given} {text}");
    }
    let gemm = |a: &tw_tensor_t| {
        let [b, c] = [array(1, 0x20000), array(2, 0x30000)];
        let code = unsafe { tw_library_gemm(library, null_mut(), a, &b, &c, &raw const options) };
        (code, if code == TW_OK { String::new() } else { last() })
    };
    assert_eq!(gemm(&array(0, 0x10000)).0, TW_OK);
    let launch = stand_in.calls().pop().unwrap();
    let params = "[0000010000000000 0000020000000000 0000030000000000 03000000 28000000 00010000 40000000]";
    assert!(launch.starts_with("cuLaunchKernelEx ") && launch.ends_with(params), "{launch}");
    for (a, code, words) in [
        (array(0, 0x10040), TW_ARGUMENTS, "`a` of kernel `gemm` begins at a multiple of 128 bytes"),
        (
            tw_tensor_t { array: 0, ..array(0, 0x10000) },
            TW_ARGUMENTS,
            "parameter `a` of kernel `gemm` is a table",
        ),
        (
            tw_tensor_t { array: 2, ..array(0, 0x10000) },
            TW_VALUE,
            "of the tensor of argument 0 `array` is 0 or 1",
        ),
        (
            tw_tensor_t { reserved: 1, ..array(0, 0x10000) },
            TW_VALUE,
            "of the tensor of argument 0 `array` is",
        ),
    ] {
        let (given, text) = gemm(&a);
        assert!(given == code && text.starts_with(words), "{given} {text}");
    }
    let [a, b, c] = [0, 1, 2].map(|number| tw_tensor_t { writable: 0, ..array(number, 0x10000) });
    let code = unsafe { tw_library_gemm(library, null_mut(), &a, &b, &c, &raw const options) };
    assert!(
        code == TW_ARGUMENTS && last().starts_with("kernel `gemm` writes `c`: give it"),
        "{code} {}",
        last()
    );
    assert_eq!(unsafe { tw_library_free(library) }, TW_OK);
}

#[test]
fn products_of_a_library() {
    let (stand_in, _turn) = turn();
    let pack = pack_of(&common::products()).unwrap();
    let mut library = null_mut();
    // SAFETY: everything is as it is said, and nothing runs, here and below.
    unsafe {
        assert_eq!(tw_library_open(null(), &raw mut library), TW_NULL);
        assert_eq!(tw_library_open(pack, null_mut()), TW_NULL);
        assert_eq!(tw_library_open(pack, &raw mut library), TW_OK);
        assert_eq!(tw_pack_free(pack), TW_OK);
    }
    let more = |options: Option<&CStr>, operands: &[tw_operand_t]| tw_gemm_options_t {
        size: size_of::<tw_gemm_options_t>() as u32,
        dependent: 0,
        options: options.map_or(null(), CStr::as_ptr),
        operands: operands.as_ptr(),
        operand_count: operands.len(),
        workspace: 0,
        workspace_bytes: 0,
    };
    let gemm = |[m, n, k]: [i64; 3], dtype: u32, options: Option<&tw_gemm_options_t>| {
        let (of_a, of_b, of_c) = ([m, k], [n, k], [m, n]);
        let (a, b) = (tensor(&of_a, 0x1000, dtype, 0), tensor(&of_b, 0x2000, dtype, 0));
        let c = tensor(&of_c, 0x3000, dtype, 1);
        let options = options.map_or(null(), |options| options as *const _);
        let code = unsafe {
            tw_library_gemm(library, null_mut(), &raw const a, &raw const b, &raw const c, options)
        };
        (code, if code == TW_OK { String::new() } else { last() })
    };
    let launches = || -> Vec<String> {
        let calls = stand_in.calls().into_iter();
        calls.filter(|call| !call.starts_with("cuStreamIsCapturing")).collect()
    };
    launches();
    assert_eq!(gemm([40, 256, 64], TW_DTYPE_F16, None).0, TW_OK);
    assert!(launches().iter().any(|call| call.starts_with("cuLibraryLoadData")));
    for _ in 0..2 {
        assert_eq!(gemm([40, 256, 64], TW_DTYPE_F16, None).0, TW_OK);
        let calls = launches();
        assert!(calls.len() == 1 && calls[0].starts_with("cuLaunchKernelEx grid=1,1,1 "), "{calls:?}");
    }
    for sizes in [[65, 256, 64], [40, 256, 63], [40, 256, 8192]] {
        let (code, text) = gemm(sizes, TW_DTYPE_F16, None);
        let [m, n, k] = sizes;
        let call = format!("a: f16[{m}, {k}], b: f16[{n}, {k}], c: f16[{m}, {n}]");
        assert_eq!(
            (code, text.starts_with(&format!("the pack has no kernels of `gemm` for {call} on this GPU"))),
            (TW_NO_KERNEL, true),
            "{text}"
        );
    }
    assert_eq!(gemm([40, 256, 64], TW_DTYPE_BF16, None).0, TW_NO_KERNEL);
    // A bias, of any number of rows.
    let of_bias = [256];
    let bias = tensor(&of_bias, 0x4000, TW_DTYPE_F16, 0);
    let value = tw_value_t { tensor: &raw const bias };
    let operand = |name: &CStr| tw_operand_t { name: name.as_ptr(), arg: arg(TW_TENSOR, value) };
    let operands = [operand(c"bias")];
    assert_eq!(gemm([130, 256, 63], TW_DTYPE_F16, Some(&more(Some(c"epilogue=bias"), &operands))).0, TW_OK);
    let calls = launches();
    assert!(calls.last().unwrap().starts_with("cuLaunchKernelEx grid=3,1,1 "), "{calls:?}");
    for (options, operands, code, words) in [
        (
            Some(c"epilogue=gelu"),
            &[][..],
            TW_NO_KERNEL,
            "the pack has no kernels of `gemm` for epilogue=gelu, a: ",
        ),
        (Some(c"epilogue"), &[], TW_VALUE, "`epilogue` is no option: write name=value"),
        (
            Some(c"epilogue=bias"),
            &[],
            TW_ARGUMENTS,
            "`gemm` lacks its argument `bias`; it takes a, b, bias, c",
        ),
        (None, &operands, TW_ARGUMENTS, "`gemm` has no argument `bias`; it takes a, b, c"),
    ] {
        let (given, text) = gemm([40, 256, 64], TW_DTYPE_F16, Some(&more(options, operands)));
        assert!(given == code && text.starts_with(words), "{given} {text}");
    }
    let wrong = tw_gemm_options_t { size: 3, ..more(None, &[]) };
    assert_eq!(gemm([40, 256, 64], TW_DTYPE_F16, Some(&wrong)).0, TW_STRUCT);
    let many = [operands[0]; 20];
    assert_eq!(gemm([40, 256, 64], TW_DTYPE_F16, Some(&more(None, &many))).0, TW_ARGUMENTS);
    let nothing = tw_gemm_options_t { operand_count: 1, operands: null(), ..more(None, &[]) };
    assert_eq!(gemm([40, 256, 64], TW_DTYPE_F16, Some(&nothing)).0, TW_NULL);
    // SAFETY: as above.
    unsafe {
        assert_eq!(tw_library_gemm(library, null_mut(), null(), null(), null(), null()), TW_NULL);
        assert_eq!(tw_library_free(library), TW_OK);
        assert_eq!(tw_library_free(null_mut()), TW_OK);
    }
}
