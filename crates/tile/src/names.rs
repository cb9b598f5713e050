//! Names: which words are taken, and which name a mistyped one was meant to be.

/// Words of the language, which name nothing else. A kernel's own name is exempt: it never stands where these do.
pub const RESERVED: [&str; 72] = [
    "size",
    "const",
    "kernel",
    "grid",
    "threads",
    "cluster",
    "for",
    "unroll",
    "in",
    "block",
    "global_view",
    "register_tensor",
    "shared_tensor",
    "copy",
    "async",
    "commit_group",
    "wait_group",
    "gemm",
    "commit_gemm",
    "wait_gemm",
    "warpgroup",
    "pipeline",
    "produce",
    "consume",
    "cluster_sum",
    "wait_dependencies",
    "launch_dependents",
    "cast",
    "rearrange",
    "fill",
    "syncthreads",
    "transpose",
    "reshape",
    "expand",
    "slice",
    "broadcast",
    "join",
    "split",
    "reduce",
    "gather",
    "ceil_div",
    "min",
    "max",
    "abs",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "tanh",
    "float",
    "layout",
    "inf",
    "f16",
    "bf16",
    "f32",
    "e4m3",
    "e5m2",
    "i1",
    "i2",
    "i4",
    "i8",
    "i32",
    "u1",
    "u2",
    "u4",
    "u8",
    "if",
    "else",
    "while",
    "return",
    "scan",
    "_",
];

/// Whether a name has the form of a basis element of a stride, such as `e0`.
pub(crate) fn basis(name: &str) -> Option<u32> {
    let digits = name.strip_prefix('e')?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // A number too large for any rank still has the form.
    Some(digits.parse().unwrap_or(u32::MAX))
}

/// Whether the word means something in the language already.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) || basis(name).is_some()
}

/// Whether the text is a letter or `_`, then letters, digits and `_`, of legal length.
pub(crate) fn is_identifier(name: &str) -> bool {
    name.len() <= crate::lexer::MAX_NAME
        && name.bytes().next().is_some_and(|b| b == b'_' || b.is_ascii_alphabetic())
        && name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric())
}

/// The candidate nearest to a mistyped name, if one is near.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_near() {
        assert_eq!(nearest("rcc", ["rc", "ra", "block"]), Some("rc"));
        assert_eq!(nearest("global_veiw", RESERVED), Some("global_view"));
        assert_eq!(nearest("zzz", ["rc", "ra"]), None);
        assert_eq!(nearest("q", ["T"]), None);
    }

    #[test]
    fn basis_elements_are_reserved() {
        assert_eq!(basis("e12"), Some(12));
        assert_eq!(basis("e"), None);
        assert!(is_reserved("e0") && is_reserved("grid") && !is_reserved("ga"));
    }
}
