//! Packs of others: any bytes, and packs whose recipe, program, code or header are changed while lengths, places and hashes fit. What reads is written again as the same bytes, its recipes are such that
//! launches can follow them, and whatever is computed of them ends in a number or an error.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use tilewright_twpack::{Pack, PackFile};

const RECIPE: &str = include_str!("../seeds/pack/recipe.json");
const PTX: &str = "// a comment\n.version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry scale(\n    .param .u64 x, // x, y\n    .param .u64 y,\n    .param .s32 at,\n    .param .u32 m,\n    .param .u32 n,\n    .param .align 64 .b8 map[128]\n)\n{ ret; }\n";
const SOURCE: &str = r#"{"multiples":[["n",8]],"program":"kernel scale()","sizes":[["m",4]]}"#;
const CLASS: &str = r#"{"device":"a GPU","kernels":["0"],"operator":"gemm","options":[["dtype","f16"],["epilogue","bias"]],"sizes":[{"first":17,"last":4096,"multiple":8,"name":"m"},{"first":1,"last":9223372036854775807,"multiple":1,"name":"n"}]}"#;
const TARGET: &str = r#"{"capability":[9,0],"name":"sm_90a","specific":true}"#;

/// Words of recipes and headers, numbers at their limits, and marks.
const WORDS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "5",
    "8",
    "9",
    "16",
    "31",
    "32",
    "64",
    "65",
    "128",
    "255",
    "256",
    "257",
    "1024",
    "1025",
    "4096",
    "65535",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "1e9",
    "0.5",
    "\"m\"",
    "\"n\"",
    "\"k\"",
    "\"+\"",
    "\"-\"",
    "\"*\"",
    "\"/\"",
    "\"%\"",
    "\"ceil_div\"",
    "\"min\"",
    "\"max\"",
    "\"==\"",
    "\"<\"",
    "\"and\"",
    "\"$0\"",
    "\"$1\"",
    "\"$4095\"",
    "\"$4096\"",
    "\"#0\"",
    "\"#3\"",
    "\"@2\"",
    "\"@0\"",
    "\"[]0\"",
    "\"[]1\"",
    "\"[]64\"",
    "\"f16\"",
    "\"f32\"",
    "\"i32\"",
    "\"e2m1\"",
    "\"u1\"",
    "\"tensor\"",
    "\"number\"",
    "\"size\"",
    "\"map\"",
    "\"records\"",
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "[0]",
    "[[\"m\"]]",
    "\"\"",
    "\"sm_80\"",
    "\"sm_90a\"",
    "\\u0000",
    "\\n",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "\"",
    ".entry",
    ".param",
    ".target",
    "(",
    ")",
    "//",
    "/*",
    "*/",
    ".b8",
    ".u64",
    ".align 64",
];

/// A change of a text.
#[derive(Arbitrary, Debug)]
enum Change {
    /// A value of JSON, by its number, becomes a word.
    Value(u16, u8),
    /// A word somewhere.
    Insert(u16, u8),
    /// A byte somewhere.
    Byte(u16, u8),
    /// A part is left out.
    Cut(u16, u8),
    /// A part stands twice.
    Twice(u16, u8),
}

fn changed(text: &str, changes: &[Change]) -> String {
    let mut text = text.to_string();
    let word = |number: u8| WORDS[usize::from(number) % WORDS.len()];
    for change in changes {
        let at = |place: u16, text: &str| {
            let mut at = usize::from(place) % (text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        match *change {
            Change::Value(number, to) => {
                // Between marks lie values, names of fields, and nothing.
                let marks = |c: char| matches!(c, '[' | ']' | '{' | '}' | ',' | ':');
                let parts: Vec<(usize, &str)> = text
                    .split(marks)
                    .filter(|part| !part.is_empty())
                    .map(|part| (part.as_ptr() as usize - text.as_ptr() as usize, part))
                    .collect();
                let Some(&(begin, part)) = parts.get(usize::from(number) % parts.len().max(1)) else {
                    continue;
                };
                let end = begin + part.len();
                text.replace_range(begin..end, word(to));
            }
            Change::Insert(place, of) => {
                let place = at(place, &text);
                text.insert_str(place, word(of));
            }
            Change::Byte(place, byte) => {
                let place = at(place, &text);
                text.insert(place, char::from(byte));
            }
            Change::Cut(place, length) => {
                let (begin, end) = (at(place, &text), at(place.saturating_add(u16::from(length)), &text));
                text.replace_range(begin.min(end)..begin.max(end), "");
            }
            Change::Twice(place, length) => {
                let (begin, end) = (at(place, &text), at(place.saturating_add(u16::from(length)), &text));
                let part = text[begin.min(end)..begin.max(end)].to_string();
                text.insert_str(begin, &part);
            }
        }
    }
    text
}

/// A kernel of a pack before it is sealed.
#[derive(Arbitrary, Debug)]
struct Kernel {
    name: u8,
    recipe: Vec<Change>,
    ptx: Vec<Change>,
    binary: Option<Vec<u8>>,
    source: Option<Vec<Change>>,
}

#[derive(Arbitrary, Debug)]
struct Input {
    kernels: Vec<Kernel>,
    classes: Vec<Vec<Change>>,
    header: Vec<Change>,
    sizes: [i64; 2],
    at: Option<i64>,
}

fn digits(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The file of these kernels: everything fits that a writer would make fit.
fn sealed(input: &Input) -> Vec<u8> {
    let mut parts: Vec<u8> = Vec::new();
    let mut put = |bytes: &[u8]| {
        parts.resize(parts.len().next_multiple_of(16), 0);
        let at = parts.len();
        parts.extend_from_slice(bytes);
        format!("\"at\":{at},\"bytes\":{},", bytes.len())
    };
    let kernels: Vec<String> = input
        .kernels
        .iter()
        .take(3)
        .map(|kernel| {
            let recipe = changed(RECIPE.trim_end(), &kernel.recipe);
            let ptx = changed(PTX, &kernel.ptx);
            let hash = digits(recipe.as_bytes());
            let of_recipe = format!("{{{}\"hash\":\"{hash}\"}}", put(recipe.as_bytes()));
            let mut id = format!("{hash}\nptx {}", digits(ptx.as_bytes()));
            let mut code = format!("{{{}\"hash\":\"{}\",\"kind\":\"ptx\"}}", put(ptx.as_bytes()), digits(ptx.as_bytes()));
            if let Some(bytes) = &kernel.binary {
                let bytes = [b"\x7fELF", &bytes[..]].concat();
                let hash = digits(&bytes);
                let place = put(&bytes);
                code += &format!(",{{{place}\"capability\":[9,0],\"hash\":\"{hash}\",\"kind\":\"binary\"}}");
                id += &format!("\nbinary 9.0 {hash}");
            }
            let source = match &kernel.source {
                None => String::new(),
                Some(changes) => {
                    let text = changed(SOURCE, changes);
                    format!(",\"source\":{{{}\"hash\":\"{}\"}}", put(text.as_bytes()), digits(text.as_bytes()))
                }
            };
            let (id, name) = (digits(id.as_bytes()), kernel.name % 4);
            format!("{{\"arch\":{TARGET},\"code\":[{code}],\"id\":\"{id}\",\"name\":\"{name}\",\"recipe\":{of_recipe}{source}}}")
        })
        .collect();
    let kernels =
        if kernels.is_empty() { String::new() } else { format!("\"kernels\":[{}],", kernels.join(",")) };
    let classes: Vec<String> = input.classes.iter().take(3).map(|changes| changed(CLASS, changes)).collect();
    let (format, classes) = match &classes[..] {
        [] => (1, String::new()),
        classes => (2, format!(",\"operators\":[{}]", classes.join(","))),
    };
    let header = changed(&format!("{{\"format\":{format},{kernels}\"made\":\"a fuzzer\"{classes}}}"), &input.header);
    let begin = (56 + header.len()).next_multiple_of(16);
    let mut bytes = b"TWPACK\0\x01".to_vec();
    bytes.extend((header.len() as u64).to_le_bytes());
    bytes.extend(((begin + parts.len()) as u64).to_le_bytes());
    bytes.extend(Sha256::digest(&header));
    bytes.extend(header.as_bytes());
    bytes.resize(begin, 0);
    bytes.extend(parts);
    bytes
}

fuzz_target!(|data: &[u8]| {
    let _ = Pack::from_bytes(data);
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(data)) else { return };
    let bytes = sealed(&input);
    let plain = |kernel: &Kernel| {
        kernel.recipe.is_empty() && kernel.ptx.is_empty() && kernel.source.as_ref().is_none_or(Vec::is_empty)
    };
    let names: std::collections::BTreeSet<u8> =
        input.kernels.iter().take(3).map(|kernel| kernel.name % 4).collect();
    let pack = match Pack::from_bytes(&bytes) {
        Ok(pack) => pack,
        Err(error) => {
            // What nobody has changed is read.
            let unchanged = input.header.is_empty()
                && input.kernels.iter().take(3).all(plain)
                && (input.classes.is_empty() || names.contains(&0))
                && input.classes.iter().take(3).all(Vec::is_empty)
                && names.len() == input.kernels.len().min(3);
            assert!(!unchanged, "{error}");
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert_eq!(pack.to_bytes().as_deref(), Ok(&bytes[..]));
    let file = PackFile::open(&bytes[..]).expect("it was read before");
    for class in file.operators() {
        assert!(class.kernels.iter().all(|name| pack.get(name).is_some()));
        let _ = (class.has(&[("m", input.sizes[0]), ("n", input.sizes[1])]), class.to_string());
    }
    for (entry, listed) in pack.entries().iter().zip(file.kernels()) {
        assert_eq!(entry.recipe.check(), Ok(()));
        assert_eq!(entry.id().as_deref(), Ok(listed.id()));
        let _ = entry.recipe.check_bounds(&input.sizes, &[None, None, input.at]);
        let _ = entry.recipe.check_bounds(&[], &[]);
        for formula in &entry.recipe.grid {
            let _ = formula.value(&input.sizes);
        }
        let _ = entry.image_for((9, 0));
    }
});
