//! The contraction by plain loops over its letters, in f64.

use super::einsum::{Einsum, EinsumError, Operand};
use super::fold::Sizes;

/// c, row-major, of row-major a and b.
///
/// # Errors
///
/// An index without a size.
pub fn reference(einsum: &Einsum, sizes: &Sizes, a: &[f64], b: &[f64]) -> Result<Vec<f64>, EinsumError> {
    let letters = einsum.letters();
    let mut extents = Vec::new();
    for letter in &letters {
        extents.push(*sizes.get(letter).ok_or(EinsumError::NoSize { letter: *letter })? as usize);
    }
    let place = |operand: Operand, at: &[usize]| {
        einsum.indices(operand).iter().fold(0, |place, letter| {
            let i = letters.iter().position(|other| other == letter).unwrap_or(0);
            place * extents[i] + at[i]
        })
    };
    let length = |operand: Operand| -> usize {
        einsum.indices(operand).iter().map(|letter| sizes[letter] as usize).product()
    };
    let mut c = vec![0.0; length(Operand::C)];
    for mut count in 0..extents.iter().product() {
        let mut at = vec![0; extents.len()];
        for (digit, extent) in at.iter_mut().zip(&extents).rev() {
            (*digit, count) = (count % extent, count / extent);
        }
        c[place(Operand::C, &at)] += a[place(Operand::A, &at)] * b[place(Operand::B, &at)];
    }
    Ok(c)
}
