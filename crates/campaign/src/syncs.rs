//! Synchronising statements taken away, moved by one statement, or made to wait for less: which of these make a program wrong.

/// Beginnings of statements that synchronise.
const WORDS: [&str; 11] = [
    "syncthreads(",
    "syncgrid(",
    "signal(",
    "wait(",
    "arrive(",
    "wait_group(",
    "commit_group(",
    "wait_gemm(",
    "commit_gemm(",
    "wait_dependencies(",
    "launch_dependents(",
];

/// Comment behind a synchronising statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Needed for accesses of these tensors.
    Needed(Vec<String>),
    /// Orders nothing that is not ordered without it.
    Redundant,
    /// Nothing is said.
    None,
}

/// Difference between a program and the one it was made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The statement is not there.
    Delete,
    /// It stands before the statement that it stood behind.
    Earlier,
    /// It stands behind the statement that it stood before.
    Later,
    /// The number of what may stay in flight is one more.
    Weaken,
}

impl Change {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Change::Delete => "delete",
            Change::Earlier => "earlier",
            Change::Later => "later",
            Change::Weaken => "weaken",
        }
    }
}

/// Judgement that a changed program must get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Found wrong.
    Broken,
    /// Right, and nothing is reported.
    Right,
    /// Nobody knows.
    Open,
}

/// A changed program.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The text.
    pub text: String,
    /// The line, from 0, of the statement in the text it was made from.
    pub line: usize,
    /// The statement, without its mark.
    pub statement: String,
    /// The change of the statement.
    pub change: Change,
    /// The judgement that the changed program must get.
    pub expected: Expected,
    /// Tensors of which the copies have to be in flight for the change to break anything.
    pub in_flight: Vec<String>,
}

impl Changed {
    /// The line of the text that it was made from, of the statement at a place in the changed text; `None` of the statement that is changed.
    pub fn line_before(&self, place: usize) -> Option<usize> {
        let line = self.text.get(..place)?.matches('\n').count();
        match self.change {
            Change::Delete => Some(line + usize::from(line >= self.line)),
            // The two have changed places.
            Change::Earlier if line == self.line => Some(line - 1),
            Change::Later if line == self.line => Some(line + 1),
            Change::Earlier if line + 1 == self.line => None,
            Change::Later if line == self.line + 1 => None,
            Change::Weaken if line == self.line => None,
            Change::Earlier | Change::Later | Change::Weaken => Some(line),
        }
    }

    /// True if, in the changed text, one of these places lies between two neighbouring accesses to a tensor that the statement was needed for, ahead of it and behind it in the text that it was made from:
    /// if the compiler gives the statement there a barrier, the change breaks nothing.
    pub fn ordered_by(&self, base: &str, places: &[usize]) -> bool {
        let Some(Mark::Needed(names)) = base.lines().nth(self.line).map(mark) else { return false };
        let accesses = |name: &String| -> Vec<usize> {
            let lines = self.text.lines().enumerate();
            lines.filter(|(_, line)| !synchronises(line) && mentions(line, name)).map(|(at, _)| at).collect()
        };
        let between = |name: &String| {
            let (before, behind): (Vec<usize>, Vec<usize>) =
                accesses(name).into_iter().partition(|at| match self.change {
                    Change::Delete | Change::Later | Change::Weaken => *at < self.line,
                    Change::Earlier => *at <= self.line,
                });
            let (Some(first), Some(second)) = (before.last(), behind.first()) else { return false };
            places.iter().any(|place| {
                let line = self.text.get(..*place).map_or(0, |text| text.matches('\n').count());
                (first + 1..*second).contains(&line)
            })
        };
        names.iter().any(between)
    }

    /// True if it is the same change of the same statement, in a program that may have other sizes.
    pub fn same_as(&self, other: &Changed) -> bool {
        (self.line, self.change, &self.statement) == (other.line, other.change, &other.statement)
    }
}

/// The statement of a line, without comment.
fn statement(line: &str) -> &str {
    line.split("//").next().unwrap_or("").trim()
}

/// True if a line is one synchronising statement.
fn synchronises(line: &str) -> bool {
    WORDS.iter().any(|word| statement(line).starts_with(word))
}

/// The mark of a line.
pub fn mark(line: &str) -> Mark {
    let comment = line.split_once("//").map_or("", |(_, c)| c.trim());
    if comment == "redundant" {
        return Mark::Redundant;
    }
    match comment.strip_prefix("needed for ") {
        Some(names) => Mark::Needed(names.split_whitespace().map(str::to_string).collect()),
        None => Mark::None,
    }
}

/// True if a statement mentions a name as a whole word.
pub fn mentions(line: &str, name: &str) -> bool {
    statement(line).split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).any(|word| word == name)
}

/// Every change of one synchronising statement of a program that has one statement a line.
pub fn changes(text: &str) -> Vec<Changed> {
    let lines: Vec<&str> = text.lines().collect();
    let mut all = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| synchronises(line)) {
        let own = mark(line);
        let mut add = |lines: Vec<String>, change, expected, in_flight| {
            let statement = statement(line).to_string();
            let text = lines.join("\n") + "\n";
            all.push(Changed { text, line: at, statement, change, expected, in_flight });
        };
        let copied = || lines.iter().map(|l| l.to_string()).collect::<Vec<_>>();
        let mut without = copied();
        without.remove(at);
        add(
            without,
            Change::Delete,
            match &own {
                Mark::Needed(_) => Expected::Broken,
                Mark::Redundant => Expected::Right,
                Mark::None => Expected::Open,
            },
            Vec::new(),
        );
        for (change, other) in [(Change::Earlier, at.checked_sub(1)), (Change::Later, Some(at + 1))] {
            let Some(other) = other.filter(|o| *o < lines.len() && movable(lines[*o])) else { continue };
            let mut moved = copied();
            moved.swap(at, other);
            let in_flight = match &own {
                Mark::Needed(names) if wait_and_barrier(line, lines[other]) => names.clone(),
                _ => Vec::new(),
            };
            add(moved, change, displaced(line, lines[other]), in_flight);
        }
        if let Some(weaker) = weaker(line) {
            let mut changed = copied();
            changed[at] = weaker;
            let needed = matches!(own, Mark::Needed(_));
            let expected = if needed { Expected::Broken } else { Expected::Open };
            add(changed, Change::Weaken, expected, Vec::new());
        }
    }
    all
}

/// True if a statement may change places with its neighbour: it neither begins nor ends a block.
fn movable(line: &str) -> bool {
    let text = statement(line);
    !text.is_empty()
        && !text.contains('{')
        && !text.contains('}')
        && !text.starts_with("size ")
        && !text.starts_with("kernel ")
}

/// True if two lines are a wait for copies and a barrier: copies that go through registers at once are complete before the wait.
fn wait_and_barrier(line: &str, other: &str) -> bool {
    let is = |line: &str, word| statement(line).starts_with(word);
    (is(line, "wait_group") && is(other, "syncthreads"))
        || (is(line, "syncthreads") && is(other, "wait_group"))
}

/// Judgement that a program must get in which a statement changed places with another one.
fn displaced(line: &str, other: &str) -> Expected {
    let pair = |a: &str, b: &str| {
        let (x, y) = (statement(line), statement(other));
        (x.starts_with(a) && y.starts_with(b)) || (x.starts_with(b) && y.starts_with(a))
    };
    match (mark(line), mark(other)) {
        (Mark::Needed(names), Mark::Needed(others)) => {
            let common = names.iter().any(|name| others.contains(name));
            let depends = pair("commit_", "wait_") || pair("wait_group", "syncthreads");
            if common && depends { Expected::Broken } else { Expected::Open }
        }
        (Mark::Needed(names), Mark::None) if !synchronises(other) => {
            let access = ["copy", "gemm"].iter().any(|word| statement(other).starts_with(word));
            let touches = names.iter().any(|name| mentions(other, name));
            // Of two ordinary reads only one need be another warp's.
            let read = statement(other).strip_prefix("copy(").and_then(|rest| rest.split(", ").next());
            let one_of_two = statement(line).starts_with("syncthreads")
                && read.is_some_and(|source| names.iter().any(|name| mentions(source, name)));
            if access && touches && !one_of_two { Expected::Broken } else { Expected::Open }
        }
        (Mark::Redundant, _) if !synchronises(other) => Expected::Right,
        _ => Expected::Open,
    }
}

/// The statement with one more that may stay in flight.
fn weaker(line: &str) -> Option<String> {
    let text = statement(line);
    let word = ["wait_group(", "wait_gemm("].into_iter().find(|word| text.starts_with(word))?;
    let inside = text.strip_prefix(word)?.strip_suffix(')')?;
    let number = inside.parse::<u32>().ok()?;
    Some(line.replacen(&format!("{word}{inside})"), &format!("{word}{})", number + 1), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barriers_of_other_statements_order_accesses() {
        let text = "{\n copy(r, s)\n syncthreads() // needed for s\n copy(a[i, :], b)\n copy(s, q)\n copy(c[i, :], d)\n}\n";
        let all = changes(text);
        let place = |changed: &Changed, statement| vec![changed.text.find(statement).unwrap()];
        for change in [Change::Delete, Change::Earlier, Change::Later] {
            let changed = all.iter().find(|c| c.change == change).unwrap();
            assert!(changed.ordered_by(text, &place(changed, "copy(a")), "{change:?}");
            for elsewhere in ["copy(r", "copy(s", "copy(c"] {
                assert!(!changed.ordered_by(text, &place(changed, elsewhere)), "{change:?} {elsewhere}");
            }
        }
    }

    #[test]
    fn marks_say_what_a_change_does() {
        let text = "{\n copy(r, s)\n syncthreads() // needed for s\n copy(s, q)\n wait_group(1) // needed for s\n}\n";
        let all = changes(text);
        let expected: Vec<_> = all.iter().map(|c| (c.change, c.expected)).collect();
        use Change::*;
        use Expected::*;
        assert_eq!(
            expected,
            [
                (Delete, Broken),
                (Earlier, Broken),
                (Later, Open),
                (Delete, Broken),
                (Earlier, Broken),
                (Weaken, Broken),
            ]
        );
        assert!(all[5].text.contains("wait_group(2) // needed"));
        assert!(!all[0].text.contains("syncthreads"));
    }

    #[test]
    fn lines_of_a_changed_text_are_known_in_the_other() {
        let text = "a\nb\nsyncthreads()\nc\nd\n";
        for changed in changes(text) {
            let words: Vec<&str> = text.lines().collect();
            let place = |word: &str| changed.text.find(word);
            for word in ["a", "b", "c", "d"] {
                let line = place(&format!("{word}\n")).and_then(|place| changed.line_before(place));
                assert_eq!(line.map(|line| words[line]), Some(word), "{changed:?}");
            }
            assert_eq!(place("sync").and_then(|place| changed.line_before(place)), None);
        }
    }

    #[test]
    fn what_is_not_marked_is_open_and_what_is_redundant_stays_right() {
        let all = changes(" a = b\n syncthreads() // redundant\n syncthreads()\n copy(r, s)\n");
        let of = |line| all.iter().filter(|c| c.line == line).map(|c| c.expected).collect::<Vec<_>>();
        assert_eq!(of(1), [Expected::Right, Expected::Right, Expected::Open]);
        assert_eq!(of(2), [Expected::Open, Expected::Open, Expected::Open]);
    }
}
