//! The name that a mistyped one was meant to be.

/// The candidate nearest to a mistyped name, if one is near.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.len() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .filter(|c| c.len().abs_diff(name.len()) <= limit && *c != name)
        .map(|c| (distance(name.as_bytes(), c.as_bytes()), c))
        .filter(|(d, _)| *d <= limit && *d < name.len())
        .min()
        .map(|(_, c)| c)
}

/// The edit distance, without regard to case.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(!x.eq_ignore_ascii_case(y));
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
