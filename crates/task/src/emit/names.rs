//! Names of the emitted program: those of the text where they are free, with a number behind where they are not.

use std::collections::BTreeSet;

use tilewright_tile::is_reserved;

/// The names that are given.
#[derive(Clone, Default, Debug)]
pub(super) struct Names {
    /// Those that the whole kernel sees.
    global: BTreeSet<String>,
    /// Those of the role that is being written.
    local: BTreeSet<String>,
    /// Those of the roles before: names of the kernel are none of them.
    before: BTreeSet<String>,
}

impl Names {
    /// A name that no other thing of the kernel has.
    pub(super) fn global(&mut self, base: &str) -> String {
        let taken = |name: &String| {
            self.global.contains(name) || self.local.contains(name) || self.before.contains(name)
        };
        let name = free(base, taken);
        self.global.insert(name.clone());
        name
    }

    /// A name that no other thing of the kernel or of the role has.
    pub(super) fn local(&mut self, base: &str) -> String {
        let taken = |name: &String| self.global.contains(name) || self.local.contains(name);
        let name = free(base, taken);
        self.local.insert(name.clone());
        name
    }

    /// Begins a role: the names of other roles are free again.
    pub(super) fn role(&mut self) {
        self.before.append(&mut self.local);
    }
}

/// The first of `base`, `base1`, `base2`, … that is free; of a name that means something with any number behind, such as `e`, of `e`, `e_1`, `e_2`, ….
fn free(base: &str, taken: impl Fn(&String) -> bool) -> String {
    let numbered = |i: u64| match i {
        0 => base.to_string(),
        _ if is_reserved(&format!("{base}{i}")) => format!("{base}_{i}"),
        _ => format!("{base}{i}"),
    };
    let free = |name: &String| !taken(name) && !is_reserved(name);
    (0..).map(numbered).find(free).unwrap_or_default()
}
