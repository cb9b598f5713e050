//! Lists of values, of which a few need no allocation.

/// Values in order, of which the first `N` lie in place.
#[derive(Clone, Debug)]
pub(crate) struct Few<T, const N: usize> {
    values: [Option<T>; N],
    len: usize,
    rest: Vec<T>,
}

impl<T: Copy, const N: usize> Few<T, N> {
    /// Nothing.
    #[inline]
    pub(crate) const fn new() -> Self {
        Few { values: [None; N], len: 0, rest: Vec::new() }
    }

    /// Adds a value.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        match self.values.get_mut(self.len) {
            Some(place) => {
                *place = Some(value);
                self.len += 1;
            }
            None => self.rest.push(value),
        }
    }

    /// The number of values.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len + self.rest.len()
    }

    /// The result of a function on one value after another.
    #[inline]
    pub(crate) fn fold<B>(&self, first: B, mut of: impl FnMut(B, &T) -> B) -> B {
        let mut last = first;
        for value in self.values[..self.len].iter().flatten() {
            last = of(last, value);
        }
        for value in &self.rest {
            last = of(last, value);
        }
        last
    }

    /// The values.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.values[..self.len].iter().flatten().chain(&self.rest)
    }

    /// The value with a number.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<&T> {
        match self.values.get(number) {
            Some(value) => value.as_ref(),
            None => self.rest.get(number - N),
        }
    }

    /// Puts a value in the place of the one that is like it, or behind all.
    #[inline]
    pub(crate) fn put(&mut self, value: T, like: impl Fn(&T) -> bool) {
        for known in self.values[..self.len].iter_mut().flatten() {
            if like(known) {
                *known = value;
                return;
            }
        }
        match self.rest.iter_mut().find(|known| like(known)) {
            Some(known) => *known = value,
            None => self.push(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_order_whether_or_not_they_have_a_place() {
        let mut few: Few<u32, 2> = Few::new();
        for value in [3, 1, 4, 1, 5] {
            few.put(value, |known| *known == value);
        }
        assert_eq!(few.len(), 4);
        assert_eq!(few.fold(0, |number, value| number * 10 + value), 3145);
        assert_eq!(few.iter().copied().collect::<Vec<_>>(), [3, 1, 4, 5]);
        assert_eq!([0, 2, 3, 4].map(|number| few.get(number).copied()), [Some(3), Some(4), Some(5), None]);
    }
}
