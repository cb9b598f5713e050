//! The parts of a PTX text that a recipe says something of: its target, and the name and parameters of its entry.

/// The entry of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry<'a> {
    /// The word behind `.target`.
    pub(crate) target: &'a str,
    pub(crate) name: &'a str,
    /// Bytes of each parameter.
    pub(crate) params: Vec<u64>,
}

/// Words and marks of a text, without comments and without what is quoted.
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            let text = self.0.trim_start();
            let behind = |mark: &str| text.find(mark).map_or("", |at| &text[at + mark.len()..]);
            self.0 = if text.starts_with("//") {
                behind("\n")
            } else if text.starts_with("/*") {
                behind("*/")
            } else if let Some(quoted) = text.strip_prefix('"') {
                quoted.split_once('"').map_or("", |(_, rest)| rest)
            } else {
                let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '%');
                let end = match text.find(|c| !part(c)) {
                    Some(0) => text.chars().next()?.len_utf8(),
                    Some(end) => end,
                    None => text.len(),
                };
                let (word, rest) = text.split_at(end);
                self.0 = rest;
                return (!word.is_empty()).then_some(word);
            };
        }
    }
}

/// Bytes of a parameter, of the words between `.param` and the comma behind it.
fn bytes(words: &[&str]) -> Option<u64> {
    let ty = words.iter().find(|word| {
        word.starts_with(['.'])
            && word[1..].starts_with(['b', 's', 'u', 'f'])
            && word.ends_with(|c: char| c.is_ascii_digit())
    })?;
    let bits: u64 = ty[2..].parse().ok()?;
    let count = match words {
        [.., "[", count, "]"] => count.parse().ok()?,
        _ => 1,
    };
    (bits / 8).checked_mul(count)
}

/// The entry of a text that has exactly one.
pub(crate) fn entry(text: &str) -> Result<Entry<'_>, &'static str> {
    if text.contains('\0') {
        return Err("the text has a NUL character");
    }
    let mut words = Words(text);
    let (mut targets, mut found) = (Vec::new(), None);
    while let Some(word) = words.next() {
        match word {
            ".target" => targets.push(words.next().unwrap_or_default()),
            ".entry" => {
                if found.is_some() {
                    return Err("the text has not exactly one `.entry`");
                }
                let name = words.next().unwrap_or_default();
                if words.next() != Some("(") {
                    return Err("the entry has no parameters");
                }
                let list: Vec<&str> = words.by_ref().take_while(|word| *word != ")").collect();
                found = Some((name, list));
            }
            _ => {}
        }
    }
    let (name, list) = found.ok_or("the text has not exactly one `.entry`")?;
    let [target] = targets[..] else { return Err("the text has not exactly one `.target`") };
    let params = if list.is_empty() {
        Vec::new()
    } else {
        let param = |words: &[&str]| match words {
            [".param", rest @ ..] => bytes(rest),
            _ => None,
        };
        let params: Option<_> = list.split(|word| *word == ",").map(param).collect();
        params.ok_or("a parameter of the entry has no type that is known")?
    };
    Ok(Entry { target, name, params })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_is_read_and_nothing_that_is_quoted() {
        let text = "// .entry no(\n.version 8.0\n.target sm_90a, texmode_independent\n/* .entry other( */\n.file 1 \"a/.entry b(\"\n\
            .visible .entry scale(\n    .param .u64 .ptr .global .align 16 x, // x, y\n .param .align 64 .b8 map[128],\n\t.param .f32 f\n)\n.maxntid 128\n{ ret; }";
        let expected = Entry { target: "sm_90a", name: "scale", params: vec![8, 128, 4] };
        assert_eq!(entry(text), Ok(expected));
        assert_eq!(entry(".target sm_80 .entry f() { }").unwrap().params, []);
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, reason) in [
            ("a\0b", "the text has a NUL character"),
            ("", "the text has not exactly one `.entry`"),
            (".target sm_80 .entry a() {} .entry b() {}", "the text has not exactly one `.entry`"),
            (".target sm_80 .target sm_90 .entry a() {}", "the text has not exactly one `.target`"),
            (".entry a() {}", "the text has not exactly one `.target`"),
            (".target sm_80 .entry a {}", "the entry has no parameters"),
            (".target sm_80 .entry", "the entry has no parameters"),
            (".target sm_80 .entry a(.param .pred p)", "a parameter of the entry has no type that is known"),
            (".target sm_80 .entry a(.param .u64 x,)", "a parameter of the entry has no type that is known"),
            (
                ".target sm_80 .entry a(.param .b8 x[99999999999999999999])",
                "a parameter of the entry has no type that is known",
            ),
            ("/* \" é", "the text has not exactly one `.entry`"),
        ] {
            assert_eq!(entry(text), Err(reason), "{text}");
        }
    }
}
