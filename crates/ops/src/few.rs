//! Lists of a few values that need no allocation.

/// At most `N` values, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Few<T, const N: usize> {
    values: [Option<T>; N],
    len: usize,
}

impl<T: Copy, const N: usize> Few<T, N> {
    /// Nothing.
    pub(crate) fn new() -> Self {
        Few { values: [None; N], len: 0 }
    }

    /// Adds a value. One that has no room is counted all the same: see [`Few::over`].
    pub(crate) fn push(&mut self, value: T) {
        if let Some(place) = self.values.get_mut(self.len) {
            *place = Some(value);
        }
        self.len += 1;
    }

    /// The values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.values[..self.len.min(N)].iter().flatten()
    }

    /// The value with a number.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<&T> {
        self.values.get(number)?.as_ref()
    }

    /// Puts a value in the place of the one that is like it, or behind all.
    pub(crate) fn put(&mut self, value: T, like: impl Fn(&T) -> bool) {
        match self.values.iter_mut().flatten().find(|known| like(known)) {
            Some(known) => *known = value,
            None => self.push(value),
        }
    }

    /// True if a value had no room.
    pub(crate) fn over(&self) -> bool {
        self.len > N
    }
}
