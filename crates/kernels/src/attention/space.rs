//! The tuning space: the tilings worth trying for a problem, and how long each may take.

use tilewright_machine::{Arch, Features};

use super::{AttentionConfig, Form, Mask};
use crate::config::Config;
use crate::tuning::{Chip, SizeKind, Tunable};

/// Multiprocessors of an H200.
const MULTIPROCESSORS: f64 = 132.0;

/// Cycles in a microsecond under load.
const CLOCK: f64 = 1700.0;

/// Operations of the tensor cores of a multiprocessor in a cycle, on 16-bit factors.
const PRODUCTS: f64 = 4096.0;

/// Cycles of a multiprocessor for the exponential of a score and what is done beside it.
const SOFTMAX: f64 = 0.1;

/// Parts of the shorter of products and exponentials that are not hidden behind the longer, with one, two and three warpgroups: from the table in
/// docs/kernels.md.
const EXPOSED: [f64; 3] = [0.8, 0.28, 0.1];

/// Cycles of a block of keys beside its scores: waits, and the parts of the maxima that threads hold.
const TURN: f64 = 120.0;

/// Microseconds of a tile beside its blocks of keys: its first scores, its last values and its way to memory.
const ENDS: f64 = 3.4;

/// The part of it that is left where warpgroups take turns, and so begin and end one after another.
const ENDS_IN_TURNS: f64 = 0.75;

/// Microseconds until a block that is a tile has begun.
const START: f64 = 1.2;

/// The sizes of attention, forward and backward.
pub(crate) const SIZES: &[(&str, SizeKind)] = &[
    ("b", SizeKind::Count),
    ("hq", SizeKind::Count),
    ("hk", SizeKind::Count),
    ("sq", SizeKind::Extent),
    ("sk", SizeKind::Depth),
];

/// The keys that a tile of so many rows reads, from the first up to the last, of sizes sq and sk.
pub(super) fn keys_of(mask: Mask, [tile, rows]: [i64; 2], [sq, sk]: [i64; 2]) -> (i64, i64) {
    let place = tile * rows + sk - sq;
    let last = if mask == Mask::None { sk } else { (place + rows).clamp(1, sk) };
    let first = match mask {
        Mask::Window(keys) => (place - keys + 1).max(0),
        Mask::None | Mask::Causal => 0,
    };
    (first, last)
}

impl AttentionConfig {
    /// Microseconds of a block of keys.
    fn of_block(&self) -> f64 {
        let scores = (self.rows() * self.bn) as f64;
        let operations = 2.0 * (self.d + self.values()) as f64 * f64::from(self.dtype.bits()) / 16.0;
        let (products, softmax) = (operations / PRODUCTS, SOFTMAX);
        let exposed = EXPOSED[(self.warpgroups.clamp(1, 3) - 1) as usize];
        (TURN + scores * (products.max(softmax) + exposed * products.min(softmax))) / CLOCK
    }

    /// The estimated time in microseconds, of sizes b, hq, hk, sq and sk; infinite on an architecture that lacks what the form needs.
    pub fn estimate(&self, arch: Arch, sizes: &[i64]) -> f64 {
        match self.form {
            _ if !arch.has(self.form.needs()) => f64::INFINITY,
            Form::Wgmma => self.wgmma_estimate(sizes),
            Form::Tcgen05 => self.tcgen05_estimate(arch, sizes),
        }
    }

    /// The estimate of the form by wgmma, on an H200.
    fn wgmma_estimate(&self, sizes: &[i64]) -> f64 {
        let at = |i: usize| sizes.get(i).copied().unwrap_or(1);
        let (b, hq, sq, sk) = (at(0), at(1), at(3), at(4));
        let tiles = (sq + self.rows() - 1) / self.rows();
        let blocks = |tile: i64| {
            let (first, last) = keys_of(self.mask, [tile, self.rows()], [sq, sk]);
            ((last + self.bn - 1) / self.bn - first / self.bn).max(1) as f64
        };
        let ends = ENDS * if self.ping_pong { ENDS_IN_TURNS } else { 1.0 };
        let start = if self.persistent { 0.0 } else { START };
        let of = |tile: i64| ends + start + blocks(tile) * self.of_block();
        let all = (b * hq) as f64 * (0..tiles).map(of).sum::<f64>();
        let longest = of(tiles - 1);
        let even = all / MULTIPROCESSORS.min((b * hq * tiles) as f64);
        // Equal tiles end in whole rounds; the shortest of unequal ones fill the end.
        if self.mask == Mask::None {
            ((b * hq * tiles) as f64 / MULTIPROCESSORS).ceil() * longest
        } else {
            even.max(longest)
        }
    }
}

impl Tunable for AttentionConfig {
    const SIZES: &'static [(&'static str, SizeKind)] = SIZES;
    const MEANING: &'static [&'static str] = Self::OPTIONS;
    const FAMILY: &'static [&'static str] = &["form", "warpgroups", "bn", "ping_pong"];
    const SECONDARY: &'static [(&'static str, &'static [&'static str])] = &[
        ("stages", &["2", "3", "4"]),
        ("q_stages", &["1", "2"]),
        ("persistent", &["false", "true"]),
        ("polynomial", &["0", "32"]),
    ];

    fn points() -> impl Iterator<Item = Self> {
        let tiles = (1..=3).flat_map(|warpgroups| (2..=16).map(move |bn| (warpgroups, 16 * bn)));
        let forms = [(false, false, 1), (true, false, 1), (true, false, 2), (true, true, 2)];
        let by_wgmma = tiles.flat_map(move |(warpgroups, bn)| {
            forms.map(|(persistent, ping_pong, q_stages)| AttentionConfig {
                warpgroups,
                bn,
                persistent,
                ping_pong,
                q_stages,
                ..Self::default()
            })
        });
        by_wgmma.chain(Self::tcgen05_points())
    }

    fn needs(&self) -> Features {
        self.form.needs()
    }

    fn fitted(mut self, given: &dyn Fn(&str) -> bool) -> Self {
        // A form that was given leaves a point of the other one what says something in it.
        let usual = AttentionConfig::default();
        let idle = self.form.idle();
        for field in Self::FIELDS.iter().filter(|field| idle.contains(&field.name) && !given(field.name)) {
            (field.take)(&mut self, &usual);
        }
        self
    }

    fn suits(&self, sizes: &[i64]) -> bool {
        let (sq, sk) = (sizes.get(3).copied().unwrap_or(1), sizes.get(4).copied().unwrap_or(1));
        let few = self.form == Form::Tcgen05 || self.warpgroups == 1;
        (self.rows() < 2 * sq || few) && (self.bn < 2 * sk || self.bn <= 32)
    }

    fn reject(&self, arch: Arch) -> Option<String> {
        self.reject(arch)
    }

    fn estimate(&self, chip: Chip<'_>, sizes: &[i64]) -> f64 {
        self.estimate(chip.arch, sizes)
    }
}
