//! Scales by which elements of a result are compared with those of another.

/// Binary exponents between two sizes of elements that no sum holds both of: what is this much smaller is rounded away in an `f32`.
const GAP: i32 = 24;

/// The scales of a result's elements: an element is as good as noise against those of its own size, such as what is left where a sum
/// cancels, but never against numbers that dwarf it, such as the `-1e30` of a mask.
///
/// Finite elements are sorted by their binary exponents into groups with at least 24 unused exponents between them. The scale of an element
/// is the root mean square of its group. A group below another one counts as its noise where it is rare: at most one in 4096 of the
/// elements above it.
#[derive(Clone, PartialEq, Debug)]
pub struct Scales {
    /// The largest exponent of each group, ascending, and its root mean square.
    groups: Vec<(i32, f64)>,
}

/// The binary exponent of a number that is not 0.
fn exponent(x: f64) -> i32 {
    ((x.to_bits() >> 52 & 0x7ff) as i32) - 1023
}

impl Scales {
    /// The scales of these elements.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut found: std::collections::BTreeMap<i32, (f64, f64)> = std::collections::BTreeMap::new();
        for x in values.into_iter().filter(|x| x.is_finite() && *x != 0.0) {
            let (count, squares) = found.entry(exponent(x)).or_default();
            *count += 1.0;
            *squares += x * x;
        }
        // Groups, descending: the largest exponent, the smallest, elements and the sum of their squares.
        let mut groups: Vec<(i32, i32, f64, f64)> = Vec::new();
        for (e, (count, squares)) in found.into_iter().rev() {
            match groups.last_mut() {
                Some((_, least, n, sum)) if *least - e <= GAP || count * 4096.0 <= *n => {
                    *least = e;
                    *n += count;
                    *sum += squares;
                }
                _ => groups.push((e, e, count, squares)),
            }
        }
        let groups = groups.into_iter().rev().map(|(most, _, n, sum)| (most, (sum / n).sqrt())).collect();
        Scales { groups }
    }

    /// The scale for an element of this value; 0 where all elements are 0.
    pub fn at(&self, x: f64) -> f64 {
        let e = if x == 0.0 { i32::MIN } else { exponent(x) };
        let group = self.groups.iter().find(|(most, _)| e <= *most).or(self.groups.last());
        group.map_or(0.0, |(_, rms)| *rms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_dwarf_others_have_a_scale_of_their_own() {
        let mut values = vec![1.0; 1000];
        values.extend([-1e30; 9000]);
        values.extend([0.0, f64::INFINITY, f64::NAN]);
        let scales = Scales::of(values);
        assert_eq!([scales.at(1.0), scales.at(0.0), scales.at(1.5)], [1.0; 3]);
        assert!((scales.at(-1e30) / 1e30 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_a_sum_leaves_is_noise() {
        let mut values = vec![4.0; 100_000];
        values.extend([1e-9, -3e-12]);
        let scales = Scales::of(values);
        assert!((scales.at(1e-9) - 4.0).abs() < 1e-3, "{scales:?}");
        assert_eq!(Scales::of([0.001, 100.0]).at(0.001), Scales::of([0.001, 100.0]).at(100.0));
        assert_eq!(Scales::of([0.0, 0.0]).at(0.0), 0.0);
    }
}
