//! Queries of code generation (LL 5.1 and 5.3): contiguity, vectors across modes, duplicated data, and
//! instruction tiles with the permutation of registers that makes them fit.

use super::elimination::Echelon;
use super::{Dim, LinearLayout, refuse};
use crate::error::LayoutError;

impl LinearLayout {
    /// Number of elements, contiguous in the outputs counted as one integer, in consecutive registers: the largest
    /// `u` for which index `i < u` of `register` leads to `i` (LL 5.1). It crosses modes: a `[512,2]` tensor whose rows
    /// are contiguous is as good as one of 1024 elements (LL table 3).
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let l: LinearLayout = "[register: (1,0) (0,1) (0,2); lane: (0,4)] -> [x:2, y:8]".parse()?;
    /// assert_eq!(l.contiguous("register"), 8);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn contiguous(&self, register: &str) -> u64 {
        let columns = self.bases(register);
        1 << columns.iter().enumerate().take_while(|(i, c)| **c == 1 << i).count()
    }

    /// The same where registers may be permuted (LL 5.3, generalised vectorisation): the bits of `register` that lead to
    /// bits 0, 1, … of the outputs, in that order, as far as there are such.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let l: LinearLayout = "[register: 4 2 1; lane: 8] -> [x:16]".parse()?;
    /// assert_eq!((l.contiguous("register"), l.vector_bits("register")), (1, vec![2, 1, 0]));
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn vector_bits(&self, register: &str) -> Vec<u32> {
        let columns = self.bases(register);
        (0..self.out_bits())
            .map_while(|i| columns.iter().position(|c| *c == 1 << i).map(|j| j as u32))
            .collect()
    }

    /// Division on the left by an instruction's tile, with the bits of `register` permuted where that helps (theorem
    /// 5.1 and "generalised vectorization"): the order in which to take the bits of `register`, lowest first, and the
    /// quotient of the layout so permuted; `None` where no permutation makes the tile fit. The tile's bits may be
    /// registers of any place but must lie in the outputs as the tile says.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// // Column-major data, vectors of two: registers 2 and 3 are neighbours.
    /// let l: LinearLayout = "[register: 2 1; lane: 4] -> [offset:8]".parse()?;
    /// let tile = LinearLayout::identity(2, "register", "offset")?;
    /// assert!(l.left_divide(&tile).is_none());
    /// let (order, quotient) = l.divide_permuting(&tile, "register").unwrap();
    /// assert_eq!((order, quotient.to_string()), (vec![1, 0], "[register: 1; lane: 2] -> [offset:4]".to_string()));
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn divide_permuting(&self, tile: &LinearLayout, register: &str) -> Option<(Vec<u32>, LinearLayout)> {
        let mine = self.bases(register);
        let mut order: Vec<u32> = Vec::new();
        for bit in 0..tile.bases(register).len() {
            // What the tile's column is among this layout's outputs.
            let ins = [Dim::new("register", 1)];
            let unit = LinearLayout {
                ins: ins.to_vec(),
                outs: tile.outs().to_vec(),
                columns: vec![tile.bases(register)[bit]],
            };
            let padded = unit.padded_like(self)?;
            let wanted = padded.columns()[0];
            let found = (0..mine.len() as u32).find(|j| mine[*j as usize] == wanted && !order.contains(j))?;
            order.push(found);
        }
        order.extend((0..mine.len() as u32).filter(|j| !order.contains(j)).collect::<Vec<_>>());
        let permuted = self.permute_bits(register, &order).ok()?;
        let quotient = permuted.left_divide(tile)?;
        Some((order, quotient))
    }

    /// The layout with the outputs of `other`, in its order; an output that this layout does not have, or has with fewer
    /// bits, is 0 there.
    fn padded_like(&self, other: &LinearLayout) -> Option<LinearLayout> {
        let mut padded = self.clone();
        for out in other.outs() {
            let has = padded.outs.iter().find(|o| o.name == out.name).map_or(0, |o| o.bits);
            let more = LinearLayout::zeros(1, 1 << out.bits.checked_sub(has)?, "none", &out.name).ok()?;
            padded = padded.product(&more).ok()?;
        }
        padded.ins.retain(|d| d.name != "none");
        padded.transpose_outs_like(other).ok()
    }

    /// The layout with the bits of one input taken in another order: bit `i` of the result is bit `order[i]` of this.
    pub fn permute_bits(&self, input: &str, order: &[u32]) -> Result<LinearLayout, LayoutError> {
        let here = self.bases(input);
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..here.len() as u32) {
            let reason = format!("{order:?} is not an order of the {} bits of {input}", here.len());
            return refuse("a permutation of bits", self, reason);
        }
        let mut columns = Vec::new();
        for dim in &self.ins {
            let bases = self.bases(&dim.name);
            if dim.name == input {
                columns.extend(order.iter().map(|i| bases[*i as usize]));
            } else {
                columns.extend(bases);
            }
        }
        LinearLayout::from_columns(self.ins.clone(), self.outs.clone(), columns)
    }

    /// Number of holders of each element: 2^(the bits of the kernel), where the layout is surjective.
    pub fn copies(&self) -> u64 {
        1 << (self.in_bits() - self.rank())
    }

    /// True if the element of an index is held by no lower index: the one to store it (LL 5.1). An index is redundant
    /// where it has a free bit set.
    pub fn is_owner(&self, index: u64) -> bool {
        let mut echelon = Echelon::default();
        (0..self.columns.len()).all(|j| echelon.insert(self.columns[j], 0) || index >> j & 1 == 0)
    }
}
