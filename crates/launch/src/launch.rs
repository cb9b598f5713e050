//! Launches: arguments compared with a plan, and one call of the driver.
//!
//! Nothing here allocates, waits or takes a lock where the plan knows the tensor maps of the addresses, and nothing waits at all.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use crate::driver::{Driver, DriverError, Function, LaunchAttribute, LaunchConfig, RawStream, TensorMap};
use crate::error::LaunchError;
use crate::memo::hash;
use crate::plan::{Expected, Plan, WORKSPACE_ALIGNMENT};
use crate::recipe::{Access, MOST_MAPS, MOST_PARAMS, Param, ParamKind, Passed, Scalar, TensorParam};
use crate::stream::Stream;
use crate::view::{Args, Kind, MAX_RANK, Raw, Tensor};
use crate::workspace::Workspace;

/// Multiples at which the table of an array of tensors begins.
const TABLE_ALIGNMENT: u32 = 128;

/// More than its arguments that a launch may be given.
#[derive(Debug, Default)]
pub struct LaunchOptions<'a> {
    pub(crate) dependent: bool,
    pub(crate) records: Option<u64>,
    pub(crate) workspace: Option<&'a Workspace<'a>>,
}

impl<'a> LaunchOptions<'a> {
    /// Nothing more.
    pub fn new() -> Self {
        LaunchOptions::default()
    }

    /// The launch may begin before the one ahead of it on the stream has ended, as soon as all blocks of that one have allowed it or ended. Only
    /// kernels that wait for what they depend on do ([`Recipe::waits`](crate::Recipe::waits)), on GPUs that can (compute capability 9.0 and later); for all others this changes
    /// nothing.
    pub fn dependent(mut self, dependent: bool) -> Self {
        self.dependent = dependent;
        self
    }

    /// The workspace: at least as many bytes as [`Plan::workspace_bytes`].
    pub fn workspace(mut self, workspace: &'a mut Workspace<'_>) -> Self {
        self.workspace = Some(workspace);
        self
    }

    /// The address of the buffer of records, of a kernel with assertions or prints that was compiled with them.
    ///
    /// # Safety
    ///
    /// The GPU writes it; it has as many bytes as [`Recipe::records`](crate::Recipe::records) says, zeros before the launch, and lives until the launch has ended.
    pub unsafe fn records(mut self, pointer: u64) -> Self {
        self.records = Some(pointer);
        self
    }
}

impl LaunchOptions<'_> {
    /// The address of a workspace of so many bytes.
    pub(crate) fn workspace_of(&self, needed: u64, kernel: impl Fn() -> String) -> Result<u64, LaunchError> {
        let (pointer, bytes) = self.workspace.map_or((0, 0), |given| (given.pointer, given.bytes));
        let given = if pointer.is_multiple_of(WORKSPACE_ALIGNMENT) { bytes } else { 0 };
        if given < needed {
            return Err(LaunchError::Workspace { kernel: kernel(), needed, given });
        }
        Ok(pointer)
    }
}

/// Addresses and bits of numbers, by parameter.
pub(crate) type Words = [u64; MOST_PARAMS];

/// Places of the function's parameters, of which as many are there as the function has.
type Pointers = [MaybeUninit<*mut c_void>; MOST_PARAMS];

/// Parameters of a function, and their places as the driver takes them.
///
/// The pointers lead to `words` and `maps`, which nobody writes or gives to others, and which live as long as the pointers do. Both are behind an [`Arc`] and not a `Box`: a `Box` says that nobody
/// else has a pointer to what it owns whenever it is moved ("Considerations for `unsafe` code" in its documentation), and a value of this type is moved after the pointers are made.
struct Parameters {
    pointers: Box<[*mut c_void]>,
    _words: Arc<[u64]>,
    _maps: Arc<[TensorMap]>,
}

/// The place of a parameter among the words, or among the tensor maps.
enum Place {
    Word(usize),
    Map(usize),
}

impl Parameters {
    /// Words and maps, of which parameters have these, in order.
    fn new(words: Vec<u64>, maps: Vec<TensorMap>, places: &[Place]) -> Parameters {
        let (words, maps): (Arc<[u64]>, Arc<[TensorMap]>) = (words.into(), maps.into());
        let pointer = |place: &Place| match place {
            // Little-endian: the low bytes of a word are the parameter.
            Place::Word(word) => Arc::as_ptr(&words).cast::<u64>().wrapping_add(*word).cast_mut().cast(),
            Place::Map(map) => Arc::as_ptr(&maps).cast::<TensorMap>().wrapping_add(*map).cast_mut().cast(),
        };
        let pointers = places.iter().map(pointer).collect();
        Parameters { pointers, _words: words, _maps: maps }
    }
}

// SAFETY: the pointers lead into the memory of the fields beside them, which nobody writes.
unsafe impl Send for Parameters {}
// SAFETY: as above.
unsafe impl Sync for Parameters {}

/// A launch with its arguments, which can be put on streams any number of times: all that the driver is given, but for the stream, is there.
pub struct Prepared {
    driver: &'static Driver,
    function: Function,
    /// The configuration but for the stream, whose attributes are those of below.
    config: LaunchConfig,
    attributes: [LaunchAttribute; 2],
    parameters: Parameters,
    plan: Plan,
}

// SAFETY: functions are taken from any thread, and a configuration's pointers are the driver's and, when it is used, to the attributes.
unsafe impl Send for Prepared {}
// SAFETY: as above.
unsafe impl Sync for Prepared {}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl Prepared {
    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Puts the launch on a stream.
    ///
    /// # Safety
    ///
    /// The memory that the arguments lead to is there until the work has ended, as of views ([`View::new`](crate::View::new)).
    ///
    /// # Errors
    ///
    /// Whatever the driver refuses.
    #[inline]
    pub unsafe fn enqueue(&self, stream: Stream<'_>) -> Result<(), DriverError> {
        let pointers = self.parameters.pointers.as_ptr().cast_mut();
        let config =
            LaunchConfig { stream: stream.raw(), attributes: self.attributes.as_ptr(), ..self.config };
        // SAFETY: as of `submit`; the driver writes neither the pointers nor what they lead to.
        unsafe { submit(self.driver, &config, self.function, pointers) }
    }
}

/// The one call of the driver. The pointers lead to the function's parameters.
///
/// # Safety
///
/// The function has one parameter for each pointer, of at most eight bytes or a tensor map, as the recipe says ([`Module::load`](crate::Module::load)); the driver reads them, the
/// configuration and its attributes before it returns. Tensors are as the kernel takes them ([`Plan::launch_with`], or whoever passes raw arguments), and stay where they are until the work has
/// ended ([`View::new`](crate::View::new)).
#[inline]
unsafe fn submit(
    driver: &Driver,
    config: &LaunchConfig,
    function: Function,
    pointers: *mut *mut c_void,
) -> Result<(), DriverError> {
    if driver.has_attributes() {
        // SAFETY: as the caller says.
        return unsafe { driver.launch_kernel_ex(config, function, pointers, ptr::null_mut()) };
    }
    let ([x, y, z], [threads, ..], shared) = (config.grid, config.block, config.shared_bytes);
    let (stream, none) = (config.stream, ptr::null_mut());
    // SAFETY: as the caller says. Without the function for attributes there are none (`supported`).
    unsafe { driver.launch_kernel(function, x, y, z, threads, 1, 1, shared, stream, pointers, none) }
}

impl Plan {
    /// Puts a launch on a stream: one call of the driver. The context of the kernel's GPU is current, and the stream is one of it. Nothing waits, also for
    /// the work itself: its errors come with a later call.
    ///
    /// # Errors
    ///
    /// Arguments that do not fit, each compared with its parameter: kind, element type, shape, strides, address; or what the driver refuses.
    pub fn launch<'a>(&self, stream: Stream<'_>, args: impl Args<'a>) -> Result<(), LaunchError> {
        self.launch_with(stream, args, &LaunchOptions::default())
    }

    /// The same, with a workspace and other options.
    ///
    /// # Errors
    ///
    /// As of [`Plan::launch`]; a workspace or a buffer of records that is missing.
    pub fn launch_with<'a>(
        &self,
        stream: Stream<'_>,
        args: impl Args<'a>,
        options: &LaunchOptions<'_>,
    ) -> Result<(), LaunchError> {
        args.with(|args| {
            let mut words = [0; MOST_PARAMS];
            self.count(args.len())?;
            self.place_workspace(&mut words, options)?;
            let mut args = args.iter();
            for (number, expected) in self.0.tensors.iter().enumerate() {
                if expected.as_ref().is_none_or(|expected| expected.workspace.is_none()) {
                    words[number] = self.word(number, args.next().map(|arg| &arg.0))?;
                }
            }
            self.send(&words, stream, options)
        })
    }

    /// The same, of arguments of which nothing but number and kinds is checked.
    ///
    /// # Safety
    ///
    /// Each pointer leads to a tensor of the GPU's that is as the parameter at these sizes ([`Plan::tensor`]), or to a table of such, until the work has
    /// ended, as of views.
    ///
    /// # Errors
    ///
    /// As of [`Plan::launch_with`].
    pub unsafe fn launch_raw(
        &self,
        stream: Stream<'_>,
        args: &[Raw],
        options: &LaunchOptions<'_>,
    ) -> Result<(), LaunchError> {
        let words = self.raw_words(args, options)?;
        self.send(&words, stream, options)
    }

    /// The launch with these arguments, of which nothing but number and kinds is checked, to be put on streams later.
    ///
    /// # Errors
    ///
    /// As of [`Plan::launch_with`].
    pub fn prepare_raw(&self, args: &[Raw], options: &LaunchOptions<'_>) -> Result<Prepared, LaunchError> {
        let words = self.raw_words(args, options)?;
        self.prepare_words(&words, options)
    }

    /// The launch with these addresses and bits of numbers.
    pub(crate) fn prepare_words(
        &self,
        words: &Words,
        options: &LaunchOptions<'_>,
    ) -> Result<Prepared, LaunchError> {
        self.check(words)?;
        let passed = &self.0.ready.recipe.passed;
        let (mut own, mut maps) = (Vec::with_capacity(passed.len()), Vec::new());
        let mut places = Vec::with_capacity(passed.len());
        for passed in passed {
            let word = match *passed {
                Passed::Tensor(param) | Passed::Scalar(param) => words[param as usize],
                Passed::Size(size) => self.0.size_words[size as usize],
                Passed::Records => self.records(options)?,
                Passed::Map(map) => match self.table_of(map, words) {
                    Some(address) => address,
                    None => {
                        let pointer = words[self.0.maps[map as usize].param as usize];
                        maps.push(self.known_map(map as usize, pointer)?);
                        places.push(Place::Map(maps.len() - 1));
                        continue;
                    }
                },
            };
            own.push(word);
            places.push(Place::Word(own.len() - 1));
        }
        Ok(Prepared {
            driver: self.gpu().driver(),
            function: self.0.ready.module.function(),
            config: self.config(ptr::null_mut(), options.dependent),
            attributes: self.0.attributes,
            parameters: Parameters::new(own, maps, &places),
            plan: self.clone(),
        })
    }

    fn kernel(&self) -> String {
        self.0.ready.recipe.name.clone()
    }

    #[cold]
    fn other_kind(&self, param: &Param, expected: &'static str, given: &'static str) -> LaunchError {
        LaunchError::ArgumentKind { kernel: self.kernel(), param: param.name.clone(), expected, given }
    }

    fn count(&self, given: usize) -> Result<(), LaunchError> {
        if given == self.0.arguments {
            return Ok(());
        }
        let recipe = &self.0.ready.recipe;
        let given_ones = recipe
            .params
            .iter()
            .filter(|param| !matches!(&param.kind, ParamKind::Tensor(tensor) if tensor.workspace));
        Err(LaunchError::argument_count(self.kernel(), given_ones, given))
    }

    /// The addresses of the parameters that lie in the workspace.
    fn place_workspace(&self, words: &mut Words, options: &LaunchOptions<'_>) -> Result<(), LaunchError> {
        let needed = self.workspace_bytes();
        if needed == 0 {
            return Ok(());
        }
        let pointer = options.workspace_of(needed, || self.kernel())?;
        for (word, expected) in words.iter_mut().zip(self.0.tensors.iter()) {
            if let Some(place) = expected.as_ref().and_then(|expected| expected.workspace) {
                *word = pointer.wrapping_add(place);
            }
        }
        Ok(())
    }

    fn raw_words(&self, args: &[Raw], options: &LaunchOptions<'_>) -> Result<Words, LaunchError> {
        self.count(args.len())?;
        let mut words = [0; MOST_PARAMS];
        self.place_workspace(&mut words, options)?;
        let mut args = args.iter();
        for (word, param) in words.iter_mut().zip(&self.0.ready.recipe.params) {
            match &param.kind {
                ParamKind::Tensor(tensor) if tensor.workspace => {}
                ParamKind::Tensor(_) => match args.next() {
                    Some(Raw::Ptr(pointer)) => *word = *pointer,
                    other => return Err(self.other_kind(param, "a pointer", raw_name(other))),
                },
                ParamKind::Scalar(scalar) => {
                    let arg = args.next();
                    let bits = arg.and_then(|arg| arg.bits(*scalar));
                    *word = bits.ok_or_else(|| self.other_kind(param, scalar.words(), raw_name(arg)))?;
                }
            }
        }
        Ok(words)
    }

    /// The bits of an argument that is as its parameter.
    #[inline]
    pub(crate) fn word(&self, number: usize, arg: Option<&Kind<'_>>) -> Result<u64, LaunchError> {
        let param = &self.0.ready.recipe.params[number];
        match (&param.kind, &self.0.tensors[number]) {
            (ParamKind::Tensor(tensor), Some(expected)) => self.tensor_argument(param, tensor, expected, arg),
            (ParamKind::Scalar(scalar), _) => arg
                .and_then(|arg| arg.bits(*scalar))
                .ok_or_else(|| self.other_kind(param, scalar.words(), arg.map_or("nothing", Kind::name))),
            (ParamKind::Tensor(_), None) => {
                Err(self.other_kind(param, "a tensor", arg.map_or("nothing", Kind::name)))
            }
        }
    }

    /// The address of a tensor that is as its parameter.
    #[inline]
    fn tensor_argument(
        &self,
        param: &Param,
        tensor: &TensorParam,
        expected: &Expected,
        arg: Option<&Kind<'_>>,
    ) -> Result<u64, LaunchError> {
        let (given, alignment) = match arg {
            Some(Kind::Table(pointer)) if tensor.array => {
                if !pointer.is_multiple_of(u64::from(TABLE_ALIGNMENT)) {
                    return Err(self.misaligned(param, TABLE_ALIGNMENT, *pointer));
                }
                return Ok(*pointer);
            }
            Some(Kind::ArrayWrite(given)) if tensor.array => (given, TABLE_ALIGNMENT),
            Some(Kind::Array(given)) if tensor.array && tensor.access == Access::Read => {
                (given, TABLE_ALIGNMENT)
            }
            Some(Kind::Write(given)) if !tensor.array => (given, tensor.alignment),
            Some(Kind::Read(given)) if !tensor.array && tensor.access == Access::Read => {
                (given, tensor.alignment)
            }
            Some(Kind::Read(_)) if !tensor.array => {
                return Err(LaunchError::NotMutable { kernel: self.kernel(), param: param.name.clone() });
            }
            Some(Kind::Array(_)) if tensor.array => {
                return Err(LaunchError::NotMutable { kernel: self.kernel(), param: param.name.clone() });
            }
            other => {
                let wanted = if tensor.array { "a table of tensors" } else { "a tensor" };
                return Err(self.other_kind(param, wanted, other.map_or("nothing", Kind::name)));
            }
        };
        // The tensors of an array lie anywhere.
        if given.dtype != tensor.dtype || !expected.is(given, usize::from(tensor.array)) {
            return Err(self.other_tensor(param, tensor, expected, given));
        }
        if !given.pointer.is_multiple_of(u64::from(alignment)) {
            return Err(self.misaligned(param, alignment, given.pointer));
        }
        Ok(given.pointer)
    }

    #[cold]
    fn misaligned(&self, param: &Param, alignment: u32, pointer: u64) -> LaunchError {
        LaunchError::Alignment { kernel: self.kernel(), param: param.name.clone(), alignment, pointer }
    }

    /// The clash of a tensor with its parameter.
    #[cold]
    fn other_tensor(
        &self,
        param: &Param,
        tensor: &TensorParam,
        expected: &Expected,
        given: &Tensor,
    ) -> LaunchError {
        let (kernel, param) = (self.kernel(), param.name.clone());
        let given_rank = given.rank.min(MAX_RANK);
        let shapes = (&expected.shape[..expected.rank], &given.shape[..given_rank]);
        if given.dtype != tensor.dtype {
            LaunchError::ArgumentType { kernel, param, expected: tensor.dtype, given: given.dtype }
        } else if given.rank != expected.rank || shapes.0 != shapes.1 {
            LaunchError::Shape { kernel, param, expected: shapes.0.to_vec(), given: shapes.1.to_vec() }
        } else {
            let strides = (&expected.strides[..expected.rank], &given.strides[..given_rank]);
            LaunchError::Strides { kernel, param, expected: strides.0.to_vec(), given: strides.1.to_vec() }
        }
    }

    /// Checks that no constant is written, and that every integer of the kernel fits for these integer arguments.
    #[inline]
    fn check(&self, words: &Words) -> Result<(), LaunchError> {
        for (constant, written) in &self.0.clashes {
            if words[*constant] == words[*written] && words[*constant] != 0 {
                let name = |param: usize| self.0.ready.recipe.params[param].name.clone();
                let (constant, written) = (name(*constant), name(*written));
                return Err(LaunchError::ConstantWritten { kernel: self.kernel(), constant, written });
            }
        }
        let Some(known) = &self.0.integers else { return Ok(()) };
        let params = &self.0.ready.recipe.params;
        let mut integers = [0i64; MOST_PARAMS];
        let mut count = 0;
        for (param, word) in params.iter().zip(words) {
            if param.kind == ParamKind::Scalar(Scalar::I32) {
                integers[count] = i64::from((*word as u32).cast_signed());
                count += 1;
            }
        }
        let integers = &integers[..count];
        let number = hash(integers.iter().map(|value| value.cast_unsigned()));
        if known.get(number, |known| **known == *integers).is_some() {
            return Ok(());
        }
        let mut given = integers.iter();
        let scalar = |param: &Param| {
            let is = param.kind == ParamKind::Scalar(Scalar::I32);
            if is { given.next().copied() } else { None }
        };
        let scalars: Vec<Option<i64>> = params.iter().map(scalar).collect();
        self.check_integers(&scalars)?;
        if known.wants(number) {
            // What is not remembered is checked again.
            drop(known.insert(number, integers.into(), ()));
        }
        Ok(())
    }

    fn records(&self, options: &LaunchOptions<'_>) -> Result<u64, LaunchError> {
        let bytes = self.0.ready.recipe.records.unwrap_or_default();
        options.records.ok_or_else(|| LaunchError::NoRecords { kernel: self.kernel(), bytes })
    }

    /// The address of the maps of an array's tensors; `None` of a map that is passed by value.
    #[inline]
    fn table_of(&self, map: u32, words: &Words) -> Option<u64> {
        let mapped = &self.0.maps[map as usize];
        if !mapped.array {
            return None;
        }
        let expected = self.0.tensors[mapped.param as usize].as_ref()?;
        let place = expected.tables.iter().find(|(of, _)| *of == map)?.1;
        Some(words[mapped.param as usize].wrapping_add(place))
    }

    /// The tensor map of the tensor at an address: the one that is kept, or one that is made.
    #[inline]
    fn known_map(&self, map: usize, pointer: u64) -> Result<TensorMap, LaunchError> {
        let known = &self.0.maps[map].known;
        let number = hash([pointer]);
        if let Some(found) = known.get(number, |at| *at == pointer) {
            return Ok(*found);
        }
        let made = self.encode(map, pointer)?;
        if known.wants(number) {
            // Where others use all that is kept, it is made again next time.
            drop(known.insert(number, pointer, made));
        }
        Ok(made)
    }

    /// Gathers the function's parameters, and launches it.
    pub(crate) fn send(
        &self,
        words: &Words,
        stream: Stream<'_>,
        options: &LaunchOptions<'_>,
    ) -> Result<(), LaunchError> {
        self.check(words)?;
        let mut pointers: Pointers = [MaybeUninit::uninit(); MOST_PARAMS];
        let mut addresses: [MaybeUninit<u64>; MOST_PARAMS] = [MaybeUninit::uninit(); MOST_PARAMS];
        let mut made: [MaybeUninit<TensorMap>; MOST_MAPS] = [MaybeUninit::uninit(); MOST_MAPS];
        let passed = self.0.ready.recipe.passed.iter();
        for ((pointer, address), passed) in pointers.iter_mut().zip(&mut addresses).zip(passed) {
            // Little-endian: the low bytes of a word are the parameter.
            let word: *const u64 = match *passed {
                Passed::Tensor(param) | Passed::Scalar(param) => &raw const words[param as usize],
                Passed::Size(size) => &raw const self.0.size_words[size as usize],
                Passed::Records => address.write(self.records(options)?),
                Passed::Map(map) => match self.table_of(map, words) {
                    Some(table) => address.write(table),
                    None => {
                        let at = words[self.0.maps[map as usize].param as usize];
                        ptr::from_ref(made[map as usize].write(self.known_map(map as usize, at)?)).cast()
                    }
                },
            };
            pointer.write(word.cast_mut().cast());
        }
        let config = self.config(stream.raw(), options.dependent);
        let (driver, function) = (self.gpu().driver(), self.0.ready.module.function());
        // SAFETY: the parameters are those of the recipe, and live until after the call.
        unsafe { submit(driver, &config, function, pointers.as_mut_ptr().cast()) }
            .map_err(|error| self.refused(error))
    }

    /// The refusal of a launch.
    #[cold]
    pub(crate) fn refused(&self, error: DriverError) -> LaunchError {
        let (code, message) = self.gpu().driver().describe(error);
        LaunchError::Launch { kernel: self.kernel(), code, message }
    }

    /// The configuration of a launch.
    #[inline]
    fn config(&self, stream: RawStream, dependent: bool) -> LaunchConfig {
        let (plan, recipe) = (&*self.0, &*self.0.ready.recipe);
        LaunchConfig {
            grid: plan.grid,
            block: [recipe.threads, 1, 1],
            shared_bytes: recipe.shared_bytes,
            stream,
            attributes: plan.attributes.as_ptr(),
            attribute_count: plan.attribute_count + u32::from(dependent && plan.may_depend),
        }
    }
}

impl Expected {
    /// True if a tensor has this shape and these strides, from the mode `first` on; a mode of one element has any stride.
    #[inline]
    fn is(&self, given: &Tensor, first: usize) -> bool {
        let is = |mode: usize| {
            let (extent, stride) = (self.shape[mode], self.strides[mode]);
            extent == given.shape[mode] && (stride == given.strides[mode] || extent == 1 || mode < first)
        };
        self.rank == given.rank && (0..self.rank.min(MAX_RANK)).all(is)
    }
}

impl Kind<'_> {
    /// The bits of a number that a parameter of a type takes; `None` of anything else.
    #[inline]
    fn bits(&self, scalar: Scalar) -> Option<u64> {
        match (self, scalar) {
            (Kind::F32(x), Scalar::F32) => Some(u64::from(x.to_bits())),
            (Kind::F64(x), Scalar::F64) => Some(x.to_bits()),
            (Kind::I32(x), Scalar::I32) => Some(u64::from(x.cast_unsigned())),
            (Kind::U32(x), Scalar::U32) => Some(u64::from(*x)),
            (Kind::I64(x), Scalar::I64) => Some(x.cast_unsigned()),
            (Kind::U64(x), Scalar::U64) => Some(*x),
            _ => None,
        }
    }
}

impl Raw {
    fn bits(&self, scalar: Scalar) -> Option<u64> {
        let kind = match *self {
            Raw::Ptr(_) => return None,
            Raw::F32(x) => Kind::F32(x),
            Raw::F64(x) => Kind::F64(x),
            Raw::I32(x) => Kind::I32(x),
            Raw::U32(x) => Kind::U32(x),
            Raw::I64(x) => Kind::I64(x),
            Raw::U64(x) => Kind::U64(x),
        };
        kind.bits(scalar)
    }
}

/// The words for a raw argument in messages.
fn raw_name(raw: Option<&Raw>) -> &'static str {
    match raw {
        None => "nothing",
        Some(Raw::Ptr(_)) => "a pointer",
        Some(Raw::F32(_)) => "an f32",
        Some(Raw::F64(_)) => "an f64",
        Some(Raw::I32(_)) => "an i32",
        Some(Raw::U32(_)) => "a u32",
        Some(Raw::I64(_)) => "an i64",
        Some(Raw::U64(_)) => "a u64",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_after_they_were_moved() {
        let maps = vec![TensorMap([7; 16]), TensorMap([9; 16])];
        let places = [Place::Word(1), Place::Map(1), Place::Word(0), Place::Map(0)];
        let made = Parameters::new(vec![3, 4], maps, &places);
        // Into a list, which moves what it has when it grows, to another thread, and there by others.
        let mut list = vec![made];
        list.extend((0..10).map(|word| Parameters::new(vec![word], Vec::new(), &[Place::Word(0)])));
        let list = std::thread::spawn(move || list).join().unwrap();
        // SAFETY: the pointers lead to parameters of these types, whose owners are there.
        let word = |at: usize, parameter: usize| unsafe { *list[at].pointers[parameter].cast::<u64>() };
        let map = |parameter: usize| unsafe { *list[0].pointers[parameter].cast::<TensorMap>() };
        assert_eq!((word(0, 0), word(0, 2)), (4, 3));
        assert_eq!((map(1), map(3)), (TensorMap([9; 16]), TensorMap([7; 16])));
        assert!((1..=10).all(|at| word(at, 0) == at as u64 - 1));
    }
}
