//! Registers of a warp that belong to matrix products of its warpgroup in flight.

/// The products of a warp and the registers that they own.
#[derive(Clone, Debug)]
pub(crate) struct Owned {
    /// Of each register: the last product that writes it and the last that reads it (1 is the first; 0 is none), with their origins.
    written: Vec<(u32, u32)>,
    read: Vec<(u32, u32)>,
    /// Of each register: fences executed before the last ordinary write, plus 1; 0 without a write.
    touched: Vec<u32>,
    fences: u32,
    /// Products that have been issued.
    issued: u32,
    /// Of each group that was closed: products issued before its end, and when the cycle model has them done.
    groups: Vec<(u32, u64)>,
    /// Products that a wait has covered.
    covered: u32,
    /// Cycle at which the last product is done.
    pub ready: u64,
}

impl Owned {
    pub(crate) fn new(registers: usize) -> Self {
        Owned {
            written: vec![(0, 0); registers],
            read: vec![(0, 0); registers],
            touched: vec![0; registers],
            fences: 0,
            issued: 0,
            groups: Vec::new(),
            covered: 0,
            ready: 0,
        }
    }

    /// Notes an ordinary access; the origin of the product that owns the register, if one does.
    pub(crate) fn touch(&mut self, register: u32, write: bool) -> Option<u32> {
        let register = register as usize;
        let (product, origin) = self.written[register];
        let (reader, reader_origin) = self.read[register];
        if write {
            self.touched[register] = self.fences + 1;
        }
        if product > self.covered {
            Some(origin)
        } else if write && reader > self.covered {
            Some(reader_origin)
        } else {
            None
        }
    }

    /// The origin of the product in flight that writes this register, if one does.
    pub(crate) fn writer(&self, register: u32) -> Option<u32> {
        let (product, origin) = self.written[register as usize];
        (product > self.covered).then_some(origin)
    }

    /// Ordinary accesses so far come before the products that follow.
    pub(crate) fn fence(&mut self) {
        self.fences += 1;
    }

    /// True if ordinary code has written a register, or no fence has come at all, since the last fence.
    pub(crate) fn unfenced(&self, register: u32) -> bool {
        self.fences == 0 || self.touched[register as usize] == self.fences + 1
    }

    /// Notes a product.
    pub(crate) fn issue(&mut self, d: &[u32], a: &[u32], origin: u32) {
        self.issued += 1;
        d.iter().for_each(|r| self.written[*r as usize] = (self.issued, origin));
        a.iter().for_each(|r| self.read[*r as usize] = (self.issued, origin));
    }

    /// Closes the current group.
    pub(crate) fn commit(&mut self) {
        self.groups.push((self.issued, self.ready));
    }

    /// Number of products in all groups but the last `n`, and the cycle at which they are done; a wait covers them from now on.
    pub(crate) fn covered(&mut self, n: u32) -> (u32, u64) {
        let last = self.groups.len().checked_sub(n as usize + 1);
        let (products, ready) = last.map_or((0, 0), |group| self.groups[group]);
        if let Some(last) = last {
            self.groups.drain(..last);
        }
        self.covered = self.covered.max(products);
        (products, ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_cover_all_groups_but_the_last() {
        let mut o = Owned::new(4);
        for register in 0..3 {
            o.issue(&[register], &[3], register);
            o.commit();
        }
        assert_eq!(o.covered(1).0, 2);
        assert_eq!((o.touch(0, false), o.touch(1, true), o.touch(2, false)), (None, None, Some(2)));
        assert_eq!((o.touch(3, false), o.touch(3, true)), (None, Some(2)));
        assert_eq!(o.covered(5).0, 0);
        assert_eq!(o.covered(0).0, 3);
        assert_eq!((o.touch(2, true), o.touch(3, true)), (None, None));
    }

    #[test]
    fn products_that_are_not_committed_are_not_waited_for() {
        let mut o = Owned::new(1);
        o.issue(&[0], &[], 7);
        assert_eq!(o.covered(0).0, 0);
        assert_eq!(o.touch(0, false), Some(7));
    }

    #[test]
    fn a_write_needs_a_fence() {
        let mut o = Owned::new(2);
        assert!(o.unfenced(0));
        o.fence();
        assert!(!o.unfenced(0));
        o.touch(0, true);
        assert!(o.unfenced(0) && !o.unfenced(1));
        o.fence();
        assert!(!o.unfenced(0));
    }
}
