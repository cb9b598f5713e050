//! Classes of sizes: problems of one class have one configuration and the same kernels.

use std::fmt::Write;

use tilewright_kernels::SizeKind;
use tilewright_tune::class_end;

use crate::sizes::{Sizes, multiple};

/// Sizes up to this are classes of their own: how few rows there are decides what is chosen.
pub(crate) const ALONE: i64 = 16;
/// Multiples that the classes of records tell apart.
const OF_RECORDS: i64 = 16;
/// Counts up to this are chosen for in steps of [`ALONE`]: of heads, say, the number decides in how many rounds tiles run.
const FINE: i64 = 128;

/// The largest size that is chosen for as this one is.
pub(crate) fn end_of(size: i64, kind: SizeKind) -> i64 {
    match kind {
        SizeKind::Count if size <= FINE => (size + ALONE - 1) / ALONE * ALONE,
        _ => class_end(size, kind),
    }
}

/// A size of a class.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// The size for which the class is chosen: its largest that has the divisors; nothing of a size that no choice depends on.
    pub(crate) chosen_for: Option<i64>,
    /// The multiple that kernels rely on.
    pub(crate) multiple: i64,
}

impl Member {
    /// The member of a size: of a kind, if choices depend on it, whose kernels rely on multiples up to a limit.
    pub(crate) fn of(name: &str, size: i64, kind: Option<SizeKind>, limit: i64) -> Member {
        let (name, reliable) = (name.to_string(), multiple(size, limit));
        let chosen_for = kind.map(|kind| {
            let end = end_of(size, kind);
            if size <= ALONE {
                size
            } else if limit <= 1 {
                end
            } else {
                let most = limit.max(OF_RECORDS);
                let own = multiple(size, most);
                if multiple(end, most) == own { end } else { end - own }
            }
        });
        Member { name, chosen_for, multiple: reliable }
    }
}

/// A class.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Class(pub(crate) Vec<Member>);

impl Class {
    /// The sizes for which it is chosen.
    pub(crate) fn chosen_for(&self) -> Sizes {
        let of = |member: &Member| Some((member.name.clone(), member.chosen_for?));
        self.0.iter().filter_map(of).collect()
    }

    /// The multiples that kernels rely on.
    pub(crate) fn multiples(&self) -> Sizes {
        let relied = self.0.iter().filter(|member| member.multiple > 1);
        relied.map(|member| (member.name.clone(), member.multiple)).collect()
    }

    /// The class as text: `m<=64 n<=4096/8`.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for member in &self.0 {
            if !text.is_empty() {
                text.push(' ');
            }
            let _ = match member.chosen_for {
                Some(size) if size <= ALONE => write!(text, "{}={size}", member.name),
                Some(size) => write!(text, "{}<={size}", member.name),
                None => write!(text, "{}", member.name),
            };
            if member.multiple > 1 {
                let _ = write!(text, "/{}", member.multiple);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_its_largest_size_with_the_divisors_of_all() {
        for kind in [SizeKind::Extent, SizeKind::Depth, SizeKind::Count, SizeKind::Index] {
            for limit in [1, 2, 8, 16, 256] {
                for size in 1..5000 {
                    let member = Member::of("n", size, Some(kind), limit);
                    let chosen_for = member.chosen_for.unwrap();
                    assert!(chosen_for >= size, "{kind:?} {size}: {member:?}");
                    assert_eq!(
                        member,
                        Member::of("n", chosen_for, Some(kind), limit),
                        "{kind:?} {size} {limit}"
                    );
                    if limit > 1 && size > ALONE {
                        assert_eq!(multiple(chosen_for, limit.max(16)), multiple(size, limit.max(16)));
                    }
                }
            }
        }
    }

    #[test]
    fn rows_are_in_few_classes() {
        let classes: std::collections::BTreeSet<Member> =
            (1..=8192).map(|m| Member::of("m", m, Some(SizeKind::Extent), 1)).collect();
        assert_eq!(classes.len(), 16 + 2 + 127);
        let text = Class(vec![
            Member::of("m", 40, Some(SizeKind::Extent), 1),
            Member::of("k", 1000, Some(SizeKind::Depth), 8),
        ]);
        assert_eq!(text.text(), "m<=64 k<=1016/8");
        // 48 heads are not chosen for as 64 are.
        let heads =
            [1, 17, 40, 48, 49, 130].map(|n| Member::of("hq", n, Some(SizeKind::Count), 1).chosen_for);
        assert_eq!(heads, [1, 32, 48, 48, 64, 256].map(Some));
    }
}
