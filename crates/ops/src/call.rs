//! Calls of operators: arguments by name, and the launches that are ready for such.

use tilewright_launch::{Arg, Chain, LaunchOptions, Stream, Workspace};
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
/// The arguments and options of a call, but for addresses and numbers.
pub(crate) struct Key(Box<[u64]>);

/// The origin of an argument of a chain.
#[derive(Clone, Copy, Debug)]
enum Slot {
    /// The argument of the call with this number.
    Given(usize),
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

    /// With kernels that may begin before the launch ahead of them on the stream has ended, and wait for it themselves, where the operator has such. What the launch ahead writes is then
    /// nothing that the operator takes as constant.
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

    /// Puts the launches on a stream, of a call that stays where it is.
    #[inline]
    pub(crate) fn run_on(&mut self, stream: Stream<'_>) -> Result<(), OpsError> {
        let mut words = Words::new();
        let words = words.written(|end| self.words(end));
        match self.known(words) {
            Some(ready) => ready.launch(self, stream),
            None => self.run_first(words, stream),
        }
    }

    /// The first run of its kind.
    #[cold]
    fn run_first(&mut self, words: Option<&[u64]>, stream: Stream<'_>) -> Result<(), OpsError> {
        let driver = self.library.gpu().driver();
        let may = match (stream.is_capturing(driver), self.library.is_strict()) {
            (true, _) => May::Captured,
            (false, true) => May::Nothing,
            (false, false) => May::Everything,
        };
        let ready = self.make(may)?;
        match self.keep(words, ready) {
            Ok(ready) => ready.launch(self, stream),
            // The table is full.
            Err(ready) => ready.launch(self, stream),
        }
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

    /// Bytes of the workspace that a run takes, at a multiple of 256; 0 if it takes none. Everything is made ready for that.
    ///
    /// # Errors
    ///
    /// As of [`Call::run`].
    pub fn workspace_bytes(&self) -> Result<u64, OpsError> {
        self.with_ready(|ready| ready.chain.workspace_bytes())
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
            return Ok(call(ready));
        }
        let ready = self.make(if self.library.is_strict() { May::Nothing } else { May::Everything })?;
        Ok(match self.keep(words, ready) {
            Ok(ready) => call(ready),
            Err(ready) => call(&ready),
        })
    }

    /// Writes the words of the call.
    #[inline]
    fn words<'w>(&self, end: End<'w>) -> End<'w> {
        let counts = self.options.len() as u64 | (self.sizes.len() as u64) << 32;
        let end = self.name.words(u64::from(self.dependent), end).with(counts);
        let option = |end, (name, value): &(Name<'_>, Value<'_>)| value.words(name.words(value.mark(), end));
        let end = self.options.fold(end, option);
        let size = |end, (name, size): &(Name<'_>, i64)| name.words(0, end).with(size.cast_unsigned());
        let end = self.sizes.fold(end, size);
        self.arguments.fold(end, |end, (name, arg)| {
            let Some((dtype, shape, strides)) = arg.tensor() else { return name.words(0, end) };
            let end = name.words(1, end).with(((dtype.index() as u64) << 8) | shape.len() as u64);
            let with = |end: End<'w>, number: &i64| end.with(number.cast_unsigned());
            strides.iter().fold(shape.iter().fold(end, with), with)
        })
    }

    #[inline]
    fn known(&self, words: Option<&[u64]>) -> Option<&'a Ready> {
        let words = words?;
        let number = number_of(words);
        self.library.table(number).get(number, |Key(known)| **known == *words)
    }

    fn keep(&self, words: Option<&[u64]>, ready: Ready) -> Result<&'a Ready, Ready> {
        let Some(words) = words else { return Err(ready) };
        let number = number_of(words);
        self.library.table(number).insert(number, Key(words.into()), ready)
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
            let number = || found.base.numbers.get(&param.name).copied().map(Slot::Number);
            slots.push(given.map(Slot::Given).or_else(number).ok_or_else(|| OpsError::Missing {
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
    #[inline]
    fn launch(&self, call: &mut Call<'_>, stream: Stream<'_>) -> Result<(), OpsError> {
        if self.slots.len() <= FEW[0] {
            self.launch_of::<{ FEW[0] }>(call, stream)
        } else {
            self.launch_of::<MOST_ARGUMENTS>(call, stream)
        }
    }

    /// Puts the launches on a stream, of at most so many arguments.
    fn launch_of<const MOST: usize>(&self, call: &mut Call<'_>, stream: Stream<'_>) -> Result<(), OpsError> {
        let mut arguments = [Arg::from(0i32); MOST];
        for (argument, slot) in arguments.iter_mut().zip(&self.slots) {
            match *slot {
                Slot::Given(number) => {
                    if let Some((_, given)) = call.arguments.get(number) {
                        *argument = *given;
                    }
                }
                Slot::Number(number) => *argument = number,
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
        Ok(self.chain.launch_with(stream, &arguments[..self.slots.len()], &options)?)
    }
}
