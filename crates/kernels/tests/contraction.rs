//! Contractions: their text, folding, and programs.

use tilewright_kernels::contraction::{Einsum, EinsumError, Folded, Group, Operand, Sizes, reference};

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
        ("abcdefghijklm,m->abcdefghijkl", TooMany { operand: A, found: 13, most: 12 }, "can be 12"),
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
