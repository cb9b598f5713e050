//! The functions of the driver, by their names.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt::Write;

use crate::state::{CONTEXT, CURRENT, Entry, MULTIPROCESSORS, State, called, entries_of, set, with};

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const INVALID_PTX: c_int = 218;
const NOT_FOUND: c_int = 500;

/// The text of a library, at least as long as a header.
unsafe fn text<'a>(pointer: *const c_char) -> &'a str {
    // SAFETY: a test or the binding gives a text that ends with NUL.
    unsafe { CStr::from_ptr(pointer) }.to_str().unwrap_or("?")
}

/// Writes a result, if the call has none of the errors that tests ask for.
unsafe fn give<T>(status: c_int, to: *mut T, value: T) -> c_int {
    if status == SUCCESS {
        // SAFETY: the caller of a function of the driver gives a place for its result.
        unsafe { to.write(value) };
    }
    status
}

#[unsafe(no_mangle)]
unsafe extern "C" fn stand_in_calls(to: *mut u8, capacity: usize) -> usize {
    let text = with(|state| std::mem::take(&mut state.calls)).join("\n");
    let bytes = &text.as_bytes()[..text.len().min(capacity)];
    // SAFETY: the caller has as many bytes as it says.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    bytes.len()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn stand_in_set(what: *const c_char, value: i64) {
    // SAFETY: the caller gives a text.
    set(unsafe { text(what) }, value);
}

#[unsafe(no_mangle)]
extern "C" fn stand_in_make_current(device: i64) {
    CURRENT.set(device);
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> c_int {
    called("cuInit", String::new())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: as `give` says, here and in all functions below.
    unsafe { give(called("cuDriverGetVersion", String::new()), version, 12080) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    let status = called("cuDeviceGetCount", String::new());
    // SAFETY: as above.
    unsafe { give(status, count, with(|state| state.setting("devices", 2)) as c_int) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { give(called("cuDeviceGet", ordinal.to_string()), device, ordinal) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, bytes: c_int, device: c_int) -> c_int {
    let status = called("cuDeviceGetName", device.to_string());
    let text: &[u8] =
        if with(|state| state.setting("h200", 0)) == 1 { b"NVIDIA H200\0" } else { b"Stand-in GPU\0" };
    if bytes as usize >= text.len() {
        // SAFETY: the caller has as many bytes as it says.
        unsafe { name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    }
    status
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
    let status = called("cuDeviceGetAttribute", format!("{attribute} {device}"));
    let capability = with(|state| state.setting("capability", 90)) as c_int;
    let number = match attribute {
        13 => 1_980_000,
        16 => MULTIPROCESSORS,
        75 => capability / 10,
        76 => capability % 10,
        97 => 227 * 1024,
        _ => return INVALID_VALUE,
    };
    // SAFETY: as above.
    unsafe { give(status, value, number) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { give(called("cuDeviceTotalMem_v2", device.to_string()), bytes, 80 << 30) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> c_int {
    let status = called("cuDevicePrimaryCtxRetain", device.to_string());
    // SAFETY: as above.
    unsafe { give(status, context, std::ptr::without_provenance_mut(CONTEXT + device as usize)) }
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int {
    called("cuDevicePrimaryCtxRelease_v2", device.to_string())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> c_int {
    let status = called("cuCtxGetCurrent", String::new());
    let current = match CURRENT.get() {
        -1 => 0,
        device => CONTEXT + device as usize,
    };
    // SAFETY: as above.
    unsafe { give(status, context, std::ptr::without_provenance_mut(current)) }
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_int {
    let device = if context.is_null() { -1 } else { context.addr() as i64 - CONTEXT as i64 };
    let status = called("cuCtxSetCurrent", device.to_string());
    if status == SUCCESS {
        CURRENT.set(device);
    }
    status
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { give(called("cuCtxGetDevice", String::new()), device, CURRENT.get() as c_int) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: c_int, name: *mut *const c_char) -> c_int {
    let text = match error {
        INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        100 => c"CUDA_ERROR_NO_DEVICE",
        INVALID_PTX => c"CUDA_ERROR_INVALID_PTX",
        400 => c"CUDA_ERROR_INVALID_HANDLE",
        NOT_FOUND => c"CUDA_ERROR_NOT_FOUND",
        719 => c"CUDA_ERROR_LAUNCH_FAILED",
        _ => return INVALID_VALUE,
    };
    // SAFETY: as above; the text is static.
    unsafe { give(SUCCESS, name, text.as_ptr()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: c_int, description: *mut *const c_char) -> c_int {
    let text = match error {
        INVALID_VALUE => c"invalid argument",
        2 => c"out of memory",
        100 => c"no CUDA-capable device is detected",
        INVALID_PTX => c"a PTX JIT compilation failed",
        400 => c"invalid resource handle",
        NOT_FOUND => c"named symbol not found",
        719 => c"unspecified launch failure",
        _ => return INVALID_VALUE,
    };
    // SAFETY: as above; the text is static.
    unsafe { give(SUCCESS, description, text.as_ptr()) }
}

/// A new handle for entries.
fn keep(state: &mut State, entries: Vec<Entry>) -> *mut c_void {
    let handle = state.handle();
    state.entries.insert(handle, entries);
    std::ptr::without_provenance_mut(handle)
}

/// Entries of an image: of a PTX text as they are written; of a binary one without known parameters.
unsafe fn image(code: *const c_void) -> Result<Vec<Entry>, c_int> {
    // SAFETY: an image has at least four bytes: a binary's magic, or a text that is longer.
    if unsafe { code.cast::<[u8; 4]>().read() } == *b"\x7fELF" {
        return Ok(vec![Entry::default()]);
    }
    // SAFETY: any other image is a text that ends with NUL.
    let entries = entries_of(unsafe { text(code.cast()) });
    if entries.is_empty() { Err(INVALID_PTX) } else { Ok(entries) }
}

/// Writes to the log of errors, if the options name one, that the code is refused.
unsafe fn refuse(options: *mut c_int, values: *mut *mut c_void, count: c_uint) {
    for i in 0..count as usize {
        // SAFETY: options and values are as many as the caller says; option 5 is a log of at least 64 bytes.
        unsafe {
            if options.add(i).read() == 5 {
                let log = b"ptxas fatal   : no entry point\0";
                values.add(i).read().cast::<u8>().copy_from_nonoverlapping(log.as_ptr(), log.len());
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut *mut c_void,
    code: *const c_void,
    count: c_uint,
    options: *mut c_int,
    values: *mut *mut c_void,
) -> c_int {
    let status = called("cuModuleLoadDataEx", format!("options={count}"));
    // SAFETY: as above, and as `image` and `refuse` say.
    unsafe {
        match image(code) {
            Ok(entries) => give(status, module, with(|state| keep(state, entries))),
            Err(error) => {
                refuse(options, values, count);
                error
            }
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: *mut c_void) -> c_int {
    with(|state| state.entries.remove(&module.addr()));
    called("cuModuleUnload", String::new())
}

/// A handle for the entry of this name.
unsafe fn entry(
    name: &str,
    status: c_int,
    of: *mut c_void,
    entry: *const c_char,
    to: *mut *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let wanted = unsafe { text(entry) };
    let found = with(|state| {
        let entries = state.entries.get(&of.addr())?;
        let unnamed = |entry: &&Entry| entry.name == wanted || entry.name.is_empty();
        let found = entries.iter().find(unnamed)?.clone();
        Some(keep(state, vec![Entry { name: wanted.to_string(), ..found }]))
    });
    match found {
        // SAFETY: as above.
        Some(handle) => unsafe { give(status, to, handle) },
        None => {
            with(|state| state.calls.push(format!("{name} finds no {wanted}")));
            NOT_FOUND
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(
    function: *mut *mut c_void,
    module: *mut c_void,
    name: *const c_char,
) -> c_int {
    // SAFETY: as above.
    let status = called("cuModuleGetFunction", unsafe { text(name) }.to_string());
    // SAFETY: as above.
    unsafe { entry("cuModuleGetFunction", status, module, name, function) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLibraryLoadData(
    library: *mut *mut c_void,
    code: *const c_void,
    options: *mut c_int,
    values: *mut *mut c_void,
    count: c_uint,
    _library_options: *mut c_int,
    _library_values: *mut *mut c_void,
    _library_count: c_uint,
) -> c_int {
    let status = called("cuLibraryLoadData", format!("options={count}"));
    // SAFETY: as above, and as `image` and `refuse` say.
    unsafe {
        match image(code) {
            Ok(entries) => give(status, library, with(|state| keep(state, entries))),
            Err(error) => {
                refuse(options, values, count);
                error
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLibraryGetKernel(
    kernel: *mut *mut c_void,
    library: *mut c_void,
    name: *const c_char,
) -> c_int {
    // SAFETY: as above.
    let status = called("cuLibraryGetKernel", unsafe { text(name) }.to_string());
    // SAFETY: as above.
    unsafe { entry("cuLibraryGetKernel", status, library, name, kernel) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuKernelGetFunction(function: *mut *mut c_void, kernel: *mut c_void) -> c_int {
    let status = called("cuKernelGetFunction", format!("device={}", CURRENT.get()));
    let found = with(|state| {
        let entries = state.entries.get(&kernel.addr())?.clone();
        Some(keep(state, entries))
    });
    match found {
        // SAFETY: as above.
        Some(handle) => unsafe { give(status, function, handle) },
        None => NOT_FOUND,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryUnload(library: *mut c_void) -> c_int {
    with(|state| state.entries.remove(&library.addr()));
    called("cuLibraryUnload", String::new())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    _function: *mut c_void,
) -> c_int {
    let status = called("cuFuncGetAttribute", attribute.to_string());
    // SAFETY: as above.
    unsafe { give(status, value, if attribute == 4 { 40 } else { 0 }) }
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(_function: *mut c_void, attribute: c_int, value: c_int) -> c_int {
    called("cuFuncSetAttribute", format!("{attribute} {value}"))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    _function: *mut c_void,
    threads: c_int,
    shared_bytes: usize,
) -> c_int {
    let line = format!("threads={threads} shared={shared_bytes}");
    let status = called("cuOccupancyMaxActiveBlocksPerMultiprocessor", line);
    // SAFETY: as above.
    unsafe { give(status, blocks, with(|state| state.setting("resident", 2)) as c_int) }
}

/// `CUlaunchConfig`.
#[repr(C)]
struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: *mut c_void,
    attributes: *const Attribute,
    count: c_uint,
}

/// `CUlaunchAttribute`.
#[repr(C, align(8))]
struct Attribute {
    id: c_uint,
    pad: [u8; 4],
    value: [u32; 16],
}

/// The attributes as text: each its number and the words of its value that are not 0 at the end.
unsafe fn attributes(config: &Config) -> String {
    let mut list = Vec::new();
    for i in 0..config.count as usize {
        // SAFETY: the configuration has as many attributes as it says.
        let attribute = unsafe { &*config.attributes.add(i) };
        let used = attribute.value.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        let words: Vec<String> = attribute.value[..used].iter().map(u32::to_string).collect();
        list.push(format!("{}:{}", attribute.id, words.join(",")));
    }
    format!("[{}]", list.join(" "))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveClusters(
    clusters: *mut c_int,
    _function: *mut c_void,
    config: *const Config,
) -> c_int {
    // SAFETY: the caller gives a configuration.
    let line = unsafe { attributes(&*config) };
    let status = called("cuOccupancyMaxActiveClusters", format!("attributes={line}"));
    // SAFETY: as above.
    unsafe { give(status, clusters, with(|state| state.setting("resident", 2)) as c_int) }
}

/// The bytes of the parameters as text, one list each.
unsafe fn parameters(function: *mut c_void, pointers: *mut *mut c_void) -> String {
    let entry =
        with(|state| state.entries.get(&function.addr()).and_then(|entries| entries.first().cloned()));
    let Some(entry) = entry else { return "function=?".to_string() };
    let mut list = Vec::new();
    for (i, bytes) in entry.params.iter().enumerate() {
        let mut text = String::new();
        for at in 0..*bytes {
            // SAFETY: the function has these parameters, and the caller gives a pointer to each.
            let byte = unsafe { pointers.add(i).read().cast::<u8>().add(at).read() };
            let _ = write!(text, "{byte:02x}");
        }
        list.push(text);
    }
    format!("function={} params=[{}]", entry.name, list.join(" "))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    x: c_uint,
    y: c_uint,
    z: c_uint,
    threads_x: c_uint,
    threads_y: c_uint,
    threads_z: c_uint,
    shared_bytes: c_uint,
    stream: *mut c_void,
    params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    // SAFETY: as `parameters` says.
    let params = unsafe { parameters(function, params) };
    called(
        "cuLaunchKernel",
        format!(
            "grid={x},{y},{z} block={threads_x},{threads_y},{threads_z} shared={shared_bytes} stream={:#x} {params}",
            stream.addr()
        ),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernelEx(
    config: *const Config,
    function: *mut c_void,
    params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller gives a configuration; and as `attributes` and `parameters` say.
    let (config, attributes, params) =
        unsafe { (&*config, attributes(&*config), parameters(function, params)) };
    let ([x, y, z], [a, b, c]) = (config.grid, config.block);
    let (shared, stream) = (config.shared_bytes, config.stream.addr());
    called(
        "cuLaunchKernelEx",
        format!(
            "grid={x},{y},{z} block={a},{b},{c} shared={shared} stream={stream:#x} attributes={attributes} {params}"
        ),
    )
}

/// The numbers of a list as text.
unsafe fn list<T: ToString + Copy>(pointer: *const T, count: usize) -> (Vec<T>, String) {
    // SAFETY: the caller of the function has so many.
    let values: Vec<T> = (0..count).map(|i| unsafe { pointer.add(i).read() }).collect();
    let text = values.iter().map(T::to_string).collect::<Vec<_>>().join(",");
    (values, text)
}

/// The words of a map that both modes have: type, rank, swizzle and promotion in the first, then the address, five extents and four strides.
fn map_words(
    [dtype, swizzle, l2_promotion]: [c_int; 3],
    pointer: *mut c_void,
    extents: &[u64],
    strides: &[u64],
) -> [u64; 16] {
    let rank = extents.len();
    let mut words = [0u64; 16];
    words[0] = dtype as u64 | (rank as u64) << 8 | (swizzle as u64) << 16 | (l2_promotion as u64) << 24;
    words[1] = pointer.addr() as u64;
    words[2..2 + rank].copy_from_slice(extents);
    words[7..6 + rank].copy_from_slice(strides);
    words
}

/// Writes what it is given into the map: type, rank and modes in the first word, then the address, five extents, four strides in bytes, and of each dimension the box
/// (16 bits) and the step (16 bits).
#[unsafe(no_mangle)]
unsafe extern "C" fn cuTensorMapEncodeTiled(
    map: *mut [u64; 16],
    dtype: c_int,
    rank: c_uint,
    pointer: *mut c_void,
    extents: *const u64,
    strides: *const u64,
    reach: *const u32,
    steps: *const u32,
    interleave: c_int,
    swizzle: c_int,
    l2_promotion: c_int,
    fill: c_int,
) -> c_int {
    let rank = rank as usize;
    if !(1..=5).contains(&rank) {
        return INVALID_VALUE;
    }
    // SAFETY: the lists are as long as the rank, that of strides one shorter.
    let lists =
        unsafe { (list(extents, rank), list(strides, rank - 1), list(reach, rank), list(steps, rank)) };
    let ((extents, extents_text), (strides, strides_text), (reach, reach_text), (steps, steps_text)) = lists;
    let status = called(
        "cuTensorMapEncodeTiled",
        format!(
            "type={dtype} pointer={:#x} extents={extents_text} strides={strides_text} box={reach_text} steps={steps_text} \
             interleave={interleave} swizzle={swizzle} l2={l2_promotion} fill={fill}",
            pointer.addr()
        ),
    );
    let mut words = map_words([dtype, swizzle, l2_promotion], pointer, &extents, &strides);
    for dimension in 0..rank {
        let pair = u64::from(reach[dimension]) | u64::from(steps[dimension]) << 16;
        words[11 + dimension / 2] |= pair << (32 * (dimension % 2));
    }
    // SAFETY: as above.
    unsafe { give(status, map, words) }
}

/// Writes what it is given into the map as [`cuTensorMapEncodeTiled`] does, with a bit that says the mode; behind the strides of each dimension the step, then
/// channels and pixels, and of each dimension between the first and the last both corners.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuTensorMapEncodeIm2col(
    map: *mut [u64; 16],
    dtype: c_int,
    rank: c_uint,
    pointer: *mut c_void,
    extents: *const u64,
    strides: *const u64,
    lower: *const c_int,
    upper: *const c_int,
    channels: c_uint,
    pixels: c_uint,
    steps: *const u32,
    interleave: c_int,
    swizzle: c_int,
    l2_promotion: c_int,
    fill: c_int,
) -> c_int {
    let rank = rank as usize;
    if !(3..=5).contains(&rank) {
        return INVALID_VALUE;
    }
    // SAFETY: the lists are as long as the rank, that of strides one shorter, those of corners two.
    let lists = unsafe { (list(extents, rank), list(strides, rank - 1), list(steps, rank)) };
    // SAFETY: as above.
    let corners = unsafe { (list(lower, rank - 2), list(upper, rank - 2)) };
    let ((extents, extents_text), (strides, strides_text), (steps, steps_text)) = lists;
    let ((lower, lower_text), (upper, upper_text)) = corners;
    let status = called(
        "cuTensorMapEncodeIm2col",
        format!(
            "type={dtype} pointer={:#x} extents={extents_text} strides={strides_text} lower={lower_text} upper={upper_text} \
             channels={channels} pixels={pixels} steps={steps_text} interleave={interleave} swizzle={swizzle} l2={l2_promotion} \
             fill={fill}",
            pointer.addr()
        ),
    );
    let mut words = map_words([dtype, swizzle, l2_promotion], pointer, &extents, &strides);
    words[0] |= 1 << 32;
    words[11] = steps.iter().rev().fold(0, |word, step| word << 8 | u64::from(*step));
    words[12] = u64::from(channels) | u64::from(pixels) << 32;
    for (dimension, (lower, upper)) in lower.iter().zip(&upper).enumerate() {
        words[13 + dimension] = u64::from(*lower as u32) | u64::from(*upper as u32) << 32;
    }
    // SAFETY: as above.
    unsafe { give(status, map, words) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(pointer: *mut u64, bytes: usize) -> c_int {
    let status = called("cuMemAlloc_v2", bytes.to_string());
    let address = with(|state| {
        // At a multiple of 256 bytes, as the driver's.
        let words = vec![0u64; bytes.div_ceil(8) + 32];
        let address = (words.as_ptr().expose_provenance() as u64).next_multiple_of(256);
        state.memory.insert(words.as_ptr().addr() as u64, words);
        address
    });
    // SAFETY: as above.
    unsafe { give(status, pointer, address) }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(pointer: u64) -> c_int {
    with(|state| {
        let start = state.memory.range(..=pointer).next_back().map(|(start, _)| *start);
        start.map(|start| state.memory.remove(&start))
    });
    called("cuMemFree_v2", String::new())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int {
    let status = called("cuMemHostAlloc", format!("{bytes} flags={flags}"));
    let words = Box::leak(vec![0u64; bytes.div_ceil(8)].into_boxed_slice());
    // SAFETY: as above.
    unsafe { give(status, pointer, words.as_mut_ptr().cast()) }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(_pointer: *mut c_void) -> c_int {
    called("cuMemFreeHost", String::new())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostGetDevicePointer_v2(
    device: *mut u64,
    pointer: *mut c_void,
    _flags: c_uint,
) -> c_int {
    let status = called("cuMemHostGetDevicePointer_v2", String::new());
    // SAFETY: as above.
    unsafe { give(status, device, pointer.expose_provenance() as u64) }
}

/// Copies bytes of a GPU, if it has them.
fn copy(status: c_int, device: u64, bytes: usize, copy: impl FnOnce(*mut u8)) -> c_int {
    with(|state| match state.holds(device, bytes) {
        true => {
            copy(std::ptr::with_exposed_provenance_mut(device as usize));
            status
        }
        false => INVALID_VALUE,
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    bytes: usize,
    stream: *mut c_void,
) -> c_int {
    let status = called("cuMemcpyHtoDAsync_v2", format!("{bytes} stream={:#x}", stream.addr()));
    // SAFETY: the memory is there (`copy`), and the caller has as many bytes as it says.
    copy(status, to, bytes, |to| unsafe { to.copy_from_nonoverlapping(from.cast(), bytes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    bytes: usize,
    stream: *mut c_void,
) -> c_int {
    let status = called("cuMemcpyDtoHAsync_v2", format!("{bytes} stream={:#x}", stream.addr()));
    // SAFETY: as above.
    copy(status, from, bytes, |from| unsafe { to.cast::<u8>().copy_from_nonoverlapping(from, bytes) })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(pointer: u64, byte: u8, bytes: usize, stream: *mut c_void) -> c_int {
    let status = called("cuMemsetD8Async", format!("{byte} {bytes} stream={:#x}", stream.addr()));
    // SAFETY: the memory is there (`copy`).
    copy(status, pointer, bytes, |to| unsafe { to.write_bytes(byte, bytes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: *mut *mut c_void, flags: c_uint) -> c_int {
    let status = called("cuStreamCreate", flags.to_string());
    // SAFETY: as above.
    unsafe { give(status, stream, std::ptr::without_provenance_mut(with(State::handle))) }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(_stream: *mut c_void) -> c_int {
    called("cuStreamDestroy_v2", String::new())
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: *mut c_void) -> c_int {
    called("cuStreamSynchronize", format!("{:#x}", stream.addr()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(stream: *mut c_void, state: *mut c_int) -> c_int {
    let status = called("cuStreamIsCapturing", format!("{:#x}", stream.addr()));
    let captured = with(|known| known.captured.contains(&stream.addr()));
    // SAFETY: as above.
    unsafe { give(status, state, c_int::from(captured)) }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: *mut c_void, mode: c_int) -> c_int {
    with(|state| state.captured.insert(stream.addr()));
    called("cuStreamBeginCapture_v2", format!("{:#x} mode={mode}", stream.addr()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) -> c_int {
    let status = called("cuStreamEndCapture", format!("{:#x}", stream.addr()));
    with(|state| state.captured.remove(&stream.addr()));
    // SAFETY: as above.
    unsafe { give(status, graph, std::ptr::without_provenance_mut(with(State::handle))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(
    exec: *mut *mut c_void,
    _graph: *mut c_void,
    flags: c_ulonglong,
) -> c_int {
    let status = called("cuGraphInstantiateWithFlags", flags.to_string());
    // SAFETY: as above.
    unsafe { give(status, exec, std::ptr::without_provenance_mut(with(State::handle))) }
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(_graph: *mut c_void, stream: *mut c_void) -> c_int {
    called("cuGraphLaunch", format!("stream={:#x}", stream.addr()))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(_graph: *mut c_void) -> c_int {
    called("cuGraphDestroy", String::new())
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(_graph: *mut c_void) -> c_int {
    called("cuGraphExecDestroy", String::new())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut *mut c_void, flags: c_uint) -> c_int {
    let status = called("cuEventCreate", flags.to_string());
    // SAFETY: as above.
    unsafe { give(status, event, std::ptr::without_provenance_mut(with(State::handle))) }
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(_event: *mut c_void) -> c_int {
    called("cuEventDestroy_v2", String::new())
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(_event: *mut c_void, stream: *mut c_void) -> c_int {
    called("cuEventRecord", format!("stream={:#x}", stream.addr()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(
    milliseconds: *mut f32,
    _start: *mut c_void,
    _end: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    unsafe { give(called("cuEventElapsedTime", String::new()), milliseconds, 0.25) }
}
