//! The algebra of linear layouts (LL 4.2): composition, product, division, inverses, and what a map is like. In
//! `a.compose(&b)` and `a.product(&b)` the right operand is `b`; composition applies it first, the product puts its bits
//! above those of `a`.

use super::elimination::{Echelon, kernel, multiply};
use super::{Dim, LinearLayout, refuse, total};
use crate::error::LayoutError;

impl LinearLayout {
    /// The composition `self ∘ inner` (LL definition 4.2). The outputs of `inner` are the inputs of `self` by name, in
    /// any order; an output may be smaller than the input that it leads to.
    ///
    /// The law: `R(i) = self(inner(i))` at every index.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let inner: LinearLayout = "[lane: (1,0) (0,1)] -> [x:2, y:2]".parse()?;
    /// let outer: LinearLayout = "[y: 1; x: 2] -> [offset:4]".parse()?;
    /// assert_eq!(outer.compose(&inner)?.to_string(), "[lane: 2 1] -> [offset:4]");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn compose(&self, inner: &LinearLayout) -> Result<LinearLayout, LayoutError> {
        let fits = self.ins.len() == inner.outs.len()
            && inner.outs.iter().all(|o| self.ins.iter().any(|i| i.name == o.name && i.bits >= o.bits));
        if !fits {
            let reason = format!("the outputs of {inner} must be its inputs, of at most their sizes");
            return refuse("composition", self, reason);
        }
        // Where each bit of inner's output lies in self's input.
        let mut place = Vec::new();
        for out in &inner.outs {
            let mut at = 0;
            for dim in self.ins.iter().take_while(|i| i.name != out.name) {
                at += dim.bits;
            }
            place.extend((at..at + out.bits).map(|i| self.columns[i as usize]));
        }
        let columns = multiply(&place, &inner.columns);
        Ok(LinearLayout { ins: inner.ins.clone(), outs: self.outs.clone(), columns })
    }

    /// The product `self × other` (LL definition 4.3), the direct sum of the maps, label by label: dimensions that both
    /// have are joined, the bits of `other` above those of `self`.
    ///
    /// The law: with `u₁` the low and `u₂` the high bits of an index, dimension by dimension,
    /// `(A × B)(u₁,u₂) = (A(u₁), B(u₂))`.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let pairs = LinearLayout::identity(2, "register", "dim0")?;
    /// let quads = LinearLayout::identity(4, "lane", "dim0")?;
    /// let l = pairs.product(&quads)?.product(&pairs)?;
    /// assert_eq!(l.to_string(), "[register: 1 8; lane: 2 4] -> [dim0:16]");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn product(&self, other: &LinearLayout) -> Result<LinearLayout, LayoutError> {
        let join = |a: &[Dim], b: &[Dim]| {
            let mut dims = a.to_vec();
            for dim in b {
                match dims.iter_mut().find(|d| d.name == dim.name) {
                    Some(d) => d.bits += dim.bits,
                    None => dims.push(dim.clone()),
                }
            }
            dims
        };
        let (ins, outs) = (join(&self.ins, &other.ins), join(&self.outs, &other.outs));
        let mut columns = Vec::new();
        if total(&outs) <= super::MAX_BITS {
            for dim in &ins {
                columns.extend(self.bases(&dim.name).iter().map(|c| spread(*c, &self.outs, &outs, &[])));
                columns.extend(
                    other.bases(&dim.name).iter().map(|c| spread(*c, &other.outs, &outs, &self.outs)),
                );
            }
        } else {
            columns.resize(total(&ins) as usize, 0);
        }
        LinearLayout::from_columns(ins, outs, columns)
    }

    /// The left division `self /ₗ divisor` (LL definition 4.4): the `q` with `divisor × q = self`, label by label; `None`
    /// where there is none. Dimensions of `self` that have no bits left stay, with size 1.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let l: LinearLayout = "[register: 1 8; lane: 2 4] -> [dim0:16]".parse()?;
    /// let tile: LinearLayout = "[register: 1; lane: 2 4] -> [dim0:8]".parse()?;
    /// assert_eq!(l.left_divide(&tile).unwrap().to_string(), "[register: 1; lane:] -> [dim0:2]");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn left_divide(&self, divisor: &LinearLayout) -> Option<LinearLayout> {
        let (ins, outs) = (less(&self.ins, &divisor.ins)?, less(&self.outs, &divisor.outs)?);
        let mut columns = Vec::new();
        for dim in &self.ins {
            let (low, high) = self.bases(&dim.name).split_at(divisor.bases(&dim.name).len());
            let wanted = divisor.bases(&dim.name);
            if low.iter().zip(wanted).any(|(a, b)| *a != spread(*b, &divisor.outs, &self.outs, &[])) {
                return None;
            }
            for column in high {
                columns.push(gather(*column, &self.outs, &outs, &divisor.outs)?);
            }
        }
        LinearLayout::from_columns(ins, outs, columns).ok()
    }

    /// The right division: the `q` with `q × divisor = self`; `None` where there is none.
    pub fn right_divide(&self, divisor: &LinearLayout) -> Option<LinearLayout> {
        let (ins, outs) = (less(&self.ins, &divisor.ins)?, less(&self.outs, &divisor.outs)?);
        let mut columns = Vec::new();
        for dim in &self.ins {
            let all = self.bases(&dim.name);
            let wanted = divisor.bases(&dim.name);
            let (low, high) = all.split_at(all.len() - wanted.len());
            if high.iter().zip(wanted).any(|(a, b)| *a != spread(*b, &divisor.outs, &self.outs, &outs)) {
                return None;
            }
            for column in low {
                columns.push(gather(*column, &self.outs, &outs, &[])?);
            }
        }
        LinearLayout::from_columns(ins, outs, columns).ok()
    }

    /// The dimension of the image.
    pub fn rank(&self) -> u32 {
        Echelon::of(&self.columns).rank() as u32
    }

    /// A basis of the inputs that lead to 0, each as one integer over the inputs.
    pub fn kernel(&self) -> Vec<u64> {
        kernel(&self.columns)
    }

    /// A basis of the outputs that are reached, in echelon form, each as one integer over the outputs.
    pub fn image(&self) -> Vec<u64> {
        Echelon::of(&self.columns).basis()
    }

    /// True if no two indices have the same image.
    pub fn is_injective(&self) -> bool {
        self.rank() == self.in_bits()
    }

    /// True if every output is an image.
    pub fn is_surjective(&self) -> bool {
        self.rank() == self.out_bits()
    }

    /// True if both hold.
    pub fn is_bijective(&self) -> bool {
        self.is_injective() && self.is_surjective()
    }

    /// True if this is a distributed layout (LL definition 4.10): surjective, at most one bit in a column, no column
    /// twice but zero.
    pub fn is_distributed(&self) -> bool {
        let columns: Vec<u64> = self.columns.iter().copied().filter(|c| *c != 0).collect();
        self.is_surjective()
            && self.is_injective_but_for_zeros()
            && columns.iter().all(|c| c.is_power_of_two())
    }

    /// True if this is a memory layout (LL definition 4.14): invertible, with one or two bits in a column.
    pub fn is_memory(&self) -> bool {
        self.is_bijective() && self.columns.iter().all(|c| (1..=2).contains(&c.count_ones()))
    }

    fn is_injective_but_for_zeros(&self) -> bool {
        self.rank() as usize == self.columns.iter().filter(|c| **c != 0).count()
    }

    /// The inverse of a bijection, inputs and outputs exchanged.
    pub fn inverse(&self) -> Result<LinearLayout, LayoutError> {
        if !self.is_bijective() {
            return Err(LayoutError::NotInvertible {
                layout: self.to_string(),
                kind: "inverse",
                reason: format!(
                    "its rank is {}; a bijection's is that of {} input and {} output bits",
                    self.rank(),
                    self.in_bits(),
                    self.out_bits()
                ),
            });
        }
        self.right_inverse()
    }

    /// The right inverse `R` with `self ∘ R = id`, of a surjective layout (LL definition 4.5). Of all solutions it is
    /// the one in which columns that depend on columns before them take no part (LL 5.4: slack variables are zero), so
    /// that broadcast elements are read where they occur first.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let l: LinearLayout = "[register: 1 0; lane: 2 1] -> [dim0:4]".parse()?;
    /// assert_eq!(l.right_inverse()?.to_string(), "[dim0: (1,0) (0,1)] -> [register:4, lane:4]");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn right_inverse(&self) -> Result<LinearLayout, LayoutError> {
        let echelon = Echelon::of(&self.columns);
        let columns: Option<Vec<u64>> = (0..self.out_bits()).map(|i| echelon.solve(1 << i)).collect();
        match columns {
            Some(columns) => Ok(LinearLayout { ins: self.outs.clone(), outs: self.ins.clone(), columns }),
            None => Err(LayoutError::NotInvertible {
                layout: self.to_string(),
                kind: "right inverse",
                reason: format!(
                    "it is not surjective: it reaches 2^{} of 2^{} outputs",
                    self.rank(),
                    self.out_bits()
                ),
            }),
        }
    }

    /// `self⁻¹ ∘ inner` without the inverse: the layout `R` with `self ∘ R = inner`, its free variables zero as in
    /// [`right_inverse`](Self::right_inverse). `self` need not be surjective; an error where an image of `inner` is not
    /// one of `self`. Outputs are the same by name; those of `self` may be larger.
    ///
    /// This says where an element that has one place under `inner` is found under `self` (LL 5.4).
    pub fn invert_and_compose(&self, inner: &LinearLayout) -> Result<LinearLayout, LayoutError> {
        let larger = |o: &Dim| self.outs.iter().any(|s| s.name == o.name && s.bits >= o.bits);
        if self.outs.len() != inner.outs.len() || !inner.outs.iter().all(larger) {
            let reason = format!("the outputs of {inner} must be its outputs, of at most their sizes");
            return refuse("inversion and composition", self, reason);
        }
        let echelon = Echelon::of(&self.columns);
        let places = inner.columns.iter().map(|c| spread(*c, &inner.outs, &self.outs, &[]));
        let columns: Option<Vec<u64>> = places.map(|c| echelon.solve(c)).collect();
        match columns {
            Some(columns) => Ok(LinearLayout { ins: inner.ins.clone(), outs: self.ins.clone(), columns }),
            None => refuse("inversion and composition", self, format!("it does not reach all of {inner}")),
        }
    }

    /// The same layout with its outputs in the order of those of `other`, which must have the same sizes.
    pub(crate) fn transpose_outs_like(&self, other: &LinearLayout) -> Result<LinearLayout, LayoutError> {
        let same = self.outs.len() == other.outs.len() && other.outs.iter().all(|o| self.outs.contains(o));
        if !same {
            return refuse("a comparison of linear layouts", self, format!("{other} has other outputs"));
        }
        let columns = self.columns.iter().map(|c| spread(*c, &self.outs, &other.outs, &[])).collect();
        Ok(LinearLayout { ins: self.ins.clone(), outs: other.outs.clone(), columns })
    }

    /// The layout of some inputs and some outputs (LL 4.1: `L_Reg` and the like), in the order given. Names that the
    /// layout does not have are an error.
    pub fn sublayout(&self, ins: &[&str], outs: &[&str]) -> Result<LinearLayout, LayoutError> {
        let find = |dims: &[Dim], name: &str| match dims.iter().find(|d| d.name == name) {
            Some(dim) => Ok(dim.clone()),
            None => refuse("a sublayout", self, format!("it has no dimension {name}")),
        };
        let outs: Vec<Dim> = outs.iter().map(|o| find(&self.outs, o)).collect::<Result<_, _>>()?;
        let ins: Vec<Dim> = ins.iter().map(|i| find(&self.ins, i)).collect::<Result<_, _>>()?;
        let mut columns = Vec::new();
        for dim in &ins {
            columns.extend(self.bases(&dim.name).iter().map(|c| {
                let parts = super::unflatten(&self.outs, *c);
                let (mut column, mut at) = (0, 0);
                for out in &outs {
                    let k = self.outs.iter().position(|o| o.name == out.name).unwrap_or(0);
                    column |= parts[k] << at;
                    at += out.bits;
                }
                column
            }));
        }
        LinearLayout::from_columns(ins, outs, columns)
    }

    /// For each input dimension the bits that are free: those whose columns depend on columns before them, so that every
    /// output is reached without them (LL 5.1, broadcasting). A thread with a free bit set holds what another holds.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let l: LinearLayout = "[register: 1 0; lane: 2 0; warp: 1] -> [dim0:4]".parse()?;
    /// assert_eq!(l.free_bits(), [("register", 0b10), ("lane", 0b10), ("warp", 0b1)]);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn free_bits(&self) -> Vec<(&str, u64)> {
        let mut echelon = Echelon::default();
        let mut all = Vec::new();
        for dim in &self.ins {
            let mut mask = 0;
            for (i, column) in self.bases(&dim.name).iter().enumerate() {
                if !echelon.insert(*column, 0) {
                    mask |= 1 << i;
                }
            }
            all.push((dim.name.as_str(), mask));
        }
        all
    }

    /// The layout without the input bits that lead to 0.
    pub fn without_zeros(&self) -> LinearLayout {
        let mut ins = self.ins.clone();
        for dim in &mut ins {
            dim.bits = self.bases(&dim.name).iter().filter(|c| **c != 0).count() as u32;
        }
        let columns = self.columns.iter().copied().filter(|c| *c != 0).collect();
        LinearLayout { ins, outs: self.outs.clone(), columns }
    }

    /// True if both are the same map once inputs that lead to 0 are left out (LL 5.1): they differ in broadcasting only.
    pub fn equal_up_to_broadcast(&self, other: &LinearLayout) -> bool {
        let bare = |l: &LinearLayout| {
            let mut l = l.without_zeros();
            l.ins.retain(|d| d.bits > 0);
            l
        };
        bare(self) == bare(other)
    }

    /// Renames an input dimension.
    pub fn rename_in(mut self, from: &str, to: &str) -> Result<LinearLayout, LayoutError> {
        for dim in self.ins.iter_mut().filter(|d| d.name == from) {
            dim.name = to.to_string();
        }
        LinearLayout::from_columns(self.ins, self.outs, self.columns)
    }

    /// Renames an output dimension.
    pub fn rename_out(mut self, from: &str, to: &str) -> Result<LinearLayout, LayoutError> {
        for dim in self.outs.iter_mut().filter(|d| d.name == from) {
            dim.name = to.to_string();
        }
        LinearLayout::from_columns(self.ins, self.outs, self.columns)
    }

    /// All outputs as one dimension, the first the lowest.
    pub fn flatten_outs(&self, name: &str) -> LinearLayout {
        let outs = vec![Dim::new(name, self.out_bits())];
        LinearLayout { ins: self.ins.clone(), outs, columns: self.columns.clone() }
    }

    /// The same map with its inputs in another order; every input must be named once.
    pub fn transpose_ins(&self, order: &[&str]) -> Result<LinearLayout, LayoutError> {
        if order.len() != self.ins.len() {
            return refuse("a transposition of inputs", self, "every input must be named once");
        }
        let outs: Vec<&str> = self.outs.iter().map(|o| o.name.as_str()).collect();
        self.sublayout(order, &outs)
    }
}

/// The bits of a vector over `from` moved to their places in `to`, above those of `below`.
fn spread(vector: u64, from: &[Dim], to: &[Dim], below: &[Dim]) -> u64 {
    let parts = super::unflatten(from, vector);
    let (mut column, mut at) = (0, 0);
    for dim in to {
        let shift = below.iter().find(|b| b.name == dim.name).map_or(0, |b| b.bits);
        if let Some(k) = from.iter().position(|f| f.name == dim.name) {
            column |= parts[k] << (at + shift);
        }
        at += dim.bits;
    }
    column
}

/// The other way around: a vector over `from` as one over `to`, whose dimensions lie above those of `below`; `None` where
/// it has other bits.
fn gather(vector: u64, from: &[Dim], to: &[Dim], below: &[Dim]) -> Option<u64> {
    let parts = super::unflatten(from, vector);
    let (mut column, mut at) = (0, 0);
    for (dim, source) in to.iter().zip(parts) {
        let shift = below.iter().find(|b| b.name == dim.name).map_or(0, |b| b.bits);
        if source & ((1 << shift) - 1) != 0 || source >> shift >= dim.size() {
            return None;
        }
        column |= source >> shift << at;
        at += dim.bits;
    }
    Some(column)
}

/// The dimensions with the bits of `divisor` taken away; `None` where it has more or others.
fn less(dims: &[Dim], divisor: &[Dim]) -> Option<Vec<Dim>> {
    if divisor.iter().any(|d| !dims.iter().any(|a| a.name == d.name)) {
        return None;
    }
    dims.iter()
        .map(|dim| {
            let taken = divisor.iter().find(|d| d.name == dim.name).map_or(0, |d| d.bits);
            dim.bits.checked_sub(taken).map(|bits| Dim { name: dim.name.clone(), bits })
        })
        .collect()
}
