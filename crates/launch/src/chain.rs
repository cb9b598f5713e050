//! Chains: launches one after another on one stream, whose tensors of one name are one tensor, with one workspace.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::driver::Driver;
use crate::error::LaunchError;
use crate::launch::{LaunchOptions, Prepared, Words};
use crate::plan::{Plan, WORKSPACE_ALIGNMENT};
use crate::recipe::{Access, MOST_PARAMS, Param, ParamKind, Zeros};
use crate::stream::Stream;
use crate::view::{Arg, Args};
use crate::workspace::LEFT_BYTES;

/// The origin of a parameter's value.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The argument with this number.
    Argument(usize),
    /// This place in the workspace.
    Workspace(u64),
}

#[derive(Debug)]
struct Link {
    plan: Plan,
    /// By parameter of the kernel.
    sources: Box<[Source]>,
}

#[derive(Debug)]
struct Chained {
    links: Box<[Link]>,
    params: Box<[Param]>,
    workspace_bytes: u64,
    /// Bytes at the workspace's beginning that each launch leaves as zeros.
    left: u64,
    /// Places and bytes of what is filled with zeros before the first launch.
    filled: [u64; 2],
}

/// Launches one after another. A parameter that several kernels have by one name is one argument, or one part of the workspace; whoever launches the
/// chain knows nothing of how many kernels it has.
#[derive(Clone)]
pub struct Chain(Arc<Chained>);

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernels: Vec<&str> = self.0.links.iter().map(|link| link.plan.recipe().name.as_str()).collect();
        f.debug_struct("Chain").field("kernels", &kernels).finish_non_exhaustive()
    }
}

/// A part of the workspace, for all kernels that have it.
#[derive(Default)]
struct Part {
    bytes: u64,
    zeros: Zeros,
    place: u64,
}

/// The places of the parts of a workspace.
struct Layout {
    parts: HashMap<String, Part>,
    bytes: u64,
    left: u64,
    filled: [u64; 2],
}

impl Chain {
    /// The launches of these plans, in this order. Tensors that a recipe has marked as parts of the workspace are one where their names are; those that launches
    /// leave as zeros lie in the first 4096 bytes, of every chain.
    ///
    /// # Errors
    ///
    /// A parameter that two kernels have as different things.
    pub fn new(plans: impl IntoIterator<Item = Plan>) -> Result<Chain, LaunchError> {
        let plans: Vec<Plan> = plans.into_iter().collect();
        let Layout { parts, bytes: workspace_bytes, left, filled } = layout(&plans);
        let mut params: Vec<Param> = Vec::new();
        let mut links = Vec::with_capacity(plans.len());
        for plan in plans {
            let mut sources = Vec::with_capacity(plan.recipe().params.len());
            for param in &plan.recipe().params {
                let part = parts.get(&param.name).filter(|_| is_part(param));
                sources.push(match part {
                    Some(part) => Source::Workspace(part.place),
                    None => Source::Argument(argument(&mut params, param, &plan)?),
                });
            }
            links.push(Link { plan, sources: sources.into() });
        }
        if params.len() > MOST_PARAMS {
            let kernel = links.first().map_or_else(String::new, |link| link.plan.recipe().name.clone());
            return Err(LaunchError::ChainParams { kernel, given: params.len(), most: MOST_PARAMS });
        }
        let (links, params) = (links.into(), params.into());
        Ok(Chain(Arc::new(Chained { links, params, workspace_bytes, left, filled })))
    }

    /// The arguments, in order: the parameters of the first kernel that are no parts of the workspace, then those that the second has beside them, and so on. What one of
    /// the kernels writes is for writing.
    pub fn params(&self) -> &[Param] {
        &self.0.params
    }

    /// The plans, in the order of their launches.
    pub fn plans(&self) -> impl ExactSizeIterator<Item = &Plan> {
        self.0.links.iter().map(|link| &link.plan)
    }

    /// Bytes of the workspace that the chain needs, at a multiple of 256; 0 if it needs none.
    pub fn workspace_bytes(&self) -> u64 {
        self.0.workspace_bytes
    }

    /// The bytes of the table of an array of tensors, the parameter of this name, which lie at these addresses, as [`Plan::table`] makes it: one for all kernels that have the parameter.
    ///
    /// # Errors
    ///
    /// As of [`Plan::table`]; no kernel has the parameter, or two have tables of different bytes.
    pub fn table(&self, param: &str, addresses: &[u64]) -> Result<Vec<u8>, LaunchError> {
        let mut table: Option<Vec<u8>> = None;
        for Link { plan, .. } in &self.0.links {
            let kernel = || plan.recipe().name.clone();
            let Some(number) = plan.recipe().params.iter().position(|own| own.name == param) else {
                continue;
            };
            let own = plan.table(number, addresses)?;
            if table.as_ref().is_some_and(|known| *known != own) {
                return Err(LaunchError::OtherThing { kernel: kernel(), param: param.to_string() });
            }
            table = Some(own);
        }
        table.ok_or_else(|| {
            let kernel =
                self.0.links.first().map_or_else(String::new, |link| link.plan.recipe().name.clone());
            let (expected, given) = ("no parameter", "an array of tensors");
            LaunchError::ArgumentKind { kernel, param: param.to_string(), expected, given }
        })
    }

    /// Puts the launches on a stream: a call of the driver each, and one before them where a part of the workspace is to hold zeros that it does not hold. The launches behind the first may
    /// begin early where their kernels wait for what they depend on; the first one if the options say so.
    ///
    /// # Errors
    ///
    /// As of [`Plan::launch_with`]. Where the driver refuses a launch, those ahead of it are on the stream.
    pub fn launch_with<'a>(
        &self,
        stream: Stream<'_>,
        args: impl Args<'a>,
        options: &LaunchOptions<'_>,
    ) -> Result<(), LaunchError> {
        let chain = &*self.0;
        let Some(first) = chain.links.first() else { return Ok(()) };
        args.with(|args| {
            self.count(args.len())?;
            let workspace = self.workspace(options)?;
            // Nothing is on the stream before the arguments of every launch are known to fit; those of the first come last, and stay.
            let mut words: Words = [0; MOST_PARAMS];
            chain.links.iter().rev().try_for_each(|link| link.fill(&mut words, args, workspace))?;
            let filled = self.filled(options);
            for [place, bytes] in filled.into_iter().filter(|[_, bytes]| *bytes > 0) {
                fill(first.plan.gpu().driver(), workspace + place, bytes, stream)?;
            }
            for (number, link) in chain.links.iter().enumerate() {
                if number > 0 {
                    link.fill(&mut words, args, workspace)?;
                }
                link.plan.send(&words, stream, &of_link(number, options, &filled))?;
            }
            Ok(())
        })
    }

    /// The chain with these arguments, to be put on streams later, any number of times: what can be checked and computed ahead is.
    ///
    /// # Errors
    ///
    /// As of [`Plan::launch_with`].
    pub fn prepare<'a>(
        &self,
        args: impl Args<'a>,
        options: &LaunchOptions<'_>,
    ) -> Result<PreparedChain, LaunchError> {
        let chain = &*self.0;
        args.with(|args| {
            self.count(args.len())?;
            let (workspace, filled) = (self.workspace(options)?, self.filled(options));
            let mut launches = Vec::with_capacity(chain.links.len());
            for (number, link) in chain.links.iter().enumerate() {
                let mut words: Words = [0; MOST_PARAMS];
                link.fill(&mut words, args, workspace)?;
                launches.push(link.plan.prepare_words(&words, &of_link(number, options, &filled))?);
            }
            let filled = filled.into_iter().filter(|[_, bytes]| *bytes > 0);
            let fillings = filled.map(|[place, bytes]| [workspace + place, bytes]).collect();
            Ok(PreparedChain { fillings, launches: launches.into() })
        })
    }

    fn count(&self, given: usize) -> Result<(), LaunchError> {
        match self.0.links.first() {
            Some(first) if given != self.0.params.len() => {
                let kernel = first.plan.recipe().name.clone();
                Err(LaunchError::argument_count(kernel, self.0.params.iter(), given))
            }
            _ => Ok(()),
        }
    }

    /// The address of the workspace; 0 of a chain that needs none.
    fn workspace(&self, options: &LaunchOptions<'_>) -> Result<u64, LaunchError> {
        let needed = self.0.workspace_bytes;
        let kernel = || self.0.links.first().map_or_else(String::new, |link| link.plan.recipe().name.clone());
        if needed == 0 { Ok(0) } else { options.workspace_of(needed, kernel) }
    }

    /// Places in the workspace and bytes of what is filled with zeros before the first launch.
    fn filled(&self, options: &LaunchOptions<'_>) -> [[u64; 2]; 2] {
        let clear = options.workspace.is_some_and(|given| given.clear);
        [[0, if clear { 0 } else { self.0.left }], self.0.filled]
    }
}

impl Link {
    /// Writes the addresses and bits of numbers of the kernel's parameters.
    fn fill(&self, words: &mut Words, args: &[Arg<'_>], workspace: u64) -> Result<(), LaunchError> {
        for (number, source) in self.sources.iter().enumerate() {
            words[number] = match *source {
                Source::Argument(argument) => self.plan.word(number, Some(&args[argument].0))?,
                Source::Workspace(place) => workspace.wrapping_add(place),
            };
        }
        Ok(())
    }
}

/// The options of a launch of a chain: what follows the filling is no launch that depends on one.
fn of_link<'a>(number: usize, options: &LaunchOptions<'a>, filled: &[[u64; 2]; 2]) -> LaunchOptions<'a> {
    let first = || options.dependent && filled.iter().all(|[_, bytes]| *bytes == 0);
    LaunchOptions { dependent: number > 0 || first(), records: options.records, workspace: None }
}

/// Fills a part of the workspace with zeros.
fn fill(driver: &Driver, pointer: u64, bytes: u64, stream: Stream<'_>) -> Result<(), LaunchError> {
    // SAFETY: the workspace has these bytes, is the GPU's, and nothing else uses it (`Workspace::new`).
    unsafe { driver.memory_set(pointer, 0, bytes as usize, stream.raw()) }
        .map_err(driver.failed("filling a part of the workspace with zeros"))
}

/// A chain with its arguments, which can be put on streams any number of times.
#[derive(Debug)]
pub struct PreparedChain {
    /// Addresses and bytes of what is filled with zeros ahead.
    fillings: Box<[[u64; 2]]>,
    launches: Box<[Prepared]>,
}

impl PreparedChain {
    /// Puts the launches on a stream, as [`Chain::launch_with`] does.
    ///
    /// # Safety
    ///
    /// The memory that the arguments and the workspace lead to is there until the work has ended, as of views ([`View::new`](crate::View::new)) and of the
    /// [`Workspace`](crate::Workspace).
    ///
    /// # Errors
    ///
    /// Whatever the driver refuses. Launches ahead of the one that it refuses are on the stream.
    #[inline]
    pub unsafe fn enqueue(&self, stream: Stream<'_>) -> Result<(), LaunchError> {
        if let Some(first) = self.launches.first() {
            for [pointer, bytes] in &self.fillings {
                fill(first.plan().gpu().driver(), *pointer, *bytes, stream)?;
            }
        }
        for launch in &self.launches {
            // SAFETY: as the caller says.
            unsafe { launch.enqueue(stream) }.map_err(|error| launch.plan().refused(error))?;
        }
        Ok(())
    }
}

fn is_part(param: &Param) -> bool {
    matches!(&param.kind, ParamKind::Tensor(tensor) if tensor.workspace)
}

/// The places of the parts of the workspace: what is left as zeros, what is filled with zeros, and the rest.
fn layout(plans: &[Plan]) -> Layout {
    let (mut parts, mut order): (HashMap<String, Part>, Vec<&str>) = (HashMap::new(), Vec::new());
    for plan in plans {
        for (param, expected) in plan.recipe().params.iter().zip(plan.0.tensors.iter()) {
            let (ParamKind::Tensor(tensor), Some(expected)) = (&param.kind, expected) else { continue };
            if tensor.workspace {
                if !parts.contains_key(&param.name) {
                    order.push(&param.name);
                }
                let part = parts.entry(param.name.clone()).or_default();
                part.bytes = part.bytes.max(expected.bytes.next_multiple_of(WORKSPACE_ALIGNMENT));
                if part.zeros == Zeros::None {
                    part.zeros = tensor.zeros;
                }
            }
        }
    }
    let of_left: u64 = parts.values().filter(|part| part.zeros == Zeros::Left).map(|part| part.bytes).sum();
    if of_left > LEFT_BYTES {
        parts
            .values_mut()
            .filter(|part| part.zeros == Zeros::Left)
            .for_each(|part| part.zeros = Zeros::Before);
    }
    let mut put = |zeros: Zeros, mut at: u64| {
        for name in &order {
            if let Some(part) = parts.get_mut(*name).filter(|part| part.zeros == zeros) {
                part.place = at;
                at = at.saturating_add(part.bytes);
            }
        }
        at
    };
    let left = put(Zeros::Left, 0);
    let filled = put(Zeros::Before, LEFT_BYTES);
    let end = put(Zeros::None, filled);
    let bytes = if parts.is_empty() { 0 } else { end };
    Layout { parts, bytes, left, filled: [LEFT_BYTES, filled - LEFT_BYTES] }
}

/// The number of the argument for a parameter, which is added where no kernel ahead has it.
fn argument(params: &mut Vec<Param>, param: &Param, plan: &Plan) -> Result<usize, LaunchError> {
    let Some(known) = params.iter().position(|other| other.name == param.name) else {
        params.push(param.clone());
        return Ok(params.len() - 1);
    };
    let same = match (&mut params[known].kind, &param.kind) {
        (ParamKind::Tensor(a), ParamKind::Tensor(b)) => {
            if b.access == Access::Write {
                a.access = Access::Write;
            }
            (a.dtype, a.array) == (b.dtype, b.array)
        }
        (ParamKind::Scalar(a), ParamKind::Scalar(b)) => a == b,
        _ => false,
    };
    let (kernel, param) = (plan.recipe().name.clone(), param.name.clone());
    if same { Ok(known) } else { Err(LaunchError::OtherThing { kernel, param }) }
}
