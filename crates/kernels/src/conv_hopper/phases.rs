//! The data gradient with strides. dx at a place h of x is a sum over the taps r for which h + front − r · dilation is a multiple of the
//! stride: those of one residue, which places of one residue by the stride (a *phase*) share. So each phase is a convolution of dy with
//! every so many-th tap, without a stride.

use tilewright_tile::Expr;

use super::geometry::{Axis, Geometry};
use crate::warp_specialized::digits;

/// The taps of a phase along an axis: `first`, `first` + `apart`, …
struct Taps {
    count: Expr,
    first: Expr,
    apart: i64,
}

impl Axis {
    /// The places of dy in front of its first one that are read, at most.
    pub fn before(&self) -> i64 {
        let reach = (self.taps - 1) * self.dilation - self.front;
        (reach.max(0) + self.stride - 1) / self.stride
    }

    /// The most places behind the one of dy at which a box of a phase begins.
    pub fn behind(&self) -> i64 {
        (self.stride - 1 + self.front) / self.stride
    }

    fn taps_of(&self, phase: &Expr) -> Taps {
        let common = gcd(self.dilation, self.stride);
        let apart = self.stride / common;
        if self.stride == 1 {
            return Taps { count: self.taps.into(), first: 0.into(), apart };
        }
        let place = phase + self.front;
        let inverse = (1..=apart).find(|i| self.dilation / common * i % apart == 1 % apart).unwrap_or(1);
        let first = if apart == 1 { 0.into() } else { &place / common * inverse % apart };
        // Taps from the first one on, none of a phase that no tap meets.
        let count = (Expr::from(self.taps) - &first).max(0).ceil_div(apart);
        let count = if common == 1 { count } else { count * (Expr::from(1) - (place % common).min(1)) };
        Taps { count, first, apart }
    }
}

/// The taps of a tile of dx.
pub(super) struct Phase {
    taps: Vec<Taps>,
    phases: Vec<Expr>,
}

impl Phase {
    /// That of the tile whose indices among the boxes of dx these are.
    pub fn of(geometry: &Geometry, indices: &[Expr]) -> Self {
        let mut own = indices.iter().skip(geometry.axes.len() + 1);
        let mut phase = |axis: &Axis| if axis.stride > 1 { own.next().cloned() } else { None };
        let mut phases: Vec<Expr> =
            geometry.axes.iter().rev().map(|axis| phase(axis).unwrap_or(0.into())).collect();
        phases.reverse();
        let taps = geometry.axes.iter().zip(&phases).map(|(axis, phase)| axis.taps_of(phase)).collect();
        Phase { taps, phases }
    }

    /// Its number of taps.
    pub fn count(&self) -> Expr {
        self.taps.iter().fold(1.into(), |all: Expr, taps| all * &taps.count)
    }

    /// The tap of this number: where its box begins along each axis, counted from the first place of dy that is read, and its place in the filter.
    pub fn tap(&self, geometry: &Geometry, number: &Expr) -> (Vec<Expr>, Vec<Expr>) {
        let counts: Vec<Expr> = self
            .taps
            .iter()
            .map(|taps| if taps.count.as_int().is_some() { taps.count.clone() } else { taps.count.max(1) })
            .collect();
        let each = geometry.axes.iter().zip(&self.taps).zip(&self.phases).zip(digits(number, &counts));
        each.map(|(((axis, taps), phase), i)| {
            let common = self::gcd(axis.dilation, axis.stride);
            let begin = phase + (axis.front + axis.before() * axis.stride);
            let begin =
                if axis.stride == 1 { begin } else { (begin - &taps.first * axis.dilation) / axis.stride };
            (begin - &i * (axis.dilation / common), &taps.first + i * taps.apart)
        })
        .unzip()
    }
}

pub(super) fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
