//! Tuning problems, an operator with fixed sizes and pinned parameters on a device, and candidates, values of its parameters.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub(crate) use tilewright_cache::sha256;
use tilewright_compiler::MAX_EXTENT;
use tilewright_kernels::model::Model;
use tilewright_kernels::{Chip, ConfigError, Operator, SizeKind, Tuning, operator};
use tilewright_machine::Arch;
use tilewright_tile::Program;

use crate::error::TuneError;

/// Values of an operator's parameters: those that differ from the defaults, in the operator's order. As text
/// `bm=128 bn=192 overlap_epilogue=true`; the defaults are the empty text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Candidate(pub Vec<(String, String)>);

impl Candidate {
    /// Reads the text form: pairs apart by white space.
    ///
    /// # Errors
    ///
    /// [`TuneError::Text`] for a word that is no pair.
    pub fn parse(text: &str) -> Result<Self, TuneError> {
        let pair = |word: &str| {
            let (name, value) =
                word.split_once('=').ok_or_else(|| TuneError::Text { text: word.to_string() })?;
            Ok((name.to_string(), value.to_string()))
        };
        Ok(Candidate(text.split_whitespace().map(pair).collect::<Result<_, TuneError>>()?))
    }

    /// The pairs as operators take them.
    pub fn given(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    /// The value of a parameter, where it is not the default.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The same with another value.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut pairs = self.0.clone();
        match pairs.iter_mut().find(|(own, _)| own == name) {
            Some((_, own)) => *own = value.to_string(),
            None => pairs.push((name.to_string(), value.to_string())),
        }
        Candidate(pairs)
    }

    /// The programs of the operator with these values, in the order in which they run.
    ///
    /// # Errors
    ///
    /// The operator's refusal of the values.
    pub fn programs(&self, operator: &Operator) -> Result<Vec<Program>, ConfigError> {
        (operator.programs)(&self.given())
    }

    /// The SHA-256 of the printed programs.
    ///
    /// # Errors
    ///
    /// The operator's refusal of the values.
    pub fn hash(&self, operator: &Operator) -> Result<String, ConfigError> {
        Ok(hash_of(&self.programs(operator)?))
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&words.join(" "))
    }
}

impl From<Vec<(&'static str, String)>> for Candidate {
    fn from(pairs: Vec<(&'static str, String)>) -> Self {
        Candidate(pairs.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
    }
}

/// The SHA-256 of printed programs, one after another.
pub(crate) fn hash_of(programs: &[Program]) -> String {
    let text: Vec<String> = programs.iter().map(Program::to_string).collect();
    sha256(&text.join("\n"))
}

/// Device and architecture that kernels are chosen for. Records that come with the kernels say something of other devices of their architecture too.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    /// The device's name, e.g. `NVIDIA H200`.
    pub device: String,
    /// The architecture that kernels are compiled for.
    pub arch: Arch,
    /// The model by which times are estimated.
    pub model: Arc<Model>,
}

impl Target {
    /// A device with the model that comes with the kernels.
    pub fn new(device: impl Into<String>, arch: Arch) -> Self {
        let device = device.into();
        let model = Arc::new(Model::of_device(&device).clone());
        Target { device, arch, model }
    }

    /// The same with another model.
    #[must_use]
    pub fn with_model(self, model: Model) -> Self {
        Target { model: Arc::new(model), ..self }
    }

    /// The processor for which times are estimated.
    pub fn chip(&self) -> Chip<'_> {
        Chip { arch: self.arch, model: &self.model }
    }
}

/// An operator with fixed sizes, and parameters that a choice must keep.
#[derive(Clone, Debug)]
pub struct Problem {
    operator: &'static Operator,
    tuning: Tuning,
    sizes: BTreeMap<String, i64>,
    pinned: Candidate,
}

impl Problem {
    /// The problem of these sizes. Of the pinned parameters, those that say what is computed and have their default are left out: they
    /// pin nothing.
    ///
    /// # Errors
    ///
    /// [`TuneError::Config`] for an operator or a parameter that there is not, [`TuneError::NotTuned`], [`TuneError::Size`] for sizes that
    /// are missing, unknown or out of range.
    pub fn new(
        name: &str,
        sizes: &BTreeMap<String, i64>,
        pinned: &[(&str, &str)],
    ) -> Result<Self, TuneError> {
        let operator = operator(name)?;
        let tuning = operator.tuning.ok_or(TuneError::NotTuned { operator: operator.name })?;
        let wrong = |size: &str, wrong: String| TuneError::Size {
            operator: operator.name,
            size: size.to_string(),
            wrong,
            known: tuning.sizes.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        };
        if let Some(unknown) = sizes.keys().find(|size| !tuning.sizes.iter().any(|(name, _)| name == size)) {
            return Err(wrong(unknown, "is unknown".to_string()));
        }
        for (name, kind) in tuning.sizes {
            match sizes.get(*name) {
                None if kind.is_optional() => {}
                None => return Err(wrong(name, "is not given".to_string())),
                Some(value) if !(1..=MAX_EXTENT).contains(value) => {
                    return Err(wrong(name, format!("is {value} and must be from 1 to {MAX_EXTENT}")));
                }
                Some(_) => {}
            }
        }
        // Says which names and values there are not; whether they go together shows in the space.
        let arch = operator.least_architecture();
        (tuning.point)(arch.into(), sizes, pinned)?;
        if let Some(same) = (tuning.same)(arch, sizes, pinned)? {
            let pinned: Vec<(&str, &str)> =
                same.pinned.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            return Problem::new(same.operator, &same.sizes, &pinned);
        }
        let parameters = (operator.parameters)();
        let kept = |p: &&tilewright_kernels::Parameter| {
            pinned.iter().find(|(name, _)| *name == p.name).and_then(|(_, value)| {
                let idle = tuning.meaning.contains(&p.name) && *value == p.default;
                (!idle).then(|| (p.name.to_string(), (*value).to_string()))
            })
        };
        let pinned = Candidate(parameters.iter().filter_map(|p| kept(&p)).collect());
        Ok(Problem { operator, tuning, sizes: sizes.clone(), pinned })
    }

    /// The operator.
    pub fn operator(&self) -> &'static Operator {
        self.operator
    }

    /// Tuning metadata.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// The value of every size.
    pub fn sizes(&self) -> &BTreeMap<String, i64> {
        &self.sizes
    }

    /// The parameters that a choice must keep.
    pub fn pinned(&self) -> &Candidate {
        &self.pinned
    }

    /// Programs that compute it, whose tensors those of every configuration have, beside workspaces of their own.
    ///
    /// # Errors
    ///
    /// [`TuneError::Config`] if the operator has none for what is computed.
    pub fn programs(&self, arch: Arch) -> Result<Vec<Program>, TuneError> {
        let meaning = |(name, _): &(&str, &str)| self.tuning().meaning.contains(name);
        let given: Vec<(&str, &str)> = self.pinned().given().into_iter().filter(meaning).collect();
        let programs = self.operator().programs;
        programs(&given).or_else(|error| {
            // The defaults of the others need not go with it: two sums take twice the registers.
            let chip = Chip { arch, model: Model::built_in() };
            let space = (self.tuning().space)(chip, &self.sizes, &given)?;
            let point = space.points.into_iter().next().ok_or(error)?;
            Ok(programs(&Candidate::from(point.parameters).given())?)
        })
    }

    /// Returns whether what is known of another problem's times says something of this one's: the operator and what is pinned are the same, but for
    /// values that make no difference.
    pub(crate) fn is_like(&self, other: &Problem) -> bool {
        let parameters = (self.operator.parameters)();
        let stands_for = |pinned: &Candidate, name: &str| -> Option<String> {
            let default = || parameters.iter().find(|p| p.name == name).map(|p| p.default.clone());
            let value = pinned.value(name).map(str::to_string).or_else(default)?;
            let alike =
                self.tuning.alike.iter().find(|(own, all)| *own == name && all.contains(&value.as_str()));
            Some(alike.map_or(value, |(_, all)| all[0].to_string()))
        };
        let same =
            |(name, _): &(String, String)| stands_for(&self.pinned, name) == stands_for(&other.pinned, name);
        self.operator.name == other.operator.name && self.pinned.0.iter().chain(&other.pinned.0).all(same)
    }

    /// A configuration of another problem that this one [is like](Self::is_like), with the values that are pinned here.
    ///
    /// # Errors
    ///
    /// [`TuneError::Config`] from the operator.
    pub(crate) fn adopted(
        &self,
        other: &Problem,
        candidate: &Candidate,
        chip: Chip<'_>,
    ) -> Result<Candidate, TuneError> {
        if self.pinned == other.pinned {
            return Ok(candidate.clone());
        }
        let free = |(name, _): &(&str, &str)| {
            [&self.pinned, &other.pinned].into_iter().all(|pinned| pinned.value(name).is_none())
        };
        let mut given = self.pinned.given();
        given.extend(candidate.given().into_iter().filter(free));
        Ok(Candidate::from((self.tuning.point)(chip, &self.sizes, &given)?.parameters))
    }

    /// The shape class: problems of one class share a choice. As text `m<=4096/16 n<=4096/16 k<=4096/16`: each size rounded up, and the
    /// largest power of two, up to 16, that divides it.
    ///
    /// Extents are rounded up to 8, 16, 32, 64 or a multiple of 64: to what a tile can hold, so that only few tiles divide problems of a
    /// class differently. Depths are rounded up to multiples of 64, of 256 beyond 1024. Counts are rounded up to a power of two.
    /// The divisor decides which copies there can be: rows of 16-bit elements at multiples of 16 bytes are multiples of 8 elements.
    pub fn class(&self) -> String {
        let one = |(name, kind): &(&'static str, SizeKind)| {
            let size = self.sizes.get(*name)?;
            Some(format!("{name}<={}/{}", class_end(*size, *kind), 1 << size.trailing_zeros().min(4)))
        };
        self.tuning.sizes.iter().filter_map(one).collect::<Vec<_>>().join(" ")
    }

    /// Key of a record, as text: operator, pinned parameters, shape class, device and architecture. Programs and the compiler's
    /// version are in the record, so that one that no longer holds can be refused with a reason.
    pub fn key(&self, target: &Target) -> String {
        let Target { device, arch, .. } = target;
        format!("{} | {} | {} | {device} | {arch}", self.operator.name, self.pinned, self.class())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operator.name)?;
        for (name, size) in self.tuning.sizes.iter().filter_map(|(name, _)| self.sizes.get_key_value(*name)) {
            write!(f, " {name}={size}")?;
        }
        if !self.pinned.0.is_empty() {
            write!(f, " {}", self.pinned)?;
        }
        Ok(())
    }
}

/// The largest size of a class: what a size is rounded up to ([`Problem::class`]).
pub fn class_end(size: i64, kind: SizeKind) -> i64 {
    let to = |multiple: i64| (size + multiple - 1) / multiple * multiple;
    match kind {
        SizeKind::Extent if size <= 64 => [8, 16, 32].into_iter().find(|n| size <= *n).unwrap_or(64),
        SizeKind::Extent => to(64),
        SizeKind::Depth if size <= 1024 => to(64),
        SizeKind::Depth => to(256),
        SizeKind::Index if size <= 16 => size,
        SizeKind::Index => class_end(size, SizeKind::Extent),
        SizeKind::Count => size.unsigned_abs().next_power_of_two().cast_signed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(m: i64, n: i64, k: i64, pinned: &[(&str, &str)]) -> Problem {
        let sizes = [("m", m), ("n", n), ("k", k)].map(|(name, value)| (name.to_string(), value));
        Problem::new("gemm_hopper", &sizes.into(), pinned).unwrap()
    }

    #[test]
    fn classes() {
        assert_eq!(problem(4096, 4090, 4100, &[]).class(), "m<=4096/16 n<=4096/2 k<=4352/4");
        assert_eq!(problem(1, 9, 65, &[]).class(), "m<=8/1 n<=16/1 k<=128/1");
        assert_eq!(problem(33, 65, 1025, &[]).class(), "m<=64/1 n<=128/1 k<=1280/1");
        assert_eq!(class_end(5, SizeKind::Count), 8);
        for kind in [SizeKind::Extent, SizeKind::Depth, SizeKind::Count, SizeKind::Index] {
            for size in 1..3000 {
                let rounded = class_end(size, kind);
                assert!(rounded >= size && class_end(rounded, kind) == rounded, "{kind:?} {size}");
            }
        }
    }

    #[test]
    fn pins_that_pin_nothing_are_left_out() {
        let own = problem(64, 64, 64, &[("bn", "256"), ("dtype", "f16"), ("b", "n")]);
        assert_eq!(own.pinned().to_string(), "b=n bn=256");
        assert_eq!(own.to_string(), "gemm_hopper m=64 n=64 k=64 b=n bn=256");
    }

    #[test]
    fn types_that_take_as_long_are_like_each_other() {
        let of = |pinned: &[(&str, &str)]| problem(64, 128, 256, pinned);
        let (halves, brains, bytes) = (of(&[]), of(&[("dtype", "bf16")]), of(&[("dtype", "e4m3")]));
        assert!(halves.is_like(&brains) && brains.is_like(&halves) && brains.is_like(&brains));
        assert!(!halves.is_like(&bytes) && !bytes.is_like(&brains));
        assert!(!halves.is_like(&of(&[("dtype", "bf16"), ("b", "n")])));
        let found = Candidate::parse("bn=128 overlap_epilogue=true").unwrap();
        let chip = Chip::from(Arch::SM_90A);
        let adopted = brains.adopted(&halves, &found, chip).unwrap();
        assert_eq!(adopted.to_string(), "dtype=bf16 bn=128 overlap_epilogue=true");
        assert_eq!(halves.adopted(&brains, &adopted, chip).unwrap(), found);
        // What is pinned stays, though the other problem has it by default.
        let wide = of(&[("bn", "256")]);
        let adopted = wide.adopted(&halves, &found, chip).unwrap();
        assert!(wide.is_like(&halves) && adopted.value("bn") != Some("128"), "{adopted}");
    }

    #[test]
    fn candidates_are_read_back() {
        let candidate = Candidate::parse("bm=64  rasterization=grouped(8) ").unwrap();
        assert_eq!(candidate.to_string(), "bm=64 rasterization=grouped(8)");
        assert_eq!(candidate.value("bm"), Some("64"));
        assert_eq!(
            candidate.with("bm", "128").with("bn", "8").to_string(),
            "bm=128 rasterization=grouped(8) bn=8"
        );
        assert!(Candidate::parse("bm").unwrap_err().to_string().contains("not NAME=VALUE"));
        assert_eq!(Candidate::parse("").unwrap(), Candidate::default());
    }

    #[test]
    fn a_form_of_another_architecture_makes_a_problem() {
        let sizes = [("b", 4), ("hq", 16), ("hk", 4), ("sq", 4096), ("sk", 4096)];
        let sizes: BTreeMap<String, i64> = sizes.map(|(name, size)| (name.to_string(), size)).into();
        for others in [&[][..], &[("d", "256")], &[("stages", "0")], &[("bn", "16"), ("dv", "240")]] {
            let pinned: Vec<_> = [("form", "tcgen05")].iter().chain(others).copied().collect();
            let problem = Problem::new("attention", &sizes, &pinned).unwrap();
            let estimate =
                |arch: Arch| (problem.tuning().point)(arch.into(), &sizes, &pinned).unwrap().estimate;
            assert!(estimate(Arch::SM_90A).is_infinite() && estimate(Arch::SM_100A).is_finite(), "{problem}");
        }
        let error = Problem::new("attention", &sizes, &[("warpgroups", "0")]).unwrap_err().to_string();
        assert!(error.contains("`warpgroups` = 0: must be at least 1"), "{error}");
    }

    /// Parameters of products and of attention, with numbers that count nothing and with every form, are refused or make a problem.
    #[test]
    fn no_value_of_a_parameter_of_products_or_attention_ends_the_program() {
        let mut refused = 0;
        for name in ["attention", "gemm", "gemm_hopper", "gemm_fp8_blocks", "gemm_weights", "w4a16"] {
            let operator = operator(name).unwrap();
            let tuning = operator.tuning.unwrap();
            let sizes: BTreeMap<String, i64> =
                tuning.sizes.iter().map(|(name, _)| ((*name).to_string(), 256)).collect();
            for parameter in (operator.parameters)() {
                for value in ["0", "-1", "1", "false", "true", "wgmma", "tcgen05", "gemv", "outer", "mma"] {
                    let made = Problem::new(operator.name, &sizes, &[(parameter.name, value)]);
                    refused += i32::from(made.is_err());
                }
            }
        }
        assert!(refused > 100, "{refused}");
    }

    #[test]
    fn mistakes_are_named() {
        let sizes = |pairs: &[(&str, i64)]| pairs.iter().map(|(n, v)| ((*n).to_string(), *v)).collect();
        let fail = |name: &str, pairs: &[(&str, i64)], pinned: &[(&str, &str)]| {
            Problem::new(name, &sizes(pairs), pinned).unwrap_err().to_string()
        };
        let all = [("m", 64), ("n", 64), ("k", 64)];
        assert!(fail("gemmm", &all, &[]).contains("there is no operator `gemmm`"));
        assert!(
            fail("gemm", &all[..2], &[]).contains("size `k` of `gemm` is not given; its sizes are m, n, k")
        );
        assert!(fail("gemm", &[("m", 0), all[1], all[2]], &[]).contains("is 0 and must be from 1"));
        assert!(
            fail("gemm", &[("q", 1), all[0], all[1], all[2]], &[]).contains("size `q` of `gemm` is unknown")
        );
        assert!(fail("gemm", &all, &[("bmm", "1")]).contains("no parameter `bmm`"));
        assert!(fail("gemm", &all, &[("bm", "x")]).contains("must be an integer"));
    }
}
