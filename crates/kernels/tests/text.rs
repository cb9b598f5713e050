//! Every operator whose program is a text file, at edge sizes: the interpreter, the simulator and a reference of plain loops agree,
//! nothing races, and `ptxas` needs no spills.

use std::collections::BTreeMap;

use crate::common::{Launch, Tensors, assemble, in_turn, nightly, ptxas, random};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_compiler::{Options, compile};
use tilewright_kernels::OPERATORS;
use tilewright_kernels::text::{Sizes, TEXT_OPERATORS, TextOperator, Values};
use tilewright_machine::{Arch, DType};
use tilewright_tile::{
    Constants, Expr, Module, ParamKind, Program, Sources, parse, parse_module, read_beside, verify,
};

/// Parameters by name.
type Given = Vec<(&'static str, String)>;

fn borrowed(given: &Given) -> Vec<(&str, &str)> {
    given.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

fn sizes_of(operator: &TextOperator, edge: &[i64]) -> Sizes {
    operator.sizes.iter().map(|(name, _)| name.to_string()).zip(edge.iter().copied()).collect()
}

/// The value of a shape's extent: an expression over sizes and constants.
fn extent(program: &Program, sizes: &Sizes, e: &Expr) -> i64 {
    let of = |id: tilewright_tile::SymbolId| {
        let symbol = program.symbol(id);
        sizes
            .get(&symbol.name)
            .copied()
            .or_else(|| match &symbol.kind {
                tilewright_tile::SymbolKind::Constant(value) => value.as_int(),
                _ => None,
            })
            .map(tilewright_tile::Expr::Int)
    };
    e.substitute(&of).as_int().unwrap_or_else(|| panic!("{e:?}"))
}

/// Parameters that count how far the blocks are: 0 at the first launch.
fn counters(program: &Program) -> Vec<String> {
    let verified = verify(program, &Constants::new()).unwrap();
    verified.counters().iter().map(|id| program.param(*id).name.clone()).collect()
}

/// Random numbers for the tensors of programs, whether they read or write them.
fn inputs(operator: &TextOperator, programs: &[Program], sizes: &Sizes, seed: u64) -> (Values, Tensors) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut values, mut tensors) = (Values::new(), Tensors::new());
    let counters = programs.iter().flat_map(counters).collect::<Vec<_>>();
    for (program, param) in programs.iter().flat_map(|p| p.params.iter().map(move |param| (p, param))) {
        if values.contains_key(&param.name) {
            continue;
        }
        match &param.kind {
            ParamKind::Scalar { default } => {
                values.insert(param.name.clone(), vec![default.nearest()]);
            }
            ParamKind::Tensor { shape, .. } => {
                let len: i64 = shape.iter().map(|e| extent(program, sizes, e)).product();
                let range = operator.indices.iter().find(|(name, _)| *name == param.name);
                let drawn: Vec<f64> = match range {
                    Some((name, size)) if operator.distinct.contains(name) => {
                        let mut numbers: Vec<f64> = (0..sizes[*size]).map(|number| number as f64).collect();
                        numbers.resize(numbers.len().max(len as usize), -1.0);
                        numbers.shuffle(&mut rng);
                        numbers.truncate(len as usize);
                        numbers
                    }
                    Some((_, size)) => {
                        (0..len).map(|_| f64::from(rng.random_range(0..sizes[*size] as i32))).collect()
                    }
                    None if counters.contains(&param.name) => vec![0.0; len as usize],
                    None => {
                        let floats = operator.floats.iter().find(|(name, ..)| *name == param.name);
                        let drawn = random(&mut rng, param.dtype, len);
                        // From -1 to 1, moved to the range.
                        let moved = |x: &f64| match floats {
                            Some((_, low, high)) => {
                                param.dtype.decode(param.dtype.encode(low + (high - low) * (x + 1.0) / 2.0))
                            }
                            None => *x,
                        };
                        drawn.iter().map(moved).collect()
                    }
                };
                values.insert(param.name.clone(), drawn.clone());
                tensors.insert(param.name.clone(), drawn);
            }
        }
    }
    (values, tensors)
}

/// The program at these sizes on interpreter and simulator, beside the reference.
fn check(operator: &TextOperator, given: &Given, edge: &[i64], seeds: &[u64]) {
    let programs = operator.programs(&borrowed(given)).unwrap();
    let sizes = sizes_of(operator, edge);
    let (values, tensors) = inputs(operator, &programs, &sizes, edge.iter().sum::<i64>() as u64);
    // References know constants by the names of parameters, and sizes before them.
    let mut known = sizes.clone();
    for knob in operator.knobs {
        let mut constants = programs.iter().flat_map(Program::constants);
        let found = constants.find(|(_, symbol, _)| symbol.name == knob.constant);
        // A form need not have every knob.
        if let Some(value) = found.and_then(|(.., value)| value.as_int()) {
            known.entry(knob.name.to_string()).or_insert(value);
        }
    }
    let expected = (operator.reference)(&known, &values);
    let sizes: Vec<(&str, i64)> = sizes.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let launch = Launch { programs: &programs, sizes: &sizes, scalars: &[] };
    let (simulated, interpreted, _) = launch.run(Arch::SM_90A, seeds, &tensors);
    for program in &programs {
        let text = program.to_string();
        // The last ticket leaves the flag at 0.
        for name in counters(program).iter().filter(|name| text.contains(&format!("ticket({name}["))) {
            let ready = [&simulated[name], &interpreted[name]].into_iter().flatten().all(|x| *x == 0.0);
            assert!(ready, "{} {given:?} {edge:?}: `{name}` is not ready for the next launch", operator.name);
        }
    }
    for (name, expected) in &expected {
        let mut params = programs.iter().flat_map(|program| &program.params);
        let dtype = params.find(|param| param.name == *name).unwrap().dtype;
        let (roundings, absolute) = (operator.tolerance)(name);
        for (execution, actual) in [("simulator", &simulated[name]), ("interpreter", &interpreted[name])] {
            assert_eq!(actual.len(), expected.len());
            for (i, (actual, expected)) in actual.iter().zip(expected).enumerate() {
                let bound = roundings * epsilon(dtype) * expected.abs() + absolute;
                let error = (actual - expected).abs();
                assert!(
                    actual == expected || error <= bound,
                    "{} {given:?} {edge:?}: {name}[{i}] of the {execution} is {actual}, not {expected} ± {bound}",
                    operator.name
                );
            }
        }
    }
}

fn epsilon(dtype: DType) -> f64 {
    if dtype.range().is_some() { 0.0 } else { dtype.epsilon() }
}

/// The default, the first and the last point of the space at the sizes, and the first of each form.
fn settings(operator: &TextOperator, edge: &[i64]) -> Vec<Given> {
    let space = operator.points(Arch::SM_90A, &sizes_of(operator, edge), &[]).unwrap();
    let points = &space.points;
    let form = |given: &Given| given.iter().find(|(name, _)| *name == "form").map(|(_, form)| form.clone());
    let mut all = vec![Vec::new()];
    let mut pick = |point: &Given| {
        if !all.contains(point) {
            all.push(point.clone());
        }
    };
    [0, points.len() - 1].into_iter().for_each(|i| pick(&points[i].parameters));
    for named in operator.forms {
        let of_form = |given: &&Given| form(given).is_some_and(|form| form == named.name);
        points.iter().map(|point| &point.parameters).find(of_form).into_iter().for_each(&mut pick);
    }
    all
}

/// At every fifth edge one point of the space, in turn; each night, at all edges every one that [`settings`] picks.
#[test]
fn operators_are_right_at_edges() {
    for (which, operator) in TEXT_OPERATORS.iter().enumerate() {
        for (turn, edge) in operator.edges.iter().enumerate() {
            if !in_turn(which + turn, 5) {
                continue;
            }
            let all = settings(operator, edge);
            for (i, given) in all.iter().enumerate() {
                if i == turn % all.len() || nightly() {
                    check(operator, given, edge, &[1]);
                }
            }
        }
    }
}

#[test]
fn operators_are_right_in_every_type() {
    for (which, operator) in TEXT_OPERATORS.iter().enumerate() {
        let edge = operator.edges[operator.edges.len() / 2];
        for (turn, dtype) in operator.types.iter().filter(|dtype| **dtype != DType::F16).enumerate() {
            if !in_turn(which + turn, 4) {
                continue;
            }
            let given = vec![("dtype", dtype.to_string())];
            // Whatever the seed, the bits are the same, unless elements are added in an open order.
            let runs: &[&[u64]] = if operator.open_order { &[&[3], &[4]] } else { &[&[3, 4]] };
            for seeds in runs {
                check(operator, &given, edge, seeds);
            }
        }
    }
}

#[test]
fn programs_of_files_print_and_parse_back() {
    for operator in TEXT_OPERATORS {
        let dtype = operator.types[operator.types.len().min(2) - 1].to_string();
        for form in operator.forms {
            let form = (operator.forms.len() > 1).then_some(("form", form.name));
            let given: Vec<_> = form.into_iter().chain([("dtype", dtype.as_str())]).collect();
            for program in operator.programs(&given).unwrap() {
                assert_eq!(parse(&program.to_string()).unwrap(), program, "{}", operator.name);
            }
        }
    }
}

/// The values of a program's constants by name.
fn constants(program: &Program) -> BTreeMap<String, i64> {
    let verified = verify(program, &Constants::new()).unwrap();
    let values = verified.constants().iter();
    values
        .map(|(name, value)| (name.trim_end_matches(&format!("_{}", program.name)).to_string(), *value))
        .collect()
}

#[test]
fn programs_that_follow_each_other_are_one_text() {
    for operator in OPERATORS {
        let parameters = (operator.parameters)();
        // Of products: into so many parts.
        let split = parameters.iter().any(|parameter| parameter.name == "split" && parameter.default == "1");
        let forms = TEXT_OPERATORS.iter().find(|text| text.name == operator.name);
        let forms: Vec<&str> =
            forms.map_or_else(Vec::new, |of| of.forms.iter().map(|form| form.name).collect());
        let given = forms.iter().filter(|_| forms.len() > 1).map(|form| vec![("form", *form)]);
        for given in given.chain([Vec::new()]).chain(split.then(|| vec![("split", "2")])) {
            let programs = (operator.programs)(&given).unwrap();
            let text = Module::of(programs.clone()).to_string();
            let read = parse_module(Sources::new("-", &text), &mut read_beside).unwrap();
            assert_eq!(read.to_string(), text, "{} {given:?}", operator.name);
            assert_eq!(read.programs.len(), programs.len());
            for (read, program) in read.programs.iter().zip(&programs) {
                assert_eq!(constants(read), constants(program), "{} {given:?}", operator.name);
                assert_eq!(read.body.len(), program.body.len());
            }
        }
    }
}

#[test]
fn clusters_hold_long_rows_of_gradients() {
    let named = TEXT_OPERATORS.iter().filter(|operator| operator.name.ends_with("norm_backward"));
    let knobs = [("bn", 512), ("pieces", 2), ("cluster", 2), ("split", 3), ("threads", 64)];
    let given = knobs.map(|(name, value)| (name, value.to_string()));
    let given: Given = [("form", "shared".to_string())].into_iter().chain(given).collect();
    let named: Vec<_> = named.collect();
    assert_eq!(named.len(), 4);
    named.into_iter().for_each(|operator| check(operator, &given, &[7, 1900], &[1, 2]));
}

#[test]
fn any_number_of_the_largest_elements_is_right() {
    let operator = TEXT_OPERATORS.iter().find(|operator| operator.name == "topk").unwrap();
    for k in ["1", "5", "33"] {
        check(operator, &vec![("k", k.to_string())], &[2, 1000], &[1]);
    }
    let error = operator.programs(&[("k", "1025")]).unwrap_err().to_string();
    assert!(error.contains("at most 1024"), "{error}");
}

/// Accesses that a program over whole vectors has no need of.
const NARROW: &[&str] = &["ld.global.b16", "ld.global.u16", "st.global.b16", "ld.global.b32 "];

#[test]
fn vectors_are_whole_and_nothing_spills() {
    let ptxas = ptxas();
    for (which, operator) in TEXT_OPERATORS.iter().enumerate() {
        let sizes = sizes_of(operator, operator.large);
        let point = operator.points(Arch::SM_90A, &sizes, &[]).unwrap().points.remove(0);
        for (turn, given) in [Vec::new(), point.parameters].into_iter().enumerate() {
            let named: Vec<(&str, i64)> = sizes.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            let form = given.iter().find(|(name, _)| *name == "form").map_or("", |(_, form)| form);
            let form = operator.forms.iter().find(|other| other.name == form).unwrap_or(&operator.forms[0]);
            let has = |arch: &Arch| arch.has(operator.needs) && arch.has(form.needs);
            let archs = [Arch::SM_80, Arch::SM_90A].into_iter().filter(has);
            let programs = operator.programs(&borrowed(&given)).unwrap();
            for (arch, program) in archs.flat_map(|arch| programs.iter().map(move |program| (arch, program)))
            {
                let options = Options::new(arch).for_own_sizes(program, &named);
                let kernel =
                    compile(program, &options).unwrap_or_else(|e| panic!("{} {given:?}: {e}", operator.name));
                for narrow in if operator.narrow { &[] } else { NARROW } {
                    assert!(!kernel.ptx.contains(narrow), "{} {given:?}: {narrow}", operator.name);
                }
                if let Some(ptxas) = ptxas.as_ref().filter(|_| in_turn(which + turn, 5)) {
                    let spilled = assemble(ptxas, &program.name, &kernel, arch);
                    assert_eq!(spilled, 0, "{} {given:?} spills", operator.name);
                }
            }
        }
    }
}

#[test]
fn rows_that_indices_name_are_added_in_vectors() {
    for (name, vector) in
        [("embedding_backward", "red.global.add.v4.f32"), ("scatter_add", "red.global.add.noftz.v4.f16x2")]
    {
        let operator = TEXT_OPERATORS.iter().find(|operator| operator.name == name).unwrap();
        let program = operator.programs(&[]).unwrap().pop().unwrap();
        let options =
            Options::new(Arch::SM_90A).for_sizes(&program, &[("t", 4096), ("v", 1000), ("n", 1024)]);
        let ptx = compile(&program, &options).unwrap().ptx;
        assert!(ptx.contains(vector), "{name}: {vector}");
        assert_eq!(ptx.matches("red.global").count(), ptx.matches(vector).count(), "{name}");
    }
}
