//! Everything that is refused, with its words.
#![allow(unsafe_code, reason = "views and streams are of memory and handles that the tests own")]

mod common;

use common::{PTX, Turn, formula, recipe, view, view_mut};
use tilewright_launch::{
    Arg, Bound, Code, Corners, DType, Driver, Formula, Gpu, Item, LaunchError, LaunchOptions, Map, Op,
    Passed, Raw, RecipeError, Target, TensorArray, View,
};
use tilewright_stand_in_driver::StandIn;

const SHAPE: [i64; 2] = [3, 512];

fn text<T: std::fmt::Debug>(result: Result<T, LaunchError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn sizes_that_the_kernel_does_not_take() {
    let turn = Turn::new();
    let kernel = turn.kernel();
    for (sizes, expected) in [
        (&[3][..], "kernel `scale` takes 2 sizes (m, n); 1 are given"),
        (&[0, 512], "size `m` of kernel `scale` is 0; it must be from 1 to 1073741824"),
        (&[1 << 31, 512], "size `m` of kernel `scale` is 2147483648; it must be from 1 to 1073741824"),
        (&[3, 510], "kernel `scale` is compiled for multiples of 4 as size `n`; 510 is none"),
        (
            &[3, 128],
            "the grid of kernel `scale` has 1 blocks along x at these sizes, and its clusters have 2",
        ),
        (
            &[70000, 512],
            "the grid's y extent of kernel `scale` is 70000 at these sizes; it must be from 1 to 65535",
        ),
        (
            &[60000, 1 << 20],
            "kernel `scale`: an extent of `x` can reach 62914560000 at these sizes: the integers of a kernel have 32 bits",
        ),
    ] {
        assert_eq!(text(kernel.plan(sizes)), expected);
    }
    // None of them is kept, and none asked the driver.
    assert_eq!(kernel.plans(), 0);
    let named = kernel.recipe();
    assert_eq!(named.values(&[("n", 512)]), Some(vec![4, 512]));
    assert_eq!(named.values(&[("k", 512)]), None);
}

#[test]
fn bounds_with_ranges_and_conditions() {
    let turn = Turn::new();
    let mut recipe = recipe();
    let (m, counter) = (Item::Size(0), Item::Counter(0));
    let fits = |items: &[Item]| Bound::Fits { what: "an offset".into(), formula: formula(items), reach: 0 };
    recipe.bounds = vec![
        Bound::Range {
            what: "a bound of the loop over `i`".into(),
            counter: 0,
            least: Formula::int(4),
            most: formula(&[m]),
            beyond: -1,
            body: 2,
        },
        Bound::When {
            what: "the condition of a branch".into(),
            condition: formula(&[counter, Item::Int(1000), Item::Op(Op::Ge)]),
            body: 1,
        },
        fits(&[counter, Item::Int(1 << 22), Item::Op(Op::Mul)]),
        fits(&[Item::Int(i64::from(i32::MAX)), m, Item::Op(Op::Add)]),
    ];
    let kernel = turn.load(&recipe);
    // The loop is empty, or its body has no such branch: the last one is what fails.
    for m in [1, 4, 5, 999, 1000] {
        let value = i64::from(i32::MAX) + m;
        assert!(text(kernel.plan(&[m, 512])).contains(&format!("an offset can reach {value} ")), "{m}");
    }
    let value = 1000i64 << 22;
    assert!(text(kernel.plan(&[1001, 512])).contains(&format!("an offset can reach {value} ")));
    recipe.bounds[3] = fits(&[Item::Counter(1)]);
    let error = text(turn.load(&recipe).plan(&[4, 512]));
    assert_eq!(
        error,
        "an offset of kernel `scale` has no value at these sizes: it divides by zero or overflows"
    );
}

#[test]
fn arguments_that_do_not_fit() {
    let turn = Turn::new();
    let plan = turn.kernel().plan(&SHAPE).unwrap();
    let stream = turn.stream();
    let (x, mut y) = (view(0x1000, &SHAPE), view_mut(0x2000, &SHAPE));
    turn.stand_in.calls();
    let half = unsafe { View::new(0x1000, DType::F16, &SHAPE) };
    let (wide, flat, odd) = (view(0x1000, &[3, 516]), view(0x1000, &[1536]), view(0x1008, &SHAPE));
    let strided = unsafe { View::new(0x1000, DType::F32, &SHAPE).with_strides(&[1024, 1]) };
    let one_stride = unsafe { View::new(0x1000, DType::F32, &SHAPE).with_strides(&[1]) };
    let deep = view(0x1000, &[1; 12]);
    for (error, expected) in [
        (plan.launch(stream, (&x, &mut y)), "kernel `scale` takes 3 arguments (x, y, factor); 2 are given"),
        (
            plan.launch(stream, (&x, 1.0f32, 2.0f32)),
            "parameter `y` of kernel `scale` is a tensor; an f32 is given",
        ),
        (
            plan.launch(stream, (&x, &mut y, 2i32)),
            "parameter `factor` of kernel `scale` is an f32; an i32 is given",
        ),
        (
            plan.launch(stream, (&x, &mut y, &x)),
            "parameter `factor` of kernel `scale` is an f32; a view is given",
        ),
        (
            plan.launch(stream, (&x, &y, 2.0f32)),
            "kernel `scale` writes `y`: give it a `&mut ViewMut`, or an array of tensors that is `writable`",
        ),
        (
            plan.launch(stream, (&half, &mut y, 2.0f32)),
            "`x` of kernel `scale` has elements of type f32; the tensor has f16",
        ),
        (
            plan.launch(stream, (&wide, &mut y, 2.0f32)),
            "`x` of kernel `scale` has shape [3, 512] at these sizes; the tensor has [3, 516]",
        ),
        (
            plan.launch(stream, (&flat, &mut y, 2.0f32)),
            "`x` of kernel `scale` has shape [3, 512] at these sizes; the tensor has [1536]",
        ),
        (
            plan.launch(stream, (&deep, &mut y, 2.0f32)),
            "`x` of kernel `scale` has shape [3, 512] at these sizes; the tensor has [1, 1, 1, 1, 1, 1, 1, 1]",
        ),
        (
            plan.launch(stream, (&strided, &mut y, 2.0f32)),
            "`x` of kernel `scale` has strides [512, 1] at these sizes; the tensor has [1024, 1]",
        ),
        (
            plan.launch(stream, (&odd, &mut y, 2.0f32)),
            "`x` of kernel `scale` begins at a multiple of 16 bytes; the tensor is at 0x1008",
        ),
    ] {
        assert_eq!(text(error), expected);
    }
    assert!(plan.launch(stream, (&one_stride, &mut y, 2.0f32)).is_err());
    for raw in [
        &[Raw::Ptr(1)][..],
        &[Raw::Ptr(0), Raw::F32(0.0), Raw::F32(0.0)],
        &[Raw::Ptr(0), Raw::Ptr(0), Raw::I32(0)],
    ] {
        // SAFETY: nothing runs.
        assert!(unsafe { plan.launch_raw(stream, raw, &LaunchOptions::new()) }.is_err());
    }
    assert_eq!(turn.stand_in.calls(), [""; 0], "nothing reached the driver");
}

#[test]
fn modes_that_do_not_lie_as_one() {
    let of = |shape: &[i64], strides: &[i64]| {
        // SAFETY: nothing runs.
        unsafe { View::new(0x1000, DType::F32, shape).with_strides(strides) }
    };
    let folded = |view: &View<'_>, extents: &[i64]| {
        let joined = Arg::from(view).folded(extents)?;
        let arg = Arg::from(&joined);
        assert_eq!(arg.word(), (1, 0x1000));
        let (dtype, shape, strides) = arg.tensor().unwrap();
        assert_eq!((dtype, shape), (DType::F32, extents));
        Some(strides.to_vec())
    };
    let rows = of(&[4, 6, 8], &[48, 8, 1]);
    for (extents, strides) in
        [(&[4, 6, 8][..], &[48, 8, 1][..]), (&[24, 8], &[8, 1]), (&[4, 48], &[48, 1]), (&[192], &[1])]
    {
        assert_eq!(folded(&rows, extents).as_deref(), Some(strides), "{extents:?}");
    }
    // No runs of neighbours have these extents; some are left; there are too few, or too many.
    for extents in [&[12, 16][..], &[8, 24], &[4, 6], &[24], &[4, 6, 8, 1], &[0, 8], &[]] {
        assert_eq!(folded(&rows, extents), None, "{extents:?}");
    }
    // Rows with a gap behind each six, columns apart, and modes in another order.
    let gap = of(&[4, 6, 8], &[96, 8, 1]);
    assert_eq!(folded(&gap, &[4, 48]), Some(vec![96, 1]));
    assert_eq!([folded(&gap, &[24, 8]), folded(&gap, &[192])], [None, None]);
    let apart = of(&[4, 6, 8], &[96, 16, 2]);
    assert_eq!(folded(&apart, &[192]), Some(vec![2]));
    assert_eq!(folded(&of(&[6, 4, 8], &[8, 48, 1]), &[24, 8]), None);
    // A mode of one element has any stride.
    let ones = of(&[1, 4, 1, 6, 1], &[7, 6, 99, 1, 5]);
    assert_eq!(folded(&ones, &[24]), Some(vec![1]));
    assert_eq!(folded(&ones, &[4, 6]), Some(vec![6, 1]));
    // Extents that have no product.
    assert_eq!(folded(&of(&[i64::MAX, 2], &[2, 1]), &[i64::MAX - 1]), None);
    assert_eq!(folded(&of(&[2, i64::MAX], &[i64::MAX, 3]), &[-2]), None);
    // What is written stays so; tables and numbers have no modes.
    let mut written = view_mut(0x2000, &[4, 6]);
    let joined = Arg::from(&mut written).folded(&[24]).unwrap();
    assert_eq!(Arg::from(&joined).word(), (2, 0x2000));
    // SAFETY: nothing runs.
    let (array, table) = unsafe { (TensorArray::new(0x3000, DType::F32, &[2, 4, 6]), Arg::table(0x3000)) };
    for arg in [Arg::from(&array), table, Arg::from(1.0f32), Arg::from(24i32)] {
        assert!(arg.folded(&[48]).is_none() && arg.joined().is_none(), "{arg:?}");
    }
}

#[test]
fn memory_that_is_constant_and_written() {
    let turn = Turn::new();
    let mut recipe = recipe();
    recipe.tensor_mut("x").unwrap().constant = true;
    let plan = turn.load(&recipe).plan(&SHAPE).unwrap();
    let (x, mut y) = (view(0x2000, &SHAPE), view_mut(0x2000, &SHAPE));
    assert_eq!(
        text(plan.launch(turn.stream(), (&x, &mut y, 2.0f32))),
        "`x` of kernel `scale` is constant, and the kernel writes the same memory as `y`"
    );
}

#[test]
fn integers_of_a_launch_are_checked_as_sizes_are() {
    let turn = Turn::new();
    let mut recipe = recipe();
    recipe.params[2].kind = tilewright_launch::ParamKind::Scalar(tilewright_launch::Scalar::I32);
    let formula = formula(&[Item::Scalar(2), Item::Size(1), Item::Op(Op::Mul)]);
    recipe.bounds = vec![Bound::Fits { what: "an offset of `x`".into(), formula, reach: 0 }];
    let plan = turn.load(&recipe).plan(&SHAPE).unwrap();
    let (x, mut y) = (view(0x1000, &SHAPE), view_mut(0x2000, &SHAPE));
    for value in [0, 7, -7, 7] {
        plan.launch(turn.stream(), (&x, &mut y, value)).unwrap();
    }
    assert_eq!(
        text(plan.launch(turn.stream(), (&x, &mut y, i32::MIN))),
        "kernel `scale`: an offset of `x` can reach -1099511627776 at these sizes: the integers of a kernel have 32 bits"
    );
}

#[test]
fn during_a_capture_only_what_is_ready_is_launched() {
    let turn = Turn::new();
    let (kernel, captured) = (turn.kernel(), turn.captured());
    let (x, mut y) = (view(0x1000, &SHAPE), view_mut(0x2000, &SHAPE));
    turn.stand_in.calls();
    let error = kernel.launch(captured, &SHAPE, (&x, &mut y, 2.0f32)).unwrap_err();
    assert!(matches!(&error, LaunchError::NotReady { kernel } if kernel == "scale"));
    assert_eq!(
        error.to_string(),
        "kernel `scale` is not ready for these sizes, and the stream is being captured: make the plan before the capture (`Kernel::plan`)"
    );
    assert_eq!(turn.stand_in.calls(), [format!("cuStreamIsCapturing {:#x}", captured.raw().addr())]);
    // Not captured, the plan is made; then it is there for captures, for any address: a map is encoded on the host.
    kernel.launch(turn.stream(), &SHAPE, (&x, &mut y, 2.0f32)).unwrap();
    let mut other = view_mut(0x9000, &SHAPE);
    turn.stand_in.calls();
    kernel.launch(captured, &SHAPE, (&x, &mut y, 2.0f32)).unwrap();
    kernel.launch(captured, &SHAPE, (&x, &mut other, 2.0f32)).unwrap();
    let calls = turn.stand_in.calls();
    let names: Vec<&str> = calls.iter().map(|call| call.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["cuLaunchKernelEx", "cuTensorMapEncodeTiled", "cuLaunchKernelEx"]);
    // The legacy stream cannot even be asked while another one is captured.
    turn.stand_in.set("fail cuStreamIsCapturing", 906);
    let error = kernel.launch(tilewright_launch::Stream::legacy(), &[4, 512], (&x, &mut y, 2.0f32));
    turn.stand_in.set("fail cuStreamIsCapturing", 0);
    assert!(matches!(error, Err(LaunchError::NotReady { .. })));
}

#[test]
fn gpus_that_do_not_run_the_kernel() {
    let turn = Turn::new();
    turn.stand_in.set("capability", 80);
    // SAFETY: the stand-in runs no code, here and below.
    let load = |recipe| text(unsafe { turn.gpu().load(&recipe, Code::Ptx(PTX)) });
    assert_eq!(
        load(recipe()),
        "kernel `scale` is compiled for sm_90a, which Stand-in GPU (compute capability 8.0) cannot run"
    );
    turn.stand_in.set("capability", 100);
    assert!(load(recipe()).contains("(compute capability 10.0) cannot run"), "of one capability alone");
    let any = Target { name: "sm_80".into(), capability: (8, 0), specific: false };
    assert!(any.runs_on((8, 9)) && any.runs_on((10, 0)) && !any.runs_on((7, 5)));
    turn.stand_in.set("capability", 90);
    let mut waiting = recipe();
    waiting.resident = true;
    let kernel = turn.load(&waiting);
    // Two clusters of two blocks at once; the grid at these sizes has twelve blocks.
    assert_eq!(kernel.resident_blocks().unwrap(), 4);
    assert_eq!(
        text(kernel.plan(&SHAPE)),
        "kernel `scale` has 12 blocks that wait for each other, and this GPU holds 4 at once; choose a smaller grid"
    );
    assert!(kernel.plan(&[2, 256]).is_ok());
}

#[test]
fn code_that_the_driver_does_not_take() {
    let turn = Turn::new();
    let gpu = turn.gpu();
    // SAFETY: as above.
    let load = |code| text(unsafe { gpu.load(&recipe(), code) });
    assert_eq!(
        load(Code::Ptx("no code")),
        "the driver rejects the code of kernel `scale`: CUDA_ERROR_INVALID_PTX\nptxas fatal   : no entry point"
    );
    assert_eq!(
        load(Code::Ptx(".visible .entry other() { ret; }")),
        "the driver rejects the code of kernel `scale`: CUDA_ERROR_NOT_FOUND\nnamed symbol not found"
    );
    assert!(load(Code::Ptx("a\0b")).contains("the text has a NUL character"));
    assert!(load(Code::Binary(b"no ELF")).contains("it does not begin as an ELF file does"));
    // SAFETY: as above.
    assert!(unsafe { gpu.load(&recipe(), Code::Binary(b"\x7fELF and more")) }.is_ok());
}

#[test]
fn recipes_that_no_launch_can_follow() {
    let broken = |change: &dyn Fn(&mut tilewright_launch::Recipe)| {
        let mut recipe = recipe();
        change(&mut recipe);
        recipe.check().unwrap_err()
    };
    assert_eq!(recipe().check(), Ok(()));
    assert!(matches!(broken(&|r| r.threads = 0), RecipeError::Limit { value: 0, least: 1, most: 1024, .. }));
    assert!(matches!(broken(&|r| r.cluster = 17), RecipeError::Limit { .. }));
    assert!(matches!(broken(&|r| r.shared_bytes = 1 << 20), RecipeError::Limit { .. }));
    assert!(matches!(broken(&|r| r.grid.clear()), RecipeError::Limit { .. }));
    assert!(matches!(broken(&|r| r.entry.clear()), RecipeError::Entry));
    assert!(matches!(broken(&|r| r.sizes.truncate(1)), RecipeError::Reference { of: "size", number: 1, .. }));
    assert!(matches!(broken(&|r| r.sizes[0].multiple = 0), RecipeError::Limit { .. }));
    assert!(matches!(broken(&|r| r.passed.push(Passed::Map(1))), RecipeError::Reference { .. }));
    assert!(matches!(broken(&|r| r.passed.push(Passed::Tensor(2))), RecipeError::Reference { .. }));
    assert!(matches!(broken(&|r| r.passed.push(Passed::Scalar(0))), RecipeError::Reference { .. }));
    assert!(matches!(broken(&|r| r.passed.push(Passed::Records)), RecipeError::Reference { .. }));
    assert!(matches!(broken(&|r| r.passed = vec![Passed::Size(0); 65]), RecipeError::Limit { .. }));
    assert!(matches!(broken(&|r| r.maps[0].param = 2), RecipeError::Reference { .. }));
    assert!(matches!(broken(&|r| r.maps[0].dtype = DType::U4), RecipeError::MapType { .. }));
    assert!(matches!(broken(&|r| r.maps[0].extents[0] = 512), RecipeError::Limit { .. }));
    assert!(matches!(broken(&|r| r.maps[0].steps.clear()), RecipeError::Length { .. }));
    assert!(matches!(broken(&|r| drop(r.maps[0].tensor_strides.pop())), RecipeError::Length { .. }));
    // In im2col mode: a tensor of three to five dimensions, corners of as many bits as are left for each, channels and pixels.
    let pixels = |change: &dyn Fn(&mut Map)| {
        let mut changed = recipe();
        let map = &mut changed.maps[0];
        (map.extents, map.steps) = (vec![32, 1024], vec![1, 2, 1]);
        map.tensor_extents = vec![Formula::int(32); 3];
        map.tensor_strides = vec![Formula::int(32); 2];
        map.corners = Some(Corners { lower: vec![-1], upper: vec![-1] });
        change(map);
        changed.check()
    };
    let corner = |map: &mut Map, at: i32| map.corners.as_mut().unwrap().upper[0] = at;
    let missing = |map: &mut Map| map.corners.as_mut().unwrap().lower.clear();
    assert_eq!(pixels(&|map| corner(map, 32_767)), Ok(()));
    assert!(matches!(pixels(&|map| corner(map, 32_768)), Err(RecipeError::Limit { value: 32_768, .. })));
    assert!(matches!(pixels(&|map| map.extents[1] = 1025), Err(RecipeError::Limit { value: 1025, .. })));
    assert!(matches!(pixels(&|map| map.extents.push(1)), Err(RecipeError::Length { expected: 2, .. })));
    assert!(matches!(
        pixels(&|map| map.steps.truncate(2)),
        Err(RecipeError::Limit { value: 2, least: 3, .. })
    ));
    assert!(matches!(pixels(&missing), Err(RecipeError::Length { given: 0, expected: 1, .. })));
    assert!(matches!(broken(&|r| r.tensor_mut("x").unwrap().alignment = 24), RecipeError::Limit { .. }));
    assert!(matches!(
        broken(&|r| drop(r.tensor_mut("x").unwrap().strides.pop())),
        RecipeError::Length { .. }
    ));
    let items = [Item::Block(0), Item::Counter(0), Item::Scalar(2)];
    for item in items {
        assert!(matches!(broken(&|r| r.grid[0] = formula(&[item])), RecipeError::Reference { .. }));
    }
    assert!(matches!(
        broken(&|r| r.bounds.push(Bound::When { what: "c".into(), condition: Formula::int(1), body: 1 })),
        RecipeError::Limit { .. }
    ));
    let turn = Turn::new();
    let mut wrong = recipe();
    wrong.threads = 2000;
    // SAFETY: as above.
    assert_eq!(
        text(unsafe { turn.gpu().load(&wrong, Code::Ptx(PTX)) }),
        "kernel `scale` cannot be launched: the number of threads is 2000; it is from 1 to 1024"
    );
}

#[test]
fn tensor_maps_that_tensors_do_not_fit() {
    let turn = Turn::new();
    let mut recipe = recipe();
    recipe.sizes[1].multiple = 1;
    recipe.bounds.clear();
    let kernel = turn.load(&recipe);
    assert_eq!(
        text(kernel.plan(&[3, 510])),
        "`y` of kernel `scale` is copied by tensor maps, whose strides are multiples of 4 elements (16 bytes); one is 510 at these sizes"
    );
    // The map reaches further than the tensor.
    recipe.maps[0].tensor_extents[1] = formula(&[Item::Size(0), Item::Int(1), Item::Op(Op::Add)]);
    assert_eq!(
        text(turn.load(&recipe).plan(&SHAPE)),
        "the number of bytes that the tensor map of `y` reaches of kernel `scale` is 8192 at these sizes; it must be from 1 to 6144"
    );
}

#[test]
fn records_need_a_buffer() {
    let turn = Turn::new();
    let mut recipe = recipe();
    recipe.maps.clear();
    recipe.passed.pop();
    recipe.records = Some(4096);
    recipe.passed.push(Passed::Records);
    let ptx = PTX.replace(".align 64 .b8 scale_param_5[128]", ".u64 scale_param_5");
    // SAFETY: as above.
    let kernel = unsafe { turn.gpu().load(&recipe, Code::Ptx(&ptx)) }.unwrap();
    let plan = kernel.plan(&SHAPE).unwrap();
    let (x, mut y) = (view(0x1000, &SHAPE), view_mut(0x2000, &SHAPE));
    assert_eq!(
        text(plan.launch(turn.stream(), (&x, &mut y, 2.0f32))),
        "kernel `scale` records assertions and prints: give it a buffer of 4096 bytes, filled with zeros"
    );
    // SAFETY: as above.
    let options = unsafe { LaunchOptions::new().records(0x7000) };
    plan.launch_with(turn.stream(), (&x, &mut y, 2.0f32), &options).unwrap();
    assert!(turn.stand_in.calls().pop().unwrap().ends_with("03000000 00020000 0070000000000000]"));
}

#[test]
fn errors_of_the_driver_are_named() {
    let turn = Turn::new();
    let plan = turn.kernel().plan(&SHAPE).unwrap();
    let (x, mut y) = (view(0x1000, &SHAPE), view_mut(0x2000, &SHAPE));
    turn.stand_in.set("fail cuLaunchKernelEx", 400);
    let error = text(plan.launch(turn.stream(), (&x, &mut y, 2.0f32)));
    turn.stand_in.set("fail cuLaunchKernelEx", 0);
    assert_eq!(
        error,
        "the driver does not launch kernel `scale`: CUDA_ERROR_INVALID_HANDLE (invalid resource handle); the context of its GPU must be \
         current and the stream one of it, and an error of work that was launched before is reported here too"
    );
    let mut other = view_mut(0x3000, &SHAPE);
    turn.stand_in.set("fail cuTensorMapEncodeTiled", 1);
    let error = text(plan.launch(turn.stream(), (&x, &mut other, 2.0f32)));
    turn.stand_in.set("fail cuTensorMapEncodeTiled", 0);
    assert_eq!(error, "encoding the tensor map of `y`: CUDA_ERROR_INVALID_VALUE (invalid argument)");
    turn.stand_in.make_current(-1);
    assert!(text(Gpu::current_of(turn.driver)).starts_with("this thread has no current CUDA context"));
    assert_eq!(
        text(Gpu::primary_of(turn.driver, 2)),
        "there is no CUDA device 2; this machine has 2, numbered from 0"
    );
    turn.stand_in.set("fail cuCtxGetCurrent", 999);
    let error = text(Gpu::current_of(turn.driver));
    turn.stand_in.set("fail cuCtxGetCurrent", 0);
    assert_eq!(error, "asking for the current CUDA context: CUDA error 999 ()");
}

#[test]
fn drivers_that_are_absent_or_too_old() {
    // SAFETY: no library, or one without the functions.
    let absent = text(unsafe { Driver::open("/nowhere/libcuda.so.1") });
    assert!(
        absent.starts_with("CUDA is not available: the library /nowhere/libcuda.so.1 does not load: "),
        "{absent}"
    );
    let folder = std::env::temp_dir().join(format!("tilewright-older-driver-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = StandIn::without(&folder, &["cuStreamIsCapturing"]);
    // SAFETY: as above.
    let error = unsafe { Driver::open(&path) }.unwrap_err();
    assert!(matches!(error, LaunchError::DriverTooOld { symbol: "cuStreamIsCapturing" }));
    assert_eq!(
        error.to_string(),
        "CUDA is not available: the installed CUDA driver is too old: it has no cuStreamIsCapturing"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
