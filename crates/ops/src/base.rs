//! Operators with their options: the tensors that they take, whatever is chosen, and what their sizes mean.

use std::collections::BTreeMap;

use tilewright_compiler::recipe::outline;
use tilewright_kernels::model::Model;
use tilewright_kernels::{Chip, Operator, SizeKind};
use tilewright_launch::{Arg, DType, Recipe};
use tilewright_machine::Arch;
use tilewright_tile::{Constants, ParamKind, Program, verify};

use crate::error::OpsError;
use crate::rows::{Derived, From, Row, Told};
use crate::sizes::{Given, Sizes, limits, tensors, text_of};

/// Options by name, in the operator's order, without those that are defaults.
pub(crate) type Options = Vec<(String, String)>;

/// The size that stands for each of a problem's where only the shapes of tensors matter.
const ANY_SIZE: i64 = 1024;

/// An operator with options.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) operator: &'static Operator,
    pub(crate) options: Options,
    /// Sizes of the problem that no tensor has as it is.
    told: &'static [(&'static str, Told)],
    /// Tensors whose first two modes are one mode of some of the kernels.
    pub(crate) joined: &'static [&'static str],
    /// The recipes of programs that compute it, as far as programs tell them.
    pub(crate) recipes: Vec<Recipe>,
    /// The largest multiples of sizes that kernels rely on.
    pub(crate) limits: Sizes,
    /// Numbers that are given where the caller gives none.
    pub(crate) numbers: BTreeMap<String, Arg<'static>>,
}

/// The options as operators take them.
pub(crate) fn borrowed(options: &Options) -> Vec<(&str, &str)> {
    options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// The options in the operator's order, without those that say what is computed and are defaults: a default of a tiling, say, is kept, as a choice might
/// have another value.
///
/// # Errors
///
/// An option that the operator does not have, which is the operator's refusal.
fn ordered(operator: &'static Operator, given: &Options) -> Result<Options, OpsError> {
    let parameters = (operator.parameters)();
    if let Some((name, value)) = given.iter().find(|(name, _)| parameters.iter().all(|p| p.name != *name)) {
        // The operator says what it has.
        (operator.programs)(&[(name.as_str(), value.as_str())])?;
    }
    let of = |parameter: &tilewright_kernels::Parameter| {
        let chosen = operator.tuning.is_some_and(|tuning| !tuning.meaning.contains(&parameter.name));
        let kept = |value: &str| chosen || value != parameter.default;
        given.iter().find(|(name, value)| name == parameter.name && kept(value)).cloned()
    };
    Ok(parameters.iter().filter_map(of).collect())
}

/// Programs that compute it: of these options; or of those that say what is computed, with the first configuration that goes with them.
fn programs(operator: &'static Operator, options: &Options, arch: Arch) -> Result<Vec<Program>, OpsError> {
    (operator.programs)(&borrowed(options)).or_else(|error| {
        let Some(tuning) = operator.tuning else { return Err(error.into()) };
        let needed = |(_, kind): &&(&str, SizeKind)| *kind != SizeKind::Index;
        let sizes = tuning.sizes.iter().filter(needed);
        let sizes = sizes
            .map(|(name, kind)| ((*name).to_string(), if *kind == SizeKind::Count { 1 } else { ANY_SIZE }));
        let chip = Chip { arch, model: Model::built_in() };
        let space = (tuning.space)(chip, &sizes.collect(), &borrowed(options))?;
        let Some(point) = space.points.into_iter().next() else {
            // Of the architecture's own configurations, rather than of the default one.
            let Some(reasons) = space.because else { return Err(error.into()) };
            return Err(OpsError::Nothing { operator: operator.name.to_string(), reasons });
        };
        let all: Vec<(&str, &str)> =
            point.parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Ok((operator.programs)(&all)?)
    })
}

/// The recipes of programs, as far as programs tell them.
fn outlines(operator: &'static Operator, programs: &[Program], arch: Arch) -> Result<Vec<Recipe>, OpsError> {
    let failed =
        |error| OpsError::Recipe { operator: operator.name.into(), parameters: String::new(), error };
    let refused = |diagnostics| OpsError::Compile {
        operator: operator.name.into(),
        parameters: String::new(),
        diagnostics,
    };
    let one = |program: &Program| {
        let verified = verify(program, &Constants::new()).map_err(refused)?;
        outline(&verified, arch).map_err(failed)
    };
    programs.iter().map(one).collect()
}

impl Derived {
    /// The value that arguments say, but for types.
    fn value(&self, options: &Options, argument: Given<'_, '_>) -> Option<String> {
        let one_more = |option: &str| usize::from(options.iter().any(|(name, _)| name == option));
        let extent = |name: &str, mode: usize| argument(name)?.tensor()?.1.get(mode).copied();
        let last = |name: &str| argument(name)?.tensor()?.1.last().copied();
        match self.from {
            From::Type(_) => None,
            From::Extent(name, mode) => extent(name, mode).map(|extent| extent.to_string()),
            From::Beside(name, other) => {
                let own = last(name)?;
                (last(other)? != own).then(|| own.to_string())
            }
            From::Ratio([(a, mode), (b, other)]) => {
                let (a, b) = (extent(a, mode)?, extent(b, other)?);
                (b > 0 && a % b == 0).then(|| (a / b).to_string())
            }
            From::With(name, value) => argument(name).map(|_| value.to_string()),
            From::Modes(name, modes, value) => {
                (argument(name)?.tensor()?.1.len() == modes).then(|| value.to_string())
            }
            From::Rank(name, beside, with) => {
                let modes = argument(name)?.tensor()?.1.len();
                Some(modes.checked_sub(beside + one_more(with))?.to_string())
            }
            From::Inner(name, from, with) => {
                let arg = argument(name)?;
                let (_, [extents @ .., _], _) = arg.tensor()? else { return None };
                let extents = extents.get(from + one_more(with)..)?;
                let all_equal = extents.windows(2).all(|two| two[0] == two[1]);
                let shown = if all_equal { extents.get(..1)? } else { extents };
                let texts: Vec<String> = shown.iter().map(ToString::to_string).collect();
                Some(texts.join("x"))
            }
        }
    }
}

/// Options, and those that follow from arguments but for their types.
pub(crate) fn said(
    operator: &'static Operator,
    row: &Row,
    given: &Options,
    argument: Given<'_, '_>,
) -> Result<Options, OpsError> {
    let parameters = (operator.parameters)();
    let mut all = given.clone();
    for derived in row.options {
        let has = parameters.iter().any(|parameter| parameter.name == derived.option);
        if has
            && all.iter().all(|(option, _)| option != derived.option)
            && let Some(value) = derived.value(given, argument)
        {
            all.push((derived.option.to_string(), value));
        }
    }
    // What is given is kept though it is a default: it does not follow from types.
    ordered(operator, &all)?;
    Ok(all)
}

impl Base {
    /// An operator with these options and those that follow from the arguments' types.
    pub(crate) fn new(
        operator: &'static Operator,
        row: &Row,
        options: &Options,
        arch: Arch,
        argument: Given<'_, '_>,
    ) -> Result<Base, OpsError> {
        if !arch.has(operator.needs) {
            let reasons = format!("{arch} lacks {}", arch.lacks(operator.needs));
            return Err(OpsError::Nothing { operator: operator.name.to_string(), reasons });
        }
        let parameters = (operator.parameters)();
        let has = |name: &str| parameters.iter().any(|parameter| parameter.name == name);
        let given =
            |all: &Options, name: &str| options.iter().chain(all.iter()).any(|(option, _)| option == name);
        let mut all = ordered(operator, options)?;
        let mut made = programs(operator, &all, arch)?;
        let mut recipes = outlines(operator, &made, arch)?;
        let types = row.options.iter().filter_map(|derived| match derived.from {
            From::Type(name) => Some((derived.option, name.to_string())),
            _ => None,
        });
        let own = parameters.iter().find(|parameter| parameter.name == "dtype");
        let own = own.and_then(|dtype| Some(("dtype", first_of(operator, &recipes, &dtype.default, &all)?)));
        for (option, name) in own.into_iter().chain(types) {
            if given(&all, option) || !has(option) {
                continue;
            }
            let arg = argument(&name);
            let Some((wanted, ..)) = arg.as_ref().and_then(Arg::tensor) else { continue };
            let is = |dtype: DType| dtype == wanted;
            if tensors(&recipes).any(|(_, other, tensor)| *other == name && !is(tensor.dtype))
                || tensors(&recipes).all(|(_, other, _)| *other != name)
            {
                all.push((option.to_string(), wanted.name().to_string()));
                all = ordered(operator, &all)?;
                made = programs(operator, &all, arch)?;
                recipes = outlines(operator, &made, arch)?;
            }
        }
        let is_operand = |name: &str| operator.workspaces().iter().all(|workspace| workspace.name != name);
        let limits = limits(&recipes, &is_operand);
        let numbers = made.iter().flat_map(numbers).collect();
        let (told, joined) = (row.sizes, row.joined);
        Ok(Base { operator, options: all, told, joined, recipes, limits, numbers })
    }

    /// True if a tensor is no workspace.
    pub(crate) fn is_operand(&self, name: &str) -> bool {
        self.operator.workspaces().iter().all(|workspace| workspace.name != name)
    }

    /// The operands' types are those of the arguments.
    pub(crate) fn check_types(&self, argument: Given<'_, '_>) -> Result<(), OpsError> {
        for (_, name, tensor) in tensors(&self.recipes).filter(|(_, name, _)| self.is_operand(name)) {
            let arg = argument(name);
            let Some((given, ..)) = arg.as_ref().and_then(Arg::tensor) else { continue };
            if given != tensor.dtype {
                let (operator, argument) = (self.operator.name.to_string(), name.to_string());
                return Err(OpsError::Type { operator, argument, expected: tensor.dtype, given });
            }
        }
        Ok(())
    }

    /// The type and the shape of an operand, as text.
    pub(crate) fn operand(&self, name: &str) -> String {
        let found = tensors(&self.recipes).find(|(_, own, _)| *own == name);
        found.map_or_else(|| "a number".to_string(), |(recipe, _, tensor)| text_of(recipe, tensor))
    }

    /// The value of an option.
    fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The sizes of the problem that are no sizes of tensors, beside those that are known.
    pub(crate) fn tell(&self, known: &mut Sizes, argument: Given<'_, '_>) {
        let extent = |name: &str, mode: usize| argument(name)?.tensor()?.1.get(mode).copied();
        for (size, told) in self.told {
            let value = match *told {
                Told::Extent(name, mode) => extent(name, mode),
                Told::Times(name, mode, option) => {
                    let factor = self.option(option).and_then(|value| value.parse::<i64>().ok());
                    extent(name, mode).zip(factor).and_then(|(extent, factor)| extent.checked_mul(factor))
                }
            };
            if let Some(value) = value.filter(|_| !known.contains_key(*size)) {
                known.insert((*size).to_string(), value);
            }
        }
    }

    /// True if a size is one of the programs, or of a problem that arguments tell.
    pub(crate) fn needs(&self, size: &str) -> bool {
        self.told.iter().any(|(name, _)| *name == size)
            || self.recipes.iter().any(|recipe| recipe.sizes.iter().any(|row| row.name == size))
    }

    /// The kinds of the problem's sizes.
    pub(crate) fn kinds(&self) -> &'static [(&'static str, SizeKind)] {
        self.operator.tuning.map_or(&[], |tuning| tuning.sizes)
    }
}

/// The first operand with the type that is the default of `dtype`, or that the options give it.
fn first_of(
    operator: &'static Operator,
    recipes: &[Recipe],
    default: &str,
    options: &Options,
) -> Option<String> {
    let dtype = options.iter().find(|(name, _)| name == "dtype").map_or(default, |(_, value)| value);
    let found = tensors(recipes).find(|(_, name, tensor)| {
        let is_operand = operator.workspaces().iter().all(|workspace| workspace.name != *name);
        is_operand && tensor.dtype.name() == dtype
    });
    found.map(|(_, name, _)| name.to_string())
}

/// The numbers of a program, with their defaults.
pub(crate) fn numbers(program: &Program) -> impl Iterator<Item = (String, Arg<'static>)> {
    use tilewright_machine::DType;
    program.params.iter().filter_map(|param| {
        let ParamKind::Scalar { default } = &param.kind else { return None };
        let bits = default.bits(param.dtype);
        let low = bits as u32;
        let number = match param.dtype {
            DType::F32 => Arg::from(f32::from_bits(low)),
            DType::F64 => Arg::from(f64::from_bits(bits)),
            DType::I64 => Arg::from(bits.cast_signed()),
            DType::U64 => Arg::from(bits),
            DType::U32 => Arg::from(low),
            _ => Arg::from(low.cast_signed()),
        };
        Some((param.name.clone(), number))
    })
}
