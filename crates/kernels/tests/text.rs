//! Every operator whose program is a text file, at edge sizes: the interpreter, the simulator and a reference of plain loops agree,
//! nothing races, and `ptxas` needs no spills.

mod common;

use common::{Launch, Tensors, assemble, ptxas, random};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_compiler::{Options, compile};
use tilewright_kernels::text::{Sizes, TEXT_OPERATORS, TextOperator, Values};
use tilewright_machine::{Arch, DType};
use tilewright_tile::{Expr, ParamKind, Program, parse};

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

/// Random numbers for the tensors of programs, whether they read or write them.
fn inputs(operator: &TextOperator, programs: &[Program], sizes: &Sizes, seed: u64) -> (Values, Tensors) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut values, mut tensors) = (Values::new(), Tensors::new());
    for (program, param) in programs.iter().flat_map(|p| p.params.iter().map(move |param| (p, param))) {
        if values.contains_key(&param.name) {
            continue;
        }
        match &param.kind {
            ParamKind::Scalar { default } => {
                values.insert(param.name.clone(), vec![*default]);
            }
            ParamKind::Tensor { shape, .. } => {
                let len: i64 = shape.iter().map(|e| extent(program, sizes, e)).product();
                let range = operator.indices.iter().find(|(name, _)| *name == param.name);
                let drawn: Vec<f64> = match range {
                    Some((_, size)) => {
                        (0..len).map(|_| f64::from(rng.random_range(0..sizes[*size] as i32))).collect()
                    }
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
        let value = found.and_then(|(.., value)| value.as_int()).unwrap();
        known.entry(knob.name.to_string()).or_insert(value);
    }
    let expected = (operator.reference)(&known, &values);
    let sizes: Vec<(&str, i64)> = sizes.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let launch = Launch { programs: &programs, sizes: &sizes, scalars: &[] };
    let (simulated, interpreted, _) = launch.run(Arch::SM_90A, seeds, &tensors);
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
                    error <= bound,
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

/// The default, and the first and the last point of the space at the sizes.
fn settings(operator: &TextOperator, edge: &[i64]) -> Vec<Given> {
    let space = operator.points(Arch::SM_90A, &sizes_of(operator, edge), &[]).unwrap();
    let points = &space.points;
    let picked = [0, points.len() - 1].map(|i| points[i].parameters.clone());
    let mut all = vec![Vec::new()];
    for point in picked {
        if !all.contains(&point) {
            all.push(point);
        }
    }
    all
}

#[test]
fn operators_are_right_at_edges() {
    for operator in TEXT_OPERATORS {
        for edge in operator.edges {
            for given in settings(operator, edge) {
                check(operator, &given, edge, &[1]);
            }
        }
    }
}

#[test]
fn operators_are_right_in_every_type() {
    for operator in TEXT_OPERATORS {
        let edge = operator.edges[operator.edges.len() / 2];
        for dtype in ["bf16", "f32"] {
            check(operator, &vec![("dtype", dtype.to_string())], edge, &[3, 4]);
        }
    }
}

#[test]
fn programs_of_files_print_and_parse_back() {
    for operator in TEXT_OPERATORS {
        for form in operator.forms {
            let form = (operator.forms.len() > 1).then_some(("form", form.name));
            let given: Vec<_> = form.into_iter().chain([("dtype", "bf16")]).collect();
            for program in operator.programs(&given).unwrap() {
                assert_eq!(parse(&program.to_string()).unwrap(), program, "{}", operator.name);
            }
        }
    }
}

/// Accesses that a program over whole vectors has no need of.
const NARROW: &[&str] = &["ld.global.b16", "ld.global.u16", "st.global.b16", "ld.global.b32 "];

#[test]
fn vectors_are_whole_and_nothing_spills() {
    let ptxas = ptxas();
    for operator in TEXT_OPERATORS {
        let sizes = sizes_of(operator, operator.large);
        let point = operator.points(Arch::SM_90A, &sizes, &[]).unwrap().points.remove(0);
        for given in [Vec::new(), point.parameters] {
            let named: Vec<(&str, i64)> = sizes.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            let archs = [Arch::SM_80, Arch::SM_90A].into_iter().filter(|arch| arch.has(operator.needs));
            let programs = operator.programs(&borrowed(&given)).unwrap();
            for (arch, program) in archs.flat_map(|arch| programs.iter().map(move |program| (arch, program)))
            {
                let options = Options::new(arch).for_sizes(program, &named);
                let kernel =
                    compile(program, &options).unwrap_or_else(|e| panic!("{} {given:?}: {e}", operator.name));
                for narrow in if operator.narrow { &[] } else { NARROW } {
                    assert!(!kernel.ptx.contains(narrow), "{} {given:?}: {narrow}", operator.name);
                }
                if let Some(ptxas) = &ptxas {
                    let spilled = assemble(ptxas, &program.name, &kernel, arch);
                    assert_eq!(spilled, 0, "{} {given:?} spills", operator.name);
                }
            }
        }
    }
}
