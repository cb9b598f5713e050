//! Packs: the same kernels come back, the same bytes are made, and what was changed is refused.

use proptest::prelude::*;
use sha2::{Digest, Sha256};
use tilewright_launch::{
    Access, Bound, DType, Formula, Item, Map, Op, Param, ParamKind, Passed, Recipe, Scalar, Size, Swizzle,
    Target, TensorParam,
};
use tilewright_pack::{Entry, Image, Pack, PackError, Source};

fn formula(items: &[Item]) -> Formula {
    Formula::new(items.to_vec()).unwrap()
}

/// A recipe that has something of everything.
fn recipe() -> Recipe {
    let target = Target { name: "sm_90a".into(), capability: (9, 0), specific: true };
    let mut recipe = Recipe::new("scale", "scale_entry", target);
    (recipe.threads, recipe.cluster, recipe.shared_bytes, recipe.waits) = (128, 2, 1024, true);
    (recipe.resident, recipe.records) = (true, Some(4096));
    recipe.sizes = vec![Size::new("m", 4, 1 << 30), Size::new("n", 256, 1 << 30)];
    recipe.sizes[1].multiple = 8;
    let (m, n) = (Item::Size(0), Item::Size(1));
    let shape = vec![formula(&[m]), formula(&[n])];
    let mut x = TensorParam::new(DType::F16, shape.clone(), vec![formula(&[n]), Formula::int(1)]);
    let mut y = x.clone();
    (x.constant, y.access, y.alignment, y.workspace) = (true, Access::Write, 128, true);
    let mut each = TensorParam::new(DType::E4M3, shape, vec![formula(&[n]), Formula::int(1)]);
    each.array = true;
    recipe.params = vec![
        Param::new("x", ParamKind::Tensor(x)),
        Param::new("y", ParamKind::Tensor(y)),
        Param::new("each", ParamKind::Tensor(each)),
        Param::new("one", ParamKind::Tensor(TensorParam::new(DType::I32, vec![], vec![]))),
        Param::new("at", ParamKind::Scalar(Scalar::I32)),
    ];
    recipe.passed = vec![
        Passed::Tensor(0),
        Passed::Tensor(1),
        Passed::Tensor(2),
        Passed::Tensor(3),
        Passed::Scalar(4),
        Passed::Size(0),
        Passed::Size(1),
        Passed::Map(0),
        Passed::Records,
    ];
    recipe.grid = vec![formula(&[n, Item::Int(128), Item::Op(Op::CeilDiv)]), formula(&[m])];
    let fits =
        |items: &[Item]| Bound::Fits { what: "an offset of `x`".into(), formula: formula(items), reach: -3 };
    recipe.bounds = vec![
        Bound::Range {
            what: "a loop".into(),
            counter: 0,
            least: Formula::int(0),
            most: formula(&[m]),
            beyond: -1,
            body: 2,
        },
        Bound::When {
            what: "a branch".into(),
            condition: formula(&[Item::Counter(0), m, Item::Op(Op::Ne)]),
            body: 1,
        },
        fits(&[Item::Block(1), Item::Scalar(4), Item::Op(Op::Mul)]),
        fits(&[m, Item::Element(1), n, Item::Op(Op::Min)]),
    ];
    let extents = vec![formula(&[n]), formula(&[m])];
    let mut map = Map::new(1, DType::F16, vec![64, 8], extents, vec![formula(&[n])]);
    (map.swizzle, map.steps[1]) = (Swizzle::B128, 2);
    recipe.maps = vec![map];
    recipe
}

fn ptx() -> String {
    let params: Vec<String> = (0..9).map(|i| format!("    .param .u64 scale_param_{i}")).collect();
    format!(
        ".version 8.0\n.target sm_90a\n.visible .entry scale_entry(\n{}\n)\n{{ ret; }}\n",
        params.join(", // p\n")
    )
}

fn pack() -> Pack {
    let mut pack = Pack::new("a test");
    let source = Source::new("kernel scale()".into(), vec![("n".into(), 8)], vec![("m".into(), 4)]);
    pack.add(Entry::of_ptx(recipe(), ptx()).with_source(source)).unwrap();
    pack.add(Entry::of_binary(recipe(), b"\x7fELF odd".to_vec()).named("scale as a binary")).unwrap();
    pack
}

#[test]
fn what_is_read_is_what_was_written() {
    let pack = pack();
    let bytes = pack.to_bytes().unwrap();
    let read = Pack::from_bytes(&bytes).unwrap();
    assert_eq!(read, pack);
    assert_eq!(read.to_bytes().unwrap(), bytes);
    assert_eq!(read.made(), "a test");
    assert_eq!(read.get("scale").unwrap().recipe, recipe());
    assert_eq!(read.get("scale").unwrap().image, Image::Ptx(ptx()));
    assert_eq!(read.get("scale").unwrap().id().unwrap().len(), 64);
    assert!(read.get("nothing").is_none());
    assert_eq!(Pack::from_bytes(&Pack::new("").to_bytes().unwrap()).unwrap().entries().len(), 0);
}

#[test]
fn every_damaged_byte_is_found() {
    let bytes = pack().to_bytes().unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(Pack::from_bytes(&damaged).is_err(), "byte {at}");
    }
    assert_eq!(Pack::from_bytes(&bytes[..10]), Err(PackError::Magic));
    assert!(matches!(Pack::from_bytes(&bytes[..bytes.len() - 1]), Err(PackError::Length { .. })));
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(matches!(Pack::from_bytes(&longer), Err(PackError::Length { .. })));
}

/// The pack with its header changed, and lengths and hash that fit.
fn with_header(change: impl FnOnce(String) -> String) -> Vec<u8> {
    let bytes = pack().to_bytes().unwrap();
    let length = u64::from_le_bytes(bytes[8..16].try_into().unwrap()) as usize;
    let header = String::from_utf8(bytes[56..56 + length].to_vec()).unwrap();
    let header = change(header);
    resealed(&header, &bytes[(56 + length).next_multiple_of(16)..])
}

fn resealed(header: &str, code: &[u8]) -> Vec<u8> {
    let mut content = header.as_bytes().to_vec();
    content.resize((56 + header.len()).next_multiple_of(16) - 56, 0);
    content.extend(code);
    let mut bytes = b"TWPACK\0\x01".to_vec();
    bytes.extend((header.len() as u64).to_le_bytes());
    bytes.extend((56 + content.len() as u64).to_le_bytes());
    bytes.extend(Sha256::digest(&content));
    bytes.extend(content);
    bytes
}

#[test]
fn headers_of_others_are_refused_by_name() {
    assert!(Pack::from_bytes(&with_header(|header| header)).is_ok());
    for (from, to, text) in [
        (
            r#""format":1"#,
            r#""format":9"#,
            "the pack has format 9, and this version reads formats up to 1: take a newer version",
        ),
        (
            r#""threads":128"#,
            r#""threads":4096"#,
            "kernel `scale` of the pack: the number of threads is 4096; it is from 1 to 1024",
        ),
        (r#""threads":128"#, r#""threads":"#, "the header of the pack is no JSON: "),
        (
            r#""threads":128"#,
            r#""threads":-1"#,
            "the header.kernels[0].recipe.threads of the pack: an integer in range is expected",
        ),
        (
            r#""ceil_div""#,
            r#""ceil""#,
            "the header.kernels[0].recipe.grid[0][2] of the pack: an integer, a size or an operator is expected",
        ),
        (
            r#","ceil_div""#,
            "",
            "the header.kernels[0].recipe.grid[0] of the pack: a formula is not one value: an operator lacks an operand, or a value has no operator",
        ),
        (
            r#""at":0"#,
            r#""at":16"#,
            "the code of kernel `scale` of the pack lies outside of the file, or where other code lies",
        ),
        (
            r#""kind":"ptx""#,
            r#""kind":"sass""#,
            "the header.kernels[0].code.kind of the pack: ptx or binary is expected",
        ),
        (
            "scale_entry",
            "other_entry",
            "the header.kernels[0].id of the pack: the hash of its recipe and code is expected",
        ),
        ("scale as a binary", "scale", "the pack has two kernels of the name `scale`"),
        (
            r#""swizzle":128"#,
            r#""swizzle":96"#,
            "the header.kernels[0].recipe.maps[0].swizzle of the pack: 0, 32, 64 or 128 is expected",
        ),
        (
            r#"["size",1]"#,
            r#"["size",7]"#,
            "kernel `scale` of the pack: parameter 6 of the function refers to size 7, which the recipe does not have",
        ),
    ] {
        let error = Pack::from_bytes(&with_header(|header| {
            assert!(header.contains(from), "{from}");
            header.replacen(from, to, 1)
        }));
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with(text), "{from} → {to}: {error}");
    }
}

#[test]
fn code_that_is_not_of_the_recipe_is_refused() {
    let add =
        |recipe: Recipe, ptx: &str| Pack::new("").add(Entry::of_ptx(recipe, ptx)).unwrap_err().to_string();
    let of = |reason: &str| format!("the code of kernel `scale` of the pack: {reason}");
    assert_eq!(add(recipe(), "a\0b"), of("the text has a NUL character"));
    assert_eq!(add(recipe(), "nothing"), of("the text has not exactly one `.entry`"));
    assert_eq!(add(recipe(), &format!("{0}{0}", ptx())), of("the text has not exactly one `.entry`"));
    assert_eq!(
        add(recipe(), &ptx().replace("entry scale_entry", "entry other")),
        of("the entry has another name than the recipe's")
    );
    assert_eq!(
        add(recipe(), &ptx().replacen(".param .u64 scale_param_0,", "", 1)),
        of("the entry has another number of parameters than the recipe")
    );
    assert_eq!(
        add(recipe(), &ptx().replace("sm_90a", "sm_80")),
        of("its `.target` is another one than the recipe's")
    );
    let error = Pack::new("").add(Entry::of_binary(recipe(), b"no".to_vec())).unwrap_err().to_string();
    assert_eq!(error, of("it does not begin as an ELF file does"));
    let mut named = recipe();
    named.sizes[0].name = "min".into();
    let mut pack = Pack::new("");
    pack.add(Entry::of_ptx(named, ptx())).unwrap();
    assert_eq!(
        pack.to_bytes().unwrap_err().to_string(),
        "size `min` of kernel `scale` has the name of an operator"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes, and any header with a right hash, are read or refused.
    #[test]
    fn hostile_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..4000, byte in any::<u8>(), cut in 0usize..4000) {
        let _ = Pack::from_bytes(&bytes);
        let _ = Pack::from_bytes(&resealed(&String::from_utf8_lossy(&bytes), &bytes));
        let changed = with_header(|header| {
            let mut header = header.into_bytes();
            let (at, cut) = (at % header.len(), cut % header.len());
            header[at] = byte & 0x7f;
            header.drain(at.min(cut)..at.min(cut) + at.abs_diff(cut) % 3);
            String::from_utf8_lossy(&header).into_owned()
        });
        if let Ok(read) = Pack::from_bytes(&changed) {
            prop_assert!(read.entries().iter().all(|entry| entry.recipe.check().is_ok()));
        }
    }
}
