//! Classes of operators as packs have them: for programs without a compiler.

use tilewright_kernels::SizeKind;
use tilewright_twpack::{Class as PackClass, Span};

use crate::base::Base;
use crate::class::{ALONE, Member, end_of};
use crate::kept::Kept;
use crate::library::class_sizes;
use crate::rows::ROWS;

/// The least size that is chosen for as another is.
fn first_of(last: i64, kind: SizeKind) -> i64 {
    if last <= ALONE {
        return last;
    }
    let (mut low, mut high) = (ALONE + 1, last);
    // Ends of classes do not decrease.
    while low < high {
        let middle = low + (high - low) / 2;
        if end_of(middle, kind) < end_of(last, kind) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

fn span(member: &Member, kind: Option<SizeKind>) -> Span {
    let (first, last) = match (member.chosen_for, kind) {
        (Some(last), Some(kind)) => (first_of(last, kind), last),
        _ => (1, i64::MAX),
    };
    Span::new(&member.name, first, last).multiples_of(member.multiple)
}

/// The class of a configuration that was chosen for sizes on a GPU.
pub(crate) fn packed(
    base: &Base,
    members: &[Member],
    kept: &Kept,
    device: &str,
    dependent: bool,
) -> PackClass {
    let own = base.operator.name;
    let row = ROWS.iter().find(|row| row.of.contains(&own));
    let kernels = kept.entries.iter().map(|entry| entry.name.clone());
    let mut class = PackClass::new(row.map_or(own, |row| row.name), kernels);
    class.options.clone_from(&base.options);
    if dependent {
        class.options.push(("dependent".to_string(), "true".to_string()));
    }
    let kinds = class_sizes(base);
    let kind = |name: &str| kinds.iter().find(|(own, ..)| own == name).and_then(|(_, kind, _)| *kind);
    class.sizes = members.iter().map(|member| span(member, kind(&member.name))).collect();
    class.device = device.to_string();
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_the_sizes_of_its_class() {
        for kind in [SizeKind::Extent, SizeKind::Depth, SizeKind::Count, SizeKind::Index] {
            for limit in [1, 8] {
                for size in 1..3000 {
                    let member = Member::of("n", size, Some(kind), limit);
                    let span = span(&member, Some(kind));
                    assert!(
                        (span.first..=span.last).contains(&size) && size % span.multiple == 0,
                        "{span:?} {size}"
                    );
                    if limit == 1 {
                        for end in [span.first, span.last] {
                            assert_eq!(Member::of("n", end, Some(kind), limit), member);
                        }
                    }
                }
            }
        }
    }
}
