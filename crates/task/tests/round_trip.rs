//! Text → program → text: random programs print to a text that reads back to them. Texts that are no programs are refused, and nothing panics.

use proptest::prelude::*;
use rand_words::Words;
use tilewright_task::{parse, verify};

/// Random choices, by the numbers of splitmix64.
mod rand_words {
    pub struct Words(pub u64);

    impl Words {
        pub fn below(&mut self, count: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) % count.max(1) as u64) as usize
        }

        pub fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
            of[self.below(of.len())]
        }

        pub fn is(&mut self) -> bool {
            self.below(2) == 0
        }

        /// So many of a thing, with commas between.
        pub fn list(&mut self, count: usize, mut one: impl FnMut(&mut Self) -> String) -> String {
            (0..count).map(|_| one(self)).collect::<Vec<_>>().join(", ")
        }
    }
}

/// A variant under construction: names in sight.
struct Scope {
    integers: Vec<String>,
    /// Names and ranks.
    tensors: Vec<(String, usize)>,
    /// Names and the number of colours.
    partitions: Vec<(String, usize)>,
    made: usize,
}

/// A task's name, and the kinds of its formals: the ranks of tensors.
struct Signature {
    name: String,
    formals: Vec<Option<usize>>,
    text: String,
    extents: Vec<String>,
}

fn integer(w: &mut Words, scope: &Scope, depth: usize) -> String {
    match w.below(if depth == 0 { 2 } else { 6 }) {
        0 => w.below(9).to_string(),
        1 if !scope.integers.is_empty() => scope.integers[w.below(scope.integers.len())].clone(),
        1 => "3".to_string(),
        2 => format!("ceil_div({}, {})", integer(w, scope, depth - 1), 1 + w.below(5)),
        3 => format!("min({}, {})", integer(w, scope, depth - 1), integer(w, scope, depth - 1)),
        _ => {
            let sign = w.one(&["+", "-", "*", "/", "%"]);
            format!("({} {sign} {})", integer(w, scope, depth - 1), integer(w, scope, depth - 1))
        }
    }
}

fn condition(w: &mut Words, scope: &Scope) -> String {
    let sign = w.one(&["==", "!=", "<", "<=", ">", ">="]);
    let one = format!("{} {sign} {}", integer(w, scope, 1), integer(w, scope, 1));
    if w.is() { one } else { format!("{one} {} {} == 1", w.one(&["and", "or"]), integer(w, scope, 1)) }
}

fn signature(w: &mut Words, number: usize) -> Signature {
    let name = format!("t{number}");
    let (mut formals, mut extents) = (Vec::new(), Vec::new());
    let count = 1 + w.below(3);
    let text = (0..count)
        .map(|i| match w.below(5) {
            0 => {
                formals.push(None);
                let kind = w.one(&["f32", "i32", "i32 = -4", "f32 = 0.5"]);
                format!("s{i}: {kind}")
            }
            _ => {
                let rank = 1 + w.below(2);
                formals.push(Some(rank));
                let shape = w.list(rank, |w| {
                    let extent = w.one(&["M", "N", "K", "D", "8"]).to_string();
                    if extent.len() == 1 && !"D8".contains(&extent) && !extents.contains(&extent) {
                        extents.push(extent.clone());
                    }
                    extent
                });
                let privilege = w.one(&["read", "write", "read_write", "add"]);
                format!("x{i}: {privilege} {}[{shape}]", w.one(&["f16", "f32"]))
            }
        })
        .collect::<Vec<_>>()
        .join(", ");
    Signature { name, formals, text, extents }
}

fn statements(
    w: &mut Words,
    scope: &mut Scope,
    tasks: &[Signature],
    depth: usize,
    labels: &mut usize,
) -> String {
    let mut text = String::new();
    for _ in 0..1 + w.below(4) {
        scope.made += 1;
        let made = scope.made;
        match w.below(6) {
            0 => {
                text += &format!("v{made} = {}\n", integer(w, scope, 2));
                scope.integers.push(format!("v{made}"));
            }
            1 => {
                let rank = 1 + w.below(2);
                let shape = w.list(rank, |w| integer(w, scope, 1));
                text += &format!("y{made} = tensor({}, [{shape}])\n", w.one(&["f16", "f32"]));
                scope.tensors.push((format!("y{made}"), rank));
            }
            2 if !scope.tensors.is_empty() => {
                let (tensor, rank) = scope.tensors[w.below(scope.tensors.len())].clone();
                let (kind, colours) = match w.below(4) {
                    0 => (
                        format!("tv({tensor}, ((4,2),(2,2)):((2,8),(1,4)), {})", w.one(&["warp", "thread"])),
                        1,
                    ),
                    1 => {
                        let operand = w.one(&["A", "B", "C"]);
                        (format!("mma({tensor}, mma_16x8x16, thread, {operand})"), 1)
                    }
                    _ => {
                        let shape = w.list(rank, |w| integer(w, scope, 1));
                        (format!("blocks({tensor}, [{shape}])"), rank)
                    }
                };
                text += &format!("p{made} = {kind}\n");
                scope.partitions.push((format!("p{made}"), colours));
            }
            3 if depth > 0 => {
                let count = 1 + w.below(2);
                let before = (scope.integers.len(), scope.tensors.len(), scope.partitions.len());
                let ranges = w.list(count, |w| match w.is() {
                    true => integer(w, scope, 1),
                    false => format!("{}..{}", integer(w, scope, 1), integer(w, scope, 1)),
                });
                let names: Vec<String> = (0..count).map(|i| format!("c{made}_{i}")).collect();
                scope.integers.extend(names.clone());
                let body = statements(w, scope, tasks, depth - 1, labels);
                let kind = w.one(&["srange", "prange"]);
                text += &format!("for {} in {kind}({ranges}) {{\n{body}}}\n", names.join(", "));
                scope.integers.truncate(before.0);
                scope.tensors.truncate(before.1);
                scope.partitions.truncate(before.2);
            }
            _ => {
                let task = &tasks[w.below(tasks.len())];
                let arguments: Option<Vec<String>> = task
                    .formals
                    .iter()
                    .enumerate()
                    .map(|(i, formal)| match formal {
                        None if task.text.contains(&format!("s{i}: f32")) => {
                            Some(w.one(&["LOW", "0.5", "-2.0"]).to_string())
                        }
                        None => Some(integer(w, scope, 1)),
                        Some(_) if w.is() && !scope.partitions.is_empty() => {
                            let (name, colours) = scope.partitions[w.below(scope.partitions.len())].clone();
                            let piece = format!("{name}[{}]", w.list(colours, |w| integer(w, scope, 1)));
                            let when =
                                if w.is() { format!(" when {}", condition(w, scope)) } else { String::new() };
                            Some(piece + &when)
                        }
                        Some(_) if scope.tensors.is_empty() => None,
                        Some(_) => Some(scope.tensors[w.below(scope.tensors.len())].0.clone()),
                    })
                    .collect();
                let Some(arguments) = arguments else { continue };
                let label = if w.is() {
                    *labels += 1;
                    format!("l{}: ", *labels - 1)
                } else {
                    String::new()
                };
                text += &format!("{label}launch {}({})\n", task.name, arguments.join(", "));
            }
        }
    }
    text
}

/// A program that the parser takes; the verifier need not.
fn program(seed: u64) -> String {
    let w = &mut Words(seed);
    let tasks: Vec<Signature> = (0..1 + w.below(3)).map(|number| signature(w, number)).collect();
    let mut text =
        "size m = 100, n = 8\nconst D = 16, E = 2 * D\nsize k = 9\nconst LOW = -1.5e3\n".to_string();
    let mut rows = String::new();
    for (number, task) in tasks.iter().enumerate() {
        let mut tensors: Vec<(String, usize)> = Vec::new();
        let mut integers: Vec<String> = task.extents.clone();
        for (i, formal) in task.formals.iter().enumerate() {
            match formal {
                Some(rank) => tensors.push((format!("x{i}"), *rank)),
                None if task.text.contains(&format!("s{i}: i32")) => integers.push(format!("s{i}")),
                None => {}
            }
        }
        integers.push("D".to_string());
        let mut scope = Scope { integers, tensors: tensors.clone(), partitions: Vec::new(), made: 0 };
        let mut labels = 0;
        scope.integers.push("U".to_string());
        let body = statements(w, &mut scope, &tasks, 2, &mut labels);
        let fills: String =
            tensors.iter().map(|(name, _)| format!("fill({name}, LOW)\nz{name} = {name} + 1.0\n")).collect();
        text += &format!(
            "task {}({}) {{\ninner a {{\ntunable U, P: processor\n{body}}}\nleaf b {{\n{fills}}}\n}}\n",
            task.name, task.text
        );
        let memories =
            w.list(tensors.len(), |w| w.one(&["none", "global", "shared", "register"]).to_string());
        let memories = if tensors.is_empty() || w.is() { String::new() } else { format!("({memories})") };
        let entry = if number == 0 { "entry " } else { "" };
        let attribute = w.one(&[
            "",
            " warpspecialize",
            " warpspecialize(2, store)",
            " pipeline(2..D)",
            " shared <= 1000 warps(4)",
            " persistent",
            " persistent(grouped(2, serpentine))",
            " persistent(hilbert(3)) in_flight(1)",
            " registers(24, 240)",
            " space { U = 1 | 2..8 step 2, pipeline = 2..4, late = none }",
        ]);
        let late = if labels > 0 { " late(l0)" } else { "" };
        rows += &format!(
            "{entry}row{number} = {}.a on {}{memories} {{ U = D, P = warp }}{attribute}{late}\n{}.b on block\n",
            task.name,
            w.one(&["host", "block", "thread"]),
            task.name
        );
    }
    text + &format!("mapping m for {} {{\n{rows}}}\n", w.one(&["sm_80", "sm_90a"]))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn what_is_printed_reads_back(seed in any::<u64>()) {
        let text = program(seed);
        let program = parse(&text).map_err(|errors| TestCaseError::fail(format!("{errors}\n{text}")))?;
        let printed = program.to_string();
        let again = parse(&printed).map_err(|errors| TestCaseError::fail(format!("{errors}\n{printed}")))?;
        prop_assert_eq!(&again, &program, "{}", printed);
        prop_assert_eq!(again.to_string(), printed);
        // Right or wrong, and no panic.
        let _ = verify(&program, &Default::default());
    }

    #[test]
    fn texts_with_a_part_cut_out_are_read_without_panic(seed in any::<u64>(), at in 0.0..1.0, length in 1usize..9) {
        let mut text = program(seed);
        let from = (text.len() as f64 * at) as usize;
        let to = (from + length).min(text.len());
        text.replace_range(from..to, "");
        if let Ok(program) = parse(&text) {
            let _ = verify(&program, &Default::default());
        }
    }
}
