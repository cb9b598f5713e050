//! Launches with tensor maps and clusters, launches that depend on one another, and graphs. On the simulator, and on GPUs from compute
//! capability 9.0 on; what is refused needs no GPU.

mod common;

use common::{compiled, every_device, kernel_of, sizes};
use tilewright_compiler::{Kernel, MapRecipe};
use tilewright_machine::{
    Arch, BoxShape, DType, MbarrierOp, ScalarOp, SwizzleMode, SyncOp, TensorOp, tensor_row,
};
use tilewright_runtime::*;
use tilewright_simt::{
    Address, Builder, Function, FunctionParamKind, Inst, Op, Operand, OriginId, Special, TensorMap, Value,
};
use tilewright_tile::{Expr, ParamId};

/// `y = x`, 8×64 elements a block.
const MOVE: &str = "
size m = 16
size n = 64
kernel move(x: f16[m, n] : (n, 1), y: f16[m, n] : (n, 1)) grid(2 * ceil_div(m, 16), ceil_div(n, 64)) threads(128) {
    from = global_view(x[block.x * 8 :, block.y * 64 :], (8, 64) : (e0, e1))
    to = global_view(y[block.x * 8 :, block.y * 64 :], (8, 64) : (e0, e1))
    r = register_tensor(f16, [8, 64])
    copy(from, r)
    copy(r, to)
}
";

fn at(base: impl Into<Operand>, offset: i32) -> Address {
    Address { base: base.into(), offset }
}

fn value(operand: Operand) -> Value {
    let Operand::Value(value) = operand else { panic!("folded") };
    value
}

/// The program above by tensor copies. In clusters of two, each block loads its tile for both, and stores the tile that the other
/// has loaded: whatever is missing shows.
fn moved(cluster: u32) -> Function {
    let mut b = Builder::new("move", Arch::SM_90A, 128);
    b.set_cluster(cluster);
    b.add_param("x", FunctionParamKind::Pointer);
    b.add_param("y", FunctionParamKind::Pointer);
    b.add_param("m", FunctionParamKind::I32);
    b.add_param("n", FunctionParamKind::I32);
    let shape = BoxShape::dense(DType::F16, vec![64, 8], SwizzleMode::B128);
    let [from, to] =
        ["x", "y"].map(|name| b.add_tensor_map(TensorMap { name: name.to_string(), shape: shape.clone() }));
    b.add_shared("tiles", 2048, 1024);
    b.add_shared("full", 8, 8);
    let base = b.special(Special::SharedBase);
    let (row, column) = (b.special(Special::BlockIndex(0)), b.special(Special::BlockIndex(1)));
    let row = b.scalar(ScalarOp::MulI32, &[row.into(), Operand::Imm(8)]);
    let column = b.scalar(ScalarOp::MulI32, &[column.into(), Operand::Imm(64)]);
    let thread = b.special(Special::ThreadIndex);
    let warp = b.scalar(ScalarOp::ShrU32, &[thread.into(), Operand::Imm(5)]);
    let first = value(b.scalar(ScalarOp::EqI32, &[warp, Operand::Imm(0)]));
    let rank = if cluster > 1 { Operand::Value(b.special(Special::ClusterRank)) } else { Operand::Imm(0) };
    let full = at(base, 2048);
    let tensor = |op, map, coords: [Operand; 2], shared, barrier, multicast| Op::Tensor {
        row: tensor_row(op, 2).unwrap(),
        map,
        one: None,
        coords: coords.to_vec(),
        shared: at(shared, 0),
        barrier,
        multicast,
        even: false,
        hint: None,
    };
    b.open_branch();
    let elected = b.elect();
    b.open_branch();
    b.mbarrier(MbarrierOp::Init, full, Operand::Imm(1));
    b.sync(SyncOp::FenceMbarrierInit);
    b.close_branch(elected);
    b.close_branch(first);
    b.sync(if cluster > 1 { SyncOp::ClusterBarrier } else { SyncOp::Barrier });
    // Slot `rank` of every block gets the tile of block `rank`.
    let slot = b.scalar(ScalarOp::MulI32, &[rank, Operand::Imm(1024)]);
    let own = b.scalar(ScalarOp::AddI32, &[base.into(), slot]);
    b.open_branch();
    let elected = b.elect();
    b.open_branch();
    b.mbarrier(MbarrierOp::ArriveExpect, full, Operand::Imm(1024 * u64::from(cluster)));
    let mask = (cluster > 1).then_some(Operand::Imm((1 << cluster) - 1));
    b.bulk(tensor(TensorOp::Load, from, [column, row], own, Some(full), mask));
    b.mbarrier(MbarrierOp::Wait, full, Operand::Imm(0));
    let (place, target) = if cluster > 1 {
        // The tile of the other block, which is 8 rows away.
        let other = b.scalar(ScalarOp::XorB32, &[rank, Operand::Imm(1)]);
        let slot = b.scalar(ScalarOp::MulI32, &[other, Operand::Imm(1024)]);
        (
            b.scalar(ScalarOp::AddI32, &[base.into(), slot]),
            b.scalar(ScalarOp::XorB32, &[row, Operand::Imm(8)]),
        )
    } else {
        (own, row)
    };
    b.bulk(tensor(TensorOp::Store, to, [column, target], place, None, None));
    b.sync(SyncOp::BulkCommit);
    b.sync(SyncOp::BulkWait(0));
    b.close_branch(elected);
    b.close_branch(first);
    if cluster > 1 {
        b.sync(SyncOp::ClusterBarrier);
    }
    b.finish()
}

/// The program with the function above.
fn move_kernel(cluster: u32) -> Kernel {
    let program = compiled(MOVE);
    let size = |name: &str| {
        let (id, ..) = program.program().sizes().find(|(_, symbol, _)| symbol.name == name).unwrap();
        Expr::Symbol(id)
    };
    let (m, n) = (size("m"), size("n"));
    let recipe = |param| MapRecipe {
        param: ParamId(param),
        array: false,
        extents: vec![n.clone(), m.clone()],
        strides: vec![n.clone()],
    };
    let function = moved(cluster);
    tilewright_simt::verify(&function).unwrap();
    let mut kernel = program.with_function(function);
    kernel.maps = vec![recipe(0), recipe(1)];
    kernel
}

fn extents(m: i64, n: i64) -> Sizes {
    Sizes::from([("m".to_string(), m), ("n".to_string(), n)])
}

/// The simulator, and GPUs that run code for Hopper.
fn hopper_devices() -> impl Iterator<Item = Box<dyn Device>> {
    every_device().into_iter().filter(|d| d.arch().is_none_or(|arch| arch == Arch::SM_90A))
}

#[test]
fn tensor_maps_and_clusters() {
    for device in hopper_devices() {
        for cluster in [1, 2] {
            let kernel = move_kernel(cluster);
            // The edges of tiles are outside the tensor.
            for (m, n) in [(16, 64), (32, 128), (13, 200), (1, 8)] {
                let values: Vec<f64> = (0..m * n).map(|i| (i % 1001) as f64).collect();
                let x = Tensor::from_f64(&*device, DType::F16, &values).unwrap();
                let y = Tensor::zeros(&*device, DType::F16, values.len()).unwrap();
                // A second launch finds the maps encoded.
                for _ in 0..2 {
                    y.write(&*device, &vec![0.0; values.len()]).unwrap();
                    let args = [Arg::from(&x), Arg::from(&y)];
                    let report = device.launch(&kernel, &extents(m, n), &args).unwrap();
                    assert_eq!(report.problems(), [""; 0], "{m}x{n} in clusters of {cluster}");
                    assert_eq!(y.read(&*device).unwrap(), values, "{m}x{n} in clusters of {cluster}");
                    assert_eq!(report.cuda().map_or(0, |cuda| cuda.advisories.len()), 0);
                }
            }
            if let Some(gpu) = device.cuda() {
                let blocks = gpu.resident_blocks(&kernel).unwrap();
                eprintln!("{}: {blocks} blocks in clusters of {cluster} at once", device.name());
                assert!(blocks > 0 && blocks.is_multiple_of(cluster));
            }
        }
    }
}

#[test]
fn clusters_beyond_the_portable_size() {
    for device in hopper_devices() {
        let mut b = Builder::new("scale", Arch::SM_90A, 128);
        for name in ["x", "y"] {
            b.add_param(name, FunctionParamKind::Pointer);
        }
        b.add_param("factor", FunctionParamKind::F32);
        b.add_param("n", FunctionParamKind::I32);
        b.set_cluster(16);
        b.sync(SyncOp::ClusterBarrier);
        let kernel = kernel_of(b.finish());
        let x = Tensor::zeros(&*device, DType::F32, 16 * 128).unwrap();
        let args = [Arg::from(&x), Arg::from(&x), Arg::from(1.0f32)];
        let report = device.launch(&kernel, &sizes(16 * 128), &args).unwrap();
        assert_eq!(report.problems(), [""; 0]);
        if let Some(gpu) = device.cuda() {
            assert!(gpu.resident_blocks(&kernel).unwrap() >= 16);
        }
    }
}

/// The small kernel, for Hopper, that waits for the launch before it and lets the next one start.
fn dependent_kernel() -> Kernel {
    let mut function = common::function(Arch::SM_90A, 0);
    for op in [SyncOp::DependencyWait, SyncOp::DependentsLaunch] {
        function.body.insert(0, Inst { op: Op::Sync(op), origin: OriginId(0) });
    }
    kernel_of(function)
}

/// Halves `x` in place as often as there are launches: one that comes too early shows.
#[test]
fn sequences_and_graphs_keep_their_order() {
    for device in hopper_devices() {
        let Some(gpu) = device.cuda() else { continue };
        let kernel = dependent_kernel();
        let (n, launches) = (1 << 20, 10);
        let start: Vec<f64> = (0..n).map(|i| f64::from(i % 4096)).collect();
        for dependent in [false, true] {
            let x = Tensor::from_f64(gpu, DType::F32, &start).unwrap();
            let args = [Arg::from(&x), Arg::from(&x), Arg::from(0.5f32)];
            let mut sequence = gpu.sequence();
            for _ in 0..launches {
                sequence.push(&kernel, &sizes(n.into()), &args, LaunchOptions { dependent }).unwrap();
            }
            let ms = sequence.run().unwrap();
            let halved = |times: i32| start.iter().map(|v| v * 0.5f64.powi(times)).collect::<Vec<_>>();
            assert!(x.read(gpu).unwrap() == halved(launches), "dependent: {dependent}");
            let graph = sequence.capture().unwrap();
            // A capture runs nothing.
            assert!(x.read(gpu).unwrap() == halved(launches));
            for times in 2..4 {
                graph.run().unwrap();
                assert!(x.read(gpu).unwrap() == halved(times * launches), "dependent: {dependent}");
            }
            x.write(gpu, &start).unwrap();
            let timing = graph.time(1, 3).unwrap().unwrap();
            assert!(x.read(gpu).unwrap() == halved(4 * launches), "dependent: {dependent}");
            eprintln!(
                "{launches} launches, dependent {dependent}: {ms:.4} ms, as a graph {:.4} ms",
                timing.median_ms
            );
        }
    }
}

/// Graphs are older than Hopper, and a tensor map that was captured is the graph's own.
#[test]
fn graphs_outlive_what_they_were_made_of() {
    for device in every_device() {
        let Some(gpu) = device.cuda() else { continue };
        let (expected, graph, y) = if gpu.arch() == Some(Arch::SM_90A) {
            let values: Vec<f64> = (0..16 * 64).map(f64::from).collect();
            let x = Tensor::from_f64(gpu, DType::F16, &values).unwrap();
            let y = Tensor::zeros(gpu, DType::F16, values.len()).unwrap();
            let mut sequence = gpu.sequence();
            let args = [Arg::from(&x), Arg::from(&y)];
            sequence.push(&move_kernel(2), &extents(16, 64), &args, LaunchOptions::default()).unwrap();
            (values, sequence.capture().unwrap(), y)
        } else {
            let x = Tensor::from_f64(gpu, DType::F32, &[3.0; 300]).unwrap();
            let y = Tensor::zeros(gpu, DType::F32, 300).unwrap();
            let kernel = kernel_of(common::function(Arch::SM_80, 0));
            let mut sequence = gpu.sequence();
            let args = [Arg::from(&x), Arg::from(&y), Arg::from(0.5f32)];
            sequence.push(&kernel, &sizes(300), &args, LaunchOptions::default()).unwrap();
            (vec![1.5; 300], sequence.capture().unwrap(), y)
        };
        assert!(y.read(gpu).unwrap().iter().all(|v| *v == 0.0));
        assert!(graph.run().unwrap() > 0.0);
        assert_eq!(y.read(gpu).unwrap(), expected);
        drop(graph);
        // The stream works after a capture.
        assert!(gpu.alloc(64).is_ok());
    }
}

/// A register budget of a kernel whose registers at entry the assembler does not know is ignored, and it says so.
#[test]
fn the_assembler_is_heard() {
    for device in hopper_devices().filter(|d| d.cuda().is_some()) {
        let mut function = common::function(Arch::SM_90A, 0);
        let budget = SyncOp::SetMaxRegisters { more: false, registers: 24 };
        function.body.insert(0, Inst { op: Op::Sync(budget), origin: OriginId(0) });
        let mut kernel = kernel_of(function);
        let launch = |kernel: &Kernel| {
            let x = Tensor::zeros(&*device, DType::F32, 8).unwrap();
            let args = [Arg::from(&x), Arg::from(&x), Arg::from(2.0f32)];
            device.launch(kernel, &sizes(8), &args).unwrap().cuda().unwrap().advisories.clone()
        };
        assert_eq!(launch(&kernel), [""; 0]);
        kernel.ptx = kernel.ptx.replace(".maxntid 128, 1, 1\n.minnctapersm 1\n", "");
        let heard = launch(&kernel);
        assert!(heard.iter().any(|line| line.contains("C7508")), "{heard:?}");
    }
}

/// The message with which the simulator refuses to launch with tensors of 16×`width` elements.
fn refusal(kernel: &Kernel, sizes: &Sizes, elements: usize) -> String {
    let device = SimDevice::default();
    let x = Tensor::zeros(&device, DType::F16, elements).unwrap();
    let error = device.launch(kernel, sizes, &[Arg::from(&x), Arg::from(&x)]).unwrap_err();
    error.to_string()
}

#[test]
fn tensors_that_no_map_describes_are_refused() {
    let kernel = move_kernel(1);
    let cannot =
        "parameter `x` of kernel `move` is copied by tensor maps, which do not take it at these sizes:";
    assert_eq!(
        refusal(&kernel, &extents(16, 60), 16 * 60),
        format!("{cannot} the stride of mode 0 is 60 elements; it must be a multiple of 8 (16 bytes)")
    );
    let mut changed = kernel.clone();
    changed.maps[0].strides[0] = Expr::Int(1 << 40);
    assert_eq!(
        refusal(&changed, &extents(16, 64), 16 * 64),
        format!(
            "{cannot} the stride of dimension 1 of its map is 1099511627776 elements; it must be from 1 to 549755813887"
        )
    );
    changed.maps[0].strides[0] = Expr::Int(0);
    assert!(refusal(&changed, &extents(16, 64), 16 * 64).contains("is 0 elements; it must be from 1 to"));
    changed.maps[0] = kernel.maps[0].clone();
    changed.maps[0].extents[1] = Expr::Int(0);
    assert_eq!(
        refusal(&changed, &extents(16, 64), 16 * 64),
        format!("{cannot} the extent of mode 0 is 0; it must be from 1 to 2145386496")
    );
    // A map that reaches beyond the tensor.
    changed.maps[0].extents[1] = Expr::Int(17);
    assert_eq!(
        refusal(&changed, &extents(16, 64), 16 * 64),
        "the buffer for parameter `x` of kernel `move` has 2048 bytes; at these sizes it needs 2176"
    );
    let wrong = "the code of kernel `move` does not fit its program";
    changed.maps.pop();
    changed.maps[0] = kernel.maps[0].clone();
    assert_eq!(refusal(&changed, &extents(16, 64), 16 * 64), wrong);
    changed.maps = kernel.maps.iter().rev().cloned().collect();
    changed.maps[0].extents.pop();
    assert_eq!(refusal(&changed, &extents(16, 64), 16 * 64), wrong);
}

#[test]
fn clusters_of_the_code_are_those_of_the_program() {
    let mut kernel = move_kernel(1);
    kernel.function.cluster = 4;
    let error = refusal(&kernel, &extents(16, 64), 16 * 64);
    assert_eq!(error, "the code of kernel `move` does not fit its program");
}
