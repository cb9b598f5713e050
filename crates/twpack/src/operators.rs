//! Operators of packs on a GPU: the kernels for the tensors at hand, loaded once, and their launches, kept.
#![allow(unsafe_code, reason = "whoever loads code vouches for it")]

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tilewright_launch::{
    Arg, Chain, DType, Gpu, Item, Kernel, LaunchError, LaunchOptions, Memo, ParamKind, Recipe, Stream, hash,
};

use crate::class::Class;
use crate::error::PackError;
use crate::file::PackFile;

/// Launches that are kept: those of the arguments that were used last.
const KEPT: usize = 4096;
/// The most arguments of an operator.
const MOST_ARGUMENTS: usize = 24;

/// An argument of a call, but for its address: its name, and of a tensor its type, shape and strides.
type Shaped = (String, Option<(DType, Vec<i64>, Vec<i64>)>);

/// A call, but for addresses and numbers.
#[derive(Debug)]
struct Key {
    operator: String,
    options: Vec<(String, String)>,
    arguments: Vec<Shaped>,
}

/// Launches that are ready, and for each of their parameters the number of the call's argument.
#[derive(Debug)]
struct Ready {
    chain: Chain,
    slots: Vec<usize>,
}

/// A call of an operator of a pack.
#[derive(Debug)]
pub struct OperatorCall<'a> {
    operator: &'a str,
    options: &'a [(&'a str, &'a str)],
    arguments: &'a [(&'a str, Arg<'a>)],
}

impl<'a> OperatorCall<'a> {
    /// An operator, with its options that are no defaults, and its tensors and numbers by name.
    pub fn new(
        operator: &'a str,
        options: &'a [(&'a str, &'a str)],
        arguments: &'a [(&'a str, Arg<'a>)],
    ) -> Self {
        OperatorCall { operator, options, arguments }
    }

    fn number(&self) -> u64 {
        let bytes =
            |text: &str| text.bytes().fold(0u64, |sum, byte| (sum << 8) ^ (sum >> 56) ^ u64::from(byte));
        let options = self.options.iter().map(|(name, value)| bytes(name) ^ bytes(value).rotate_left(32));
        let shapes =
            self.arguments.iter().filter_map(|(_, arg)| arg.tensor()).flat_map(|(dtype, shape, _)| {
                shape.iter().map(|extent| extent.cast_unsigned()).chain([dtype.index() as u64])
            });
        hash([bytes(self.operator)].into_iter().chain(options).chain(shapes))
    }

    fn is(&self, key: &Key) -> bool {
        let option = |((name, value), (own, of_own)): (&(&str, &str), &(String, String))| {
            name == own && value == of_own
        };
        let argument = |((name, arg), (own, shaped)): (&(&str, Arg<'_>), &Shaped)| {
            name == own
                && match (arg.tensor(), shaped) {
                    (Some((dtype, shape, strides)), Some((of_own, extents, steps))) => {
                        dtype == *of_own && shape == extents && strides == steps
                    }
                    (given, own) => given.is_none() && own.is_none(),
                }
        };
        self.operator == key.operator
            && self.options.len() == key.options.len()
            && self.arguments.len() == key.arguments.len()
            && self.options.iter().zip(&key.options).all(option)
            && self.arguments.iter().zip(&key.arguments).all(argument)
    }

    fn key(&self) -> Key {
        let options = self.options.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string()));
        let shaped = |(name, arg): &(&str, Arg<'_>)| {
            let tensor = arg.tensor();
            let tensor = tensor.map(|(dtype, shape, strides)| (dtype, shape.to_vec(), strides.to_vec()));
            ((*name).to_string(), tensor)
        };
        let (operator, arguments) = (self.operator.to_string(), self.arguments.iter().map(shaped).collect());
        Key { operator, options: options.collect(), arguments }
    }

    fn argument(&self, name: &str) -> Option<&Arg<'a>> {
        self.arguments.iter().find(|(own, _)| *own == name).map(|(_, arg)| arg)
    }

    /// The sizes that the tensors say, where a kernel's have an extent that is a size as it is; nothing if they are not the kernel's.
    fn sizes<'r>(&self, recipe: &'r Recipe, sizes: &mut BTreeMap<&'r str, i64>) -> Option<()> {
        for param in &recipe.params {
            let (ParamKind::Tensor(tensor), Some(arg)) = (&param.kind, self.argument(&param.name)) else {
                continue;
            };
            let (dtype, shape, _) = arg.tensor()?;
            if dtype != tensor.dtype || shape.len() != tensor.shape.len() {
                return None;
            }
            for (extent, formula) in shape.iter().zip(&tensor.shape) {
                if let [Item::Size(size)] = formula.items() {
                    let known = sizes.entry(&recipe.sizes[*size as usize].name).or_insert(*extent);
                    if known != extent {
                        return None;
                    }
                }
            }
        }
        Some(())
    }

    /// The call in words: options, types and shapes.
    fn words(&self) -> String {
        let options = self.options.iter().map(|(name, value)| format!("{name}={value}"));
        let arguments = self.arguments.iter().filter_map(|(name, arg)| {
            let (dtype, shape, _) = arg.tensor()?;
            Some(format!("{name}: {dtype}{shape:?}"))
        });
        options.chain(arguments).collect::<Vec<_>>().join(", ")
    }
}

/// The operators of a pack on a GPU ([`PackFile::operators`]), for programs without a compiler.
///
/// A call whose launches were there before allocates nothing, takes no lock, and calls the driver once a launch. The first of its kind chooses a class, loads its kernels and plans their launches.
pub struct Operators<'p> {
    pack: Arc<PackFile<'p>>,
    gpu: Gpu,
    ready: Memo<Key, Ready>,
    kernels: Mutex<HashMap<String, Kernel>>,
}

impl fmt::Debug for Operators<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operators")
            .field("gpu", &self.gpu)
            .field("ready", &self.ready.len())
            .finish_non_exhaustive()
    }
}

impl<'p> Operators<'p> {
    /// The operators of a pack on a GPU.
    ///
    /// # Safety
    ///
    /// As of [`PackFile::load`], for each kernel of the pack.
    pub unsafe fn new(pack: Arc<PackFile<'p>>, gpu: &Gpu) -> Self {
        Operators { pack, gpu: gpu.clone(), ready: Memo::new(KEPT), kernels: Mutex::default() }
    }

    /// The pack.
    pub fn pack(&self) -> &PackFile<'p> {
        &self.pack
    }

    /// Puts the launches of an operator on a stream of the GPU's context, which is current. Nothing waits.
    ///
    /// # Errors
    ///
    /// [`PackError::NoClass`] where the pack has no kernels for these options, types and sizes; an argument that is missing; a kernel that cannot be loaded, or would have to
    /// be while the stream is captured; what a launch refuses.
    pub fn run(
        &self,
        stream: Stream<'_>,
        call: &OperatorCall<'_>,
        options: &LaunchOptions<'_>,
    ) -> Result<(), PackError> {
        self.with_ready(call, Some(stream), |ready| {
            let mut arguments = [Arg::from(0i32); MOST_ARGUMENTS];
            for (argument, slot) in arguments.iter_mut().zip(&ready.slots) {
                *argument = call.arguments[*slot].1;
            }
            Ok(ready.chain.launch_with(stream, &arguments[..ready.slots.len()], options)?)
        })
    }

    /// Bytes of the workspace that a run takes, at a multiple of 256. Everything is made ready for that.
    ///
    /// # Errors
    ///
    /// As of [`Operators::run`].
    pub fn workspace_bytes(&self, call: &OperatorCall<'_>) -> Result<u64, PackError> {
        self.with_ready(call, None, |ready| Ok(ready.chain.workspace_bytes()))
    }

    /// The bytes of the table of an array of tensors, the argument of this name, which lie at these addresses, for a run of the call; the array in it may have any address. Everything is
    /// made ready for that.
    ///
    /// # Errors
    ///
    /// As of [`Operators::run`] and [`Chain::table`].
    pub fn table(
        &self,
        call: &OperatorCall<'_>,
        argument: &str,
        addresses: &[u64],
    ) -> Result<Vec<u8>, PackError> {
        self.with_ready(call, None, |ready| Ok(ready.chain.table(argument, addresses)?))
    }

    fn with_ready<T>(
        &self,
        call: &OperatorCall<'_>,
        stream: Option<Stream<'_>>,
        then: impl Fn(&Ready) -> Result<T, PackError>,
    ) -> Result<T, PackError> {
        let number = call.number();
        if let Some(ready) = self.ready.get(number, |key| call.is(key)) {
            return then(&ready);
        }
        if stream.is_some_and(|stream| stream.is_capturing(self.gpu.driver())) {
            return Err(LaunchError::NotReady { kernel: call.operator.to_string() }.into());
        }
        match self.ready.insert(number, call.key(), self.make(call)?) {
            Ok(ready) => then(&ready),
            // Others use all that is kept.
            Err(ready) => then(&ready),
        }
    }

    /// The class for a call: one for this GPU before others, then the one that relies on most, then the first.
    fn class(&self, call: &OperatorCall<'_>) -> Result<(&Class, Vec<Recipe>), PackError> {
        let mut best: Option<((bool, i64), &Class, Vec<Recipe>)> = None;
        for class in self.pack.operators() {
            if class.operator != call.operator || !class.is_with(call.options) {
                continue;
            }
            let rank = (class.device == self.gpu.name(), class.relied());
            if best.as_ref().is_some_and(|(known, ..)| *known >= rank) {
                continue;
            }
            let recipe = |name: &String| match self.pack.kernel_for(&self.gpu, name) {
                Ok(listed) => self.pack.recipe(listed).map(Some),
                // Kernels for other GPUs are no candidates.
                Err(PackError::NotForGpu { .. }) => Ok(None),
                Err(error) => Err(error),
            };
            let recipes = class.kernels.iter().map(recipe).collect::<Result<Option<Vec<_>>, _>>()?;
            let Some(recipes) = recipes else { continue };
            let mut sizes = BTreeMap::new();
            let known = recipes.iter().try_for_each(|recipe| call.sizes(recipe, &mut sizes));
            let sizes: Vec<(&str, i64)> = sizes.into_iter().collect();
            // Sizes that no tensor tells are none that a kernel has, which has them all.
            if known.is_some() && class.has(&sizes) {
                best = Some((rank, class, recipes));
            }
        }
        let none = || PackError::NoClass { operator: call.operator.to_string(), call: call.words() };
        best.map(|(_, class, recipes)| (class, recipes)).ok_or_else(none)
    }

    fn kernel(&self, name: &str) -> Result<Kernel, PackError> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kernels.get(name) {
            return Ok(known.clone());
        }
        // SAFETY: whoever made this vouches for the pack.
        let kernel = unsafe { self.pack.load(&self.gpu, name) }?;
        kernels.insert(name.to_string(), kernel.clone());
        Ok(kernel)
    }

    fn make(&self, call: &OperatorCall<'_>) -> Result<Ready, PackError> {
        let (class, recipes) = self.class(call)?;
        let mut sizes = BTreeMap::new();
        recipes.iter().try_for_each(|recipe| call.sizes(recipe, &mut sizes));
        let mut plans = Vec::with_capacity(recipes.len());
        for name in &class.kernels {
            let kernel = self.kernel(name)?;
            let own = |name: &str| kernel.recipe().sizes.iter().any(|size| size.name == name);
            let named: Vec<(&str, i64)> =
                sizes.iter().filter(|(name, _)| own(name)).map(|(name, size)| (*name, *size)).collect();
            let values = kernel.recipe().values(&named).unwrap_or_default();
            plans.push(kernel.plan(&values)?);
        }
        let chain = Chain::new(plans)?;
        let names = || chain.params().iter().map(|param| param.name.clone()).collect::<Vec<_>>();
        let wrong = |argument: &str, missing| PackError::Argument {
            operator: call.operator.to_string(),
            argument: argument.to_string(),
            missing,
            known: names(),
        };
        let params = chain.params();
        if let Some((name, _)) =
            call.arguments.iter().find(|(name, _)| params.iter().all(|param| param.name != *name))
        {
            return Err(wrong(name, false));
        }
        if params.len() > MOST_ARGUMENTS {
            let (what, value, most) =
                ("the number of arguments of an operator", params.len() as u64, MOST_ARGUMENTS as u64);
            return Err(PackError::Limit { what, value, most });
        }
        let slot = |param: &tilewright_launch::Param| {
            let found = call.arguments.iter().position(|(name, _)| *name == param.name);
            found.ok_or_else(|| wrong(&param.name, true))
        };
        let slots = params.iter().map(slot).collect::<Result<_, _>>()?;
        Ok(Ready { chain, slots })
    }
}
