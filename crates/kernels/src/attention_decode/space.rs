//! The tuning space: the tiles worth trying for a problem, with the estimate of the schedule that a launch would have.

use tilewright_machine::{Arch, Rate, timing};

use super::{AttentionDecodeConfig, DecodeLengths, DecodeSchedule, QueryTokens};
use crate::config::ConfigError;
use crate::tuning::{Chip, Integers, Launch, SizeKind, Tunable};

/// Sequences that an estimate takes one by one at most.
const MOST_SEQUENCES: i64 = 65_535;

impl AttentionDecodeConfig {
    /// The schedule for b sequences of sk keys, heads of k and v, and sq query tokens each, and the estimated microseconds.
    fn of_sizes(&self, arch: Arch, sizes: &[i64]) -> Result<(DecodeSchedule, f64), ConfigError> {
        self.validate()?;
        let [b, heads, sq, sk] = [0, 1, 2, 3].map(|i| sizes.get(i).copied().unwrap_or(1));
        let lengths = vec![sk; b.clamp(0, MOST_SEQUENCES + 1) as usize];
        let of = DecodeLengths { lengths: &lengths, capacity: sk, heads, tokens: QueryTokens::All(sq) };
        let multiprocessors = timing(arch).rate(Rate::Multiprocessors) as i64;
        let refused = |error: super::ScheduleError| ConfigError::value("b", b, error.to_string());
        of.estimated(self, arch, multiprocessors).map_err(refused)
    }
}

impl Tunable for AttentionDecodeConfig {
    const SIZES: &'static [(&'static str, SizeKind)] = &[
        ("b", SizeKind::Count),
        ("heads", SizeKind::Count),
        ("sq", SizeKind::Count),
        ("sk", SizeKind::Depth),
    ];
    const MEANING: &'static [&'static str] = &[
        "dtype", "kv", "d", "dv", "mla", "group", "hk", "page", "window", "softcap", "lse", "varlen",
        "cascade",
    ];
    const FAMILY: &'static [&'static str] = &["split", "rows", "bn"];
    const SECONDARY: &'static [(&'static str, &'static [&'static str])] =
        &[("stages", &["2", "3", "4"]), ("parts", &["16", "32"]), ("dependent", &["false", "true"])];

    fn points() -> impl Iterator<Item = Self> {
        // Blocks of fewer keys have more stages, so that as many bytes are under way.
        let tiles =
            [16, 32, 64].into_iter().flat_map(|rows| [(16, 4), (32, 3), (64, 2)].map(|of| (rows, of)));
        tiles.flat_map(|(rows, (bn, stages))| {
            [true, false].map(|split| Self { rows, bn, stages, split, ..Self::default() })
        })
    }

    fn fitted(mut self, given: &dyn Fn(&str) -> bool) -> Self {
        if self.mla {
            // The rows of wgmma, and as many stages as fit.
            if !given("rows") {
                self.rows = 64;
            }
            while !given("stages") && self.stages > 2 && self.reject(Arch::SM_90A).is_some() {
                self.stages -= 1;
            }
        }
        self
    }

    fn suits(&self, sizes: &[i64]) -> bool {
        let (heads, sq) = (sizes.get(1).copied().unwrap_or(1), sizes.get(2).copied().unwrap_or(1));
        let rows = (self.group as u64).next_power_of_two() as i64 * sq;
        // Half of a tile's rows at least have a query, and half of its keys are some.
        let tile = self.mla || self.rows == 16 || self.rows < 2 * rows;
        tile && (self.bn == 16 || self.bn < 2 * sizes.get(3).copied().unwrap_or(1))
            && self.hk.is_none_or(|hk| hk == heads)
    }

    fn reject(&self, arch: Arch) -> Option<String> {
        self.reject(arch)
    }

    fn estimate(&self, chip: Chip<'_>, sizes: &[i64]) -> f64 {
        let launch = timing(chip.arch).rate(Rate::LaunchUs);
        self.of_sizes(chip.arch, sizes).map_or(f64::INFINITY, |(_, estimate)| launch + estimate)
    }

    fn launch(&self, arch: Arch, sizes: &[i64]) -> Result<Option<Launch>, ConfigError> {
        let (schedule, _) = self.of_sizes(arch, sizes)?;
        let [b, heads, sq, sk] = [0, 1, 2, 3].map(|i| sizes.get(i).copied().unwrap_or(1));
        let pages = self.page.map_or(1, |page| (sk + page - 1) / page);
        let all = [
            ("b", b),
            ("hk", heads),
            ("sq", sq),
            ("tq", schedule.tq),
            ("sk", sk),
            ("pages", b * pages),
            ("mb", pages),
            ("splits", schedule.splits),
            ("chunk", schedule.chunk),
            ("slots", schedule.splits),
        ];
        Ok(Some(Launch {
            sizes: all.map(|(name, size)| (name.to_string(), size)).into(),
            // Every sequence is full, and its pages lie one behind the other.
            integers: [("len", sk, 0), ("cu_q", 0, sq), ("table", 0, 1)]
                .map(|(name, first, step)| (name, Integers::Line { first, step }))
                .into(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator;
    use crate::tuning::{Space, Tuning};

    fn tuning() -> Tuning {
        operator("attention_decode").unwrap().tuning.unwrap()
    }

    fn space(arch: Arch, [b, heads, sk]: [i64; 3], given: &[(&str, &str)]) -> Space {
        let sizes = [("b", b), ("heads", heads), ("sk", sk)].map(|(name, size)| (name.to_string(), size));
        (tuning().space)(arch.into(), &sizes.into(), given).unwrap()
    }

    #[test]
    fn spaces_are_small_and_valid() {
        let latent = [("mla", "true"), ("d", "576"), ("dv", "512"), ("group", "128")];
        let forms: [&[(&str, &str)]; 5] = [
            &[],
            &[("page", "64"), ("kv", "e4m3")],
            &[("group", "16"), ("varlen", "true")],
            &[("d", "256")],
            &latent,
        ];
        for given in forms {
            let points = space(Arch::SM_90A, [32, 8, 8192], given).points;
            assert!((3..=24).contains(&points.len()), "{given:?}: {}", points.len());
            assert!(points.is_sorted_by(|a, b| a.estimate <= b.estimate) && points[0].estimate > 0.0);
            for point in points {
                let all: Vec<_> =
                    point.parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
                assert_eq!((tuning().reject)(Arch::SM_90A, &all), None, "{all:?}");
            }
        }
        // Latent attention is for one architecture, and heads that are known are those of the problem.
        assert!(space(Arch::SM_80, [32, 8, 8192], &latent).points.is_empty());
        assert!(space(Arch::SM_90A, [32, 8, 8192], &[("hk", "4")]).points.is_empty());
    }

    #[test]
    fn many_sequences_rank_a_launch_without_parts_first() {
        let first = |b| {
            let point = space(Arch::SM_90A, [b, 8, 8192], &[("rows", "16"), ("bn", "32")]).points.remove(0);
            !point.parameters.contains(&("split", "false".to_string()))
        };
        assert_eq!([1, 8, 32, 128].map(first), [true, true, false, false]);
    }

    #[test]
    fn a_launch_has_the_schedule_and_full_sequences() {
        let sizes = [("b", 4), ("heads", 8), ("sk", 1000)].map(|(name, size)| (name.to_string(), size));
        let of = |given: &[(&str, &str)]| (tuning().launch)(Arch::SM_90A, &sizes.clone().into(), given);
        let launch = of(&[("page", "64")]).unwrap();
        let size = |name: &str| launch.sizes[name];
        assert_eq!(["hk", "sq", "tq", "pages", "mb"].map(size), [8, 1, 4, 64, 16]);
        assert!(size("splits") > 1 && size("splits") * size("chunk") >= 1000 && size("chunk") % 32 == 0);
        assert_eq!(launch.integers["len"], Integers::Line { first: 1000, step: 0 });
        assert_eq!(of(&[("hk", "4")]).unwrap_err().to_string(), "`b` = 4: `heads` = 8: must be hk = 4");
    }
}
