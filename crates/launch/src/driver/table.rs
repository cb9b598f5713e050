//! The functions of the driver that are called, each by its name in the library.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use libloading::Library;

use super::types::{
    Context, Device, DevicePointer, Event, Function, Graph, GraphExec, KernelHandle, LaunchConfig,
    LibraryHandle, ModuleHandle, NOT_FOUND, RawStream, TensorMap,
};
use super::{Driver, DriverError};

macro_rules! functions {
    (
        required { $($(#[$doc:meta])* $name:ident = $symbol:ident($($arg:ident: $ty:ty),*);)* }
        optional { $($(#[$odoc:meta])* $oname:ident = $osymbol:ident($($oarg:ident: $oty:ty),*);)* }
    ) => {
        /// The functions' addresses.
        #[allow(non_snake_case, reason = "the names are the driver's")]
        pub(super) struct Table {
            $($symbol: unsafe extern "C" fn($($ty),*) -> c_int,)*
            $($osymbol: Option<unsafe extern "C" fn($($oty),*) -> c_int>,)*
            /// Those that the driver lacks.
            pub(super) absent: Vec<&'static str>,
        }

        impl Table {
            /// The functions of a library; or the name of one that no launch does without, and that it lacks.
            pub(super) fn of(library: &'static Library) -> Result<Table, &'static str> {
                let mut absent = Vec::new();
                // SAFETY: the symbols are functions of these types, by the driver's header; the library is never unloaded.
                unsafe {
                    Ok(Table {
                        $($symbol: *library.get(stringify!($symbol)).map_err(|_| stringify!($symbol))?,)*
                        $($osymbol: match library.get(stringify!($osymbol)) {
                            Ok(symbol) => Some(*symbol),
                            Err(_) => {
                                absent.push(stringify!($osymbol));
                                None
                            }
                        },)*
                        absent,
                    })
                }
            }
        }

        /// The driver's functions, with its own arguments: what the "CUDA Driver API" reference says of them holds.
        impl Driver {
            $(
                $(#[$doc])*
                ///
                /// # Safety
                ///
                #[doc = concat!("The arguments are such as the driver API asks for in `", stringify!($symbol), "`.")]
                ///
                /// # Errors
                ///
                /// Whatever the driver refuses.
                #[inline]
                pub unsafe fn $name(&self, $($arg: $ty),*) -> Result<(), DriverError> {
                    // SAFETY: as the caller says.
                    status(unsafe { (self.table.$symbol)($($arg),*) })
                }
            )*
            $(
                $(#[$odoc])*
                ///
                /// # Safety
                ///
                #[doc = concat!("The arguments are such as the driver API asks for in `", stringify!($osymbol), "`.")]
                ///
                /// # Errors
                ///
                /// Whatever the driver refuses; `CUDA_ERROR_NOT_FOUND` from a driver that lacks the function.
                #[inline]
                pub unsafe fn $oname(&self, $($oarg: $oty),*) -> Result<(), DriverError> {
                    match self.table.$osymbol {
                        // SAFETY: as the caller says.
                        Some(function) => status(unsafe { function($($oarg),*) }),
                        None => Err(DriverError(NOT_FOUND)),
                    }
                }
            )*
        }
    };
}

fn status(status: c_int) -> Result<(), DriverError> {
    if status == 0 { Ok(()) } else { Err(DriverError(status)) }
}

functions! {
    required {
        /// Starts the driver.
        init = cuInit(flags: c_uint);
        /// The context of this thread.
        context_get_current = cuCtxGetCurrent(context: *mut Context);
        /// Makes a context that of this thread.
        context_set_current = cuCtxSetCurrent(context: Context);
        /// The device of this thread's context.
        context_device = cuCtxGetDevice(device: *mut Device);
        /// The device with a number.
        device_get = cuDeviceGet(device: *mut Device, ordinal: c_int);
        /// A number of a device.
        device_attribute = cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: Device);
        /// The number of devices.
        device_count = cuDeviceGetCount(count: *mut c_int);
        /// The name of a device.
        device_name = cuDeviceGetName(name: *mut c_char, bytes: c_int, device: Device);
        /// Gives the primary context back.
        primary_context_release = cuDevicePrimaryCtxRelease_v2(device: Device);
        /// Takes the primary context.
        primary_context_retain = cuDevicePrimaryCtxRetain(context: *mut Context, device: Device);
        /// Bytes of a device.
        device_memory = cuDeviceTotalMem_v2(bytes: *mut usize, device: Device);
        /// The version of CUDA, times 1000.
        driver_version = cuDriverGetVersion(version: *mut c_int);
        /// Makes an event.
        event_create = cuEventCreate(event: *mut Event, flags: c_uint);
        /// Destroys an event.
        event_destroy = cuEventDestroy_v2(event: Event);
        /// Milliseconds between two events.
        event_elapsed = cuEventElapsedTime(milliseconds: *mut f32, start: Event, end: Event);
        /// Records an event.
        event_record = cuEventRecord(event: Event, stream: RawStream);
        /// A number of a function.
        function_attribute = cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: Function);
        /// Sets a number of a function.
        set_function_attribute = cuFuncSetAttribute(function: Function, attribute: c_int, value: c_int);
        /// The name of an error.
        error_name = cuGetErrorName(error: c_int, text: *mut *const c_char);
        /// The description of an error.
        error_string = cuGetErrorString(error: c_int, text: *mut *const c_char);
        /// Destroys a graph.
        graph_destroy = cuGraphDestroy(graph: Graph);
        /// Destroys a graph that is ready.
        graph_exec_destroy = cuGraphExecDestroy(graph: GraphExec);
        /// Makes a graph ready.
        graph_instantiate = cuGraphInstantiateWithFlags(exec: *mut GraphExec, graph: Graph, flags: c_ulonglong);
        /// Puts a graph on a stream.
        graph_launch = cuGraphLaunch(graph: GraphExec, stream: RawStream);
        /// Puts a launch on a stream.
        launch_kernel = cuLaunchKernel(
            function: Function, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
            block_z: c_uint, shared_bytes: c_uint, stream: RawStream, params: *mut *mut c_void, extra: *mut *mut c_void
        );
        /// Allocates memory.
        memory_alloc = cuMemAlloc_v2(pointer: *mut DevicePointer, bytes: usize);
        /// Frees memory of the host.
        host_free = cuMemFreeHost(pointer: *mut c_void);
        /// Frees memory.
        memory_free = cuMemFree_v2(pointer: DevicePointer);
        /// Allocates memory of the host.
        host_alloc = cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
        /// The GPU's address of memory of the host.
        host_pointer = cuMemHostGetDevicePointer_v2(device: *mut DevicePointer, pointer: *mut c_void, flags: c_uint);
        /// Puts a copy to the host on a stream.
        copy_to_host = cuMemcpyDtoHAsync_v2(to: *mut c_void, from: DevicePointer, bytes: usize, stream: RawStream);
        /// Puts a copy to the GPU on a stream.
        copy_to_device = cuMemcpyHtoDAsync_v2(to: DevicePointer, from: *const c_void, bytes: usize, stream: RawStream);
        /// Puts a filling of memory on a stream.
        memory_set = cuMemsetD8Async(pointer: DevicePointer, byte: u8, bytes: usize, stream: RawStream);
        /// A function of a module.
        module_function = cuModuleGetFunction(function: *mut Function, module: ModuleHandle, name: *const c_char);
        /// Loads code into this thread's context.
        module_load = cuModuleLoadDataEx(
            module: *mut ModuleHandle, image: *const c_void, count: c_uint, options: *mut c_int, values: *mut *mut c_void
        );
        /// Unloads code.
        module_unload = cuModuleUnload(module: ModuleHandle);
        /// Blocks of a function that a multiprocessor holds.
        occupancy_blocks = cuOccupancyMaxActiveBlocksPerMultiprocessor(
            blocks: *mut c_int, function: Function, threads: c_int, shared_bytes: usize
        );
        /// Begins a capture.
        stream_begin_capture = cuStreamBeginCapture_v2(stream: RawStream, mode: c_int);
        /// Makes a stream.
        stream_create = cuStreamCreate(stream: *mut RawStream, flags: c_uint);
        /// Destroys a stream.
        stream_destroy = cuStreamDestroy_v2(stream: RawStream);
        /// Ends a capture.
        stream_end_capture = cuStreamEndCapture(stream: RawStream, graph: *mut Graph);
        /// The state of a stream's capture.
        stream_is_capturing = cuStreamIsCapturing(stream: RawStream, state: *mut c_int);
        /// Waits for a stream.
        stream_synchronize = cuStreamSynchronize(stream: RawStream);
    }
    optional {
        /// Puts a launch with attributes on a stream.
        launch_kernel_ex = cuLaunchKernelEx(
            config: *const LaunchConfig, function: Function, params: *mut *mut c_void, extra: *mut *mut c_void
        );
        /// Clusters of a function that the GPU holds.
        occupancy_clusters = cuOccupancyMaxActiveClusters(
            clusters: *mut c_int, function: Function, config: *const LaunchConfig
        );
        /// Makes a tensor map.
        encode_tensor_map = cuTensorMapEncodeTiled(
            map: *mut TensorMap, dtype: c_int, rank: c_uint, pointer: *mut c_void, extents: *const u64,
            strides: *const u64, reach: *const u32, steps: *const u32, interleave: c_int, swizzle: c_int,
            l2_promotion: c_int, fill: c_int
        );
        /// Makes a tensor map of the im2col mode.
        encode_pixel_map = cuTensorMapEncodeIm2col(
            map: *mut TensorMap, dtype: c_int, rank: c_uint, pointer: *mut c_void, extents: *const u64,
            strides: *const u64, lower: *const c_int, upper: *const c_int, channels: c_uint, pixels: c_uint,
            steps: *const u32, interleave: c_int, swizzle: c_int, l2_promotion: c_int, fill: c_int
        );
        /// Loads code for all contexts.
        library_load = cuLibraryLoadData(
            library: *mut LibraryHandle, code: *const c_void, jit: *mut c_int, jit_values: *mut *mut c_void,
            jit_count: c_uint, options: *mut c_int, option_values: *mut *mut c_void, option_count: c_uint
        );
        /// A kernel of a library.
        library_kernel = cuLibraryGetKernel(kernel: *mut KernelHandle, library: LibraryHandle, name: *const c_char);
        /// The function of a kernel in this thread's context.
        kernel_function = cuKernelGetFunction(function: *mut Function, kernel: KernelHandle);
        /// Unloads the code of a library.
        library_unload = cuLibraryUnload(library: LibraryHandle);
    }
}
