//! Shape operations (LL 4.4 and theorem 9.3): what a layout becomes when the tensor it leads to is seen in another shape.
//! Each costs nothing: the element that an index holds stays where it is. Forward leads from the layout of the operand to
//! that of the result, backward the other way. Modes count as everywhere here, the first the fastest.

use super::{Dim, LinearLayout, log2, refuse, total};
use crate::error::LayoutError;

impl LinearLayout {
    /// Transposition, forward: the outputs in another order; every output must be named once. Backward is the same with
    /// the old order.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let l: LinearLayout = "[register: (1,0); lane: (0,1)] -> [x:2, y:2]".parse()?;
    /// assert_eq!(l.transpose(&["y", "x"])?.to_string(), "[register: (0,1); lane: (1,0)] -> [y:2, x:2]");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn transpose(&self, order: &[&str]) -> Result<LinearLayout, LayoutError> {
        if order.len() != self.outs().len() {
            return refuse("a transposition", self, "every output must be named once");
        }
        let ins: Vec<&str> = self.ins().iter().map(|i| i.name.as_str()).collect();
        self.sublayout(&ins, order)
    }

    /// Reshape, forward and backward: the same elements counted in other modes, the first the fastest.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let l: LinearLayout = "[register: (1,0); lane: (0,1) (2,0)] -> [x:4, y:2]".parse()?;
    /// assert_eq!(l.reshape(&[("a", 2), ("b", 4)])?.to_string(), "[register: (1,0); lane: (0,2) (0,1)] -> [a:2, b:4]");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn reshape(&self, outs: &[(&str, u64)]) -> Result<LinearLayout, LayoutError> {
        let outs: Vec<Dim> = outs
            .iter()
            .map(|(name, size)| Ok(Dim::new(*name, log2("a reshape", name, *size)?)))
            .collect::<Result<_, LayoutError>>()?;
        if outs.iter().map(|o| u64::from(o.bits)).sum::<u64>() != u64::from(self.out_bits()) {
            return refuse(
                "a reshape",
                self,
                format!("the new modes must have 2^{} elements", self.out_bits()),
            );
        }
        LinearLayout::from_columns(self.ins().to_vec(), outs, self.columns().to_vec())
    }

    /// Join, forward: two tensors of this layout become one with a new last mode of size 2; the second is held in twice
    /// as many registers, above those of the first.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let l: LinearLayout = "[register: 1; lane: 2] -> [x:4]".parse()?;
    /// let joined = l.join("register", "half")?;
    /// assert_eq!(joined.to_string(), "[register: (1,0) (0,1); lane: (2,0)] -> [x:4, half:2]");
    /// assert_eq!(joined.split("half")?, l);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn join(&self, register: &str, mode: &str) -> Result<LinearLayout, LayoutError> {
        if self.outs().iter().any(|o| o.name == mode) {
            return refuse("a join", self, format!("it has a mode {mode} already"));
        }
        self.product(&LinearLayout::identity(2, register, mode)?)
    }

    /// Split, forward, which is join backward: the layout of either half along a mode of size 2. Costs nothing where one
    /// input bit leads to that mode and nowhere else; an error elsewhere.
    pub fn split(&self, mode: &str) -> Result<LinearLayout, LayoutError> {
        let Some(k) = self.outs().iter().position(|o| o.name == mode && o.bits == 1) else {
            return refuse("a split", self, format!("it has no mode {mode} of size 2"));
        };
        let bit = 1u64 << total(&self.outs()[..k]);
        let holders: Vec<usize> =
            (0..self.columns().len()).filter(|j| self.columns()[*j] & bit != 0).collect();
        match holders[..] {
            [holder] if self.columns()[holder] == bit => {
                let (mut ins, mut outs) = (self.ins().to_vec(), self.outs().to_vec());
                outs.remove(k);
                let mut end = 0;
                for dim in &mut ins {
                    let start = end;
                    end += dim.bits as usize;
                    if (start..end).contains(&holder) {
                        dim.bits -= 1;
                    }
                }
                let mut columns: Vec<u64> = self.columns().iter().map(|c| without_bit(*c, bit)).collect();
                columns.remove(holder);
                LinearLayout::from_columns(ins, outs, columns)
            }
            _ => refuse("a split", self, format!("no one input bit leads to {mode} alone")),
        }
    }

    /// A new mode of size 1 at position `at`, forward. Backward is [`slice`](Self::slice) of that mode.
    pub fn expand(&self, at: usize, mode: &str) -> Result<LinearLayout, LayoutError> {
        let mut outs = self.outs().to_vec();
        if at > outs.len() {
            return refuse("an expansion", self, format!("position {at} is beyond its {} modes", outs.len()));
        }
        outs.insert(at, Dim::new(mode, 0));
        LinearLayout::from_columns(self.ins().to_vec(), outs, self.columns().to_vec())
    }

    /// Broadcast, forward: a mode of size 1 becomes one of `size`, held in as many registers above those there are.
    /// Backward is [`slice`](Self::slice) and [`expand`](Self::expand).
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let l: LinearLayout = "[register: (1,0)] -> [x:2, y:1]".parse()?;
    /// assert_eq!(l.broadcast("register", "y", 4)?.to_string(), "[register: (1,0) (0,1) (0,2)] -> [x:2, y:4]");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn broadcast(&self, register: &str, mode: &str, size: u64) -> Result<LinearLayout, LayoutError> {
        if !self.outs().iter().any(|o| o.name == mode && o.bits == 0) {
            return refuse("a broadcast", self, format!("it has no mode {mode} of size 1"));
        }
        self.product(&LinearLayout::identity(size, register, mode)?)
    }

    /// The sliced layout (LL proposition 4.8): a mode left out, as a reduction along it does. Inputs that led only there
    /// lead to 0: they hold what others hold.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let l: LinearLayout = "[register: (1,0) (0,1); lane: (0,2)] -> [x:2, y:4]".parse()?;
    /// assert_eq!(l.slice("y")?.to_string(), "[register: 1 0; lane: 0] -> [x:2]");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn slice(&self, mode: &str) -> Result<LinearLayout, LayoutError> {
        if !self.outs().iter().any(|o| o.name == mode) {
            return refuse("a slice", self, format!("it has no mode {mode}"));
        }
        let ins: Vec<&str> = self.ins().iter().map(|i| i.name.as_str()).collect();
        let outs: Vec<&str> = self.outs().iter().map(|o| o.name.as_str()).filter(|o| *o != mode).collect();
        self.sublayout(&ins, &outs)
    }

    /// The layout without the bits of one input that lead to 0: registers that hold what lower ones hold.
    pub fn drop_zeros(&self, input: &str) -> LinearLayout {
        let (mut ins, mut columns) = (self.ins().to_vec(), Vec::new());
        for dim in &mut ins {
            let here = self.bases(&dim.name).iter().copied();
            let kept: Vec<u64> =
                if dim.name == input { here.filter(|c| *c != 0).collect() } else { here.collect() };
            dim.bits = kept.len() as u32;
            columns.extend(kept);
        }
        LinearLayout { ins, outs: self.outs().to_vec(), columns }
    }
}

/// The bits of a vector above `bit` moved down by one.
fn without_bit(vector: u64, bit: u64) -> u64 {
    let low = bit - 1;
    (vector & low) | ((vector >> 1) & !low)
}
