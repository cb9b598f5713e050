//! Packs: the same kernels come back, the same bytes are made, and what was changed is refused.

use proptest::prelude::*;
use sha2::{Digest, Sha256};
use tilewright_launch::{
    Access, Bound, Corners, DType, Formula, Item, Map, Op, Param, ParamKind, Passed, Recipe, Scalar, Size,
    Swizzle, Target, TensorParam,
};
use tilewright_twpack::{Class, Entry, Image, Pack, PackError, PackFile, Source, Span};

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
        Passed::Map(1),
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
    // Of pixels: images of m rows of m pixels.
    let extents = vec![formula(&[n]), formula(&[m]), formula(&[m])];
    let mut pixels = Map::new(1, DType::F16, vec![64, 128], extents, vec![formula(&[n]), formula(&[n])]);
    (pixels.swizzle, pixels.steps) = (Swizzle::B128, vec![1, 2, 1]);
    pixels.corners = Some(Corners { lower: vec![-1], upper: vec![0] });
    recipe.maps = vec![map, pixels];
    recipe
}

/// The types of the function's parameters.
const TYPES: [&str; 10] =
    [".u64", ".u64", ".u64", ".u64", ".s32", ".u32", ".u32", ".align 64 .b8", ".align 64 .b8", ".u64"];

fn ptx() -> String {
    let param = |(i, ty): (usize, &&str)| {
        let bytes = if ty.ends_with(".b8") { "[128]" } else { "" };
        format!("    .param {ty} scale_param_{i}{bytes}")
    };
    let params: Vec<String> = TYPES.iter().enumerate().map(param).collect();
    format!(
        ".version 8.0\n.target sm_90a\n.visible .entry scale_entry(\n{}\n)\n{{ ret; }}\n",
        params.join(", // p\n")
    )
}

const ELF: &[u8] = b"\x7fELF odd";

/// The recipe for all GPUs from a compute capability on.
fn general(capability: (u32, u32)) -> Recipe {
    let mut recipe = recipe();
    let name = format!("sm_{}{}", capability.0, capability.1);
    recipe.target = Target { name, capability, specific: false };
    recipe
}

fn pack() -> Pack {
    let mut pack = Pack::new("a test");
    let source = Source::new("kernel scale()".into(), vec![("n".into(), 8)], vec![("m".into(), 4)]);
    let scale = Entry::of_ptx(recipe(), ptx()).with_source(source);
    pack.add(scale.with_binary((9, 0), ELF.to_vec())).unwrap();
    let old = general((8, 0));
    pack.add(Entry::of_ptx(old.clone(), ptx().replace("sm_90a", "sm_80"))).unwrap();
    pack.add(Entry::of_binary(old, (8, 6), ELF.to_vec()).named("scale as a binary")).unwrap();
    let mut class = Class::new("scale", ["scale".to_string()]);
    class.options = vec![("dtype".into(), "f32".into())];
    class.sizes = vec![Span::new("n", 17, 4096).multiples_of(8), Span::new("m", 1, i64::MAX)];
    class.device = "a GPU".into();
    pack.add_class(class).unwrap();
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
    let scale = read.get("scale").unwrap();
    assert_eq!(scale.images, [Image::Ptx(ptx()), Image::clone(&scale.images[1])]);
    assert_eq!(scale.ptx(), Some(ptx().as_str()));
    assert_eq!(read.get("scale").unwrap().id().unwrap().len(), 64);
    assert!(read.get("nothing").is_none());
    let classes: Vec<String> = read.operators().iter().map(ToString::to_string).collect();
    assert_eq!(classes, ["scale dtype=f32: n from 17 to 4096 by 8, m from 1 on"]);
    assert_eq!(PackFile::open(bytes).unwrap().operators(), pack.operators());
    let unknown =
        Pack::new("").add_class(Class::new("scale", ["other".to_string()])).unwrap_err().to_string();
    assert_eq!(unknown, "the class `scale` of the pack: names of kernels of the pack is expected");
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
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    // A kernel that is whole is handed out all the same, and the damaged one is not.
    let file = PackFile::open(&damaged[..]).unwrap();
    assert!(file.entry(&file.kernels()[0]).is_ok());
    let error = file.entry(&file.kernels()[2]).unwrap_err().to_string();
    let text =
        "the pack is damaged: the hash of the code of kernel `scale as a binary` is not the one that it has";
    assert_eq!(error, text);
}

/// The pack with its header changed, and lengths and hash that fit.
fn with_header(change: impl FnOnce(String) -> String) -> Vec<u8> {
    let bytes = pack().to_bytes().unwrap();
    let (header, parts) = split(&bytes);
    resealed(&change(header.to_string()), parts)
}

fn split(bytes: &[u8]) -> (&str, &[u8]) {
    let length = u64::from_le_bytes(bytes[8..16].try_into().unwrap()) as usize;
    let header = std::str::from_utf8(&bytes[56..56 + length]).unwrap();
    (header, &bytes[(56 + length).next_multiple_of(16)..])
}

fn resealed(header: &str, parts: &[u8]) -> Vec<u8> {
    let begin = (56 + header.len()).next_multiple_of(16);
    let mut bytes = b"TWPACK\0\x01".to_vec();
    bytes.extend((header.len() as u64).to_le_bytes());
    bytes.extend(((begin + parts.len()) as u64).to_le_bytes());
    bytes.extend(Sha256::digest(header));
    bytes.extend(header.as_bytes());
    bytes.resize(begin, 0);
    bytes.extend(parts);
    bytes
}

fn digits(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A pack of one kernel whose recipe is changed, with all hashes, lengths and places that fit.
fn with_recipe(change: impl FnOnce(String) -> String) -> Vec<u8> {
    let mut one = Pack::new("a test");
    one.add(Entry::of_ptx(recipe(), ptx())).unwrap();
    let bytes = one.to_bytes().unwrap();
    let (header, parts) = split(&bytes);
    let end = parts.windows(2).position(|pair| pair == b"}\0").map_or(parts.len(), |at| at + 1);
    let at = header.split_once("\"at\":").unwrap().1.split_once(',').unwrap().0.to_string();
    let before = std::str::from_utf8(&parts[..end]).unwrap();
    let after = change(before.to_string());
    let begin = after.len().next_multiple_of(16);
    let mut changed = after.clone().into_bytes();
    changed.resize(begin, 0);
    changed.extend(ptx().into_bytes());
    let id = |recipe: &str| {
        digits(format!("{}\nptx {}", digits(recipe.as_bytes()), digits(ptx().as_bytes())).as_bytes())
    };
    let header = header
        .replace(&format!("\"at\":{at},"), &format!("\"at\":{begin},"))
        .replace(&format!("\"bytes\":{}", before.len()), &format!("\"bytes\":{}", after.len()))
        .replace(&digits(before.as_bytes()), &digits(after.as_bytes()))
        .replace(&id(before), &id(&after));
    resealed(&header, &changed)
}

#[test]
fn headers_of_others_are_refused_by_name() {
    assert!(Pack::from_bytes(&with_header(|header| header)).is_ok());
    let replaced = |from: &str, to: &str| {
        Pack::from_bytes(&with_header(|header| {
            assert!(header.contains(from), "{from}: {header}");
            header.replacen(from, to, 1)
        }))
    };
    let digits_of_elf = digits(ELF);
    for (from, to, text) in [
        (
            r#""format":2"#,
            r#""format":9"#,
            "the pack has format 9, and this version reads formats up to 2: take a newer version",
        ),
        (r#""format":2"#, r#""format":"#, "the header of the pack is no JSON that packs have: at byte 10, "),
        (r#""format":2"#, r#""format":-1"#, "the header.format of the pack: an integer in range is expected"),
        (r#""format":2"#, r#""format": 2"#, "the header of the pack is not as packs are written"),
        (r#""format":2"#, r#""format":2,"hidden":[1]"#, "the header of the pack is not as packs are written"),
        (r#""format":2"#, r#""format":1"#, "the header of the pack is not as packs are written"),
        (
            r#"["dtype","f32"]"#,
            r#"["dtype"]"#,
            "the header.operators[0].options[0] of the pack: a name and a value is expected",
        ),
        (
            r#""first":17"#,
            r#""first":4097"#,
            "the header.operators[0] of the pack: sizes from 1 on, and multiples of 1 at least is expected",
        ),
        (
            r#""multiple":8"#,
            r#""multiple":0"#,
            "the header.operators[0] of the pack: sizes from 1 on, and multiples of 1 at least is expected",
        ),
        (
            r#""multiple":8,"name":"n""#,
            r#""multiple":8,"name":"m""#,
            "the header.operators[0] of the pack: each size once is expected",
        ),
        (
            r#""kernels":["scale"]"#,
            r#""kernels":["other"]"#,
            "the header.operators[0] of the pack: names of kernels of the pack is expected",
        ),
        (
            r#""kernels":["scale"]"#,
            r#""kernels":[1]"#,
            "the header.operators[0].kernels[0] of the pack: a text is expected",
        ),
        (
            r#""at":0"#,
            r#""at":16"#,
            "a part of kernel `scale` of the pack does not lie behind the part before it, or leaves the file",
        ),
        (
            r#""at":0"#,
            r#""at":9223372036854775807"#,
            "a part of kernel `scale` of the pack does not lie behind the part before it, or leaves the file",
        ),
        (
            r#""bytes":8,"#,
            r#""bytes":800,"#,
            "a part of kernel `scale` of the pack does not lie behind the part before it, or leaves the file",
        ),
        (
            r#""bytes":8,"#,
            r#""bytes":999999999,"#,
            "the length of a part of the pack is 999999999; 268435456 is the most",
        ),
        (
            r#""kind":"ptx""#,
            r#""kind":"sass""#,
            "the header.kernels[0].code[0].kind of the pack: ptx or binary is expected",
        ),
        (
            r#""capability":[9,0],"hash""#,
            r#""capability":[9],"hash""#,
            "the header.kernels[0].code[1].capability of the pack: two numbers is expected",
        ),
        (
            &digits_of_elf,
            &digits_of_elf.to_uppercase(),
            "the header.kernels[0].code[1].hash of the pack: the digits of a SHA-256 is expected",
        ),
        (
            &digits_of_elf,
            &digits(b"others"),
            "the header.kernels[0].id of the pack: the hash of the hashes of its recipe and code is expected",
        ),
        (
            r#""name":"sm_90a""#,
            r#""name":"sm_90""#,
            "the code of kernel `scale` of the pack: its recipe is for other GPUs than the header says",
        ),
        (
            "sm_90a\",\"specific\":true},\"code",
            "sm_80\"},\"code",
            "the pack has two kernels of the name `scale` for sm_80",
        ),
    ] {
        let error = replaced(from, to).unwrap_err().to_string();
        assert!(error.starts_with(text), "{from} → {to}: {error}");
    }
}

#[test]
fn files_above_the_limits_are_refused_before_anything_is_read() {
    let text = |bytes: &[u8]| Pack::from_bytes(bytes).unwrap_err().to_string();
    let header = format!(r#"{{"format":1,"kernels":[{}0],"made":""}}"#, "0,".repeat(4096));
    assert_eq!(text(&resealed(&header, &[])), "the number of kernels of the pack is 4097; 4096 is the most");
    let header = format!(r#"{{"format":1,"made":"{}"}}"#, "m".repeat(4 << 20));
    let length = header.len();
    let most = 4 << 20;
    assert_eq!(
        text(&resealed(&header, &[])),
        format!("the length of the header of the pack is {length}; {most} is the most")
    );
    // A header that is longer than the file.
    let mut bytes = pack().to_bytes().unwrap();
    bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    let most = bytes.len() - 56;
    assert_eq!(
        text(&bytes),
        format!("the length of the header of the pack is {}; {most} is the most", u64::MAX)
    );
    let mut bytes = vec![0; (256 << 20) + 1];
    bytes[..8].copy_from_slice(b"TWPACK\0\x01");
    bytes[16..24].copy_from_slice(&((256u64 << 20) + 1).to_le_bytes());
    assert_eq!(text(&bytes), "the length of the pack is 268435457; 268435456 is the most");
}

#[test]
fn recipes_of_others_are_refused_by_name() {
    assert!(Pack::from_bytes(&with_recipe(|recipe| recipe)).is_ok());
    for (from, to, text) in [
        (
            r#""threads":128"#,
            r#""threads":4096"#,
            "kernel `scale` of the pack: the number of threads is 4096; it is from 1 to 1024",
        ),
        (
            r#""threads":128"#,
            r#""threads":-1"#,
            "the recipe of `scale`.threads of the pack: an integer in range is expected",
        ),
        (
            r#""threads":128"#,
            r#""threads":0128"#,
            "the recipe of `scale` of the pack is no JSON that packs have: at byte ",
        ),
        (
            r#""threads":128"#,
            r#""threads":128,"tries":1"#,
            "the recipe of `scale` of the pack is not as packs are written: it has something else, or in another form",
        ),
        (
            r#""ceil_div""#,
            r#""ceil""#,
            "the recipe of `scale`.grid[0][2] of the pack: an integer, a size or an operator is expected",
        ),
        (
            r#","ceil_div""#,
            "",
            "the recipe of `scale`.grid[0] of the pack: a formula is not one value: an operator lacks an operand, or a value has no operator",
        ),
        (
            r#""swizzle":128"#,
            r#""swizzle":96"#,
            "the recipe of `scale`.maps[0].swizzle of the pack: 0, 32, 64 or 128 is expected",
        ),
        (
            r#""box":[64,8]"#,
            r#""box":[512,8]"#,
            "kernel `scale` of the pack: an extent of tensor map 0 is 512; it is from 1 to 256",
        ),
        (
            r#""cluster":2"#,
            r#""cluster":64"#,
            "kernel `scale` of the pack: the number of blocks of a cluster is 64; it is from 1 to 16",
        ),
        (
            r#""shared_bytes":1024"#,
            r#""shared_bytes":232449"#,
            "kernel `scale` of the pack: the number of bytes of shared memory is 232449; it is from 0 to 232448",
        ),
        (
            r#"["size",1]"#,
            r#"["size",7]"#,
            "kernel `scale` of the pack: parameter 6 of the function refers to size 7, which the recipe does not have",
        ),
        (
            "scale_entry",
            "other_entry",
            "the code of kernel `scale` of the pack: the entry has another name than the recipe's",
        ),
    ] {
        let error = Pack::from_bytes(&with_recipe(|recipe| {
            assert!(recipe.contains(from), "{from}: {recipe}");
            recipe.replacen(from, to, 1)
        }));
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with(text), "{from} → {to}: {error}");
    }
}

#[test]
fn code_that_is_not_of_the_recipe_is_refused() {
    let refused = |entry: Entry| Pack::new("").add(entry).unwrap_err().to_string();
    let add = |recipe: Recipe, ptx: &str| refused(Entry::of_ptx(recipe, ptx));
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
        add(recipe(), &ptx().replacen(".param .u64 scale_param_0,", ",", 1)),
        of("a parameter of the entry has no type that is known")
    );
    for (from, to) in
        [(".u64 scale_param_0", ".u32 scale_param_0"), (".b8 scale_param_7[128]", ".b8 scale_param_7[64]")]
    {
        let error = add(recipe(), &ptx().replace(from, to));
        assert_eq!(error, of("a parameter of the entry has another number of bytes than the recipe passes"));
    }
    let other = of("its `.target` is another one than the recipe's");
    assert_eq!(add(recipe(), &ptx().replace("sm_90a", "sm_80")), other);
    assert_eq!(add(general((9, 0)), &ptx()), other);
    assert_eq!(
        refused(Entry::of_binary(recipe(), (9, 0), b"no".to_vec())),
        of("a binary does not begin as an ELF file does")
    );
    for entry in [
        Entry::of_binary(recipe(), (10, 0), ELF.to_vec()),
        Entry::of_binary(general((8, 0)), (7, 5), ELF.to_vec()),
    ] {
        assert_eq!(refused(entry), of("a binary is for GPUs that the recipe is not for"));
    }
    let mut none = Entry::of_ptx(recipe(), ptx());
    none.images.clear();
    assert_eq!(refused(none), of("there is none"));
    let mut twice = Entry::of_ptx(recipe(), ptx());
    twice.images.push(Image::Ptx(ptx()));
    assert_eq!(refused(twice), of("the text comes first, then binaries by compute capability, each once"));
    let mut twice = pack();
    let error = twice.add(Entry::of_ptx(recipe(), ptx())).unwrap_err().to_string();
    assert_eq!(error, "the pack has two kernels of the name `scale` for sm_90a");
    let mut named = recipe();
    named.sizes[0].name = "min".into();
    let mut pack = Pack::new("");
    pack.add(Entry::of_ptx(named, ptx())).unwrap();
    assert_eq!(
        pack.to_bytes().unwrap_err().to_string(),
        "size `min` of kernel `scale` has the name of an operator"
    );
}

#[test]
fn a_gpu_gets_the_newest_binary_that_it_runs_or_the_text() {
    let binary = |mark: u8| [ELF, &[mark]].concat();
    let entry = Entry::of_ptx(general((8, 0)), ptx().replace("sm_90a", "sm_80"))
        .with_binary((8, 9), binary(1))
        .with_binary((8, 0), binary(2))
        .with_binary((9, 0), binary(3))
        .with_binary((8, 9), binary(4));
    let mark = |capability| match entry.image_for(capability) {
        Some(Image::Binary { bytes, .. }) => Some(bytes[ELF.len()]),
        Some(_) => Some(0),
        None => None,
    };
    let marks = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0)].map(mark);
    assert_eq!(marks, [None, Some(2), Some(2), Some(4), Some(3), Some(0)]);
    let specific = Entry::of_binary(recipe(), (9, 0), binary(1));
    assert!(specific.image_for((9, 0)).is_some() && specific.image_for((9, 1)).is_none());
    let mut both = Pack::new("");
    both.add(entry).unwrap();
    both.add(specific).unwrap();
    let bytes = both.to_bytes().unwrap();
    assert_eq!(Pack::from_bytes(&bytes).unwrap(), both);
    let ids: Vec<_> = both.entries().iter().map(|entry| entry.id().unwrap()).collect();
    let file = PackFile::open(bytes).unwrap();
    assert_eq!(file.kernels().iter().map(|kernel| kernel.id().to_string()).collect::<Vec<_>>(), ids);
    assert_eq!(file.named("scale").count(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes, and any header with a right hash, are read or refused.
    #[test]
    fn hostile_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..4000, byte in any::<u8>(), cut in 0usize..4000) {
        let _ = Pack::from_bytes(&bytes);
        let _ = Pack::from_bytes(&resealed(&String::from_utf8_lossy(&bytes), &bytes));
        let change = |text: String| {
            let mut text = text.into_bytes();
            let (at, cut) = (at % text.len(), cut % text.len());
            text[at] = byte & 0x7f;
            text.drain(at.min(cut)..at.min(cut) + at.abs_diff(cut) % 3);
            String::from_utf8_lossy(&text).into_owned()
        };
        for changed in [with_header(change), with_recipe(change)] {
            if let Ok(read) = Pack::from_bytes(&changed) {
                prop_assert!(read.entries().iter().all(|entry| entry.recipe.check().is_ok()));
                prop_assert_eq!(read.to_bytes().unwrap(), changed);
            }
        }
    }
}
