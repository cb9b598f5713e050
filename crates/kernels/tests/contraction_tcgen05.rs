//! `contraction` with its sums in tensor memory: tiles of nested modes in all executions, in pairs, its space, and what is refused.

use std::collections::BTreeMap;

use crate::common::{Launch, assemble, ptxas, small_hopper};
use crate::contraction::{check, check_boxes, contraction, permuted};
use tilewright_kernels::contraction::Einsum;
use tilewright_kernels::gemm_hopper::{Cluster, Form, HopperGemmConfig};
use tilewright_kernels::{Point, operator};
use tilewright_machine::{Arch, DType};

fn small() -> HopperGemmConfig {
    HopperGemmConfig { form: Form::Tcgen05, bm: 128, ..small_hopper() }
}

/// A small product whose threads have registers for copies of their own.
fn by_threads() -> HopperGemmConfig {
    HopperGemmConfig { load_registers: 120, chunk: Some(8), ..small() }
}

fn paired(product: HopperGemmConfig) -> HopperGemmConfig {
    HopperGemmConfig { pair: true, cluster: Cluster::AlongM(2), ..product }
}

#[test]
fn tiles_of_nested_modes_are_right() {
    let small = small();
    let bf16 = HopperGemmConfig { dtype: DType::BF16, ..small };
    let wide = HopperGemmConfig { bn: 256, warpgroups: 2, stages: 2, load_registers: 40, ..small };
    let eight = HopperGemmConfig { dtype: DType::E4M3, bk: 128, ..small };
    let f32 = HopperGemmConfig { dtype: DType::F32, bk: 32, ..small };
    let of_four = HopperGemmConfig { cluster: Cluster::AlongMn(2, 2), load_registers: 40, ..small };
    let along_n = HopperGemmConfig { swap: true, cluster: Cluster::AlongN(2), pair: true, ..bf16 };
    for (text, tile, product, extents) in [
        // Batches in two modes, which no tile spans.
        ("bqhd,bkhd->bhqk", "none", small, vec![2, 135, 3, 72, 64]),
        ("bhqk,bkhd->bqhd", "none", HopperGemmConfig { bm: 64, ..bf16 }, vec![2, 2, 65, 72, 40]),
        // Every group has two modes, and tiles span them all.
        ("abcd,bfde->acfe", "a4+b2+f2", small, vec![5, 3, 19, 40, 3, 40]),
        (
            "abcd,bfde->acfe",
            "a4+b2+f2",
            HopperGemmConfig { swap: true, bn: 32, ..small },
            vec![5, 3, 19, 40, 3, 40],
        ),
        ("abcd,bfde->acfe", "a16+b4+f8", wide, vec![17, 5, 3, 24, 9, 32]),
        ("abcd,bfde->acfe", "a2", of_four, vec![3, 2, 65, 72, 2, 136]),
        (
            "abcd,bfde->acfe",
            "a2",
            HopperGemmConfig { cluster: Cluster::AlongK(2), ..bf16 },
            vec![3, 2, 33, 72, 2, 72],
        ),
        // Of the TCCG benchmark, in the order of C: a contiguous along m, b along n, both along k.
        ("fbea,ecfd->dcba", "b8+f4+c8", small, vec![6, 10, 16, 16, 10, 16]),
        // Of 8 bits and of f32, along m and n too.
        ("bqhd,bkhd->bhqk", "none", eight, vec![2, 70, 3, 144, 64]),
        ("abcd,bfde->acfe", "a4+f2", eight, vec![5, 3, 19, 48, 3, 48]),
        ("abk,ck->acb", "none", f32, vec![5, 24, 72, 40]),
        ("abcd,bfde->acfe", "a2+f2", f32, vec![3, 2, 40, 24, 3, 40]),
        ("acb,dbce->ade", "c2", HopperGemmConfig { out: Some(DType::F32), ..small }, vec![70, 3, 40, 2, 24]),
        // Pairs have halves of a nested mode.
        ("abcd,bfde->acfe", "a4+b2+f2", paired(small), vec![9, 3, 40, 40, 3, 40]),
        (
            "abcd,bfde->acfe",
            "a16+f8",
            paired(HopperGemmConfig { bn: 128, ..small }),
            vec![17, 5, 9, 24, 9, 16],
        ),
        ("abcd,bfde->acfe", "a4+f4", along_n, vec![9, 3, 40, 40, 9, 40]),
        ("fbea,ecfd->dcba", "b8+f4+c8", paired(small), vec![6, 20, 16, 16, 10, 16]),
        ("bqhd,bkhd->bhqk", "none", paired(eight), vec![2, 270, 3, 144, 64]),
        (
            "abcd,bfde->acfe",
            "a2+f2",
            HopperGemmConfig { sm_count: 8, pair: true, ..of_four },
            vec![3, 2, 135, 72, 2, 136],
        ),
    ] {
        check_boxes(&contraction(text, tile, product), &extents);
    }
}

#[test]
fn copies_by_threads_and_permuted_tensors_are_right() {
    for (text, tile, extents) in [
        ("bqhd,bkhd->bhqk", "none", vec![2, 9, 3, 13, 7]),
        ("aebf,dfce->abcd", "e8", vec![4, 16, 5, 24, 9, 3]),
        ("acef,bdef->fabcde", "none", vec![2, 3, 2, 16, 3, 4]),
        ("lka,klb->bla", "none", vec![3, 1, 5, 7]),
    ] {
        check(&contraction(text, tile, by_threads()), &extents);
    }
    for (text, permute, product, extents) in [
        ("eafb,fdec->dcba", "ab", small(), vec![9, 5, 10, 24, 7, 16]),
        ("cadg,bfge->fedcba", "c", small(), vec![3, 24, 16, 24, 2, 5, 8]),
        ("abcd,bdn->acn", "a", HopperGemmConfig { split: 2, ..paired(small()) }, vec![3, 16, 5, 72, 40]),
    ] {
        check(&permuted(text, permute, product), &extents);
    }
}

#[test]
fn the_space_is_of_sums_in_tensor_memory_and_needs_no_spills() {
    let contraction = operator("contraction").unwrap();
    let tuning = contraction.tuning.unwrap();
    for (turn, (text, extents)) in [
        ("bqhd,bkhd->bhqk", vec![8, 2048, 16, 128, 2048]),
        ("abcd,bfde->acfe", vec![64, 32, 24, 64, 64, 32]),
        ("fbea,ecfd->dcba", vec![72, 72, 72, 72, 72, 72]),
        ("aebf,dfce->abcd", vec![48, 48, 48, 48, 48, 48]),
    ]
    .into_iter()
    .enumerate()
    {
        let einsum: Einsum = text.parse().unwrap();
        let letters = einsum.letters().into_iter().map(|letter| letter.to_string());
        let sizes: BTreeMap<String, i64> = letters.zip(extents).collect();
        let points = (tuning.space)(Arch::SM_100A.into(), &sizes, &[("einsum", text)]).unwrap().points;
        let value = |parameters: &[(&str, String)], name: &str| {
            parameters.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone())
        };
        let of = |name: &str, wanted: &str| {
            let has = |point: &&Point| value(&point.parameters, name).as_deref() == Some(wanted);
            points.iter().filter(has).collect::<Vec<_>>()
        };
        let paired = of("pair", "true");
        assert_eq!(of("form", "tcgen05").len(), points.len(), "{text}");
        assert!(!paired.is_empty(), "{text}");
        let by_wgmma = (tuning.space)(Arch::SM_90A.into(), &sizes, &[("einsum", text)]).unwrap().points;
        assert!(by_wgmma.iter().all(|point| value(&point.parameters, "form").is_none()), "{text}");
        let chosen = points.iter().take(1).chain(paired.into_iter().take(1));
        for (at, point) in chosen.chain(points.iter().step_by(1 + points.len() / 3)).enumerate() {
            let given: Vec<(&str, &str)> =
                point.parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let programs = (contraction.programs)(&given).unwrap();
            let launch = (tuning.launch)(Arch::SM_100A, &sizes, &given).unwrap().sizes;
            let launch: Vec<(&str, i64)> =
                launch.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            let arch = if (turn + at) % 2 == 0 { Arch::SM_100A } else { Arch::SM_103A };
            let kernels = Launch { programs: &programs, sizes: &launch, scalars: &[] }.kernels(arch);
            assert!(kernels.iter().any(|kernel| kernel.ptx.contains("tcgen05.mma")), "{given:?}");
            let Some(ptxas) = ptxas() else { continue };
            for (step, kernel) in kernels.iter().enumerate() {
                let name = format!("contraction_tcgen05_{turn}_{at}_{step}");
                assert_eq!(assemble(&ptxas, &name, kernel, arch), 0, "{given:?} spills");
            }
        }
    }
}

#[test]
fn what_tensor_memory_does_not_do_is_refused() {
    let says = |product: HopperGemmConfig, field: &str, text: &str| {
        let error = contraction("abcd,bfde->acfe", "none", product).programs().unwrap_err().to_string();
        assert!(error.contains(field) && error.contains(text), "{error}");
    };
    let small = small();
    says(HopperGemmConfig { bm: 64, ..paired(small) }, "pair", "bm=128");
    says(HopperGemmConfig { bm: 256, warpgroups: 2, ..small }, "bm", "must be 64 or 128");
    says(HopperGemmConfig { dtype: DType::F32, bk: 32, bn: 48, ..small }, "bn", "multiple of 32");
    says(HopperGemmConfig { form: Form::Outer, ..small_hopper() }, "form", "must be wgmma or tcgen05");
    let config = contraction("abcd,bfde->acfe", "none", small);
    assert!(config.reject(Arch::SM_90A).is_some_and(|why| why.contains("lacks tcgen05")));
    assert_eq!(config.reject(Arch::SM_103A), None);
}
