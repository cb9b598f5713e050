//! Layers of experts: the launches of a whole layer as one chain.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;
use tilewright_compiler::recipe::outline;
use tilewright_kernels::moe::{MoeChoice, MoeLaunch, MoeLayer, MoePlan};
use tilewright_kernels::{SizeKind, operator};
use tilewright_launch::{Arg, Chain, Kernel, LaunchOptions, Memo, Param, Stream, Workspace, hash};
use tilewright_tile::{Constants, verify};
use tilewright_tune::Candidate;

use crate::base::numbers;
use crate::class::Member;
use crate::error::OpsError;
use crate::few::Few;
use crate::kept::Kept;
use crate::library::{Library, May};
use crate::problems::{Span, Warm};
use crate::sizes::{Sizes, limits, multiple};

/// Numbers of tokens whose launches are kept: those that were used last.
const KEPT: usize = 1024;
/// Arguments of a call that take no allocation, which is also the most that a layer has.
const MOST_ARGUMENTS: usize = 16;
/// Sizes that follow from the number of tokens: no kernel relies on their divisors.
const OF_TOKENS: [&str; 4] = ["tokens", "m", "r", "t"];

/// A layer of experts on a GPU: [`MoeLayer`] has its tensors and their shapes.
///
/// ```no_run
/// # use tilewright_launch::{Stream, View, ViewMut, Workspace};
/// # fn called(lib: &tilewright_ops::Library, layer: tilewright_kernels::moe::MoeLayer, stream: Stream<'_>, [logits, x, w13, w2]: [View<'_>; 4], mut y: ViewMut<'_>, mut memory: Workspace<'_>) -> Result<(), tilewright_ops::OpsError> {
/// let experts = lib.moe_layer(layer)?;
/// experts.warm_up(1..=64)?;
/// let call = experts.tokens(17).arg("logits", &logits).arg("x", &x).arg("w13", &w13).arg("w2", &w2);
/// call.arg("y", &mut y).workspace(&mut memory).run(stream)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Experts {
    library: Library,
    layer: MoeLayer,
    /// Products, by the number of tokens that they are chosen for.
    choices: Mutex<HashMap<i64, Arc<MoeChoice>>>,
    /// Kernels with the layer's names, by those of configurations and tensors.
    kernels: Mutex<HashMap<String, Kernel>>,
    ready: Memo<i64, Ready>,
}

/// The launches for a number of tokens.
#[derive(Debug)]
struct Ready {
    chain: Chain,
    numbers: BTreeMap<String, Arg<'static>>,
}

/// A call of a layer.
#[derive(Debug)]
#[must_use = "a call does nothing before it is run"]
pub struct ExpertsCall<'a> {
    experts: &'a Experts,
    tokens: i64,
    arguments: Few<(&'a str, Arg<'a>), MOST_ARGUMENTS>,
    workspace: Option<Workspace<'a>>,
    dependent: bool,
}

impl Library {
    /// A layer of experts.
    ///
    /// # Errors
    ///
    /// A GPU for which there are no such kernels.
    pub fn moe_layer(&self, layer: MoeLayer) -> Result<Experts, OpsError> {
        if let Some(reasons) = layer.reject(self.arch()) {
            return Err(OpsError::Nothing { operator: "moe_layer".to_string(), reasons });
        }
        let (choices, kernels, ready) = (Mutex::default(), Mutex::default(), Memo::new(KEPT));
        Ok(Experts { library: self.clone(), layer, choices, kernels, ready })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Experts {
    /// The layer.
    pub fn layer(&self) -> &MoeLayer {
        &self.layer
    }

    /// A call for so many tokens.
    pub fn tokens(&self, tokens: i64) -> ExpertsCall<'_> {
        ExpertsCall { experts: self, tokens, arguments: Few::new(), workspace: None, dependent: false }
    }

    /// Compiles and loads the kernels for every number of tokens of a range, several at a time. The products are chosen for the ends of classes, as [`Library::warm_up`]
    /// has them; what sorts tokens depends on their number itself.
    ///
    /// # Errors
    ///
    /// A range without a number, sizes that the layer cannot have, or what the compiler and the driver refuse.
    pub fn warm_up(&self, tokens: impl Into<Span>) -> Result<Warm, OpsError> {
        let range = tokens.into().range("moe_layer", "tokens")?;
        let classes: BTreeSet<i64> = range.clone().map(class_of).collect();
        classes.par_iter().try_for_each(|class| self.choice(*class).map(drop))?;
        // What is launched, but for sizes.
        let mut launches: BTreeMap<String, MoeLaunch> = BTreeMap::new();
        for tokens in range {
            for launch in self.plan(tokens)?.launches {
                launches.entry(words_of(&launch)).or_insert(launch);
            }
        }
        let kept = launches
            .par_iter()
            .map(|(_, launch)| {
                let kept = self.kept(launch, May::Everything)?;
                kept.load(self.library.gpu())?;
                Ok(kept)
            })
            .collect::<Result<Vec<Arc<Kept>>, OpsError>>()?;
        let kernels: BTreeMap<&str, usize> =
            kept.iter().map(|kept| (kept.key.as_str(), kept.entries.len())).collect();
        let (specialisations, kernels) = (kernels.len(), kernels.values().sum());
        Ok(Warm { classes: classes.len(), specialisations, kernels })
    }

    /// The products for a number of tokens.
    fn choice(&self, class: i64) -> Result<Arc<MoeChoice>, OpsError> {
        if let Some(known) = locked(&self.choices).get(&class) {
            return Ok(known.clone());
        }
        let multiprocessors = i64::from(self.library.gpu().multiprocessors());
        let choice = Arc::new(self.layer.choice(class, multiprocessors)?);
        Ok(locked(&self.choices).entry(class).or_insert(choice).clone())
    }

    fn plan(&self, tokens: i64) -> Result<MoePlan, OpsError> {
        // A number of tokens that a layer cannot have is refused by the plan.
        Ok(self.layer.plan_by(&*self.choice(class_of(tokens.max(1)))?, tokens)?)
    }

    /// The kernels of a launch's operator; an error if they would have to be compiled or loaded and may not.
    fn kept(&self, launch: &MoeLaunch, may: May) -> Result<Arc<Kept>, OpsError> {
        let of = operator(launch.operator)?;
        let parameters = launch.parameters.iter().map(|(name, value)| ((*name).to_string(), value.clone()));
        let candidate = Candidate(parameters.collect());
        let mut multiples = Sizes::new();
        let programs = candidate.programs(of)?;
        for program in &programs {
            let refused = |diagnostics| OpsError::Compile {
                operator: launch.operator.to_string(),
                parameters: candidate.to_string(),
                diagnostics,
            };
            let verified = verify(program, &Constants::new()).map_err(refused)?;
            let recipe = outline(&verified, self.library.arch()).map_err(|error| OpsError::Recipe {
                operator: launch.operator.to_string(),
                parameters: candidate.to_string(),
                error,
            })?;
            let is_operand = |name: &str| of.workspaces().iter().all(|workspace| workspace.name != name);
            for (name, limit) in limits(&[recipe], &is_operand) {
                let size = launch.sizes.iter().find(|(size, _)| *size == name);
                if let Some((_, value)) = size.filter(|_| !OF_TOKENS.contains(&name.as_str())) {
                    let relied = multiple(*value, limit);
                    if relied > 1 {
                        multiples.insert(name, relied);
                    }
                }
            }
        }
        self.library.kept_or_cold(of, &candidate, &multiples, may)
    }

    /// The kernel of a launch, whose tensors have the layer's names.
    fn kernel(&self, launch: &MoeLaunch, plan: &MoePlan, may: May) -> Result<Kernel, OpsError> {
        let key = words_of(launch);
        if let Some(known) = locked(&self.kernels).get(&key) {
            return Ok(known.clone());
        }
        let kept = self.kept(launch, may)?;
        let all = kept.load(self.library.gpu())?;
        let kernel = all.get(launch.program).ok_or_else(|| OpsError::Nothing {
            operator: launch.operator.to_string(),
            reasons: format!("it has no program {}", launch.program),
        })?;
        let mut recipe = kernel.recipe().clone();
        for Param { name, .. } in &mut recipe.params {
            if let Some((_, of_layer)) = launch.tensors.iter().find(|(own, _)| own == name) {
                *name = (*of_layer).to_string();
            }
        }
        for tensor in &plan.workspace {
            if let Some(tensor) = recipe.tensor_mut(tensor.name) {
                tensor.workspace = true;
            }
        }
        let kernel = Kernel::new(kernel.module(), Arc::new(recipe))?;
        Ok(locked(&self.kernels).entry(key).or_insert(kernel).clone())
    }

    fn make(&self, tokens: i64, may: May) -> Result<Ready, OpsError> {
        let plan = self.plan(tokens)?;
        let (mut plans, mut all) = (Vec::with_capacity(plan.launches.len()), BTreeMap::new());
        for launch in &plan.launches {
            let kernel = self.kernel(launch, &plan, may).map_err(|error| match error {
                OpsError::NotWarm { .. } => OpsError::NotWarm {
                    operator: "moe_layer".to_string(),
                    class: format!("tokens = {tokens}"),
                    sizes: format!("tokens = {tokens}"),
                },
                OpsError::NotReady { .. } => OpsError::NotReady {
                    operator: "moe_layer".to_string(),
                    sizes: format!("tokens = {tokens}"),
                },
                other => other,
            })?;
            let values = kernel.recipe().values(&launch.sizes).ok_or_else(|| OpsError::Size {
                operator: launch.operator.to_string(),
                size: format!("{:?}", launch.sizes),
            })?;
            plans.push(kernel.plan(&values)?);
            let given: Vec<(&str, &str)> =
                launch.parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let programs = (operator(launch.operator)?.programs)(&given)?;
            all.extend(programs.iter().flat_map(numbers));
        }
        Ok(Ready { chain: Chain::new(plans)?, numbers: all })
    }

    fn with_ready<T>(
        &self,
        tokens: i64,
        may: impl FnOnce() -> May,
        call: impl FnOnce(&Ready) -> Result<T, OpsError>,
    ) -> Result<T, OpsError> {
        let number = hash([tokens.cast_unsigned()]);
        if let Some(known) = self.ready.get(number, |known| *known == tokens) {
            return call(&known);
        }
        match self.ready.insert(number, tokens, self.make(tokens, may())?) {
            Ok(ready) => call(&ready),
            // Others use all that is kept.
            Err(ready) => call(&ready),
        }
    }

    fn may(&self) -> May {
        if self.library.is_strict() { May::Nothing } else { May::Everything }
    }

    /// Bytes of the workspace for so many tokens, at a multiple of 256. Everything is made ready for that.
    ///
    /// # Errors
    ///
    /// As of [`ExpertsCall::run`].
    pub fn workspace_bytes(&self, tokens: i64) -> Result<u64, OpsError> {
        self.with_ready(tokens, || self.may(), |ready| Ok(ready.chain.workspace_bytes()))
    }

    /// The tensors and numbers that a call takes, by name. Everything is made ready for that.
    ///
    /// # Errors
    ///
    /// As of [`ExpertsCall::run`].
    pub fn arguments(&self, tokens: i64) -> Result<Vec<String>, OpsError> {
        let names = |ready: &Ready| Ok(ready.chain.params().iter().map(|param| param.name.clone()).collect());
        self.with_ready(tokens, || self.may(), names)
    }
}

/// The number of tokens that products are chosen for.
fn class_of(tokens: i64) -> i64 {
    Member::of("tokens", tokens, Some(SizeKind::Extent), 1).chosen_for.unwrap_or(tokens)
}

/// A launch but for its sizes, as text.
fn words_of(launch: &MoeLaunch) -> String {
    let MoeLaunch { operator, parameters, program, tensors, .. } = launch;
    format!("{operator} {parameters:?} {program} {tensors:?}")
}

impl<'a> ExpertsCall<'a> {
    /// With an argument: a view, a view for writing, or a number, for the layer's tensor of this name.
    pub fn arg(mut self, name: &'a str, arg: impl Into<Arg<'a>>) -> Self {
        let arg = arg.into();
        self.arguments.put((name, arg), |(known, _)| *known == name);
        self
    }

    /// With a workspace of at least as many bytes as [`Experts::workspace_bytes`].
    pub fn workspace(mut self, workspace: &'a mut Workspace<'_>) -> Self {
        self.workspace = Some(workspace.reborrow());
        self
    }

    /// With a first kernel that may begin before the launch ahead of it has ended; the others do in any case.
    pub fn dependent(mut self, dependent: bool) -> Self {
        self.dependent = dependent;
        self
    }

    /// Puts the launches on a stream: see [`Call::run`](crate::Call::run).
    ///
    /// # Errors
    ///
    /// As of [`Call::run`](crate::Call::run).
    pub fn run(mut self, stream: Stream<'_>) -> Result<(), OpsError> {
        let experts = self.experts;
        let may = || {
            let captured = stream.is_capturing(experts.library.gpu().driver());
            if captured { May::Captured } else { experts.may() }
        };
        experts.with_ready(self.tokens, may, |ready| self.launch(ready, stream))
    }

    fn launch(&mut self, ready: &Ready, stream: Stream<'_>) -> Result<(), OpsError> {
        let operator = || "moe_layer".to_string();
        let params = ready.chain.params();
        let mut arguments = [Arg::from(0i32); MOST_ARGUMENTS];
        let most = MOST_ARGUMENTS;
        let places = arguments.get_mut(..params.len()).ok_or_else(|| OpsError::TooMany {
            operator: operator(),
            what: "arguments",
            most,
        })?;
        for (place, param) in places.iter_mut().zip(params) {
            let given = self.arguments.iter().find(|(name, _)| *name == param.name).map(|(_, arg)| *arg);
            *place = given.or_else(|| ready.numbers.get(&param.name).copied()).ok_or_else(|| {
                let what = format!("of a layer for {} tokens", self.tokens);
                OpsError::Missing { operator: operator(), argument: param.name.clone(), what }
            })?;
        }
        let unknown = self.arguments.iter().find(|(name, _)| params.iter().all(|param| param.name != *name));
        if let Some((name, _)) = unknown {
            let known: Vec<&str> = params.iter().map(|param| param.name.as_str()).collect();
            let (argument, known) = ((*name).to_string(), known.join(", "));
            return Err(OpsError::Unknown { operator: operator(), argument, known });
        }
        let mut options = LaunchOptions::new().dependent(self.dependent);
        match &mut self.workspace {
            Some(workspace) => options = options.workspace(workspace),
            None if ready.chain.workspace_bytes() > 0 => {
                return Err(OpsError::Workspace {
                    operator: operator(),
                    needed: ready.chain.workspace_bytes(),
                });
            }
            None => {}
        }
        Ok(ready.chain.launch_with(stream, &places[..], &options)?)
    }
}
