//! Calls of operators on the stand-in driver: what is launched, in which order and with which parameters, and what is refused.
#![allow(unsafe_code, reason = "workspaces and packs of nothing")]

mod common;

use common::{Turn, view, view_mut, workspace};
use tilewright_cache::{Folder, Kernels};
use tilewright_launch::DType::{BF16, E4M3, F16, F32, I8, I32};
use tilewright_launch::{TensorArray, ViewMut};
use tilewright_ops::{Library, OpsError, Problems};

/// The parameters of a launch.
fn params(launch: &str) -> Vec<String> {
    let list = launch.split("params=[").nth(1).unwrap().trim_end_matches(']');
    list.split(' ').map(str::to_string).collect()
}

/// An address as the driver reads it.
fn word(pointer: u64) -> String {
    pointer.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_product_with_an_epilogue_is_one_call_of_the_driver() {
    let turn = Turn::new(80);
    let (lib, stream) = (turn.library(), turn.stream());
    let (a, b, bias) =
        (view(0x1000, F16, &[64, 128]), view(0x2000, F16, &[256, 128]), view(0x3000, F16, &[256]));
    let mut c = view_mut(0x4000, F16, &[64, 256]);
    for round in 0..2 {
        lib.gemm(stream, &a, &b, &mut c).bias(&bias).gelu().run().unwrap();
        let calls = turn.stand_in.calls();
        let launches: Vec<&String> = calls.iter().filter(|call| call.starts_with("cuLaunch")).collect();
        assert_eq!(launches.len(), 1, "{calls:?}");
        assert!(launches[0].contains("function=gemm"), "{}", launches[0]);
        let pointers = [0x1000, 0x2000, 0x3000, 0x4000].map(word);
        let given = params(launches[0]);
        assert!(pointers.iter().all(|pointer| given.contains(pointer)), "{given:?}");
        // m, n and k, behind the tensors.
        assert_eq!(given[given.len() - 3..], ["40000000", "00010000", "80000000"]);
        assert!(round == 0 || calls.len() == 1, "{calls:?}");
    }
    // The same by the generic door, and of another type by itself.
    lib.operator("gemm")
        .option("epilogue", "bias+gelu")
        .arg("c", &mut c)
        .arg("a", &a)
        .arg("b", &b)
        .arg("bias", &bias)
        .run(stream)
        .unwrap();
    assert_eq!(turn.work().len(), 1);
    let (a, b) = (view(0x1000, BF16, &[64, 128]), view(0x2000, BF16, &[256, 128]));
    let mut c = view_mut(0x4000, F32, &[64, 256]);
    lib.gemm(stream, &a, &b, &mut c).run().unwrap();
    assert_eq!(turn.work().len(), 1);
}

#[test]
fn matrices_of_a_product_may_lie_anywhere() {
    let turn = Turn::new(80);
    let (lib, stream) = (turn.library(), turn.stream());
    // SAFETY: nothing runs.
    let array = |table: u64, shape: &[i64]| unsafe { TensorArray::new(table, F16, shape) };
    let (a, b, c) =
        (array(0x1000, &[3, 64, 128]), array(0x2000, &[3, 32, 128]), array(0x3000, &[3, 64, 32]).writable());
    let call = || lib.operator("gemm").option("batch", "pointers").arg("a", &a).arg("b", &b).arg("c", &c);
    let addresses = [0x10000u64, 0x90000, 0x50000];
    let table = call().table("a", &addresses).unwrap();
    assert_eq!(table[..24], addresses.map(u64::to_le_bytes).concat());
    assert!(call().table("a", &addresses[1..]).unwrap_err().to_string().contains("array of 3 tensors"));
    turn.stand_in.calls();
    call().run(stream).unwrap();
    let work = turn.work();
    assert_eq!(work.len(), 1, "{work:?}");
    let given = params(&work[0]);
    assert!([0x1000, 0x2000, 0x3000].map(word).iter().all(|table| given.contains(table)), "{given:?}");
    let view = view(0x1000, F16, &[3, 64, 128]);
    let error = call().arg("a", &view).run(stream).unwrap_err().to_string();
    assert!(error.contains("is a table of tensors; a view is given"), "{error}");
}

#[test]
fn launches_with_their_arguments_are_put_on_streams_again() {
    let turn = Turn::new(80);
    let (lib, stream) = (turn.library(), turn.stream());
    let (a, b, bias) =
        (view(0x1000, F16, &[64, 128]), view(0x2000, F16, &[256, 128]), view(0x3000, F16, &[256]));
    let mut c = view_mut(0x4000, F16, &[64, 256]);
    // Ready by itself, and once more from what is ready.
    let launches = [0, 1].map(|_| lib.gemm(stream, &a, &b, &mut c).bias(&bias).prepared().unwrap());
    assert_eq!(turn.work().len(), 0);
    lib.gemm(stream, &a, &b, &mut c).bias(&bias).run().unwrap();
    let run = turn.work();
    for launches in &launches {
        // SAFETY: nothing runs.
        unsafe { launches.enqueue(stream) }.unwrap();
        assert_eq!(turn.stand_in.calls(), run);
    }
    let refused = lib.operator("softmax").arg("x", &a).prepared().unwrap_err().to_string();
    assert!(refused.contains("`y`"), "{refused}");
}

#[test]
fn several_launches_share_a_workspace_that_the_caller_lends() {
    let turn = Turn::new(80);
    let (lib, stream) = (turn.library(), turn.stream());
    let (a, b) = (view(0x1000, F16, &[64, 4096]), view(0x2000, F16, &[64, 4096]));
    let mut c = view_mut(0x4000, F16, &[64, 64]);
    let error = lib.gemm(stream, &a, &b, &mut c).relu().option("split", 4).run().unwrap_err();
    let needed = 4096 + 4 * 64 * 64 * 4;
    assert!(matches!(&error, OpsError::Workspace { needed: bytes, .. } if *bytes == needed), "{error}");
    assert!(error.to_string().contains(&format!("needs a workspace of {needed} bytes")), "{error}");
    let bytes = lib.gemm(stream, &a, &b, &mut c).relu().option("split", 4).workspace_bytes().unwrap();
    assert_eq!(bytes, needed);
    turn.stand_in.calls();
    let mut small = workspace(0x10_0000, needed - 1);
    let error =
        lib.gemm(stream, &a, &b, &mut c).relu().option("split", 4).workspace(&mut small).run().unwrap_err();
    assert!(error.to_string().contains(&format!("{} are given", needed - 1)), "{error}");
    assert_eq!(turn.work().len(), 0);
    let mut enough = workspace(0x10_0000, needed);
    for _ in 0..2 {
        lib.gemm(stream, &a, &b, &mut c).relu().option("split", 4).workspace(&mut enough).run().unwrap();
        let work = turn.work();
        assert_eq!(work.len(), 2, "{work:?}");
        assert!(work[0].contains("function=gemm ") && work[1].contains("function=split_sum "), "{work:?}");
        // Behind the bytes for what launches leave as zeros.
        assert!(work.iter().all(|launch| params(launch).contains(&word(0x10_1000))), "{work:?}");
        assert!(params(&work[1]).contains(&word(0x4000)) && !params(&work[0]).contains(&word(0x4000)));
    }
}

#[test]
fn counters_are_filled_with_zeros_unless_the_workspace_is_clear() {
    let turn = Turn::new(90);
    let (lib, stream) = (turn.library(), turn.stream());
    let x = view(0x1000, F16, &[300_000]);
    let mut y = view_mut(0x9000, F32, &[1]);
    let call = lib.operator("sum_all").arg("x", &x).arg("y", &mut y);
    let bytes = call.workspace_bytes().unwrap();
    assert!(bytes > 4096);
    let address = turn.stand_in.alloc(bytes as usize);
    turn.stand_in.calls();
    let mut memory = workspace(address, bytes);
    let run = |memory: &mut tilewright_launch::Workspace<'_>, y: &mut tilewright_launch::ViewMut<'_>| {
        lib.operator("sum_all").arg("x", &x).arg("y", y).workspace(memory).run(stream).unwrap();
        turn.work()
    };
    let work = run(&mut memory, &mut y);
    assert_eq!(work.len(), 2, "{work:?}");
    assert!(work[0].starts_with("cuMemsetD8Async"), "{work:?}");
    // SAFETY: nothing runs.
    unsafe { memory.clear(&turn.gpu, stream) }.unwrap();
    assert_eq!(turn.work().len(), 1);
    let work = run(&mut memory, &mut y);
    assert_eq!(work.len(), 1, "{work:?}");
    assert!(params(&work[0]).contains(&word(address)), "{work:?}");
}

#[test]
fn attention_is_that_of_the_features() {
    let call = |capability: i64, d: i64, added: bool| {
        let turn = Turn::new(capability);
        let (lib, stream) = (turn.library(), turn.stream());
        let (q, k) = (view(0x1000, F16, &[2, 300, 8, d]), view(0x2000, F16, &[2, 400, 2, d]));
        let (v, sinks) = (view(0x3000, F16, &[2, 400, 2, d]), view(0x4000, F32, &[8]));
        let bias = view(0x5000, F16, &[1, 8, 300, 400]);
        let (mut o, mut lse) = (view_mut(0x6000, F16, &[2, 300, 8, d]), view_mut(0x7000, F32, &[2, 8, 300]));
        let call = lib.attention(stream, &q, &k, &v, &mut o).causal();
        if added { call.bias(&bias).sinks(&sinks).lse(&mut lse).why() } else { call.why() }.unwrap()
    };
    for (capability, added) in [(100, true), (103, false)] {
        let why = call(capability, 128, added);
        assert!(why.operator == "attention" && why.parameters.contains("form=tcgen05"), "{why}");
        assert!(why.kernels.len() == 1 && why.passed.is_empty(), "{why}");
    }
    let why = call(90, 128, true);
    assert!(why.operator == "attention" && !why.parameters.contains("form"), "{why}");
    // Sums of two tiles by 256 columns leave no room for scores: the form without tensor memory, for that reason.
    let why = call(100, 256, false);
    assert!(why.operator == "attention_sm80" && why.passed.len() == 1, "{why}");
    let reason =
        "passed over: `attention` has no kernel for this: `bn` = 32: needs 576 columns of tensor memory";
    assert!(why.to_string().contains(reason), "{why}");
    let why = call(80, 64, false);
    let reason = "`attention` has no kernel for this: sm_80 lacks transaction barriers, TMA, ";
    assert!(why.operator == "attention_sm80" && why.passed[0].starts_with(reason), "{why}");
}

/// Kernel of a call's only launch, which has all these pointers.
fn launched(turn: &Turn, pointers: &[u64]) -> String {
    let work = turn.work();
    assert_eq!(work.len(), 1, "{work:?}");
    let given = params(&work[0]);
    assert!(pointers.iter().all(|pointer| given.contains(&word(*pointer))), "{given:?}");
    let name = work[0].split("function=").nth(1).unwrap();
    name.split(' ').next().unwrap().to_string()
}

#[test]
fn gradients_of_attention_are_three_launches() {
    let turn = Turn::new(90);
    let (lib, stream) = (turn.library(), turn.stream());
    let of = |pointer: u64, s: i64, heads: i64| view(pointer, BF16, &[2, s, heads, 64]);
    let (q, k, v) = (of(0x1000, 300, 8), of(0x2000, 400, 2), of(0x3000, 400, 2));
    let (o, dout, lse) = (of(0x4000, 300, 8), of(0x5000, 300, 8), view(0x6000, F32, &[2, 8, 300]));
    let mut dq = view_mut(0x7000, BF16, &[2, 300, 8, 64]);
    let mut dk = view_mut(0x8000, BF16, &[2, 400, 2, 64]);
    let mut dv = view_mut(0x9000, BF16, &[2, 400, 2, 64]);
    let call =
        lib.attention_backward(stream, &q, &k, &v, &o, &dout, &lse, &mut dq, &mut dk, &mut dv).causal();
    let why = call.why().unwrap();
    for word in ["dtype=bf16", "d=64", "mask=causal"] {
        assert!(why.operator == "attention_backward" && why.parameters.contains(word), "{why}");
    }
    assert_eq!(why.kernels.len(), 3, "{why}");
    let mut memory = workspace(0x10_0000, call.workspace_bytes().unwrap());
    turn.stand_in.calls();
    call.workspace(&mut memory).run().unwrap();
    let work = turn.work();
    let names = ["attention_backward_prepare", "attention_backward", "attention_backward_convert"];
    let named = |(launch, name): (&String, &str)| launch.contains(&format!("function={name} "));
    assert!(work.len() == 3 && work.iter().zip(names).all(named), "{work:?}");
    for (launch, pointers) in
        [(0, vec![0x4000, 0x5000, 0x6000]), (1, vec![0x1000, 0x2000, 0x3000, 0x5000, 0x8000, 0x9000])]
    {
        assert!(pointers.into_iter().all(|at| params(&work[launch]).contains(&word(at))), "{work:?}");
    }
    assert!(params(&work[2]).contains(&word(0x7000)), "{work:?}");
}

#[test]
fn parts_of_a_layer_of_experts_have_methods() {
    let turn = Turn::new(90);
    let (lib, stream) = (turn.library(), turn.stream());
    turn.stand_in.calls();
    // 64 tokens, each with 4 of 8 experts, in tiles of 32 rows.
    let ids = view(0x1000, I32, &[256]);
    let [mut rows, mut places] = [0x2000, 0x3000].map(|at| view_mut(at, I32, &[256]));
    let [mut groups, mut first] = [0x4000, 0x5000].map(|at| view_mut(at, I32, &[16]));
    let mut ends = view_mut(0x6000, I32, &[8]);
    let sort = lib.moe_sort(stream, &ids, &mut rows, &mut places, &mut groups, &mut first, &mut ends);
    let sort = sort.experts_of_a_token(4).tile(32);
    let why = sort.why().unwrap();
    assert!(why.parameters.contains("k=4") && why.parameters.contains("tile=32"), "{why}");
    sort.run().unwrap();
    assert_eq!(launched(&turn, &[0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000]), "moe_sort");

    let (x, rows) = (view(0x1_0000, F16, &[64, 512]), view(0x2000, I32, &[256]));
    let mut y = view_mut(0x2_0000, F16, &[256, 512]);
    lib.moe_gather(stream, &x, &rows, &mut y).run().unwrap();
    assert_eq!(launched(&turn, &[0x1_0000, 0x2000, 0x2_0000]), "moe_gather");

    // The same rows in 8 bits, and what a gate makes of them.
    let mut s = view_mut(0x4_0000, F32, &[256]);
    for (of, dtype) in [("e4m3", E4M3), ("i8", I8)] {
        let mut y = view_mut(0x3_0000, dtype, &[256, 512]);
        let call = lib.moe_quantise_rows(stream, &x, &mut y, &mut s).rows(&rows);
        let why = call.why().unwrap();
        assert!(why.parameters.contains("gather=true"), "{why}");
        assert!(of == "e4m3" || why.parameters.contains("out=i8"), "{why}");
        call.run().unwrap();
        assert_eq!(launched(&turn, &[0x1_0000, 0x2000, 0x3_0000, 0x4_0000]), "moe_quantise_rows");
    }
    let x = view(0x1_0000, BF16, &[256, 1024]);
    let (mut y, mut s) = (view_mut(0x3_0000, E4M3, &[256, 512]), view_mut(0x4_0000, F32, &[4, 256]));
    lib.moe_quantise(stream, &x, &mut y, &mut s).gated().run().unwrap();
    assert_eq!(launched(&turn, &[0x1_0000, 0x3_0000, 0x4_0000]), "moe_quantise");

    let mut y = view_mut(0x3_0000, F32, &[64, 512]);
    lib.moe_clear(stream, &mut y).run().unwrap();
    assert_eq!(launched(&turn, &[0x3_0000]), "moe_clear");

    let c = view(0x2_0000, BF16, &[256, 512]);
    let (places, weights) = (view(0x3000, I32, &[256]), view(0x7000, F32, &[64, 4]));
    let mut y = view_mut(0x3_0000, BF16, &[64, 512]);
    let combine = lib.moe_combine(stream, &c, &places, &weights, &mut y);
    let why = combine.why().unwrap();
    assert!(why.parameters.contains("k=4") && why.parameters.contains("dtype=bf16"), "{why}");
    combine.run().unwrap();
    assert_eq!(launched(&turn, &[0x2_0000, 0x3000, 0x7000, 0x3_0000]), "moe_combine");
}

#[test]
fn options_follow_from_types_and_shapes() {
    let turn = Turn::new(80);
    let (lib, stream) = (turn.library(), turn.stream());
    // Heads of 64 elements of bf16, four of which share one of k and v.
    let (q, k) = (view(0x1000, BF16, &[2, 1, 8, 64]), view(0x2000, BF16, &[2, 300, 2, 64]));
    let (v, len) = (view(0x3000, BF16, &[2, 300, 2, 64]), view(0x4000, I32, &[2]));
    let mut o = view_mut(0x5000, BF16, &[2, 1, 8, 64]);
    let call = lib.attention_decode(stream, &q, &k, &v, &len, &mut o).option("split", true);
    let why = call.why().unwrap();
    for word in ["dtype=bf16", "d=64"] {
        assert!(why.parameters.contains(word), "{why}");
    }
    assert_eq!(why.kernels.len(), 2, "{why}");
    let mut memory = workspace(0x10_0000, call.workspace_bytes().unwrap());
    turn.stand_in.calls();
    call.workspace(&mut memory).run().unwrap();
    let work = turn.work();
    assert!(work.len() == 2 && work[1].contains("function=combine "), "{work:?}");
    // 1 / √64 is the program's own number.
    assert!(params(&work[0]).contains(&"0000003e".to_string()), "{work:?}");

    let (x, angles) = (view(0x1000, F32, &[5, 4, 64]), view(0x2000, F32, &[5, 32]));
    let mut y = view_mut(0x3000, F32, &[5, 4, 64]);
    let why = lib.rope(stream, &x, &angles, &angles, &mut y).why().unwrap();
    assert!(why.parameters.contains("dtype=f32") && why.parameters.contains("d=64"), "{why}");
    lib.rope(stream, &x, &angles, &angles, &mut y).run().unwrap();
    // A batch of products, since there is a mode more.
    let (a, b) = (view(0x1000, F16, &[3, 64, 32]), view(0x2000, F16, &[3, 64, 32]));
    let mut c = view_mut(0x4000, F16, &[3, 64, 64]);
    let why = lib.gemm(stream, &a, &b, &mut c).why().unwrap();
    assert!(why.parameters.contains("batch=packed") && why.class.contains("l=3"), "{why}");
}

#[test]
fn a_cache_in_pages_tells_its_pages_heads_and_groups() {
    let turn = Turn::new(80);
    let (lib, stream) = (turn.library(), turn.stream());
    let (q, len, table) =
        (view(0x1000, F16, &[3, 1, 16, 64]), view(0x4000, I32, &[3]), view(0x6000, I32, &[3, 9]));
    let mut o = view_mut(0x5000, F16, &[3, 1, 16, 64]);
    // Blocks of keys within a page, and of several pages, whose rows kernels have as one mode.
    for (page, bn) in [(256, 32), (16, 32)] {
        let (kc, vc) = (view(0x2000, F16, &[40, page, 2, 64]), view(0x3000, F16, &[40, page, 2, 64]));
        let mut o = [0, 1, 2].map(|_| view_mut(0x5000, F16, &[3, 1, 16, 64]));
        let mut calls = o.iter_mut().map(|o| {
            lib.attention_paged(stream, &q, &kc, &vc, &table, &len, o).option("split", false).option("bn", bn)
        });
        let why = calls.next().unwrap().why().unwrap();
        for word in [format!("page={page}"), "group=8".to_string()] {
            assert!(why.parameters.contains(&word), "{why}");
        }
        for call in calls {
            call.run().unwrap();
            let work = turn.work();
            assert_eq!(work.len(), 1, "{work:?}");
            let given = params(&work[0]);
            assert!(
                [0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000]
                    .map(word)
                    .iter()
                    .all(|at| given.contains(at))
            );
            // Pages, heads of the cache, and pages of a sequence.
            assert!(
                ["28000000", "02000000", "09000000"].iter().all(|size| given.contains(&size.to_string()))
            );
        }
    }
    // Pages with room between them are not one mode.
    let apart = |at| {
        // SAFETY: nothing runs.
        unsafe { view(at, F16, &[40, 16, 2, 64]).with_strides(&[4096, 128, 64, 1]) }
    };
    let (kc, vc) = (apart(0x2000), apart(0x3000));
    let call = lib
        .attention_paged(stream, &q, &kc, &vc, &table, &len, &mut o)
        .option("split", false)
        .option("bn", 32);
    let error = call.run().unwrap_err().to_string();
    assert!(error.contains("`kc` of `attention_decode` is f16[pages * 16, hk, 64]"), "{error}");
}

#[test]
fn refusals_name_the_argument_and_the_clash() {
    let turn = Turn::new(80);
    let (lib, stream) = (turn.library(), turn.stream());
    let (x, w) = (view(0x1000, F16, &[4, 256]), view(0x2000, F16, &[256]));
    let mut y = view_mut(0x3000, F16, &[4, 256]);
    let said = |call: tilewright_ops::Call<'_>| call.run(stream).unwrap_err().to_string();
    let call = |name| lib.operator(name);
    assert!(said(call("rms_norm").arg("x", &x)).contains("there is no operator `rms_norm`"));
    assert!(said(call("rmsnorm").option("bmm", 4).arg("x", &x)).contains("`rmsnorm` has no parameter `bmm`"));
    assert!(said(call("rmsnorm").option("bm", "x").arg("x", &x)).contains("must be an integer"));
    let missing = said(call("rmsnorm").arg("x", &x).arg("y", &mut y));
    assert_eq!(missing, "`rmsnorm` takes `w` (f16[n]), which is not given");
    let unknown = said(call("rmsnorm").arg("x", &x).arg("w", &w).arg("y", &mut y).arg("bias", &w));
    assert_eq!(unknown, "`rmsnorm` takes no `bias` with these options; it takes x, w, y, eps");
    let modes = said(call("rmsnorm").arg("x", &w));
    assert_eq!(modes, "`x` of `rmsnorm` is f16[m, n]; the tensor has 1 modes");
    let other = view(0x2000, F16, &[128]);
    let clash = said(call("rmsnorm").arg("x", &x).arg("w", &other).arg("y", &mut y));
    assert_eq!(clash, "size `n` of `rmsnorm` is 256 by `x`, and 128 by `w`");
    let other = view(0x2000, BF16, &[256]);
    let types = said(call("rmsnorm").arg("x", &x).arg("w", &other).arg("y", &mut y));
    assert_eq!(types, "`w` of `rmsnorm` has elements of type f16; the tensor has bf16");
    let size = said(call("rmsnorm").arg("w", &w));
    assert_eq!(size, "no argument of `rmsnorm` tells its size `m`: give it (`.size(\"m\", …)`)");
    let constant = said(call("rmsnorm").arg("x", &x).arg("w", &w).arg("y", &x));
    assert!(constant.contains("writes `y`: give it a `&mut ViewMut`"), "{constant}");
    let hopper = said(call("gemm_fp8_blocks").arg("a", &x));
    assert!(hopper.contains("sm_80 lacks"), "{hopper}");
    let mut many = call("rmsnorm").arg("x", &x).arg("w", &w);
    let names: Vec<String> = (0..25).map(|i| format!("x{i}")).collect();
    for name in &names {
        many = many.arg(name, &x);
    }
    let many = said(many);
    assert!(many.contains("takes `y` (f16[m, n]), which is not given"), "{many}");
    let page = call("attention_decode").arg("len", &view(0, I32, &[2])).run(stream).unwrap_err();
    assert!(matches!(&page, OpsError::Size { size, .. } if size == "sk" || size == "heads"), "{page}");
    assert!(turn.work().is_empty());
}

#[test]
fn a_result_whose_modes_are_folded_has_them_beside_each_other() {
    let turn = Turn::new(90);
    let (lib, stream) = (turn.library(), turn.stream());
    let (dy, x) = (view(0x100_0000, F16, &[32, 56, 56, 64]), view(0x200_0000, F16, &[32, 56, 56, 64]));
    let bytes = 1 << 20;
    let address = turn.stand_in.alloc(bytes);
    let run = |strides: &[i64]| {
        // SAFETY: nothing runs.
        let mut df = unsafe { ViewMut::new(0x300_0000, F16, &[64, 3, 3, 64]).with_strides(strides) };
        let mut memory = workspace(address, bytes as u64);
        let call = lib.conv_weight_gradient(stream, &dy, &x, &mut df);
        call.option("split", 2).workspace(&mut memory).run().map_err(|error| error.to_string())
    };
    // The kernel behind the sums of parts has the filter as a matrix.
    run(&[576, 192, 64, 1]).unwrap();
    let launches = turn.work().iter().filter(|work| work.starts_with("cuLaunch")).count();
    assert_eq!(launches, 2);
    let said = "`df` of kernel `split_sum` has strides [576, 1] at these sizes; the tensor has [640, 1]";
    assert_eq!(run(&[640, 192, 64, 1]).unwrap_err(), said);
    // Channels of each tap with a gap behind them are not one mode with the taps.
    let said = "`df` of kernel `split_sum` has shape [64, 576] at these sizes; the tensor has [64, 3, 3, 64]";
    assert_eq!(run(&[1152, 384, 128, 1]).unwrap_err(), said);
    assert!(turn.work().is_empty());
}

#[test]
fn nothing_is_compiled_while_a_stream_is_captured_or_in_a_strict_library() {
    let turn = Turn::new(80);
    let (lib, captured) = (turn.library(), turn.captured());
    let x = view(0x1000, F16, &[4, 256]);
    let mut y = view_mut(0x3000, F16, &[4, 256]);
    let error = lib.softmax(captured, &x, &mut y).run().unwrap_err();
    assert!(matches!(&error, OpsError::NotReady { .. }), "{error}");
    assert!(error.to_string().contains("`softmax` is not ready for m = 4, n = 256"), "{error}");
    let strict = lib.clone().strict();
    let error = strict.softmax(turn.stream(), &x, &mut y).run().unwrap_err();
    assert!(matches!(&error, OpsError::NotWarm { .. }), "{error}");
    assert!(error.to_string().contains("with a range that has m = 4, n = 256"), "{error}");
    assert!(!turn.stand_in.calls().iter().any(|call| call.contains("Load")));
    let warm = lib.warm_up(&Problems::of("softmax").size("m", 4).size("n", 256)).unwrap();
    assert_eq!((warm.classes, warm.specialisations, warm.kernels), (1, 1, 1));
    strict.softmax(turn.stream(), &x, &mut y).run().unwrap();
    lib.softmax(captured, &x, &mut y).run().unwrap();
    assert_eq!(turn.work().len(), 2);
    let error = lib.warm_up(&Problems::of("softmax").size("m", 0..=3).size("n", 256)).unwrap_err();
    assert!(error.to_string().contains("the range of size `m` of `softmax` goes from 0 to 3"), "{error}");
    let error = lib.warm_up(&Problems::of("softmax").size("m", 4)).unwrap_err();
    assert!(error.to_string().contains("size `n`"), "{error}");
}

#[test]
fn launches_of_a_dependent_call_may_begin_early() {
    let turn = Turn::new(90);
    let (lib, stream) = (turn.library(), turn.stream());
    let (a, b) = (view(0x1000, F16, &[64, 128]), view(0x2000, F16, &[256, 128]));
    let mut c = view_mut(0x4000, F16, &[64, 256]);
    for dependent in [false, true] {
        let call =
            lib.gemm(stream, &a, &b, &mut c).option("split", 1).option("pack", "none").dependent(dependent);
        call.run().unwrap();
        let work = turn.work();
        assert_eq!(work.len(), 1, "{work:?}");
        assert!(work[0].contains("function=gemm_hopper "), "{work:?}");
        assert_eq!(work[0].contains("6:1"), dependent, "{work:?}");
    }
}

#[test]
fn an_early_begin_is_taken_where_it_is_no_slower() {
    // Whether the GPU is an H200, the rows, the option if it is given, whether the launch may begin early, and what `why` says.
    let slower = "begins behind the end of the launch ahead, which is faster with m 97..=128, n 2049..=4096";
    let cases = [
        (true, 64, None, true, "begins early, and waits"),
        (true, 120, None, false, slower),
        (true, 120, Some(true), true, "begins early, and waits"),
        (false, 120, None, true, "begins early, and waits"),
    ];
    for (h200, m, option, early, said) in cases {
        let turn = Turn::named(90, h200);
        let (lib, stream) = (turn.library(), turn.stream());
        let (a, b) = (view(0x10000, F16, &[m, 4096]), view(0x20000, F16, &[4096, 4096]));
        for permitted in [true, false] {
            let mut c = view_mut(0x40000, F16, &[m, 4096]);
            let call = lib.operator("gemm").arg("a", &a).arg("b", &b).arg("c", &mut c);
            let call = call.option("split", 1).option("pack", "none").dependent(permitted);
            let call = option.into_iter().fold(call, |call, value| call.option("dependent", value));
            let why = call.why().unwrap();
            let text = why.to_string();
            assert_eq!(text.contains(said), permitted, "{text}");
            assert_eq!(why.begin == tilewright_ops::Begin::Behind, !permitted);
            call.run(stream).unwrap();
            let work = turn.work();
            assert_eq!(work.len(), 1, "{work:?}");
            assert_eq!(work[0].contains("6:1"), early && permitted, "{m} {option:?}: {work:?}");
        }
    }
    // Nothing begins early where the architecture has no such launches.
    let turn = Turn::new(80);
    let lib = turn.library();
    let (x, mut y) = (view(0x1000, F16, &[4, 256]), view_mut(0x3000, F16, &[4, 256]));
    let call = lib.operator("softmax").arg("x", &x).arg("y", &mut y).dependent(true);
    let text = call.why().unwrap().to_string();
    assert!(text.contains("with these options no kernel waits for it by itself"), "{text}");
}

#[test]
fn an_option_of_a_tiling_is_kept_though_it_is_the_default() {
    let turn = Turn::new(90);
    let lib = turn.library();
    let (a, b, c) =
        (view(0x1000, F16, &[64, 128]), view(0x2000, F16, &[256, 128]), view(0x4000, F16, &[64, 256]));
    let call = || lib.operator("gemm_hopper").arg("a", &a).arg("b", &b).arg("c", &c);
    let free = call().why().unwrap();
    assert!(free.parameters.contains("bm=64"), "{free}");
    // 128 is what a program has that says nothing, but not what is chosen for 64 rows.
    let kept = call().option("bm", 128).why().unwrap();
    assert!(!kept.parameters.contains("bm="), "{kept}");
}

#[test]
fn an_option_that_is_the_default_rules_out_what_the_gpu_has() {
    let turn = Turn::new(100);
    let (lib, stream) = (turn.library(), turn.stream());
    let (q, k) = (view(0x1000, F16, &[2, 300, 8, 128]), view(0x2000, F16, &[2, 400, 2, 128]));
    let v = view(0x3000, F16, &[2, 400, 2, 128]);
    let mut o = view_mut(0x6000, F16, &[2, 300, 8, 128]);
    let error = lib.attention(stream, &q, &k, &v, &mut o).option("form", "wgmma").why().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("form=wgmma") && text.contains("sm_100a lacks wgmma"), "{text}");
}

#[test]
fn a_pack_has_what_a_library_has_compiled() {
    let turn = Turn::new(80);
    let (lib, stream) = (turn.library(), turn.stream());
    let x = view(0x1000, F16, &[4, 256]);
    let mut y = view_mut(0x3000, F16, &[4, 256]);
    lib.softmax(stream, &x, &mut y).run().unwrap();
    let pack = lib.pack().unwrap();
    assert_eq!(pack.entries().len(), 1);
    let bytes = pack.to_bytes().unwrap();
    let read = tilewright_twpack::Pack::from_bytes(&bytes).unwrap();
    // SAFETY: nothing runs.
    let other = unsafe { turn.library().with_pack(read) };
    other.softmax(stream, &x, &mut y).run().unwrap();
    assert_eq!(other.pack().unwrap().to_bytes().unwrap(), bytes);
}

#[test]
fn kernels_are_kept_on_disk_where_a_library_has_a_cache() {
    let turn = Turn::new(80);
    let folder = tempfile::tempdir().unwrap();
    let cached = || turn.library().with_cache(Some(Kernels::new(Folder::new(folder.path()))));
    let run = |lib: Library| {
        let (x, mut y) = (view(0x1000, F16, &[4, 256]), view_mut(0x3000, F16, &[4, 256]));
        lib.softmax(turn.stream(), &x, &mut y).run().unwrap();
        (lib.pack().unwrap().to_bytes().unwrap(), lib.warnings())
    };
    let files = || -> Vec<std::path::PathBuf> {
        let Ok(list) = std::fs::read_dir(folder.path().join("kernels")) else { return Vec::new() };
        list.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some()).collect()
    };
    let (bytes, warnings) = run(turn.library());
    assert!(warnings.is_empty() && files().is_empty());
    for _ in 0..2 {
        assert_eq!(run(cached()), (bytes.clone(), Vec::new()));
        assert_eq!(files().len(), 1);
    }
    std::fs::write(&files()[0], b"nothing").unwrap();
    let (again, warnings) = run(cached());
    assert_eq!(again, bytes);
    assert!(warnings.len() == 1 && warnings[0].contains("is not used, and is replaced"), "{warnings:?}");
    assert_eq!(run(cached()), (bytes, Vec::new()));
}
