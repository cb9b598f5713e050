//! Runs of task programs by the task interpreter, on random inputs, beside the interpreter of the tile programs that a mapping makes of them.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_machine::{DType, Elements, Number};
use tilewright_task::program::{FormalKind, Privilege, SymbolKind};
use tilewright_task::{Environment, Interpretation, Mapping, Program, entry_extents, interpret};
use tilewright_tile::interpret as interpret_tile;
use tilewright_tile::{
    Argument, Code, Constants, Diagnostic, Diagnostics, Expr, Param, ParamKind, Program as TileProgram,
    Verified,
};

/// Values for the names of a task program.
#[derive(Clone, Debug, Default)]
pub struct TaskOptions {
    /// Values of constants; the others keep their defaults.
    pub constants: Constants,
    /// Values of sizes; the others keep their defaults.
    pub sizes: BTreeMap<String, i64>,
    /// Values of the entry's numbers; the others keep their defaults.
    pub scalars: BTreeMap<String, Number>,
    /// Seed of the random inputs, and of the second order of parallel iterations.
    pub seed: u64,
}

/// A tensor that a run has written.
#[derive(Clone, Debug)]
pub struct Output {
    /// The formal's name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Its shape.
    pub shape: Vec<i64>,
    /// The elements.
    pub elements: Elements,
    /// Elements that differ when parallel iterations run in another order. Of an output that the entry adds to, the order of additions
    /// decides how sums are rounded.
    pub differ: usize,
    /// Elements that the tile programs have otherwise: none of a right compiler. Nothing where they did not run.
    pub apart: Option<usize>,
}

/// Inputs of the entry of a mapping.
struct Inputs {
    args: Vec<Argument>,
    /// The tensors that are written, by their formals.
    outputs: Vec<(usize, Privilege, Output)>,
}

/// Runs the entry of a mapping by the task interpreter twice: with parallel iterations in the order of the text, and in another.
///
/// # Errors
///
/// A step of the program that has no meaning; a number of the entry without a value.
pub fn run(program: &Program, mapping: &Mapping, options: &TaskOptions) -> Result<Vec<Output>, Diagnostics> {
    let Inputs { args, outputs } = inputs(program, mapping, options)?;
    ran(program, mapping, options, &args, outputs)
        .map(|found| found.into_iter().map(|(_, output)| output).collect())
}

/// [`run`], and the tile programs of the mapping, one after another, by their interpreter on the same inputs: the results have the same bits. What one
/// leaves for another is NaN at first.
///
/// # Errors
///
/// Those of [`run`], and what the interpreter of tile programs refuses.
pub fn agree(
    program: &Program,
    mapping: &Mapping,
    kernels: &[Verified],
    options: &TaskOptions,
) -> Result<Vec<Output>, Diagnostics> {
    let Inputs { args, outputs } = inputs(program, mapping, options)?;
    let found = ran(program, mapping, options, &args, outputs)?;
    let entry = mapping.entry().map(|entry| program.task(mapping.instance(entry).task));
    let names = || entry.into_iter().flat_map(|task| task.formals.iter().map(|formal| formal.name.clone()));
    let mut known: BTreeMap<String, Argument> = names().zip(args).collect();
    for kernel in kernels {
        let program = kernel.program();
        let sizes = program.sizes().map(|(_, row, default)| {
            (row.name.clone(), options.sizes.get(&row.name).copied().unwrap_or(default))
        });
        let sizes: BTreeMap<String, i64> = sizes.collect();
        // The only kernel has the entry's formals, in their order; several have what they use, by name.
        let names: Vec<String> = match kernels {
            [_] => names().collect(),
            _ => program.params.iter().map(|param| param.name.clone()).collect(),
        };
        let mut args = Vec::with_capacity(program.params.len());
        for (name, param) in names.iter().zip(&program.params) {
            args.push(match known.get(name) {
                Some(known) => known.clone(),
                None => workspace(program, param, &sizes)?,
            });
        }
        interpret_tile(kernel, &sizes, &mut args).map_err(|error| Diagnostics(vec![error.diagnostic()]))?;
        known.extend(names.into_iter().zip(args));
    }
    let args: Vec<Argument> = names().filter_map(|name| known.remove(&name)).collect();
    let compared = |(i, mut output): (usize, Output)| {
        let elements = args[i].elements();
        output.apart = elements.map(|elements| {
            (0..elements.len()).filter(|at| !elements.same_bits(&output.elements, *at)).count()
        });
        output
    };
    Ok(found.into_iter().map(compared).collect())
}

/// A tensor that kernels leave for one another.
fn workspace(
    program: &TileProgram,
    param: &Param,
    sizes: &BTreeMap<String, i64>,
) -> Result<Argument, Diagnostics> {
    let ParamKind::Tensor { shape, .. } = &param.kind else {
        return Err(Diagnostic::internal(param.span, "a number that the entry does not have").into());
    };
    let size = |id| {
        let row = program.symbol(id);
        sizes.get(&row.name).map(|size| Expr::Int(*size))
    };
    let extents = shape.iter().map(|extent| extent.substitute(&size).as_int());
    let count = extents.collect::<Option<Vec<i64>>>().map(|extents| extents.iter().product::<i64>());
    let count = count.ok_or_else(|| Diagnostic::internal(param.span, "an extent that is not known"))?;
    Ok(Argument::tensor(Elements::rounded(param.dtype, (0..count).map(|_| f64::NAN))))
}

fn inputs(program: &Program, mapping: &Mapping, options: &TaskOptions) -> Result<Inputs, Diagnostics> {
    let Some(entry) = mapping.entry() else {
        let message = format!("the mapping `{}` has no instance", mapping.name);
        return Err(Diagnostic::new(Code::Unmapped, mapping.span, message).into());
    };
    let task = program.task(mapping.instance(entry).task);
    let mut values = Environment::of(program, &options.constants)?;
    for (symbol, value) in entry_extents(program, task, &options.sizes)? {
        values.set(symbol, value);
    }
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
    let (mut args, mut outputs) = (Vec::new(), Vec::new());
    for (i, formal) in task.formals.iter().enumerate() {
        let number = |default: Option<Number>| {
            let given = options.scalars.get(&formal.name).copied().or(default);
            given.map(Argument::Scalar).ok_or_else(|| {
                let message = format!("`{}` of the entry has no value", formal.name);
                Diagnostic::new(Code::BadLaunch, formal.span, message)
                    .help(format!("give it one: `-p {}=1`, or a default: `{0}: … = 1`", formal.name))
            })
        };
        args.push(match &formal.kind {
            FormalKind::Float(default) => number(default.map(Number::Float))?,
            FormalKind::Integer(symbol) => number(match program.symbol(*symbol).kind {
                SymbolKind::Scalar(Some(default)) => Some(Number::Integer(default.into())),
                _ => None,
            })?,
            FormalKind::Tensor { privilege, dtype, shape } => {
                let mut extents = Vec::new();
                for extent in shape {
                    extents.push(values.value(program, extent, formal.span)?);
                }
                let count = extents.iter().product::<i64>().max(0);
                let draw = |rng: &mut ChaCha8Rng| match dtype.range() {
                    None if *dtype == DType::Bool => f64::from(rng.random_range(0..2)),
                    None => rng.random_range(-1.0..1.0),
                    Some((low, high)) => {
                        rng.random_range(low.max(-1_000_000) as i64..=high.min(1_000_000) as i64) as f64
                    }
                };
                let elements = Elements::rounded(*dtype, (0..count).map(|_| draw(&mut rng)));
                if privilege.writes() {
                    let (name, dtype, elements) = (formal.name.clone(), *dtype, elements.clone());
                    let output = Output { name, dtype, shape: extents, elements, differ: 0, apart: None };
                    outputs.push((i, *privilege, output));
                }
                Argument::tensor(elements)
            }
        });
    }
    Ok(Inputs { args, outputs })
}

/// Runs in two orders: the outputs with the numbers of their formals.
fn ran(
    program: &Program,
    mapping: &Mapping,
    options: &TaskOptions,
    args: &[Argument],
    outputs: Vec<(usize, Privilege, Output)>,
) -> Result<Vec<(usize, Output)>, Diagnostics> {
    let ran = |seed: u64| -> Result<Vec<Argument>, Diagnostics> {
        let how = Interpretation { constants: options.constants.clone(), sizes: options.sizes.clone(), seed };
        let mut args = args.to_vec();
        interpret(program, mapping, &how, &mut args)?;
        Ok(args)
    };
    let (first, second) = (ran(0)?, ran(options.seed.wrapping_add(1).max(1))?);
    let output = |(i, privilege, output): (usize, Privilege, Output)| {
        let (elements, other) = first[i].elements().zip(second[i].elements())?;
        let adds = privilege == Privilege::Add;
        let differ = (0..elements.len()).filter(|at| !adds && !elements.same_bits(&other, *at)).count();
        Some((i, Output { elements, differ, ..output }))
    };
    Ok(outputs.into_iter().filter_map(output).collect())
}
