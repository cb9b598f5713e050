//! `tilewright kernels`.

use std::fmt::Write;
use std::process::ExitCode;

use tilewright::compiler::arch_named;
use tilewright::kernels::model::Model;
use tilewright::kernels::{ConfigError, OPERATORS, Operator, Parameter, SizeKind, operator};
use tilewright::tile::Module;
use tilewright::tune::{Target, choose, explain};

use crate::args::KernelsArgs;
use crate::messages::{Failure, print};
use crate::tune::{failure, modelled, problem, store, target};

/// Lists the operators, or prints the programs of one.
pub fn kernels(args: &KernelsArgs) -> Result<ExitCode, Failure> {
    let Some(name) = &args.operator else {
        if !args.params.is_empty() || args.emit.is_some() {
            return Err(Failure::usage("-p and --emit go with an operator, e.g. `tilewright kernels gemm`"));
        }
        print(&list())?;
        return Ok(ExitCode::SUCCESS);
    };
    let operator = operator(name).map_err(Failure::usage)?;
    if let Some(sizes) = &args.problem {
        return chosen(args, name, sizes);
    }
    let given = parameters(&args.params)?;
    print(&program(args, operator, &given)?)?;
    Ok(ExitCode::SUCCESS)
}

/// The parameters of a command line, `NAME=VALUE` each.
pub fn parameters(params: &[String]) -> Result<Vec<(&str, &str)>, Failure> {
    let mut given: Vec<(&str, &str)> = Vec::new();
    for param in params {
        let Some((name, value)) = param.split_once('=') else {
            return Err(Failure::usage(format!("`-p {param}` is not NAME=VALUE, e.g. `-p bm=64`")));
        };
        let (name, value) = (name.trim(), value.trim());
        if given.iter().any(|(other, _)| *other == name) {
            return Err(Failure::usage(format!("`-p {param}`: `{name}` is given twice")));
        }
        given.push((name, value));
    }
    Ok(given)
}

/// The refusal of a parameter that is a size of the operator's problems.
fn size_of_problem(operator: &Operator, name: &str, given: &[(&str, &str)]) -> Option<Failure> {
    let programs = (operator.programs)(&[]).ok()?;
    let defaults: Vec<(String, i64)> = programs
        .iter()
        .flat_map(|program| program.sizes().map(|(_, symbol, default)| (symbol.name.clone(), default)))
        .collect();
    let is_size = |name: &str| {
        let tuned = operator.tuning.is_some_and(|tuning| tuning.sizes.iter().any(|(size, _)| *size == name));
        tuned || defaults.iter().any(|(size, _)| size == name)
    };
    if !is_size(name) {
        return None;
    }
    let operator_name = operator.name;
    let sizes: Vec<String> = given
        .iter()
        .filter(|(size, _)| is_size(size))
        .map(|(size, value)| format!("{size}={value}"))
        .collect();
    let rest: String = given
        .iter()
        .filter(|(parameter, _)| !is_size(parameter))
        .map(|(parameter, value)| format!(" -p {parameter}={value}"))
        .collect();
    let run: String = sizes.iter().map(|size| format!(" -p {size}")).collect();
    let run = format!("`tilewright kernels {operator_name}{rest} | tilewright run -{run}`");
    let chosen = operator.tuning.map(|tuning| {
        let value = |size: &str| {
            let given = given.iter().find(|(name, _)| *name == size).map(|(_, value)| (*value).to_string());
            let default = defaults.iter().find(|(name, _)| name == size).map(|(_, value)| value.to_string());
            given.or(default).unwrap_or_else(|| "1".to_string())
        };
        let needed = |(size, kind): &&(&str, SizeKind)| {
            *kind != SizeKind::Index || given.iter().any(|(name, _)| name == size)
        };
        let all: Vec<String> =
            tuning.sizes.iter().filter(needed).map(|(size, _)| format!("{size}={}", value(size))).collect();
        format!(
            "`tilewright kernels {operator_name}{rest} --for {}` chooses parameters for a problem; ",
            all.join(",")
        )
    });
    let message = format!("`{name}` is a size of the problem, and no parameter of `{operator_name}`");
    let help = format!("{}the program takes sizes when it runs: {run}", chosen.unwrap_or_default());
    Some(Failure::usage_with(message, help))
}

/// The programs of an operator as one file, or the one that is asked for.
fn program(args: &KernelsArgs, operator: &Operator, given: &[(&str, &str)]) -> Result<String, Failure> {
    let programs = (operator.programs)(given).map_err(|error| match &error {
        ConfigError::Program(_) => Failure::program(crate::messages::error(error)),
        ConfigError::UnknownParameter { name, .. } => {
            size_of_problem(operator, name, given).unwrap_or_else(|| Failure::usage(error))
        }
        _ => Failure::usage(error),
    })?;
    let (count, name) = (programs.len(), operator.name);
    if let Some(step) = args.step {
        let Some(program) = step.checked_sub(1).and_then(|at| programs.get(at)) else {
            let there = if count == 1 { "1 program" } else { &format!("{count} programs") };
            return Err(Failure::usage(format!(
                "`--step {step}`: `{name}` is {there} with these parameters"
            )));
        };
        if count > 1 {
            anstream::eprintln!("program {step} of {count}, which are launched in turn");
        }
        return Ok(program.to_string());
    }
    Ok(Module::of(programs).to_string())
}

/// Prints what is chosen for a problem, and where the choice comes from.
fn chosen(args: &KernelsArgs, name: &str, sizes: &str) -> Result<ExitCode, Failure> {
    let sizes = sizes.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let sizes_given: Vec<&str> = sizes.chain(args.params.iter().map(String::as_str)).collect();
    let problem = problem(name, sizes_given.iter().copied())?;
    let target = match &args.arch {
        Some(name) => {
            let arch = arch_named(name).map_err(Failure::usage)?;
            let device = args.device_name.as_deref().unwrap_or(Model::of_arch(arch).device());
            Target::new(device, arch)
        }
        None => target(&problem, &args.device, args.device_name.as_deref())?,
    };
    // Records that come with the kernels need no folder.
    let store = match (&args.cache, store(args.cache.as_deref())) {
        (None, Err(_)) => None,
        (_, store) => Some(store?),
    };
    let target = modelled(target, args.model.as_deref(), store.as_ref())?;
    let choice = choose(&problem, &target, store.as_ref()).map_err(failure)?;
    for reason in &choice.refused {
        anstream::eprintln!("note: {reason}");
    }
    anstream::eprintln!("{}: {}", choice.from, choice.why);
    let given = choice.candidate.given();
    let launch = (problem.tuning().launch)(target.arch, problem.sizes(), &given).map_err(Failure::usage)?;
    let asked = |name: &String| sizes_given.iter().any(|pair| pair.split('=').next() == Some(name.as_str()));
    if !launch.sizes.keys().all(asked) {
        // The program has other sizes than those that were asked for.
        let sizes: Vec<String> = launch.sizes.iter().map(|(name, size)| format!("{name}={size}")).collect();
        anstream::eprintln!("sizes of `{}`: {}", problem.operator().name, sizes.join(" "));
    }
    if args.why {
        let why = explain(&problem, &target, store.as_ref(), &choice).map_err(failure)?;
        print(&why.to_string())?;
    } else if args.config_only {
        print(&format!("{}\n", choice.candidate))?;
    } else {
        anstream::eprintln!("configuration: {}", choice.candidate);
        print(&program(args, problem.operator(), &choice.candidate.given())?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list() -> String {
    let mut text = String::new();
    for operator in OPERATORS {
        let parameters = (operator.parameters)();
        let width = parameters.iter().map(|p| p.name.len()).max().unwrap_or(0);
        let defaults = parameters.iter().map(|p| p.default.len()).max().unwrap_or(0);
        let _ =
            writeln!(text, "{}: {} (since {})", operator.name, operator.about, operator.least_architecture());
        for Parameter { name, default, about } in parameters {
            let _ = writeln!(text, "  {name:<width$}  {default:<defaults$}  {about}");
        }
    }
    text
}
