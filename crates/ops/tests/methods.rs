//! Every operator has a method by position, whose arguments are those of the operator's programs, and every method runs.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use common::{Turn, view, view_mut, workspace};
use tilewright_compiler::recipe::outline;
use tilewright_kernels::{OPERATORS, Operator, operator};
use tilewright_launch::{Access, DType, ParamKind, Recipe, Stream, TensorParam, View, ViewMut, Workspace};
use tilewright_machine::{Arch, Feature, Features};
use tilewright_ops::{Call, Library};
use tilewright_tile::{Constants, verify};

/// Something that is given a method's call.
type Told<'a> = &'a dyn Fn(&Call<'_>);

/// A row of the tables of methods.
struct Method {
    name: &'static str,
    operator: &'static str,
    /// Options of all its calls.
    set: &'static [(&'static str, &'static str)],
    /// Names of the tensors that it reads, and of those that it writes.
    tensors: [&'static [&'static str]; 2],
    /// Kinds and parameters of further methods.
    more: &'static [(&'static str, &'static str)],
    /// Gives the method its tensors, and something the call.
    call: fn(&Library, Stream<'_>, &[View<'_>], &mut [ViewMut<'_>], Told<'_>),
    /// Runs it with a workspace and with its numbers.
    run: fn(&Library, Stream<'_>, &[View<'_>], &mut [ViewMut<'_>], Workspace<'_>),
}

/// Makes data of the rows of which the crate makes methods.
macro_rules! operators {
    (@number $call:ident number $name:ident) => {
        let $call = $call.$name(super::NUMBER);
    };
    (@number $call:ident integer $name:ident) => {
        let $call = $call.$name(super::INTEGER);
    };
    (@number $call:ident $kind:ident $name:ident) => {};
    ($(
        $(#[$doc:meta])*
        $Type:ident = $begin:ident, $operator:literal $(with $set:literal $to:literal)? ($($read:ident),* ; $($write:ident),*) {
            $($(#[$of:meta])* $kind:ident $name:ident = $what:tt $($word:ident $value:literal)?;)*
        }
    )*) => {
        pub(super) const METHODS: &[super::Method] = &[$(super::Method {
            name: stringify!($begin),
            operator: $operator,
            set: &[$(($set, $to))?],
            tensors: [&[$(stringify!($read)),*], &[$(stringify!($write)),*]],
            more: &[$((stringify!($kind), stringify!($what))),*],
            call: |library, stream, reads, writes, of| {
                #[allow(unused_mut, reason = "not every operator has both")]
                let (mut _reads, mut _writes) = (reads.iter(), writes.iter_mut());
                of(library.$begin(
                    stream,
                    $({ let _ = stringify!($read); _reads.next().unwrap() },)*
                    $({ let _ = stringify!($write); _writes.next().unwrap() },)*
                ).call());
            },
            run: |library, stream, reads, writes, mut memory| {
                #[allow(unused_mut, reason = "not every operator has both")]
                let (mut _reads, mut _writes) = (reads.iter(), writes.iter_mut());
                let call = library.$begin(
                    stream,
                    $({ let _ = stringify!($read); _reads.next().unwrap() },)*
                    $({ let _ = stringify!($write); _writes.next().unwrap() },)*
                );
                $(operators!(@number call $kind $name);)*
                call.workspace(&mut memory).run().unwrap_or_else(|error| panic!("{}: {error}", stringify!($begin)));
            },
        }),*];
    };
}

#[path = "../src/typed/listed.rs"]
mod listed;
#[path = "../src/typed/products.rs"]
mod products;

/// Products into tensor memory.
const TENSOR_MEMORY: Features = Features::of(&[Feature::Tcgen05]);

/// The numbers that methods are given.
const NUMBER: f32 = 0.75;
const INTEGER: i32 = 0x1234;

fn methods() -> impl Iterator<Item = &'static Method> {
    listed::METHODS.iter().chain(products::METHODS)
}

/// The programs of an operator, as far as they say what launches take.
fn recipes(operator: &Operator, options: &[(&str, &str)], arch: Arch) -> Vec<Recipe> {
    let programs = (operator.programs)(options).unwrap();
    let recipe = |program| outline(&verify(program, &Constants::new()).unwrap(), arch).unwrap();
    programs.iter().map(recipe).collect()
}

/// The tensors of the programs that are no workspaces.
fn operands<'a>(
    operator: &Operator,
    recipes: &'a [Recipe],
) -> impl Iterator<Item = (&'a Recipe, &'a str, &'a TensorParam)> {
    let workspaces = operator.workspaces();
    let params = recipes.iter().flat_map(|recipe| recipe.params.iter().map(move |param| (recipe, param)));
    params.filter_map(move |(recipe, param)| match &param.kind {
        ParamKind::Tensor(tensor) if workspaces.iter().all(|workspace| workspace.name != param.name) => {
            Some((recipe, param.name.as_str(), tensor))
        }
        _ => None,
    })
}

/// The row of an operator that is its programs', with default parameters: as the table has it.
fn written(operator: &Operator) -> String {
    let recipes = recipes(operator, &[], operator.least_architecture());
    let all = || operands(operator, &recipes);
    let (mut read, mut write): (Vec<&str>, Vec<&str>) = Default::default();
    for (_, name, _) in all() {
        let is_written = all().any(|(_, other, tensor)| other == name && tensor.access == Access::Write);
        let names = if is_written { &mut write } else { &mut read };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let upper = |word: &str| word[..1].to_uppercase() + &word[1..];
    let camel: String = operator.name.split('_').map(upper).collect();
    let mut numbers = String::new();
    let programs = (operator.programs)(&[]).unwrap();
    for param in programs.iter().flat_map(|program| &program.params) {
        let tilewright_tile::ParamKind::Scalar { default } = &param.kind else { continue };
        let (name, of) = (&param.name, operator.name);
        let method = match param.dtype.name() {
            "f32" => "number",
            "i32" => "integer",
            other => panic!("`{name}` of `{of}` is of type {other}, which no method takes"),
        };
        let row = format!(
            "        /// The number `{name}`; {} if nothing is said.\n        {method} {name} = \"{name}\";\n",
            default.nearest()
        );
        // Several programs may have it.
        if !numbers.contains(&row) {
            numbers += &row;
        }
    }
    let numbers = if numbers.is_empty() { numbers } else { format!("\n{numbers}    ") };
    let (name, about) = (operator.name, operator.about);
    let (read, write) = (read.join(", "), write.join(", "));
    format!("    /// `{about}`.\n    {camel}Call = {name}, \"{name}\" ({read}; {write}) {{{numbers}}}\n")
}

#[test]
fn rows_of_operators_without_options_of_their_own_follow_from_their_programs() {
    let mut text = String::from(
        "//! Operators whose tensors and numbers are those of their programs, whatever their options. A test writes this file from the programs:\n\
         //! `TILEWRIGHT_BLESS=1 cargo test --workspace --test methods`.\n\noperators! {\n",
    );
    for of in tilewright_kernels::text::TEXT_OPERATORS {
        text += &written(operator(of.name).unwrap());
    }
    text += "}\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/typed/listed.rs");
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    let stale = kept.lines().zip(text.lines()).find(|(kept, new)| kept != new);
    let path = path.display();
    assert!(
        kept == text,
        "{path} is stale ({stale:?}): write it with TILEWRIGHT_BLESS=1 cargo test --workspace --test methods"
    );
}

/// Options of a method whose tensors are not those of the operator's default.
const OPTIONS: &[(&str, (&str, &str))] = &[("attention_paged", ("page", "16"))];
/// Shapes that are not those of the operator's programs: methods, tensors, extents.
const SHAPES: &[(&str, &[&str], &[i64])] = &[("attention_paged", &["kc", "vc"], &[64, 16, 2, 128])];

/// The types and shapes of a method's tensors, at the sizes that are defaults of the programs.
fn shapes(method: &Method, arch: Arch) -> [Vec<(DType, Vec<i64>)>; 2] {
    let options = OPTIONS.iter().filter(|(of, _)| *of == method.name).map(|(_, option)| *option);
    let options: Vec<_> = method.set.iter().copied().chain(options).collect();
    let operator = operator(method.operator).unwrap();
    let recipes = recipes(operator, &options, arch);
    let size = |name: &str| {
        let mut sizes = recipes.iter().flat_map(|recipe| &recipe.sizes);
        sizes.find(|size| size.name == name).unwrap().default
    };
    method.tensors.map(|names| {
        let shape = |name: &&str| {
            let found = operands(operator, &recipes).find(|(_, own, _)| own == name);
            let (recipe, _, tensor) =
                found.unwrap_or_else(|| panic!("`{}` has no `{name}`", method.operator));
            let values: Vec<i64> = recipe.sizes.iter().map(|row| size(&row.name)).collect();
            let own = || tensor.shape.iter().map(|extent| extent.value(&values).unwrap()).collect();
            let other = SHAPES.iter().find(|(of, all, _)| *of == method.name && all.contains(name));
            (tensor.dtype, other.map_or_else(own, |(.., shape)| shape.to_vec()))
        };
        names.iter().map(shape).collect()
    })
}

/// Bytes as the driver reads them.
fn text_of(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Runs a method: as many launches as kernels, which have all tensors and numbers. Says which operator computed it.
fn ran(turn: &Turn, library: &Library, method: &Method) -> String {
    let stream = turn.stream();
    let tensors = shapes(method, library.arch());
    let mut number = 0u64;
    let mut at = || {
        number += 1;
        0x5a00_0000 + 0x10_0000 * (number - 1)
    };
    let reads: Vec<_> = tensors[0].iter().map(|(dtype, shape)| view(at(), *dtype, shape)).collect();
    let mut writes: Vec<_> = tensors[1].iter().map(|(dtype, shape)| view_mut(at(), *dtype, shape)).collect();
    let found = std::cell::RefCell::new(None);
    (method.call)(library, stream, &reads, &mut writes, &|call| {
        let failed = |error| panic!("{}: {error}", method.name);
        *found.borrow_mut() = Some((call.why().unwrap_or_else(failed), call.workspace_bytes().unwrap()));
    });
    let (why, bytes) = found.into_inner().unwrap();
    // What is filled with zeros has to be memory of the stand-in.
    let address = turn.stand_in.alloc(bytes.max(1) as usize);
    turn.stand_in.calls();
    (method.run)(library, stream, &reads, &mut writes, workspace(address, bytes));
    let launches: Vec<_> = turn.work().into_iter().filter(|work| work.starts_with("cuLaunch")).collect();
    assert_eq!(launches.len(), why.kernels.len(), "{}: {launches:?}", method.name);
    let work = launches.concat();
    for number in 0..number {
        let pointer = text_of(&(0x5a00_0000 + 0x10_0000 * number).to_le_bytes());
        assert!(work.contains(&pointer), "{}: tensor {number}: {work}", method.name);
    }
    for (kind, name) in method.more {
        let number = match *kind {
            "number" => text_of(&NUMBER.to_le_bytes()),
            "integer" => text_of(&INTEGER.to_le_bytes()),
            _ => continue,
        };
        assert!(work.contains(&number), "{}: {name}: {work}", method.name);
    }
    why.operator
}

#[test]
fn every_operator_is_what_a_method_runs() {
    let (mut operators, mut run) = (BTreeSet::new(), BTreeSet::new());
    for capability in [80, 90, 100] {
        let turn = Turn::new(capability);
        let library = turn.library();
        let arch = library.arch();
        for method in methods() {
            // Each once, but for those that another operator computes where the GPU lacks what the first needs, and products, which have other programs with tensor memory.
            let several = ["gemm", "attention"].contains(&method.name);
            let product = products::METHODS.iter().any(|of| of.name == method.name);
            let first = !run.contains(method.name) || product && arch.has(TENSOR_MEMORY);
            if several || first && arch.has(operator(method.operator).unwrap().needs) {
                operators.insert(method.operator.to_string());
                operators.insert(ran(&turn, &library, method));
                run.insert(method.name);
            }
        }
    }
    let not_run: Vec<_> = methods().map(|method| method.name).filter(|name| !run.contains(name)).collect();
    assert!(not_run.is_empty(), "{not_run:?}");
    let missing: Vec<_> =
        OPERATORS.iter().map(|of| of.name).filter(|name| !operators.contains(*name)).collect();
    assert!(missing.is_empty(), "no method runs {missing:?}");
}
