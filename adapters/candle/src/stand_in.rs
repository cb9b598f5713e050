//! The calls of every operation on the stand-in driver: kernels are compiled and launched with the arguments that candle's tensors would be.
#![allow(unsafe_code, reason = "tensors of nothing, which the stand-in never reads")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Device, Layout, Shape, Tensor};
use tilewright_launch::{Driver, Gpu, Stream, View, ViewMut, Workspace};
use tilewright_ops::{Gemm, Library, OpsError};
use tilewright_stand_in_driver::StandIn;

use crate::apply::{Operator, planned};
use crate::attention::{Attention, AttentionBackward, AttentionOptions, Decode};
use crate::linear::{Activation, AddLinear, Linear, Product};
use crate::norm::{Norm, NormBackward, Softmax};
use crate::weights::{LinearW4, Repack, Weights};

/// The stand-in as a fresh driver with one of Hopper's GPUs, of which tests take turns.
struct Turn {
    stand_in: StandIn,
    library: Library,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    fn new() -> Turn {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let stand_in = StandIn::of_this_test();
        // SAFETY: the stand-in has the functions of a driver.
        let driver = unsafe { Driver::open(stand_in.path()) }.unwrap();
        stand_in.set("capability", 90);
        stand_in.make_current(0);
        let library = Library::with_store(&Gpu::current_of(driver).unwrap(), None).unwrap();
        Turn { stand_in, library, _turn: turn }
    }

    /// Plans an operator for operands of these types and shapes, and launches it; returns the names of what was launched.
    fn run<O: Operator>(
        &self,
        library: &Library,
        operator: &O,
        operands: &[(DType, &[usize])],
    ) -> Result<Vec<String>, OpsError> {
        let layouts: Vec<Layout> =
            operands.iter().map(|(_, shape)| Layout::contiguous(Shape::from(*shape))).collect();
        let given = operands.iter().zip(&layouts).map(|((dtype, _), layout)| (*dtype, layout)).collect();
        let plan = planned(operator, given).unwrap();
        let address = |number: usize| (number as u64 + 1) << 20;
        let reads = plan.reads.iter().enumerate();
        let reads: Vec<View<'_>> = reads
            // SAFETY: nothing runs.
            .map(|(at, read)| unsafe {
                View::new(address(at), read.dtype, &read.shape).with_strides(&read.strides)
            })
            .collect();
        let writes = plan.writes.iter().enumerate();
        let mut writes: Vec<ViewMut<'_>> = writes
            // SAFETY: as above.
            .map(|(at, write)| unsafe {
                ViewMut::new(address(reads.len() + at), write.as_read.dtype, &write.as_read.shape)
            })
            .collect();
        let call = plan.call(library, &reads, &mut writes);
        let bytes = call.workspace_bytes()?;
        // SAFETY: as above, and the stand-in never forgets a stream.
        let (mut memory, stream) =
            unsafe { (Workspace::new(1 << 40, bytes), Stream::borrow(self.stand_in.stream(false))) };
        self.stand_in.calls();
        call.workspace(&mut memory).run(stream)?;
        let calls = self.stand_in.calls().into_iter();
        let name = |call: &String| Some(call.split("function=").nth(1)?.split(' ').next()?.to_string());
        Ok(calls.filter(|call| call.starts_with("cuLaunch")).filter_map(|call| name(&call)).collect())
    }
}

/// The launches of an operator for operands of these types and shapes.
fn launches<O: Operator>(operator: &O, operands: &[(DType, &[usize])]) -> Vec<String> {
    let turn = Turn::new();
    turn.run(&turn.library, operator, operands).unwrap_or_else(|error| panic!("{operands:?}: {error}"))
}

/// f16 operands of these shapes.
fn halves<'a>(shapes: &[&'a [usize]]) -> Vec<(DType, &'a [usize])> {
    shapes.iter().map(|shape| (DType::F16, *shape)).collect()
}

#[test]
fn products_are_one_launch_with_their_epilogues() {
    let shapes: [&[usize]; 3] = [&[2, 32, 128], &[256, 128], &[256]];
    for activation in [Activation::None, Activation::Relu, Activation::Gelu, Activation::Silu] {
        let linear = Linear { activation };
        assert_eq!(launches(&linear, &halves(&shapes)), ["gemm_hopper"], "{activation:?}");
        assert_eq!(launches(&linear, &halves(&shapes[..2])), ["gemm_hopper"], "{activation:?}");
    }
    assert_eq!(launches(&AddLinear, &halves(&[&[64, 256], &[64, 128], &[256, 128]])).len(), 1);
    for [a, b] in [[false, false], [false, true], [true, false], [true, true]] {
        let shape = |swapped: bool| -> &[usize] { if swapped { &[128, 256] } else { &[256, 128] } };
        let found = launches(&Product { transposed: [a, b] }, &halves(&[shape(a), shape(b)]));
        assert_eq!(found.len(), 1, "{a} {b}");
    }
    // All bits but two of f32.
    let wide: Vec<(DType, &[usize])> = shapes.iter().map(|shape| (DType::F32, *shape)).collect();
    assert!(!launches(&Linear { activation: Activation::None }, &wide).is_empty());
}

#[test]
fn norms_and_softmax_are_launched_in_all_types() {
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        let of = |shapes: &[&'static [usize]]| -> Vec<(DType, &[usize])> {
            shapes.iter().map(|shape| (dtype, *shape)).collect()
        };
        let (x, w): (&[usize], &[usize]) = (&[2, 8, 512], &[512]);
        assert_eq!(launches(&Norm::<false> { eps: 1e-5 }, &of(&[x, w])), ["rmsnorm"]);
        assert_eq!(launches(&Norm::<true> { eps: 1e-5 }, &of(&[x, w, w])), ["layernorm"]);
        assert!(!launches(&NormBackward::<false> { eps: 1e-5 }, &of(&[x, w, x])).is_empty());
        assert!(!launches(&NormBackward::<true> { eps: 1e-5 }, &of(&[x, w, x])).is_empty());
        assert_eq!(launches(&Softmax, &of(&[x])), ["softmax"]);
    }
}

#[test]
fn attention_is_launched_with_its_masks_and_gradients() {
    let (q, kv): (&[usize], &[usize]) = (&[2, 192, 8, 64], &[2, 256, 2, 64]);
    let all = AttentionOptions::new();
    for options in [all, all.causal(), all.window(64)] {
        for sums in [false, true] {
            assert_eq!(launches(&Attention { options, sums }, &halves(&[q, kv, kv])), ["attention"]);
        }
        let mut operands = halves(&[q, kv, kv, q, q]);
        operands.push((DType::F32, &[2, 8, 192]));
        let found = launches(&AttentionBackward { options }, &operands);
        assert_eq!(found.len(), 3, "{found:?}");
    }
}

#[test]
fn caches_are_read_contiguous_and_in_pages() {
    let q: &[usize] = &[3, 1, 8, 64];
    for options in [AttentionOptions::new(), AttentionOptions::new().window(100)] {
        let mut operands = halves(&[q, &[3, 300, 2, 64], &[3, 300, 2, 64]]);
        operands.push((DType::U32, &[3]));
        assert!(!launches(&Decode { options, paged: false }, &operands).is_empty());
        for page in [16, 32, 64, 256] {
            let cache = [40, page, 2, 64];
            let mut operands = halves(&[q, &cache, &cache]);
            operands.extend([(DType::I32, &[3usize] as &[usize]), (DType::U32, &[3, 9])]);
            assert!(!launches(&Decode { options, paged: true }, &operands).is_empty(), "{page}");
        }
    }
}

#[test]
fn weights_of_four_bits_are_brought_into_order_and_multiplied() {
    for signed in [true, false] {
        let (n, k, group) = (256, 512, 128);
        let rows = [n, k / 2];
        assert_eq!(launches(&Repack { signed, group }, &[(DType::U8, &rows)]), ["repack_weights"]);
        let tensor = |dtype, shape: &[usize]| Tensor::zeros(shape, dtype, &Device::Cpu).unwrap();
        let scales = [k / group, n];
        let zeros = (!signed).then(|| tensor(DType::F16, &scales));
        let layer =
            LinearW4::new(&tensor(DType::U8, &rows), &tensor(DType::F16, &scales), zeros.as_ref(), group);
        let weights = Weights { signed, stored: true, group, layer: layer.unwrap() };
        let stored = [n * k / 2];
        let mut operands =
            vec![(DType::F16, &[16usize, 512] as &[usize]), (DType::F16, &scales), (DType::U8, &stored)];
        if !signed {
            operands.push((DType::F16, &scales));
        }
        let found = launches(&weights, &operands);
        assert_eq!(found, ["gemm_weights"]);
    }
}

#[test]
fn a_strict_library_has_what_is_warm() {
    let turn = Turn::new();
    let linear = Linear { activation: Activation::Gelu };
    let operands = |m: usize| -> [[usize; 2]; 2] { [[m, 128], [256, 128]] };
    let run = |library: &Library, m: usize| {
        let shapes = operands(m);
        turn.run(library, &linear, &halves(&[&shapes[0], &shapes[1], &[256]]))
    };
    let strict = turn.library.clone().strict();
    let cold = run(&strict, 4).unwrap_err();
    assert!(matches!(cold, OpsError::NotWarm { .. }), "{cold}");
    turn.library.warm_up(&Gemm::f16().m(4).n(256).k(128).epilogue("bias+gelu")).unwrap();
    assert_eq!(run(&strict, 4).unwrap(), ["gemv"]);
}
