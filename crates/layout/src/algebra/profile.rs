//! Operations by profile: on the parts of a layout that a tuple names (paper 3.3.5).

use crate::error::LayoutError;
use crate::htuple::HTuple;
use crate::layout::Layout;
use crate::stride::Stride;

/// Applies an operation to the parts that a target profile names: a leaf of the profile stands for the whole under it, a
/// tuple for the modes. Modes that the profile does not mention stay as they are. The operation decides what
/// the leaves are: `(*,*)` for an inverse by mode, the cotargets for a complement by mode.
///
/// ```
/// use tilewright_layout::{HTuple, Layout, by_profile, complement, right_inverse};
/// let l: Layout = "((2,4),8):((4,1),3)".parse()?;
/// let inverses = by_profile(&l, &HTuple::from((0, 0)), &mut |mode, _| Ok(right_inverse(mode)))?;
/// assert_eq!(inverses.to_string(), "((4,2),1):((2,1),0)");
/// let l: Layout = "(4,8):(1,2)".parse()?;
/// let complements = by_profile(&l, &HTuple::from((8, 16)), &mut |mode, n| complement(mode, *n))?;
/// assert_eq!(complements.to_string(), "(2,2):(4,1)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn by_profile<S: Stride, T>(
    a: &Layout<S>,
    profile: &HTuple<T>,
    operation: &mut impl FnMut(&Layout<S>, &T) -> Result<Layout<S>, LayoutError>,
) -> Result<Layout<S>, LayoutError> {
    match profile {
        HTuple::Leaf(target) => operation(a, target),
        HTuple::Tuple(parts) if a.depth() > 0 && parts.len() <= a.rank() => {
            let mut modes = Vec::with_capacity(a.rank());
            for (k, mode) in a.modes().iter().enumerate() {
                modes.push(match parts.get(k) {
                    Some(part) => by_profile(mode, part, operation)?,
                    None => mode.clone(),
                });
            }
            Layout::concat(&modes)
        }
        HTuple::Tuple(_) => Err(LayoutError::BadProfile {
            profile: profile.map(|_| "*").to_string(),
            shape: a.shape().to_string(),
        }),
    }
}
