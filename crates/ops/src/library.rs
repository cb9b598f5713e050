//! The library: what is chosen for operators, compiled and loaded, and kept.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tilewright_cache::Kernels;
use tilewright_kernels::{SizeKind, operator};
use tilewright_launch::{Gpu, Memo, PreparedChain};
use tilewright_machine::Arch;
use tilewright_tune::{Candidate, Choice, Problem, Store, Target, choose_accepted};
use tilewright_twpack::{Class as PackClass, Pack};

use crate::base::{Base, Options, borrowed, said};
use crate::call::{Call, Key, Ready};
use crate::class::{Class, Member};
use crate::early::{Begin, is_faster};
use crate::error::OpsError;
use crate::kept::{Kept, key_of};
use crate::name::Name;
use crate::packed::packed;
use crate::rows::{NOTHING, ROWS, Row};
use crate::sizes::{Given, Sizes, told};

/// Launches that are kept: those of the shapes and options that were used last.
const KEPT: usize = 16384;
/// Launches with their addresses and numbers that are kept: those that were used last. Others are checked and put together at each launch.
const KEPT_PLACES: usize = 4096;

/// More multiprocessors than any configuration needs.
const MANY: &str = "1024";

/// A value that one thread makes while others wait for it.
type Slot<T> = Arc<Mutex<Option<Arc<T>>>>;

/// Operators on a GPU: what is chosen for their sizes by records, neighbours and estimates, compiled, loaded, and kept.
///
/// A call whose launches are ready takes no lock, and calls the driver once a launch. It is kept with its addresses and numbers from its first run on: what is given again is compared with what
/// was given before, and nothing else, and nothing is allocated. At most 4096 such calls are kept, 16 of those whose numbers share a set. Where there is no room, a new one allocates nothing either: it is checked and put together each time,
/// until it is asked for again soon, when it takes the place of the one that was used the longest ago. What is not ready is chosen, compiled and loaded by the call that
/// asks first, which takes a second; [`Library::warm_up`] does it ahead, and a [strict](Library::strict) library does nothing else.
#[derive(Clone)]
pub struct Library {
    shared: Arc<Shared>,
    strict: bool,
}

struct Shared {
    gpu: Gpu,
    target: Target,
    store: Option<Store>,
    pack: Option<Pack>,
    /// Kernels that are kept on disk.
    cache: Option<Kernels>,
    ready: Memo<Key, Ready>,
    places: Memo<Key, PreparedChain>,
    bases: Mutex<HashMap<String, Arc<Base>>>,
    classes: Mutex<HashMap<String, Slot<Chosen>>>,
    kept: Mutex<HashMap<String, Slot<Kept>>>,
}

impl Shared {
    /// A library in which nothing is ready.
    fn new(gpu: &Gpu, target: &Target, store: Option<Store>) -> Shared {
        Shared {
            gpu: gpu.clone(),
            target: target.clone(),
            store,
            pack: None,
            cache: None,
            ready: Memo::new(KEPT),
            places: Memo::new(KEPT_PLACES),
            bases: Mutex::default(),
            classes: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    /// The same in which nothing is ready, for changes.
    fn anew(&self) -> Shared {
        let (pack, cache) = (self.pack.clone(), self.cache.clone());
        Shared { pack, cache, ..Shared::new(&self.gpu, &self.target, self.store.clone()) }
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library")
            .field("gpu", &self.shared.gpu)
            .field("strict", &self.strict)
            .finish_non_exhaustive()
    }
}

/// The configuration of a class.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) class: Class,
    pub(crate) kept: Arc<Kept>,
    /// The choice, of an operator that is tuned, as the tuner knows it.
    pub(crate) choice: Option<(Problem, Choice)>,
    pub(crate) begin: Begin,
    /// The same for programs without a compiler.
    packed: PackClass,
}

/// A question to the library.
pub(crate) struct Asked<'a, 'b> {
    pub(crate) name: &'a str,
    pub(crate) options: Options,
    /// Sizes that are given by name.
    pub(crate) sizes: Sizes,
    /// Names and types of tensors.
    pub(crate) types: Vec<String>,
    pub(crate) argument: Given<'a, 'b>,
    /// True of kernels that may begin before those ahead have ended.
    pub(crate) dependent: bool,
}

/// An answer.
pub(crate) struct Found {
    pub(crate) base: Arc<Base>,
    /// The sizes that are known without a choice.
    pub(crate) known: Sizes,
    pub(crate) chosen: Arc<Chosen>,
    /// The operators that are preferred and do not compute it, each with its reason.
    pub(crate) passed: Vec<String>,
}

/// The work that an answer may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum May {
    /// Choosing, compiling and loading.
    Everything,
    /// None: what is warm.
    Nothing,
    /// None, since a stream is captured.
    Captured,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value of a slot, which is made if there is none.
fn made<T>(slot: &Slot<T>, make: impl FnOnce() -> Result<T, OpsError>) -> Result<Arc<T>, OpsError> {
    let mut value = locked(slot);
    if let Some(value) = &*value {
        return Ok(value.clone());
    }
    let new = Arc::new(make()?);
    *value = Some(new.clone());
    Ok(new)
}

/// Sizes as text.
pub(crate) fn text_of(sizes: &Sizes) -> String {
    let words: Vec<String> = sizes.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    words.join(", ")
}

impl Library {
    /// The library of a GPU: by the records that come with the kernels and those of the user, with the model that was fitted to the GPU, if there is one, and with the user's cache of kernels.
    ///
    /// # Errors
    ///
    /// A GPU that runs none of the architectures that kernels are compiled for, or a model that cannot be read.
    pub fn for_gpu(gpu: &Gpu) -> Result<Library, OpsError> {
        Ok(Library::with_store(gpu, Store::of_user().ok())?.with_cache(Kernels::of_user().ok()))
    }

    /// The same with the records of a store, or with none beside those that come with the kernels, and without a cache of kernels.
    ///
    /// # Errors
    ///
    /// As of [`Library::for_gpu`].
    pub fn with_store(gpu: &Gpu, store: Option<Store>) -> Result<Library, OpsError> {
        let capability = gpu.capability();
        let arch = Arch::ALL.into_iter().rev().find(|arch| arch.runs_on(capability));
        let arch = arch.ok_or_else(|| OpsError::Device { device: gpu.name().to_string(), capability })?;
        let mut target = Target::new(gpu.name(), arch);
        if let Some(model) = store.as_ref().map(|store| store.model(gpu.name())).transpose()?.flatten() {
            target = target.with_model(model);
        }
        let shared = Shared::new(gpu, &target, store);
        Ok(Library { shared: Arc::new(shared), strict: false })
    }

    /// With kernels that another library has compiled ([`Library::pack`]): those are not compiled again. Nothing is warm yet.
    ///
    /// # Safety
    ///
    /// The kernels do what their recipes say, and what the library that made the pack had compiled by these names.
    pub unsafe fn with_pack(self, pack: Pack) -> Library {
        let shared = Shared { pack: Some(pack), ..self.shared.anew() };
        Library { shared: Arc::new(shared), strict: self.strict }
    }

    /// With kernels that are kept on disk, so that each is compiled once on a machine; or without ([`Library::for_gpu`] has the user's). Nothing is warm yet.
    pub fn with_cache(self, cache: Option<Kernels>) -> Library {
        let shared = Shared { cache, ..self.shared.anew() };
        Library { shared: Arc::new(shared), strict: self.strict }
    }

    /// Mishaps with files of the cache, in words, by the names of configurations: none of them did harm to a kernel.
    pub fn warnings(&self) -> Vec<String> {
        let kept = locked(&self.shared.kept);
        let mut kept: Vec<Arc<Kept>> = kept.values().filter_map(|slot| locked(slot).clone()).collect();
        kept.sort_by(|a, b| a.key.cmp(&b.key));
        kept.iter().flat_map(|kept| kept.warnings.iter().map(ToString::to_string)).collect()
    }

    /// The same library, for calls that choose, compile and load nothing: what is not warm is an error ([`OpsError::NotWarm`]). It shares all that is kept with the one
    /// that it is made of; [`Library::warm_up`] works as before.
    #[must_use]
    pub fn strict(mut self) -> Library {
        self.strict = true;
        self
    }

    /// True of a strict library.
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.shared.gpu
    }

    /// The architecture that kernels are compiled for.
    pub fn arch(&self) -> Arch {
        self.shared.target.arch
    }

    /// The device and the model that choices are made for.
    pub(crate) fn target(&self) -> &Target {
        &self.shared.target
    }

    /// The user's records.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.shared.store.as_ref()
    }

    /// A call of an operator, by its name: that of a row of `tilewright kernels`, where `gemm` and `attention` are those of the GPU's architecture.
    pub fn operator<'a>(&'a self, name: &'a str) -> Call<'a> {
        Call::new(self, Name::new(name))
    }

    /// The kernels that were compiled, or taken from a pack, as a pack, with the classes of sizes that they were chosen for: `Library::with_pack` reads it, and `pack::Operators` runs its
    /// operators without a compiler. Both are in order.
    ///
    /// # Errors
    ///
    /// A kernel that packs cannot hold.
    pub fn pack(&self) -> Result<Pack, OpsError> {
        let mut kept: Vec<Arc<Kept>> =
            locked(&self.shared.kept).values().filter_map(|slot| locked(slot).clone()).collect();
        kept.sort_by(|a, b| a.key.cmp(&b.key));
        let mut pack = Pack::new(concat!("tilewright-ops ", env!("CARGO_PKG_VERSION")));
        for entry in kept.iter().flat_map(|kept| &kept.entries) {
            pack.add(entry.clone())?;
        }
        let mut classes: Vec<PackClass> = locked(&self.shared.classes)
            .values()
            .filter_map(|slot| locked(slot).as_ref().map(|chosen| chosen.packed.clone()))
            .collect();
        classes.sort();
        classes.dedup();
        for class in classes {
            pack.add_class(class)?;
        }
        Ok(pack)
    }

    /// The launches that are ready.
    pub(crate) fn ready(&self) -> &Memo<Key, Ready> {
        &self.shared.ready
    }

    /// The launches with their addresses.
    #[inline]
    pub(crate) fn places(&self) -> &Memo<Key, PreparedChain> {
        &self.shared.places
    }

    /// An operator with the options of a call, which is worked out once for the types of the arguments.
    fn base(&self, member: &'static str, row: &Row, asked: &Asked<'_, '_>) -> Result<Arc<Base>, OpsError> {
        let operator = operator(member)?;
        let options = said(operator, row, &asked.options, asked.argument)?;
        let key = format!("{member} {} | {}", words_of(&options), asked.types.join(", "));
        if let Some(known) = locked(&self.shared.bases).get(&key) {
            return Ok(known.clone());
        }
        let base = Arc::new(Base::new(operator, row, &options, self.arch(), asked.argument)?);
        Ok(locked(&self.shared.bases).entry(key).or_insert(base).clone())
    }

    /// The operators that compute what is asked for, in the order of preference, each worked out when it is asked for.
    pub(crate) fn members<'l>(
        &'l self,
        asked: &'l Asked<'_, '_>,
    ) -> Result<impl Iterator<Item = Result<Arc<Base>, OpsError>> + 'l, OpsError> {
        let row = match ROWS.iter().find(|row| row.name == asked.name) {
            Some(row) => *row,
            None => Row { name: operator(asked.name)?.name, ..NOTHING },
        };
        let own = row.of.is_empty().then_some(row.name);
        let members = row.of.iter().copied().chain(own);
        Ok(members.map(move |member| self.base(member, &row, asked)))
    }

    /// Answers: the operator, its sizes, and the configuration.
    pub(crate) fn find(&self, asked: &Asked<'_, '_>, may: May) -> Result<Found, OpsError> {
        let mut refused = Vec::new();
        for base in self.members(asked)? {
            match base.and_then(|base| self.answer(&base, asked, may)) {
                Ok(found) => {
                    let passed = refused.iter().map(OpsError::to_string).collect();
                    return Ok(Found { passed, ..found });
                }
                Err(error) => refused.push(error),
            }
        }
        // What is not warm, and might be, before what cannot be at all.
        let cold = |error: &OpsError| matches!(error, OpsError::NotWarm { .. } | OpsError::NotReady { .. });
        if let Some(at) = refused.iter().position(cold) {
            return Err(refused.swap_remove(at));
        }
        if refused.len() == 1 {
            return Err(refused.remove(0));
        }
        let reasons: Vec<String> = refused.iter().map(OpsError::to_string).collect();
        Err(OpsError::Nothing { operator: asked.name.to_string(), reasons: reasons.join("; ") })
    }

    fn answer(&self, base: &Arc<Base>, asked: &Asked<'_, '_>, may: May) -> Result<Found, OpsError> {
        base.check_types(asked.argument)?;
        let mut known = told(base.operator.name, &base.recipes, base.joined, &asked.sizes, asked.argument)?;
        base.tell(&mut known, asked.argument);
        let class = class_of(base, &known)?;
        let chosen = self.chosen(base, &class, asked.dependent, may)?;
        let chosen = chosen.filter(|chosen| may == May::Everything || chosen.kept.loaded().is_some());
        let Some(chosen) = chosen else {
            let (operator, sizes) = (asked.name.to_string(), text_of(&known));
            return Err(match may {
                May::Captured => OpsError::NotReady { operator, sizes },
                _ => OpsError::NotWarm { operator, class: class.text(), sizes },
            });
        };
        Ok(Found { base: base.clone(), known, chosen, passed: Vec::new() })
    }

    /// The configuration of a class; nothing if none is known and none may be looked for.
    fn chosen(
        &self,
        base: &Base,
        class: &Class,
        dependent: bool,
        may: May,
    ) -> Result<Option<Arc<Chosen>>, OpsError> {
        let key =
            format!("{} {} | {} | {dependent}", base.operator.name, words_of(&base.options), class.text());
        if may != May::Everything {
            let slot = locked(&self.shared.classes).get(&key).cloned();
            return Ok(slot.and_then(|slot| locked(&slot).clone()));
        }
        let slot = locked(&self.shared.classes).entry(key).or_default().clone();
        made(&slot, || self.choose(base, class, dependent)).map(Some)
    }

    fn choose(&self, base: &Base, class: &Class, dependent: bool) -> Result<Chosen, OpsError> {
        let multiples = class.multiples();
        let early = dependent && is_faster(self.gpu().name(), base.operator.name, class);
        if base.operator.tuning.is_none() {
            let own = Candidate(base.options.clone());
            let kept = self.kept(base.operator, &own, &multiples, early)?;
            return Ok(self.of_class(base, class, kept, None, dependent));
        }
        let problem = Problem::new(base.operator.name, &class.chosen_for(), &borrowed(&base.options))?;
        let (mut found, mut failed) = (None, None);
        let choice = choose_accepted(&problem, self.target(), self.store(), &mut |candidate, _| match self
            .kept(problem.operator(), candidate, &multiples, early)
        {
            Ok(kept) => {
                found = Some(kept);
                Ok(())
            }
            Err(error) => {
                let reason = error.to_string();
                failed = Some(error);
                Err(reason)
            }
        });
        match (choice, found) {
            (Ok(choice), Some(kept)) => {
                Ok(self.of_class(base, class, kept, Some((problem, choice)), dependent))
            }
            (Err(error), _) => Err(error.into()),
            (Ok(_), None) => Err(failed.unwrap_or_else(|| OpsError::Nothing {
                operator: base.operator.name.to_string(),
                reasons: "nothing was chosen".to_string(),
            })),
        }
    }

    fn of_class(
        &self,
        base: &Base,
        class: &Class,
        kept: Arc<Kept>,
        choice: Option<(Problem, Choice)>,
        dependent: bool,
    ) -> Chosen {
        let packed = packed(base, &class.0, &kept, self.gpu().name(), dependent);
        let begin = Begin::of(&kept, class, self.gpu().name(), dependent);
        Chosen { class: class.clone(), kept, choice, begin, packed }
    }

    /// The kernels of a configuration, if they may be compiled or are loaded.
    pub(crate) fn kept_or_cold(
        &self,
        operator: &'static tilewright_kernels::Operator,
        candidate: &Candidate,
        multiples: &Sizes,
        may: May,
    ) -> Result<Arc<Kept>, OpsError> {
        if may != May::Everything {
            let (fitted, sizes) = (self.fitted(operator, candidate, false), String::new());
            let key = key_of(operator, &fitted, multiples);
            let slot = locked(&self.shared.kept).get(&key).cloned();
            let kept = slot.and_then(|slot| locked(&slot).clone()).filter(|kept| kept.loaded().is_some());
            let operator = operator.name.to_string();
            return kept.ok_or(match may {
                May::Captured => OpsError::NotReady { operator, sizes },
                _ => OpsError::NotWarm { operator, class: key, sizes },
            });
        }
        self.kept(operator, candidate, multiples, false)
    }

    /// The kernels of a configuration on this GPU: of as many blocks as it has multiprocessors, and such as wait for others if they are to.
    fn kept(
        &self,
        operator: &'static tilewright_kernels::Operator,
        candidate: &Candidate,
        multiples: &Sizes,
        dependent: bool,
    ) -> Result<Arc<Kept>, OpsError> {
        let fitted = self.fitted(operator, candidate, dependent);
        let key = key_of(operator, &fitted, multiples);
        let slot = locked(&self.shared.kept).entry(key).or_default().clone();
        let (pack, cache) = (self.shared.pack.as_ref(), self.shared.cache.as_ref());
        made(&slot, || Kept::new(operator, &fitted, multiples, self.arch(), pack, cache))
    }

    /// A configuration as it is on this GPU.
    fn fitted(
        &self,
        operator: &'static tilewright_kernels::Operator,
        candidate: &Candidate,
        dependent: bool,
    ) -> Candidate {
        let parameters = (operator.parameters)();
        let default = |name: &str| parameters.iter().find(|p| p.name == name).map(|p| p.default.as_str());
        let mut fitted = candidate.clone();
        let multiprocessors = self.gpu().multiprocessors().to_string();
        let with = |fitted: &Candidate, name: &str, value: &str| {
            let mut more = fitted.clone();
            more.0.push((name.to_string(), value.to_string()));
            more
        };
        let accepts = |candidate: &Candidate| {
            operator.tuning.is_none_or(|tuning| (tuning.reject)(self.arch(), &candidate.given()).is_none())
        };
        if default("sm_count").is_some_and(|count| count != multiprocessors)
            && candidate.value("sm_count").is_none()
        {
            let here = with(&fitted, "sm_count", &multiprocessors);
            // Of a form in which it says nothing no other number goes either.
            if accepts(&here) || accepts(&with(&fitted, "sm_count", MANY)) {
                fitted = here;
            }
        }
        if dependent && default("dependent") == Some("false") && candidate.value("dependent").is_none() {
            let waiting = with(&fitted, "dependent", "true");
            if accepts(&waiting) {
                fitted = waiting;
            }
        }
        fitted
    }
}

/// Options as text.
fn words_of(options: &Options) -> String {
    let words: Vec<String> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
    words.join(" ")
}

/// The members of a class that an operator's problems have, by name: the kind of the size, if choices depend on it, and the largest multiple that kernels rely on.
pub(crate) fn class_sizes(base: &Base) -> Vec<(String, Option<SizeKind>, i64)> {
    let limit = |name: &str| base.limits.get(name).copied().unwrap_or(1);
    let of_problem = base.kinds().iter().map(|(name, kind)| ((*name).to_string(), Some(*kind), limit(name)));
    let relied = base
        .limits
        .iter()
        .filter(|(name, limit)| **limit > 1 && base.kinds().iter().all(|(other, _)| *other != name.as_str()));
    of_problem.chain(relied.map(|(name, limit)| (name.clone(), None, *limit))).collect()
}

/// The class of sizes.
pub(crate) fn class_of(base: &Base, known: &Sizes) -> Result<Class, OpsError> {
    let mut members = Vec::new();
    for (name, kind, limit) in class_sizes(base) {
        match known.get(&name) {
            Some(size) => members.push(Member::of(&name, *size, kind, limit)),
            None if kind.is_some_and(SizeKind::is_optional) && !base.needs(&name) => {}
            None => return Err(OpsError::Size { operator: base.operator.name.to_string(), size: name }),
        }
    }
    Ok(Class(members))
}
