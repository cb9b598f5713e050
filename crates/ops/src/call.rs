//! Calls of operators: arguments by name, and the launches that are ready for such.
#![allow(unsafe_code)]

use std::collections::BTreeMap;

use tilewright_launch::{
    Arg, Chain, Joined, LaunchError, LaunchOptions, MAX_RANK, ParamKind, PreparedChain, Reading, Stream,
    Workspace,
};
use tilewright_tune::{Problem, explain};

use crate::base::borrowed;
use crate::error::OpsError;
use crate::few::Few;
use crate::library::{Asked, Found, Library, May, text_of};
use crate::name::Name;
use crate::sizes::Sizes;
use crate::value::Value;
use crate::why::Why;
use crate::words::{End, Words, number_of};

/// The most arguments of an operator.
const MOST_ARGUMENTS: usize = 24;
/// Arguments, options and sizes of a call that take no allocation.
const FEW: [usize; 3] = [8, 6, 2];

/// The words of a call: of its arguments and options but for addresses and numbers, or of all.
pub(crate) struct Key(Box<[u64]>);

/// The origin of an argument of a chain.
#[derive(Clone, Copy, Debug)]
enum Slot {
    /// The argument of the call with this number.
    Given(usize),
    /// The same, with neighbouring modes as one, so that it has these extents and so many modes.
    Folded(usize, [i64; MAX_RANK], usize),
    /// The operator's own number.
    Number(Arg<'static>),
}

/// Launches that are ready for calls of a kind.
#[derive(Debug)]
pub(crate) struct Ready {
    operator: &'static str,
    chain: Chain,
    slots: Box<[Slot]>,
}

/// A call of an operator, to which options and arguments are given by name.
///
/// ```no_run
/// # fn called(lib: &tilewright_ops::Library, stream: tilewright_launch::Stream<'_>, x: tilewright_launch::View<'_>, w: tilewright_launch::View<'_>, mut y: tilewright_launch::ViewMut<'_>) -> Result<(), tilewright_ops::OpsError> {
/// lib.operator("rmsnorm").arg("x", &x).arg("w", &w).arg("y", &mut y).arg("eps", 1e-5f32).run(stream)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a call does nothing before it is run"]
pub struct Call<'a> {
    library: &'a Library,
    name: Name<'a>,
    options: Few<(Name<'a>, Value<'a>), { FEW[1] }>,
    arguments: Few<(Name<'a>, Arg<'a>), { FEW[0] }>,
    sizes: Few<(Name<'a>, i64), { FEW[2] }>,
    workspace: Option<Workspace<'a>>,
    dependent: bool,
}

impl<'a> Call<'a> {
    #[inline]
    pub(crate) fn new(library: &'a Library, name: Name<'a>) -> Self {
        let (options, arguments, sizes) = (Few::new(), Few::new(), Few::new());
        Call { library, name, options, arguments, sizes, workspace: None, dependent: false }
    }

    /// With an option of the operator: what `tilewright kernels` lists as its parameters. Those that say how something is computed are chosen where they are not given.
    #[inline]
    pub fn option(mut self, name: &'a str, value: impl Into<Value<'a>>) -> Self {
        self.set(Name::new(name), value.into());
        self
    }

    /// Sets an option.
    #[inline]
    pub(crate) fn set(&mut self, name: Name<'a>, value: Value<'a>) {
        self.options.put((name, value), |(known, _)| *known == name);
    }

    /// With an argument: a view, a view for writing, or a number, for the parameter of this name.
    #[inline]
    pub fn arg(mut self, name: &'a str, arg: impl Into<Arg<'a>>) -> Self {
        self.give(Name::new(name), arg.into());
        self
    }

    /// Gives an argument.
    #[inline]
    pub(crate) fn give(&mut self, name: Name<'a>, arg: Arg<'a>) {
        self.arguments.put((name, arg), |(known, _)| *known == name);
    }

    /// Gives an argument of a name that none of those before it has.
    #[inline]
    pub(crate) fn begin(&mut self, name: Name<'a>, arg: Arg<'a>) {
        self.arguments.push((name, arg));
    }

    /// With a size that no tensor's shape tells.
    pub fn size(mut self, name: &'a str, size: i64) -> Self {
        let name = Name::new(name);
        self.sizes.put((name, size), |(known, _)| *known == name);
        self
    }

    /// With a workspace, for kernels that leave something for each other: at least as many bytes as [`Call::workspace_bytes`].
    pub fn workspace(mut self, workspace: &'a mut Workspace<'_>) -> Self {
        self.lend(workspace);
        self
    }

    /// Lends the workspace.
    #[inline]
    pub(crate) fn lend(&mut self, workspace: &'a mut Workspace<'_>) {
        self.workspace = Some(workspace.reborrow());
    }

    /// With kernels that may begin before the launch ahead of them on the stream has ended, and wait for it themselves, where the operator has such and they are no slower for the class of sizes ([`Call::why`] says
    /// which it is; the option `dependent` takes them in any case). What the launch ahead writes is then nothing that the operator takes as constant.
    pub fn dependent(mut self, dependent: bool) -> Self {
        self.dependent = dependent;
        self
    }

    /// True of a call whose kernels may begin early.
    #[inline]
    pub(crate) fn set_dependent(&mut self, dependent: bool) {
        self.dependent = dependent;
    }

    /// Puts the launches on a stream. The context of the library's GPU is current, and the stream is one of it. Nothing waits.
    ///
    /// # Errors
    ///
    /// Arguments that do not fit; [`OpsError::Workspace`] without one, where one is needed; what is chosen for the sizes cannot be compiled or loaded; [`OpsError::NotWarm`] of a
    /// strict library, [`OpsError::NotReady`] while the stream is captured, where it would have to be.
    pub fn run(mut self, stream: Stream<'_>) -> Result<(), OpsError> {
        self.run_on(stream)
    }

    /// Puts the launches on a stream, of a call that stays where it is. All operators share its code, which so stays near where several take turns.
    #[inline(never)]
    pub(crate) fn run_on(&mut self, stream: Stream<'_>) -> Result<(), OpsError> {
        let mut words = Words::new();
        let words = words.written(|end| self.places(self.words(end)));
        match self.known_places(words) {
            // SAFETY: the memory is that of the call's views and of its workspace, of which whoever made them gave their word.
            Some(launches) => Ok(unsafe { launches.enqueue(stream) }?),
            None => self.run_elsewhere(words, stream),
        }
    }

    /// A run with other addresses or numbers than those before.
    #[cold]
    fn run_elsewhere(&mut self, words: Option<&[u64]>, stream: Stream<'_>) -> Result<(), OpsError> {
        let of_kind = words.map(|words| &words[..words.len() - self.places_count()]);
        let Some(ready) = self.known(of_kind) else { return self.run_first(of_kind, words, stream) };
        self.launch(&ready, words, stream)
    }

    /// The first run of its kind.
    fn run_first(
        &mut self,
        of_kind: Option<&[u64]>,
        words: Option<&[u64]>,
        stream: Stream<'_>,
    ) -> Result<(), OpsError> {
        let driver = self.library.gpu().driver();
        let may = match (stream.is_capturing(driver), self.library.is_strict()) {
            (true, _) => May::Captured,
            (false, true) => May::Nothing,
            (false, false) => May::Everything,
        };
        let ready = self.make(may)?;
        match self.keep(of_kind, ready) {
            Ok(ready) => self.launch(&ready, words, stream),
            // Others use all that is kept.
            Err(ready) => self.launch(&ready, words, stream),
        }
    }

    /// Puts the launches on a stream, and keeps them with these addresses and numbers where there is room, or where they were asked for lately.
    fn launch(&mut self, ready: &Ready, words: Option<&[u64]>, stream: Stream<'_>) -> Result<(), OpsError> {
        let kept = self.library.places();
        let numbered = words.map(|words| (words, number_of(words)));
        let Some((words, number)) = numbered.filter(|(_, number)| kept.wants(*number)) else {
            return ready.with_arguments(self, |chain, arguments, options| {
                chain.launch_with(stream, arguments, options)
            });
        };
        let made =
            ready.with_arguments(self, |chain, arguments, options| chain.prepare(arguments, options))?;
        // SAFETY: as of `run_on`.
        let run = |launches: &PreparedChain| unsafe { launches.enqueue(stream) };
        Ok(match kept.insert(number, Key(words.into()), made) {
            Ok(kept) => run(&kept),
            Err(made) => run(&made),
        }?)
    }

    /// Makes everything ready that a run takes, as the first run would: it is chosen, compiled and loaded.
    ///
    /// # Errors
    ///
    /// As of [`Call::run`].
    pub fn prepare(&self) -> Result<(), OpsError> {
        self.with_ready(|_| ())
    }

    /// The launches of a run, as a chain of plans whose parameters are the operator's tensors and numbers by name. Everything is made ready for that.
    ///
    /// # Errors
    ///
    /// As of [`Call::run`].
    pub fn launches(&self) -> Result<Chain, OpsError> {
        self.with_ready(|ready| ready.chain.clone())
    }

    /// The launches of a run with its arguments and its workspace, to be put on streams any number of times ([`PreparedChain::enqueue`]): that costs the host the calls of the driver and nothing else.
    /// Everything is made ready for that.
    ///
    /// # Errors
    ///
    /// As of [`Call::run`].
    pub fn prepared(mut self) -> Result<PreparedChain, OpsError> {
        self.prepare_launches()
    }

    /// The launches of a run of a call that stays where it is.
    pub(crate) fn prepare_launches(&mut self) -> Result<PreparedChain, OpsError> {
        let mut words = Words::new();
        let words = words.written(|end| self.words(end));
        let prepare = |ready: &Ready, call: &mut Self| {
            ready.with_arguments(call, |chain, arguments, options| chain.prepare(arguments, options))
        };
        if let Some(ready) = self.known(words) {
            return prepare(&ready, self);
        }
        let ready = self.make(if self.library.is_strict() { May::Nothing } else { May::Everything })?;
        match self.keep(words, ready) {
            Ok(ready) => prepare(&ready, self),
            Err(ready) => prepare(&ready, self),
        }
    }

    /// Bytes of the workspace that a run takes, at a multiple of 256; 0 if it takes none. Everything is made ready for that.
    ///
    /// # Errors
    ///
    /// As of [`Call::run`].
    pub fn workspace_bytes(&self) -> Result<u64, OpsError> {
        self.with_ready(|ready| ready.chain.workspace_bytes())
    }

    /// The bytes of the table of an array of tensors, the argument of this name, which lie at these addresses, for a run; the array that is given may have any address. Everything is made ready
    /// for that.
    ///
    /// # Errors
    ///
    /// As of [`Call::run`] and [`Chain::table`].
    pub fn table(&self, argument: &str, addresses: &[u64]) -> Result<Vec<u8>, OpsError> {
        Ok(self.with_ready(|ready| ready.chain.table(argument, addresses))??)
    }

    /// The choice, its origin, and its estimate with the parts. Everything is made ready for that.
    ///
    /// # Errors
    ///
    /// As of [`Call::run`].
    pub fn why(&self) -> Result<Why, OpsError> {
        let may = if self.library.is_strict() { May::Nothing } else { May::Everything };
        let found = self.find(may)?;
        let kept = &found.chosen.kept;
        let mut why = Why {
            operator: kept.operator.name.to_string(),
            sizes: text_of(&found.known),
            class: found.chosen.class.text(),
            parameters: kept.parameters.to_string(),
            kernels: kept.entries.iter().map(|entry| entry.name.clone()).collect(),
            from: None,
            reason: String::new(),
            refused: Vec::new(),
            passed: found.passed.clone(),
            begin: found.chosen.begin.clone(),
            estimate: None,
        };
        if let Some((problem, choice)) = &found.chosen.choice {
            (why.from, why.reason) = (Some(choice.from), choice.why.clone());
            why.refused.clone_from(&choice.refused);
            why.estimate = Some(explain(problem, self.library.target(), self.library.store(), choice)?);
        }
        Ok(why)
    }

    /// True if a run would find everything ready.
    pub fn is_ready(&self) -> bool {
        self.known(Words::new().written(|end| self.words(end))).is_some()
    }

    fn with_ready<T>(&self, call: impl Fn(&Ready) -> T) -> Result<T, OpsError> {
        let mut words = Words::new();
        let words = words.written(|end| self.words(end));
        if let Some(ready) = self.known(words) {
            return Ok(call(&ready));
        }
        let ready = self.make(if self.library.is_strict() { May::Nothing } else { May::Everything })?;
        Ok(match self.keep(words, ready) {
            Ok(ready) => call(&ready),
            Err(ready) => call(&ready),
        })
    }

    /// Writes the words of the call.
    #[inline]
    fn words<'w>(&self, end: End<'w>) -> End<'w> {
        let [options, arguments, sizes] = [self.options.len(), self.arguments.len(), self.sizes.len()];
        let counts = options as u64 | (arguments as u64) << 16 | (sizes as u64) << 32;
        let end = self.name.words(u64::from(self.dependent), end).with(counts);
        let option = |end, (name, value): &(Name<'_>, Value<'_>)| value.words(name.words(value.mark(), end));
        let end = self.options.fold(end, option);
        let size = |end, (name, size): &(Name<'_>, i64)| name.words(0, end).with(size.cast_unsigned());
        let end = self.sizes.fold(end, size);
        self.arguments.fold(end, |end, (name, arg)| {
            let end = name.words(arg.word().0, end);
            let Some((dtype, shape, strides)) = arg.tensor() else { return end };
            let end = end.with(((dtype.index() as u64) << 8) | shape.len() as u64);
            let with = |end: End<'w>, number: &i64| end.with(number.cast_unsigned());
            strides.iter().fold(shape.iter().fold(end, with), with)
        })
    }

    /// Writes addresses and numbers, and what the workspace is.
    #[inline]
    fn places<'w>(&self, end: End<'w>) -> End<'w> {
        let end = self.arguments.fold(end, |end, (_, arg)| end.with(arg.word().1));
        let workspace = self.workspace.as_ref().map_or([0; 2], Workspace::words);
        workspace.into_iter().fold(end, End::with)
    }

    /// The words of addresses and numbers.
    fn places_count(&self) -> usize {
        self.arguments.len() + 2
    }

    #[inline]
    fn known_places(&self, words: Option<&[u64]>) -> Option<Reading<'a, Key, PreparedChain>> {
        let words = words?;
        self.library.places().get(number_of(words), |Key(known)| **known == *words)
    }

    #[inline]
    fn known(&self, words: Option<&[u64]>) -> Option<Reading<'a, Key, Ready>> {
        let words = words?;
        self.library.ready().get(number_of(words), |Key(known)| **known == *words)
    }

    fn keep(&self, words: Option<&[u64]>, ready: Ready) -> Result<Reading<'a, Key, Ready>, Ready> {
        let Some(words) = words else { return Err(ready) };
        self.library.ready().insert(number_of(words), Key(words.into()), ready)
    }

    fn argument(&self, name: &str) -> Option<Arg<'a>> {
        let name = Name::new(name);
        self.arguments.iter().find(|(known, _)| *known == name).map(|(_, arg)| *arg)
    }

    fn find(&self, may: May) -> Result<Found, OpsError> {
        let text = |(name, value): &(Name<'_>, Value<'_>)| (name.to_string(), value.text().into_owned());
        let name = self.name.text();
        let asked = Asked {
            name: &name,
            options: self.options.iter().map(text).collect(),
            sizes: self.sizes.iter().map(|(name, size)| (name.to_string(), *size)).collect(),
            types: self
                .arguments
                .iter()
                .filter_map(|(name, arg)| Some(format!("{name}: {}", arg.tensor()?.0)))
                .collect(),
            argument: &|name| self.argument(name),
            dependent: self.dependent,
        };
        self.library.find(&asked, may)
    }

    /// Chooses, compiles and loads what it may, and checks the arguments' names.
    fn make(&self, may: May) -> Result<Ready, OpsError> {
        let found = self.find(may)?;
        let kernels = found.chosen.kept.load(self.library.gpu())?;
        let operator = found.base.operator.name;
        let (mut plans, mut of_launch) = (Vec::with_capacity(kernels.len()), None);
        let mut shapes: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for kernel in kernels {
            let mut sizes = Vec::with_capacity(kernel.recipe().sizes.len());
            for size in &kernel.recipe().sizes {
                let mut value = found.known.get(&size.name).copied();
                if value.is_none() {
                    if of_launch.is_none() {
                        of_launch = Some(self.launch_sizes(&found)?);
                    }
                    value = of_launch.as_ref().and_then(|sizes| sizes.get(&size.name).copied());
                }
                sizes.push(value.ok_or_else(|| OpsError::Size {
                    operator: operator.to_string(),
                    size: size.name.clone(),
                })?);
            }
            for param in &kernel.recipe().params {
                let ParamKind::Tensor(tensor) = &param.kind else { continue };
                let extents: Option<Vec<i64>> =
                    tensor.shape.iter().map(|extent| extent.value(&sizes)).collect();
                if let Some(extents) = extents {
                    shapes.entry(param.name.clone()).or_insert(extents);
                }
            }
            plans.push(kernel.plan(&sizes)?);
        }
        let chain = Chain::new(plans)?;
        if chain.params().len() > MOST_ARGUMENTS {
            let (operator, what) = (operator.to_string(), "arguments");
            return Err(OpsError::TooMany { operator, what, most: MOST_ARGUMENTS });
        }
        let mut slots = Vec::with_capacity(chain.params().len());
        for param in chain.params() {
            let given = self.arguments.iter().position(|(name, _)| *name == Name::new(&param.name));
            // Kernels that others leave something for may have several modes of a tensor as one.
            let folded = |given: usize| {
                let (_, arg) = self.arguments.get(given)?;
                let extents = shapes.get(&param.name)?;
                arg.tensor().filter(|(_, shape, _)| shape.len() > extents.len())?;
                arg.folded(extents)?;
                let mut all = [1; MAX_RANK];
                all[..extents.len()].copy_from_slice(extents);
                Some(Slot::Folded(given, all, extents.len()))
            };
            let slot = |given| folded(given).unwrap_or(Slot::Given(given));
            let number = || found.base.numbers.get(&param.name).copied().map(Slot::Number);
            slots.push(given.map(slot).or_else(number).ok_or_else(|| OpsError::Missing {
                operator: operator.to_string(),
                argument: param.name.clone(),
                what: found.base.operand(&param.name),
            })?);
        }
        if let Some((name, _)) = self
            .arguments
            .iter()
            .find(|(name, _)| chain.params().iter().all(|param| Name::new(&param.name) != *name))
        {
            let names: Vec<&str> = chain.params().iter().map(|param| param.name.as_str()).collect();
            return Err(OpsError::Unknown {
                operator: operator.to_string(),
                argument: name.to_string(),
                known: names.join(", "),
            });
        }
        Ok(Ready { operator, chain, slots: slots.into() })
    }

    /// The sizes of a launch that follow from the choice.
    fn launch_sizes(&self, found: &Found) -> Result<Sizes, OpsError> {
        let Some((_, choice)) = &found.chosen.choice else { return Ok(Sizes::new()) };
        let base = &found.base;
        let own = |name: &str| base.kinds().iter().any(|(size, _)| *size == name);
        let sizes: Sizes = found
            .known
            .iter()
            .filter(|(name, _)| own(name))
            .map(|(name, size)| (name.clone(), *size))
            .collect();
        let problem = Problem::new(base.operator.name, &sizes, &borrowed(&base.options))?;
        let given = choice.candidate.given();
        Ok((problem.tuning().launch)(self.library.arch(), problem.sizes(), &given)?.sizes)
    }
}

impl Ready {
    /// The result of a function on the chain, its arguments and the options of its launches.
    fn with_arguments<T>(
        &self,
        call: &mut Call<'_>,
        of: impl FnOnce(&Chain, &[Arg<'_>], &LaunchOptions<'_>) -> Result<T, LaunchError>,
    ) -> Result<T, OpsError> {
        let given = |number: usize| call.arguments.get(number).map(|(_, arg)| *arg);
        let mut folded: Vec<Option<Joined<'_>>> = Vec::new();
        if self.slots.iter().any(|slot| matches!(slot, Slot::Folded(..))) {
            folded.extend(self.slots.iter().map(|slot| match slot {
                Slot::Folded(number, extents, modes) => {
                    given(*number).and_then(|arg| arg.folded(&extents[..*modes]))
                }
                _ => None,
            }));
        }
        let mut arguments = [Arg::from(0i32); MOST_ARGUMENTS];
        for (at, (argument, slot)) in arguments.iter_mut().zip(&self.slots).enumerate() {
            let found = match *slot {
                Slot::Given(number) => given(number),
                Slot::Folded(..) => folded.get(at).and_then(Option::as_ref).map(Arg::from),
                Slot::Number(number) => Some(number),
            };
            if let Some(found) = found {
                *argument = found;
            }
        }
        let mut options = LaunchOptions::new().dependent(call.dependent);
        match &mut call.workspace {
            Some(workspace) => options = options.workspace(workspace),
            None if self.chain.workspace_bytes() > 0 => {
                let (operator, needed) = (self.operator.to_string(), self.chain.workspace_bytes());
                return Err(OpsError::Workspace { operator, needed });
            }
            None => {}
        }
        Ok(of(&self.chain, &arguments[..self.slots.len()], &options)?)
    }
}
