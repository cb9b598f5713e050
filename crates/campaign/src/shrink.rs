//! The smallest text that shows the same as a larger one: lines and blocks go, then numbers fall, as long as it does.

use std::time::Instant;

/// Makes a text smaller while `shows` holds, until nothing goes any more or the time is up. Lines for which `keep` holds stay.
pub fn shrink(
    text: &str,
    keep: &dyn Fn(&str) -> bool,
    shows: &mut dyn FnMut(&str) -> bool,
    until: Instant,
) -> String {
    let mut best: Vec<String> = text.lines().map(str::to_string).collect();
    let joined = |lines: &[String]| lines.join("\n") + "\n";
    loop {
        let before = joined(&best);
        let mut size = (best.len() / 2).max(1);
        loop {
            let mut at = 0;
            while at < best.len() && Instant::now() < until {
                let end = (at + size).min(best.len());
                if best[at..end].iter().any(|line| keep(line)) {
                    at += 1;
                    continue;
                }
                let mut fewer = best.clone();
                fewer.drain(at..end);
                if shows(&joined(&fewer)) {
                    best = fewer;
                } else {
                    at += 1;
                }
            }
            if size == 1 {
                break;
            }
            size /= 2;
        }
        best = without_blocks(best, keep, shows, until);
        best = smaller_numbers(best, shows, until);
        if joined(&best) == before || Instant::now() >= until {
            return joined(&best);
        }
    }
}

/// Takes heads of blocks away with their ends, and whole blocks.
fn without_blocks(
    mut lines: Vec<String>,
    keep: &dyn Fn(&str) -> bool,
    shows: &mut dyn FnMut(&str) -> bool,
    until: Instant,
) -> Vec<String> {
    let mut at = 0;
    while at < lines.len() && Instant::now() < until {
        let end = lines[at].trim_end().ends_with('{').then(|| end_of(&lines, at)).flatten();
        let Some(end) = end else {
            at += 1;
            continue;
        };
        let mut whole = lines.clone();
        whole.drain(at..=end);
        let mut head = lines.clone();
        head.remove(end);
        head.remove(at);
        if !lines[at..=end].iter().any(|line| keep(line)) && shows(&(whole.join("\n") + "\n")) {
            lines = whole;
        } else if shows(&(head.join("\n") + "\n")) {
            lines = head;
        } else {
            at += 1;
        }
    }
    lines
}

/// The line with the brace that closes the block that begins in a line.
fn end_of(lines: &[String], at: usize) -> Option<usize> {
    let mut depth = 0i64;
    for (i, line) in lines.iter().enumerate().skip(at) {
        depth += line.matches('{').count() as i64 - line.matches('}').count() as i64;
        if depth == 0 && i > at {
            return Some(i);
        }
    }
    None
}

fn smaller_numbers(
    mut lines: Vec<String>,
    shows: &mut dyn FnMut(&str) -> bool,
    until: Instant,
) -> Vec<String> {
    for at in 0..lines.len() {
        // Only what is declared: the rest of a program hangs on its tiles.
        if !lines[at].starts_with("size ") && !lines[at].starts_with("const ") {
            continue;
        }
        let mut place = 0;
        while Instant::now() < until {
            let line = lines[at].clone();
            let Some(start) = line[place..].find(|c: char| c.is_ascii_digit()).map(|i| place + i) else {
                break;
            };
            let end = line[start..].find(|c: char| !c.is_ascii_digit()).map_or(line.len(), |i| start + i);
            place = end;
            let Ok(value) = line[start..end].parse::<u64>() else { continue };
            for less in [1, value / 2, value.saturating_sub(1)] {
                if less == 0 || less >= value {
                    continue;
                }
                lines[at] = format!("{}{less}{}", &line[..start], &line[end..]);
                if shows(&(lines.join("\n") + "\n")) {
                    place = start + less.to_string().len();
                    break;
                }
                lines[at] = line.clone();
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_does_not_matter_goes() {
        let text = "size m = 640\na\nfor i {\n  b\n  culprit\n}\nc\nkept\n";
        let small = shrink(
            text,
            &|line| line == "kept",
            &mut |t| t.contains("culprit") && t.contains("size"),
            Instant::now() + Duration::from_secs(5),
        );
        assert_eq!(small, "size m = 1\n  culprit\nkept\n");
    }
}
