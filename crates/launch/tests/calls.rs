//! Calls of the driver that a launch makes, and their bytes.
#![allow(unsafe_code, reason = "views and streams are of memory and handles that the tests own")]

mod common;

use common::{PTX, Turn, recipe, view, view_mut};
use tilewright_launch::{
    Arg, Chain, Code, Corners, DType, Formula, Gpu, Kernel, LaunchOptions, Log, Module, ParamKind, Raw,
    Stream, TensorArray, View, Workspace,
};

const SHAPE: [i64; 2] = [3, 512];

/// The launch of the common kernel at `m = 3`, `n = 512`, with `x` at 0x1000, `y` at 0x2000 and the factor 2.
fn launch_line(stream: Stream<'_>, attributes: &str, map: &str) -> String {
    format!(
        "cuLaunchKernelEx grid=4,3,1 block=128,1,1 shared=65536 stream={:#x} attributes=[{attributes}] function=scale params=[\
         0010000000000000 0020000000000000 00000040 03000000 00020000 {map}]",
        stream.raw().addr()
    )
}

/// The map as the stand-in writes it: type 7 (f32), rank 2, swizzle 3, promotion 3; the address; extents 512 and 3; a stride of 2048 bytes; a box of 32 by 8.
fn map_bytes() -> String {
    let mut words = [0u64; 16];
    words[0] = 7 | 2 << 8 | 3 << 16 | 3 << 24;
    (words[1], words[2], words[3], words[7]) = (0x2000, 512, 3, 2048);
    words[11] = (32 | 1 << 16) | (8 | 1 << 16) << 32;
    words.iter().flat_map(|word| word.to_le_bytes()).map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_launch_passes_parameters_sizes_and_maps_in_the_order_of_the_function() {
    let turn = Turn::new();
    let (kernel, stream) = (turn.kernel(), turn.stream());
    let plan = kernel.plan(&SHAPE).unwrap();
    turn.stand_in.calls();
    let (x, mut y) = (view(0x1000, &SHAPE), view_mut(0x2000, &SHAPE));
    plan.launch(stream, (&x, &mut y, 2.0f32)).unwrap();
    let calls = turn.stand_in.calls();
    assert_eq!(
        calls,
        [
            "cuTensorMapEncodeTiled type=7 pointer=0x2000 extents=512,3 strides=2048 box=32,8 steps=1,1 interleave=0 swizzle=3 l2=3 fill=0",
            &launch_line(stream, "4:2,1,1", &map_bytes()),
        ]
    );
    // All that follow are one call: as a tuple, as a slice, as raw arguments, and prepared.
    plan.launch(stream, (&x, &mut y, 2.0f32)).unwrap();
    plan.launch(stream, [Arg::from(&x), (&mut y).into(), 2.0f32.into()]).unwrap();
    kernel.launch(stream, &SHAPE, (&x, &mut y, 2.0f32)).unwrap();
    let raw = [Raw::Ptr(0x1000), Raw::Ptr(0x2000), Raw::F32(2.0)];
    // SAFETY: nothing runs, here and below.
    unsafe { plan.launch_raw(stream, &raw, &LaunchOptions::new()) }.unwrap();
    let prepared = plan.prepare_raw(&raw, &LaunchOptions::new()).unwrap();
    unsafe { prepared.enqueue(stream) }.unwrap();
    assert_eq!(turn.stand_in.calls(), vec![launch_line(stream, "4:2,1,1", &map_bytes()); 5]);
    assert_eq!((plan.tensor_maps(), kernel.plans()), (1, 1));
}

#[test]
fn maps_of_pixels_have_corners() {
    let turn = Turn::new();
    let mut recipe = recipe();
    let map = &mut recipe.maps[0];
    // An image of 3 × 32 pixels of 16 channels.
    map.tensor_extents = [16, 32, 3, 1].map(Formula::int).to_vec();
    map.tensor_strides = [16, 512, 1536].map(Formula::int).to_vec();
    (map.extents, map.steps) = (vec![32, 100], vec![1, 2, 1, 1]);
    map.corners = Some(Corners { lower: vec![-1, 0], upper: vec![-1, -2] });
    let (plan, stream) = (turn.load(&recipe).plan(&SHAPE).unwrap(), turn.stream());
    let (x, mut y) = (view(0x1000, &SHAPE), view_mut(0x2000, &SHAPE));
    turn.stand_in.calls();
    plan.launch(stream, (&x, &mut y, 2.0f32)).unwrap();
    let calls = turn.stand_in.calls();
    assert_eq!(
        calls[0],
        "cuTensorMapEncodeIm2col type=7 pointer=0x2000 extents=16,32,3,1 strides=64,2048,6144 lower=-1,0 upper=-1,-2 channels=32 \
         pixels=100 steps=1,2,1,1 interleave=0 swizzle=3 l2=2 fill=0"
    );
    let map = calls[1].rsplit(' ').next().unwrap();
    let word = |at: usize, value: u64| {
        let bytes: String = value.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(map.get(16 * at..16 * at + 16), Some(&*bytes), "word {at} of {map}");
    };
    word(0, 7 | 4 << 8 | 3 << 16 | 2 << 24 | 1 << 32);
    word(12, 32 | 100 << 32);
    word(13, u64::from(u32::MAX) | u64::from(u32::MAX) << 32);
    word(14, u64::from(-2i32 as u32) << 32);
}

#[test]
fn a_dependent_launch_has_the_attribute_where_the_kernel_waits() {
    let turn = Turn::new();
    let stream = turn.stream();
    let (x, mut y) = (view(0x1000, &SHAPE), view_mut(0x2000, &SHAPE));
    for (waits, cluster, attributes) in
        [(true, 2, "4:2,1,1 6:1"), (false, 2, "4:2,1,1"), (true, 1, "6:1"), (false, 1, "")]
    {
        let mut recipe = recipe();
        (recipe.waits, recipe.cluster) = (waits, cluster);
        let plan = turn.load(&recipe).plan(&SHAPE).unwrap();
        let options = LaunchOptions::new().dependent(true);
        plan.launch_with(stream, (&x, &mut y, 2.0f32), &options).unwrap();
        assert_eq!(turn.stand_in.calls().pop().unwrap(), launch_line(stream, attributes, &map_bytes()));
    }
}

#[test]
fn any_stream_is_taken_as_it_is() {
    let turn = Turn::new();
    let plan = turn.kernel().plan(&SHAPE).unwrap();
    let (x, mut y) = (view(0x1000, &SHAPE), view_mut(0x2000, &SHAPE));
    let null = unsafe { Stream::borrow(std::ptr::null_mut()) };
    for (stream, handle) in [(null, 0), (Stream::legacy(), 1), (Stream::per_thread(), 2)] {
        assert_eq!(stream.raw().addr(), handle);
        plan.launch(stream, (&x, &mut y, 2.0f32)).unwrap();
        assert_eq!(turn.stand_in.calls().pop().unwrap(), launch_line(stream, "4:2,1,1", &map_bytes()));
    }
}

#[test]
fn code_is_loaded_for_all_contexts_and_asked_for_in_each() {
    let turn = Turn::new();
    let kernel = turn.kernel();
    let calls = turn.stand_in.calls();
    let loading: Vec<&str> = calls
        .iter()
        .map(String::as_str)
        .filter(|c| c.contains("Library") || c.contains("cuKernel"))
        .collect();
    assert_eq!(
        loading,
        ["cuLibraryLoadData options=2", "cuLibraryGetKernel scale", "cuKernelGetFunction device=0"]
    );
    // The kernel's shared memory is more than a function has without asking.
    assert!(calls.contains(&"cuFuncSetAttribute 8 65536".to_string()), "{calls:?}");
    // No context was made, retained or changed.
    assert!(!calls.iter().any(|call| call.contains("Retain") || call.contains("SetCurrent")), "{calls:?}");

    let other = Gpu::primary_of(turn.driver, 1).unwrap();
    let there = kernel.on(&other).unwrap();
    let calls = turn.stand_in.calls();
    assert!(calls.contains(&"cuKernelGetFunction device=1".to_string()), "{calls:?}");
    assert!(!calls.iter().any(|call| call.contains("LibraryLoad")), "{calls:?}");
    // The first is current again.
    assert_eq!(turn.gpu().device(), 0);
    let functions = [&kernel, &there].map(|kernel| kernel.module().function());
    assert_ne!(functions[0], functions[1]);
    // Each launches its own function; to make its context current is the caller's part.
    other.bind().unwrap();
    let (x, mut y) = (view(0x1000, &SHAPE), view_mut(0x2000, &SHAPE));
    there.launch(turn.stream(), &SHAPE, (&x, &mut y, 2.0f32)).unwrap();
    drop((there, other));
    let calls = turn.stand_in.calls();
    assert!(calls.contains(&"cuDevicePrimaryCtxRelease_v2 1".to_string()), "{calls:?}");
    assert!(!calls.iter().any(|call| call.contains("Unload")), "nothing is unloaded: {calls:?}");
}

#[test]
fn the_whole_log_is_of_one_context() {
    let turn = Turn::new();
    // SAFETY: the stand-in runs no code.
    let module = unsafe { Module::load(&turn.gpu(), &recipe(), Code::Ptx(PTX), Log::Full) }.unwrap();
    let calls = turn.stand_in.calls();
    assert!(calls.contains(&"cuModuleLoadDataEx options=4".to_string()), "{calls:?}");
    assert_eq!((module.registers(), module.log()), (40, ""));
    let kernel = Kernel::new(&module, recipe().into()).unwrap();
    // On another GPU it is loaded again.
    kernel.on(&Gpu::primary_of(turn.driver, 1).unwrap()).unwrap();
    assert!(turn.stand_in.calls().contains(&"cuModuleLoadDataEx options=0".to_string()));
    // SAFETY: nothing uses it.
    unsafe { module.unload() };
    assert!(turn.stand_in.calls().contains(&"cuModuleUnload".to_string()));
}

#[test]
fn parts_of_the_workspace_are_no_arguments() {
    let turn = Turn::new();
    let mut recipe = recipe();
    recipe.tensor_mut("y").unwrap().workspace = true;
    assert!(recipe.tensor_mut("z").is_none() && recipe.tensor_mut("factor").is_none());
    let plan = turn.load(&recipe).plan(&SHAPE).unwrap();
    assert_eq!(plan.workspace_bytes(), 3 * 512 * 4);
    let x = view(0x1000, &SHAPE);
    let mut workspace = unsafe { Workspace::new(0x2000, plan.workspace_bytes()) };
    let stream = turn.stream();
    let options = LaunchOptions::new().workspace(&mut workspace);
    plan.launch_with(stream, (&x, 2.0f32), &options).unwrap();
    assert_eq!(turn.stand_in.calls().pop().unwrap(), launch_line(stream, "4:2,1,1", &map_bytes()));
    let error = plan.launch(stream, (&x, 2.0f32)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel `scale` needs a workspace of 6144 bytes at a multiple of 256 at these sizes; 0 are given"
    );
    let mut odd = unsafe { Workspace::new(0x2010, 1 << 20) };
    let options = LaunchOptions::new().workspace(&mut odd);
    assert!(plan.launch_with(stream, (&x, 2.0f32), &options).is_err());
}

#[test]
fn an_array_of_tensors_is_a_table_of_addresses_and_maps() {
    let turn = Turn::new();
    let mut recipe = recipe();
    // Three tensors of 512 elements.
    let y = recipe.tensor_mut("y").unwrap();
    y.array = true;
    let one = recipe.maps[0].tensor_extents[0].clone();
    recipe.maps[0] = tilewright_launch::Map::new(1, DType::F32, vec![32], vec![one], vec![]);
    let ptx = PTX.replace(".align 64 .b8 scale_param_5[128]", ".u64 scale_param_5");
    let kernel = unsafe { turn.gpu().load(&recipe, Code::Ptx(&ptx)) }.unwrap();
    let plan = kernel.plan(&SHAPE).unwrap();
    let table = plan.table(1, &[0x3000, 0x4000, 0x5000]).unwrap();
    // The addresses, then the maps at a multiple of 128 bytes.
    assert_eq!(table.len(), 128 + 3 * 128);
    let word = |at: usize| u64::from_le_bytes(table[at..at + 8].try_into().unwrap());
    assert_eq!([word(0), word(8), word(16), word(24)], [0x3000, 0x4000, 0x5000, 0]);
    assert_eq!([word(128 + 8), word(256 + 8), word(384 + 8)], [0x3000, 0x4000, 0x5000]);
    let x = view(0x1000, &SHAPE);
    let stream = turn.stream();
    plan.launch(stream, (&x, unsafe { Arg::table(0x2000) }, 2.0f32)).unwrap();
    // The maps follow the addresses.
    let line = launch_line(stream, "4:2,1,1", "8020000000000000");
    assert_eq!(turn.stand_in.calls().pop().unwrap(), line);
    // With a shape, which is compared; the tensors lie anywhere, whatever the first stride.
    let array = |shape: &[i64]| unsafe { TensorArray::new(0x2000, DType::F32, shape) }.writable();
    let shape = plan.tensor(1).unwrap().0.to_vec();
    plan.launch(stream, (&x, &array(&shape), 2.0f32)).unwrap();
    assert_eq!(turn.stand_in.calls().pop().unwrap(), line);
    let mut apart: Vec<i64> = plan.tensor(1).unwrap().1.to_vec();
    apart[0] += 64;
    plan.launch(stream, (&x, &unsafe { array(&shape).with_strides(&apart) }, 2.0f32)).unwrap();
    assert_eq!(turn.stand_in.calls().pop().unwrap(), line);
    let [mut more, mut further] = [shape.clone(), apart];
    more[0] += 1;
    further[1] += 1;
    let refused = |array: &TensorArray<'_>| plan.launch(stream, (&x, array, 2.0f32)).unwrap_err().to_string();
    let unwritable = unsafe { TensorArray::new(0x2000, DType::F32, &shape) };
    assert!(refused(&unwritable).contains("writes `y`"), "{}", refused(&unwritable));
    assert!(refused(&array(&more)).contains("`y` of kernel `scale` "), "{}", refused(&array(&more)));
    assert!(refused(&unsafe { array(&shape).with_strides(&further) }).contains("`y` of kernel `scale` "));
    assert_eq!(
        plan.launch(stream, (&array(&shape), unsafe { Arg::table(0x2000) }, 2.0f32)).unwrap_err().to_string(),
        "parameter `x` of kernel `scale` is a tensor; an array of tensors is given"
    );
    // A chain of such kernels has one table for all of them.
    let chain = Chain::new([plan.clone(), plan.clone()]).unwrap();
    assert_eq!(chain.table("y", &[0x3000, 0x4000, 0x5000]).unwrap(), table);
    assert_eq!(
        chain.table("z", &[]).unwrap_err().to_string(),
        "parameter `z` of kernel `scale` is no parameter; an array of tensors is given"
    );
    turn.stand_in.calls();

    for (given, text) in [
        (&[0x3000, 0x4000][..], "`y` of kernel `scale` is an array of 3 tensors at these sizes; 2 are given"),
        (
            &[0x3000, 0x4000, 0x3000],
            "kernel `scale` writes the tensors of `y`, of which numbers 0 and 2 are at the same address: each needs its own",
        ),
        (
            &[0x3000, 0x4000, 0x5008],
            "`y` of kernel `scale` begins at a multiple of 16 bytes; the tensor is at 0x5008",
        ),
    ] {
        assert_eq!(plan.table(1, given).unwrap_err().to_string(), text);
    }
    assert!(plan.table(0, &[0x3000]).is_err() && plan.table(7, &[]).is_err());
    let odd = plan.launch(stream, (&x, unsafe { Arg::table(0x2040) }, 2.0f32)).unwrap_err();
    assert!(odd.to_string().contains("begins at a multiple of 128 bytes"), "{odd}");
}

#[test]
fn strides_of_modes_of_one_element_do_not_matter() {
    let turn = Turn::new();
    let mut recipe = recipe();
    recipe.maps.clear();
    recipe.passed.pop();
    let ParamKind::Tensor(x) = &recipe.params[0].kind else { panic!("a tensor") };
    assert_eq!(x.alignment, 16);
    let plain = PTX.replace(", // n\n    .param .align 64 .b8 scale_param_5[128] // y", " // n");
    let kernel = unsafe { turn.gpu().load(&recipe, Code::Ptx(&plain)) }.unwrap();
    let plan = kernel.plan(&[1, 256]).unwrap();
    let x = unsafe { View::new(0x1000, DType::F32, &[1, 256]).with_strides(&[999, 1]) };
    let mut y = view_mut(0x2000, &[1, 256]);
    plan.launch(turn.stream(), (&x, &mut y, 2.0f32)).unwrap();
}

#[test]
fn without_attributes_in_the_driver_a_launch_is_the_plain_call() {
    let folder = std::env::temp_dir().join(format!("tilewright-old-driver-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path =
        tilewright_stand_in_driver::StandIn::without(&folder, &["cuLaunchKernelEx", "cuLibraryLoadData"]);
    let stand_in = tilewright_stand_in_driver::StandIn::at(&path);
    let driver = unsafe { tilewright_launch::Driver::open(&path) }.unwrap();
    stand_in.make_current(0);
    let gpu = Gpu::current_of(driver).unwrap();
    let mut recipe = recipe();
    // Kernels with clusters, maps or waits are refused.
    let error = unsafe { gpu.load(&recipe, Code::Ptx(PTX)) }.unwrap_err();
    assert_eq!(
        error.to_string(),
        "CUDA is not available: the installed CUDA driver is too old: it has no cuLaunchKernelEx"
    );
    recipe.maps.clear();
    recipe.passed.pop();
    (recipe.cluster, recipe.waits) = (1, false);
    stand_in.calls();
    let plain = PTX.replace(", // n\n    .param .align 64 .b8 scale_param_5[128] // y", " // n");
    let kernel = unsafe { gpu.load(&recipe, Code::Ptx(&plain)) }.unwrap();
    assert!(stand_in.calls().contains(&"cuModuleLoadDataEx options=4".to_string()));
    let (x, mut y) = (view(0x1000, &SHAPE), view_mut(0x2000, &SHAPE));
    kernel.launch(Stream::legacy(), &SHAPE, (&x, &mut y, 2.0f32)).unwrap();
    assert_eq!(
        stand_in.calls().pop().unwrap(),
        "cuLaunchKernel grid=4,3,1 block=128,1,1 shared=65536 stream=0x1 function=scale params=[0010000000000000 0020000000000000 \
         00000040 03000000 00020000]"
    );
    let error = kernel.on(&Turn::new().gpu()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the code of `scale` was loaded by another driver library than that of Stand-in GPU"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_an_engine_keeps_goes_to_any_thread() {
    fn keeps<T: Send + Sync + 'static>() {}
    keeps::<Gpu>();
    keeps::<Kernel>();
    keeps::<tilewright_launch::Plan>();
    keeps::<tilewright_launch::Prepared>();
    keeps::<tilewright_launch::Recipe>();
    keeps::<tilewright_launch::LaunchError>();
    keeps::<Stream<'static>>();
    keeps::<View<'static>>();
}
