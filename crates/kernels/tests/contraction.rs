//! Contractions: their text, folding, and programs.

use std::collections::BTreeMap;

use crate::common::{Launch, Tensors, absolute, assemble, bounds, close, ptxas, random, small_hopper};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::contraction::{
    ContractionConfig, Einsum, EinsumError, Folded, Group, Operand, Sizes, reference,
};
use tilewright_kernels::gemm_hopper::{Batch, Cluster, Form, HopperGemmConfig, Major, Pack, Precision};
use tilewright_kernels::{ConfigError, operator};
use tilewright_machine::{Arch, DType};
use tilewright_tile::parse;

fn einsum(text: &str) -> Einsum {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn sizes(all: &[(char, i64)]) -> Sizes {
    all.iter().copied().collect()
}

/// The letters of the modes of M, N, K and L, fastest first.
fn letters(folded: &Folded) -> [Vec<&str>; 4] {
    Group::ALL.map(|group| folded.group(group).iter().map(|mode| mode.letters.as_str()).collect())
}

#[test]
fn texts_are_read_as_torch_does() {
    for (text, shown) in [
        ("mk,kn->mn", "mk,kn->mn"),
        (" b h q d , bhkd -> bhqk ", "bhqd,bhkd->bhqk"),
        ("mk,kn", "mk,kn->mn"),
        ("zk,kA", "zk,kA->Az"),
        ("k,k->", "k,k->"),
        ("a,b->ba", "a,b->ba"),
    ] {
        assert_eq!(einsum(text).to_string(), shown);
        assert_eq!(einsum(shown), einsum(text));
    }
    let all = einsum("abcd,dbef->abfce");
    let groups: Vec<Option<Group>> = "abcdefz".chars().map(|letter| all.group(letter)).collect();
    let [m, n, k, l] = Group::ALL.map(Some);
    assert_eq!(groups, [m, l, m, k, n, n, None]);
    assert_eq!(all.exchanged().to_string(), "dbef,abcd->abfce");
}

#[test]
fn mistakes_name_the_letter_the_operand_and_what_would_be_right() {
    use EinsumError::*;
    use Operand::{A, B, C};
    for (text, error, says) in [
        ("mk->m", Operands(1), "has 2"),
        ("a,b,c->abc", Operands(3), "has 2"),
        ("mk,kn->m->n", Arrows(2), "once is right"),
        ("mk,k1->m", NoLetter { found: '1', operand: B }, "a to z"),
        ("...mk,kn->mn", NoLetter { found: '.', operand: A }, "a to z"),
        ("mkk,kn->mn", Diagonal { letter: 'k', operand: A }, "diagonal first"),
        ("mk,kn->mmn", Diagonal { letter: 'm', operand: C }, "diagonal first"),
        ("mkx,kn->mn", SumOfOne { letter: 'x', operand: A }, "sum the first operand along it first"),
        ("mk,kyn->mn", SumOfOne { letter: 'y', operand: B }, "sum the second operand along it first"),
        ("mk,kn->mnz", NoSource { letter: 'z' }, "those of operands"),
        ("abcdefghijk,k->abcdefghij", TooMany { operand: A, found: 11, most: 10 }, "can be 10"),
    ] {
        let found = text.parse::<Einsum>().unwrap_err();
        assert_eq!(found, error, "{text}");
        assert!(found.to_string().contains(says), "{found}");
    }
    let product = einsum("mk,kn->mn");
    let right = [('m', 4), ('k', 8), ('n', 2)];
    let fold = |sizes: &Sizes| product.fold(sizes, [None; 3]).unwrap_err();
    assert_eq!(fold(&sizes(&right[..2])), NoSize { letter: 'n' });
    assert_eq!(fold(&sizes(&[right[0], right[1], ('n', 0)])), Size { letter: 'n', size: 0 });
    let more = sizes(&[right[0], right[1], right[2], ('z', 3)]);
    assert_eq!(fold(&more), NoIndex { letter: 'z', einsum: "mk,kn->mn".to_string() });
    let large = sizes(&[('m', 1 << 40), ('k', 1 << 40), ('n', 2)]);
    assert_eq!(fold(&large), TooLarge { operand: A });
    let strided = |a: &[i64]| product.fold(&sizes(&right), [Some(a), None, None]).unwrap_err();
    assert_eq!(strided(&[8]), Strides { operand: A, found: 1, wanted: 2 });
    assert_eq!(strided(&[8, 0]), Stride { letter: 'k', operand: A, stride: 0 });
}

#[test]
fn indices_that_lie_in_one_run_everywhere_are_one_mode() {
    let fold = |text: &str, all: &[(char, i64)]| einsum(text).fold(&sizes(all), [None; 3]).unwrap();
    let heads = [('b', 2), ('h', 4), ('q', 16), ('k', 32), ('d', 8)];
    assert_eq!(letters(&fold("bhqd,bhkd->bhqk", &heads)), [vec!["q"], vec!["k"], vec!["d"], vec!["bh"]]);
    // Sequences ahead of heads: b and h do not lie in one run.
    let folded = fold("bqhd,bkhd->bhqk", &heads);
    assert_eq!(letters(&folded), [vec!["q"], vec!["k"], vec!["d"], vec!["h", "b"]]);
    assert_eq!(folded.layout(Operand::A).to_string(), "(16,8,(4,2)):(32,1,(8,512))");
    // The rows of a layer of an MLP, and the summed heads of an output projection.
    let layer = [('b', 3), ('s', 5), ('d', 8), ('f', 16)];
    assert_eq!(letters(&fold("bsd,df->bsf", &layer)), [vec!["bs"], vec!["f"], vec!["d"], vec![]]);
    let projection = [('b', 3), ('q', 5), ('h', 4), ('d', 8), ('e', 16)];
    assert_eq!(letters(&fold("bqhd,hde->bqe", &projection)), [vec!["bq"], vec!["e"], vec!["hd"], vec![]]);
    // One index of size 1 lies between those that then fold.
    let four = [('a', 3), ('b', 1), ('c', 5), ('e', 7), ('f', 4), ('d', 6)];
    assert_eq!(letters(&fold("aebf,dfce->abcd", &four)), [vec!["a"], vec!["d", "c"], vec!["f", "e"], vec![]]);
    let ones = [('m', 1), ('k', 1), ('n', 1)];
    assert_eq!(letters(&fold("mk,kn->mn", &ones)), [const { Vec::<&str>::new() }; 4]);
    assert_eq!(fold("mk,kn->mn", &ones).layout(Operand::A).to_string(), "(1,1):(0,0)");
    // Strides of a larger tensor keep apart what row-major ones fold.
    let slice = [40, 8, 1];
    let strided = einsum("bsd,df->bsf").fold(&sizes(&layer), [Some(&slice), None, None]).unwrap();
    assert_eq!(letters(&strided)[0], ["bs"]);
    let slice = [48, 8, 1];
    let strided = einsum("bsd,df->bsf").fold(&sizes(&layer), [Some(&slice), None, None]).unwrap();
    assert_eq!(letters(&strided)[0], ["s", "b"]);
    assert_eq!(strided.layout(Operand::A).to_string(), "((5,3),8):((8,48),1)");
}

/// Contractions of every kind: those of matrices, with groups that fold and that do not, without a group, and with any order of indices.
const KINDS: &[&str] = &[
    "mk,kn->mn",
    "mk,nk->nm",
    "bhqd,bhkd->bhqk",
    "bqhd,bkhd->bhqk",
    "aebf,dfce->abcd",
    "abcd,dcef->abef",
    "bda,dc->abc",
    "k,k->",
    "a,b->ab",
    "ab,b->a",
    "lab,lb->al",
];

#[test]
fn a_folded_contraction_is_the_same_function() {
    for text in KINDS {
        let einsum = einsum(text);
        for seed in 0..4 {
            let all: Sizes = einsum
                .letters()
                .into_iter()
                .zip(0..)
                .map(|(letter, i)| (letter, 1 + (i + seed) % 4))
                .collect();
            let length = |operand| -> i64 { einsum.indices(operand).iter().map(|l| all[l]).product() };
            let values = |operand, factor: i64| -> Vec<f64> {
                (0..length(operand)).map(|i| (i * factor % 17 - 8) as f64).collect()
            };
            let (a, b) = (values(Operand::A, 5), values(Operand::B, 7));
            let expected = reference(&einsum, &all, &a, &b).unwrap();
            let folded = einsum.fold(&all, [None; 3]).unwrap();
            let [m, n, k, l] = Group::ALL.map(|group| folded.extent(group));
            let place = |operand: Operand, [row, col, batch]: [i64; 3]| {
                let layout = folded.layout(operand);
                let [rows, cols] = match operand {
                    Operand::A => [m, k],
                    Operand::B => [n, k],
                    Operand::C => [m, n],
                };
                layout.eval(row + rows * (col + cols * batch)) as usize
            };
            let mut c = vec![0.0; expected.len()];
            for at in 0..m * n * k * l {
                let [i, j, sum, batch] = [at % m, at / m % n, at / (m * n) % k, at / (m * n * k)];
                let product = a[place(Operand::A, [i, sum, batch])] * b[place(Operand::B, [j, sum, batch])];
                c[place(Operand::C, [i, j, batch])] += product;
            }
            assert_eq!(c, expected, "{text} at {all:?}: {folded:?}");
        }
    }
}

pub fn contraction(text: &str, tile: &str, product: HopperGemmConfig) -> ContractionConfig {
    let tile = tile.parse().unwrap_or_else(|e| panic!("{tile}: {e}"));
    ContractionConfig { einsum: einsum(text), tile, product, ..ContractionConfig::default() }
}

/// Interpreter, simulator and plain loops agree, with sizes of the letters in the order of [`Einsum::letters`]. The texts of the tensor copies
/// of the product, which is the last kernel.
pub fn check(config: &ContractionConfig, extents: &[i64]) -> Vec<String> {
    let letters = config.einsum.letters();
    assert_eq!(letters.len(), extents.len(), "{}", config.einsum);
    let all: Sizes = letters.into_iter().zip(extents.iter().copied()).collect();
    let (plan, given) = (config.plan().unwrap(), config.given().unwrap());
    let programs = config.programs().unwrap_or_else(|e| panic!("{config:?}: {e}"));
    let launched = plan.program_sizes(&all).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(extents.iter().sum::<i64>() as u64);
    let product = &config.product;
    let mut draw = |operand, dtype| {
        let length = given.indices(operand).iter().map(|letter| all[letter]).product();
        random(&mut rng, dtype, length)
    };
    let (a, b) = (draw(Operand::A, product.dtype), draw(Operand::B, product.right()));
    let exact = reference(&given, &all, &a, &b).unwrap();
    let magnitudes = reference(&given, &all, &absolute(&a), &absolute(&b)).unwrap();
    let k = plan.of(Group::K).iter().flat_map(|mode| mode.chars()).map(|letter| all[&letter]).product();
    // Both factors of f32 are cut off behind 11 bits.
    let cut = if product.dtype == DType::F32 { f64::powi(2.0, -9) / DType::F32.epsilon() } else { 0.0 };
    let bound = bounds(product.result(), cut, k, &exact, &magnitudes);
    let tensors: Tensors = [("a".to_string(), a), ("b".to_string(), b)].into();
    let sizes: Vec<(&str, i64)> = launched.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let launch = Launch { programs: &programs, sizes: &sizes, scalars: &[] };
    let arch = if product.form == Form::Tcgen05 { Arch::SM_100A } else { Arch::SM_90A };
    let (simulated, interpreted, _) = launch.run(arch, &[7], &tensors);
    for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
        close(&format!("{who} at {all:?} of {config:?}"), &results["c"], &exact, &bound);
    }
    let kernel = launch.kernels(arch).pop().unwrap();
    let report = kernel.explanation.to_string();
    let copies =
        report.split([' ', '\n']).filter(|word| word.starts_with("tma.")).map(str::to_string).collect();
    if let Some(ptxas) = ptxas() {
        let name = config.einsum.to_string().replace([',', '-', '>'], "_");
        assert_eq!(
            assemble(&ptxas, &format!("contraction_{name}_{k}_{}", product.form), &kernel, arch),
            0,
            "{config:?}"
        );
    }
    copies
}

/// The same of nested modes, all of whose tensors tensor copies read and write.
pub fn check_boxes(config: &ContractionConfig, extents: &[i64]) {
    assert_eq!(config.as_matrices(&config.plan().unwrap()), None, "{}", config.einsum);
    let copies = check(config, extents);
    // Each of the three tensors has its own, once for each place of the program that copies it.
    let count = |kind: &str| copies.iter().filter(|copy| copy.starts_with(kind)).count();
    assert!(count("tma.load") >= 2 && count("tma.store") >= 1, "{}: {copies:?}", config.einsum);
}

/// A contraction with tensors that kernels of their own permute.
pub fn permuted(text: &str, permute: &str, product: HopperGemmConfig) -> ContractionConfig {
    ContractionConfig { permute: permute.parse().unwrap(), ..contraction(text, "none", product) }
}

/// A small product whose threads have registers for copies of their own.
fn by_threads() -> HopperGemmConfig {
    HopperGemmConfig { load_registers: 96, chunk: Some(8), ..small_hopper() }
}

#[test]
fn tiles_over_several_modes_are_boxes_of_as_many_dimensions() {
    let small = small_hopper();
    let bf16 = HopperGemmConfig { dtype: DType::BF16, ..small };
    let swapped = HopperGemmConfig { swap: true, bn: 32, ..small };
    let overlapped = HopperGemmConfig { overlap_epilogue: true, chunk: Some(16), ..bf16 };
    for (text, tile, product, extents) in [
        // Batches in two modes, which no tile spans.
        ("bqhd,bkhd->bhqk", "none", small, vec![2, 70, 3, 72, 64]),
        ("bhqk,bkhd->bqhd", "none", bf16, vec![2, 2, 65, 72, 40]),
        // Every group has two modes, and tiles span them all.
        ("abcd,bfde->acfe", "a4+b2+f2", small, vec![5, 3, 19, 40, 3, 40]),
        ("abcd,bfde->acfe", "a4+b2+f2", swapped, vec![5, 3, 19, 40, 3, 40]),
        ("abcd,bfde->acfe", "a16+b4+f8", overlapped, vec![17, 5, 3, 24, 9, 8]),
        (
            "abcd,bfde->acfe",
            "none",
            HopperGemmConfig { cluster: Cluster::AlongM(2), ..small },
            vec![3, 2, 65, 72, 2, 72],
        ),
        (
            "abcd,bfde->acfe",
            "a2",
            HopperGemmConfig { cluster: Cluster::AlongK(2), ..bf16 },
            vec![3, 2, 33, 72, 2, 72],
        ),
        // Of the TCCG benchmark, in the order of C: a contiguous along m, b along n, both along k.
        ("fbea,ecfd->dcba", "b8+f4+c8", small, vec![6, 10, 16, 16, 10, 16]),
        ("cda,db->cba", "none", bf16, vec![5, 40, 72, 24]),
        ("dca,bd->cba", "c4", small, vec![40, 5, 24, 24]),
        // Of a size that is 1, and of a tile that is larger than its mode.
        ("abcd,bfde->acfe", "a2", small, vec![1, 1, 24, 8, 1, 16]),
        // Columns that leave at a time are a box: 48 of the fastest mode are no multiple of 64, nor of 32.
        (
            "abcd,bfde->acfe",
            "f4",
            HopperGemmConfig { bn: 192, stages: 2, load_registers: 40, ..small },
            vec![2, 2, 9, 8, 5, 56],
        ),
        // Sums in f32.
        ("acb,dbce->ade", "c2", HopperGemmConfig { out: Some(DType::F32), ..small }, vec![70, 3, 40, 2, 24]),
    ] {
        check_boxes(&contraction(text, tile, product), &extents);
    }
}

#[test]
fn factors_are_permuted_to_products_of_matrices() {
    let small = small_hopper();
    for (text, permute, product, extents) in [
        // Both contiguous along other modes than a product of matrices needs.
        ("eafb,fdec->dcba", "ab", small, vec![9, 5, 10, 24, 7, 16]),
        ("fbea,ecfd->dcba", "ab", HopperGemmConfig { dtype: DType::BF16, ..small }, vec![6, 10, 5, 16, 9, 8]),
        // One that keeps its contiguous mode, longer than a tile; the other stays as it is.
        ("abcd,bdn->acn", "a", HopperGemmConfig { split: 2, ..small }, vec![3, 16, 5, 72, 40]),
        ("mab,bna->mn", "b", small, vec![65, 16, 8, 24]),
        // Columns of c are those of the text's first operand.
        ("qba,akb->kq", "a", HopperGemmConfig { out: Some(DType::F32), ..small }, vec![72, 8, 16, 33]),
        // With batches, whose factors are permuted within them.
        ("xalb,lbay->lxy", "ab", small, vec![40, 8, 3, 24, 72]),
        // Of floats of six bits, which a second kernel ahead copies to bytes that instructions read.
        (
            "eafb,fdec->dcba",
            "ab",
            HopperGemmConfig { dtype: DType::E3M2, bk: 128, ..small },
            vec![9, 5, 16, 24, 7, 16],
        ),
    ] {
        let config = permuted(text, permute, product);
        assert!(config.as_matrices(&config.plan().unwrap()).is_some(), "{text}: {:?}", config.plan());
        check(&config, &extents);
    }
    let refused = permuted("mk,nk->mn", "ab", small).programs().unwrap_err().to_string();
    assert!(refused.contains("`a` is as a product of matrices has it"), "{refused}");
    // Boxes of short rows cost more than a copy of each factor.
    let tuning = operator("contraction").unwrap().tuning.unwrap();
    let sizes = ["a", "b", "c", "d", "e", "f"].map(|letter| (letter.to_string(), 72)).into();
    let space = (tuning.space)(Arch::SM_90A.into(), &sizes, &[("einsum", "eafb,fdec->dcba")]).unwrap();
    let chosen = &space.points[0].parameters;
    assert!(chosen.iter().any(|(name, value)| *name == "permute" && value == "ab"), "{chosen:?}");
}

#[test]
fn results_are_permuted_from_products() {
    let small = small_hopper();
    for (text, permute, product, extents, matrices) in [
        // Of the TCCG benchmark: the result is no matrix in any order of the factors.
        ("cadg,bfge->fedcba", "ac", small, vec![3, 24, 16, 24, 2, 5, 8], true),
        ("cadg,bfge->fedcba", "c", small, vec![3, 24, 16, 24, 2, 5, 8], false),
        (
            "cadg,bfge->fedcba",
            "abc",
            HopperGemmConfig { split: 2, ..small },
            vec![3, 24, 16, 40, 2, 5, 8],
            true,
        ),
        // The result alone.
        ("abk,ck->acb", "c", HopperGemmConfig { out: Some(DType::F32), ..small }, vec![9, 24, 40, 33], true),
        ("abk,cdk->bdac", "c", small, vec![9, 24, 40, 5, 16], true),
        // Batches between rows and columns.
        ("lmk,lnk->mln", "c", HopperGemmConfig { dtype: DType::BF16, ..small }, vec![3, 33, 40, 24], true),
    ] {
        let config = permuted(text, permute, product);
        let plan = config.plan().unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(config.as_matrices(&plan).is_some(), matrices, "{text}: {plan:?}");
        check(&config, &extents);
        let behind = config.programs().unwrap().pop().unwrap();
        assert_eq!(behind.params.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["permuted_c", "c"]);
    }
    let refused = |text: &str, epilogue: &str| {
        let product = HopperGemmConfig { epilogue: epilogue.parse().unwrap(), ..small };
        permuted(text, "c", product).programs().unwrap_err().to_string()
    };
    let text = refused("mk,nk->mn", "none");
    assert!(text.contains("`c` is as a product of matrices has it"), "{text}");
    let text = refused("abk,ck->acb", "bias");
    assert!(text.contains("`bias` goes with results that are not permuted"), "{text}");
    // Boxes of c with rows of 24 elements cost more than a copy.
    let tuning = operator("contraction").unwrap().tuning.unwrap();
    let sizes = [("a", 24), ("b", 16), ("c", 24), ("d", 16), ("e", 24), ("f", 16), ("g", 24)];
    let sizes = sizes.map(|(letter, size)| (letter.to_string(), size)).into();
    let space = (tuning.space)(Arch::SM_90A.into(), &sizes, &[("einsum", "cadg,bfge->fedcba")]).unwrap();
    let chosen = &space.points[0].parameters;
    assert!(chosen.iter().any(|(name, value)| *name == "permute" && value.contains('c')), "{chosen:?}");
}

#[test]
fn what_tensor_copies_cannot_take_threads_copy() {
    for (text, tile, extents) in [
        // Rows of 13 elements, of 26 bytes.
        ("bqhd,bkhd->bhqk", "none", vec![2, 9, 3, 13, 7]),
        ("abcd,bfde->acfe", "a4+b2+f2", vec![5, 3, 7, 11, 3, 9]),
        // Contiguous along batches.
        ("mkl,nkl->mnl", "none", vec![17, 24, 5, 9]),
        // Each factor is contiguous along another summed mode.
        ("aebf,dfce->abcd", "e8", vec![4, 16, 5, 24, 9, 3]),
        // c has six modes, of which none fold.
        ("acef,bdef->fabcde", "none", vec![2, 3, 2, 16, 3, 4]),
        // No rows and no columns; no sums.
        ("lka,klb->bla", "none", vec![3, 1, 5, 7]),
    ] {
        check(&contraction(text, tile, by_threads()), &extents);
    }
}

#[test]
fn products_of_matrices_are_those_of_gemm_hopper() {
    use Major::{K, Mn};
    let small = small_hopper();
    for (text, [a, b], batches, extents) in [
        ("mk,nk->mn", [K, K], false, vec![65, 72, 40]),
        ("mk,kn->mn", [K, Mn], false, vec![65, 72, 40]),
        // c is contiguous along the rows of the first operand: the factors change places.
        ("km,kn->nm", [Mn, Mn], false, vec![40, 64, 72]),
        ("bhqd,bhkd->bhqk", [K, K], true, vec![2, 2, 65, 24, 72]),
        ("bsd,df->bsf", [K, Mn], false, vec![2, 33, 24, 72]),
        ("bqhd,hde->bqe", [K, Mn], false, vec![2, 33, 3, 8, 72]),
        // Of a matrix and a vector, of vectors, and without sums.
        ("mk,k->m", [K, K], false, vec![65, 40]),
        ("k,k->", [K, K], false, vec![40]),
        ("a,b->ab", [Mn, Mn], false, vec![24, 72]),
        ("ba,bc->bac", [Mn, Mn], true, vec![2, 24, 72]),
    ] {
        let config = contraction(text, "none", small);
        let product = config.as_matrices(&config.plan().unwrap()).unwrap();
        assert_eq!(([product.a, product.b], product.batch == Batch::Packed), ([a, b], batches), "{text}");
        assert_eq!(config.programs().unwrap(), product.programs().unwrap(), "{text}");
        check(&config, &extents);
    }
    // With all of its forms.
    let few = HopperGemmConfig { form: Form::Gemv, bm: 8, bn: 1, bk: 256, ..HopperGemmConfig::default() };
    check(&contraction("k,mk->m", "none", few), &[300, 9]);
    check(&contraction("mk,nk->mn", "none", HopperGemmConfig { pack: Pack::Both, ..small }), &[9, 33, 65]);
    check(&contraction("mk,nk->mn", "none", HopperGemmConfig { split: 3, ..small }), &[65, 301, 72]);
}

#[test]
fn mistakes_in_configurations_name_the_field_and_what_would_be_right() {
    let says = |text: &str, tile: &str, product: HopperGemmConfig, field: &str, says: &str| {
        let config = contraction(text, tile, product);
        match config.programs() {
            Err(ConfigError::Value { field: found, wanted, .. }) => {
                assert_eq!(found, field, "{config:?}: {wanted}");
                assert!(wanted.contains(says), "{config:?}: {wanted}");
            }
            other => panic!("{config:?}: {other:?}"),
        }
        assert!(config.reject(Arch::SM_90A).is_some_and(|reason| reason.contains(says)));
    };
    let (small, default) = (small_hopper(), HopperGemmConfig::default());
    let four = "abcd,bfde->acfe";
    says(four, "d4", small, "tile", "none of the modes to be named, a, f, b");
    says(four, "a4+a2", small, "tile", "`a` stands twice");
    says(four, "a3", small, "tile", "must divide bm = 64");
    says("mk,nk->mn", "m4", small, "tile", "every group is one mode");
    says(four, "none", HopperGemmConfig { bm: 512, ..small }, "bm", "at most 256");
    says(four, "none", HopperGemmConfig { form: Form::Outer, ..small }, "form", "must be wgmma");
    says(four, "none", HopperGemmConfig { split: 2, ..small }, "split", "cluster=k2");
    says(four, "none", HopperGemmConfig { pack: Pack::A, ..small }, "pack", "must be none");
    let biased = HopperGemmConfig { epilogue: "bias".parse().unwrap(), ..small };
    says(four, "none", biased, "epilogue", "alpha, relu, gelu and silu");
    let eight = HopperGemmConfig { dtype: DType::E4M3, bk: 128, ..small };
    says(four, "none", eight, "einsum", "last index of both operands must be summed");
    // No kernel ahead copies them to types that instructions read: the program's tensors would be of these.
    let six = |dtype, dtype_b| HopperGemmConfig { dtype, dtype_b, bk: 128, ..small };
    let in_lines = "abcd,afbd->abcf";
    says(in_lines, "none", six(DType::E3M2, None), "dtype", "as permute makes others: must be e5m2");
    says(in_lines, "none", six(DType::E5M2, Some(DType::E2M3)), "dtype_b", "must be e4m3");
    says(in_lines, "none", HopperGemmConfig { complex: true, ..small }, "complex", "must be false");
    let parts = HopperGemmConfig { dtype: DType::F32, precision: Precision::Tf32x3, bk: 32, ..small };
    says(in_lines, "none", parts, "precision", "must be tf32");
    let thirds = HopperGemmConfig { bn: 48, chunk: Some(16), ..small };
    says(four, "f4", thirds, "chunk", "no box of a tile of [12, 4]");
    says(four, "f4", HopperGemmConfig { bn: 24, ..small }, "tile", "use multiples of 8");
    says(four, "none", HopperGemmConfig { bn: 100, ..small }, "bn", "multiple of 8");
    for (name, value, wanted) in [
        ("einsum", "mk,kn->m", "`n` stands in the second operand alone"),
        ("tile", "a", "letters of modes with extents"),
        ("tile", "a0", "from 1 to 256"),
    ] {
        let contraction = operator("contraction").unwrap();
        let said = (contraction.programs)(&[(name, value)]).unwrap_err().to_string();
        assert!(said.contains(wanted), "{said}");
    }
    let operator = operator("contraction").unwrap();
    assert!(matches!((operator.programs)(&[("batch", "packed")]), Err(ConfigError::UnknownParameter { .. })));
    assert!(contraction(four, "a4", default).reject(Arch::SM_80).is_some());
    assert_eq!(contraction(four, "a4", default).reject(Arch::SM_90A), None);
}

#[test]
fn epilogues_of_elements_go_with_groups_of_modes() {
    let product = HopperGemmConfig { epilogue: "alpha+relu".parse().unwrap(), ..small_hopper() };
    let programs = contraction("abcd,bfde->acfe", "a4+f2", product).programs().unwrap();
    let text = programs[0].to_string();
    assert!(text.contains("max(") && text.contains("alpha: f32"), "{text}");
}

#[test]
fn programs_print_and_parse_back() {
    for text in KINDS {
        for program in contraction(text, "none", HopperGemmConfig::default()).programs().unwrap() {
            assert_eq!(parse(&program.to_string()).unwrap(), program, "{text}");
        }
    }
}

/// The first choice for sizes of the letters, its programs and their launch.
fn first(
    text: &str,
    extents: &[i64],
) -> (ContractionConfig, Vec<(&'static str, String)>, BTreeMap<String, i64>) {
    let tuning = operator("contraction").unwrap().tuning.unwrap();
    let all = einsum(text).letters().into_iter().map(|letter| letter.to_string());
    let sizes: BTreeMap<String, i64> = all.zip(extents.iter().copied()).collect();
    let space = (tuning.space)(Arch::SM_90A.into(), &sizes, &[("einsum", text)]).unwrap();
    assert!(space.points.is_sorted_by(|a, b| a.estimate <= b.estimate), "{text}");
    let point = space.points.first().unwrap_or_else(|| panic!("{text}: {} refused", space.refused)).clone();
    let given: Vec<(&str, &str)> =
        point.parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!((tuning.reject)(Arch::SM_90A, &given), None, "{given:?}");
    assert_eq!((tuning.point)(Arch::SM_90A.into(), &sizes, &given).unwrap(), point);
    let launch = (tuning.launch)(Arch::SM_90A, &sizes, &given).unwrap().sizes;
    let value =
        |name: &str| point.parameters.iter().find(|(other, _)| *other == name).map(|(_, v)| v.clone());
    let tile = value("tile").unwrap_or_else(|| "none".to_string());
    (contraction(text, &tile, HopperGemmConfig::default()), point.parameters, launch)
}

#[test]
fn first_choices_fit_the_modes_and_need_no_spills() {
    for (text, extents, tiles) in [
        ("bqhd,bkhd->bhqk", vec![8, 2048, 16, 128, 2048], "none"),
        // A tile of m holds whole modes c of 24, and of n modes e of 32.
        ("abcd,bfde->acfe", vec![64, 32, 24, 64, 64, 32], "a"),
        ("fbea,ecfd->dcba", vec![72, 72, 72, 72, 72, 72], ""),
        ("aebf,dfce->abcd", vec![48, 48, 48, 48, 48, 48], ""),
        ("abcd,bfde->acfe", vec![63, 31, 25, 65, 63, 33], ""),
        ("mkl,nkl->mnl", vec![512, 512, 8, 512], ""),
    ] {
        let (config, parameters, launch) = first(text, &extents);
        let tile = config.tile.to_string();
        assert!(tile.contains(tiles), "{text}: {tile}");
        let given: Vec<(&str, &str)> =
            parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let programs = (operator("contraction").unwrap().programs)(&given).unwrap();
        let sizes: Vec<(&str, i64)> = launch.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let kernel =
            Launch { programs: &programs, sizes: &sizes, scalars: &[] }.kernels(Arch::SM_90A).remove(0);
        if let Some(ptxas) = ptxas() {
            let name = format!("contraction_first_{}_{}", text.len(), extents[0]);
            assert_eq!(assemble(&ptxas, &name, &kernel, Arch::SM_90A), 0, "{given:?} at {sizes:?}");
        }
    }
}

#[test]
fn products_of_matrices_are_problems_of_gemm_hopper() {
    let tuning = operator("contraction").unwrap().tuning.unwrap();
    let same = |text: &str, sizes: &[(&str, i64)], given: &[(&str, &str)]| {
        let sizes = sizes.iter().map(|(name, size)| (name.to_string(), *size)).collect();
        let given = [&[("einsum", text)], given].concat();
        (tuning.same)(Arch::SM_90A, &sizes, &given).unwrap()
    };
    let layer = same("bsd,df->bsf", &[("b", 4), ("s", 512), ("d", 1024), ("f", 2048)], &[("dtype", "bf16")]);
    let layer = layer.unwrap();
    assert_eq!(layer.operator, "gemm_hopper");
    let sizes = [("k", 1024), ("m", 2048), ("n", 2048)].map(|(name, size)| (name.to_string(), size));
    assert_eq!(layer.sizes, sizes.into());
    let pinned = [("dtype", "bf16"), ("b", "n")].map(|(name, value)| (name.to_string(), value.to_string()));
    assert_eq!(layer.pinned, pinned);
    let four = [("a", 2), ("b", 3), ("c", 4), ("d", 5), ("e", 6), ("f", 7)];
    assert_eq!(same("abcd,bfde->acfe", &four, &[]), None);
    let missing = BTreeMap::from([("m".to_string(), 4)]);
    let wrong = (tuning.space)(Arch::SM_90A.into(), &missing, &[]).unwrap_err().to_string();
    assert!(wrong.contains("has no size"), "{wrong}");
}
