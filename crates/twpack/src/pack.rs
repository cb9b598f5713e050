//! Packs in memory: kernels that are put together and written, or were all read.

use crate::class::Class;
use crate::entry::Entry;
use crate::error::PackError;
use crate::file::{self, PackFile};

/// Kernels, each by its name and the GPUs that it is for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pack {
    /// The maker, in words: a program and its version.
    made: String,
    entries: Vec<Entry>,
    operators: Vec<Class>,
}

impl Pack {
    /// A pack without kernels. It says who made it, and has no time: the same kernels make the same bytes.
    pub fn new(made: impl Into<String>) -> Self {
        Pack { made: made.into(), entries: Vec::new(), operators: Vec::new() }
    }

    /// The maker, in words.
    pub fn made(&self) -> &str {
        &self.made
    }

    /// The kernels, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The first kernel with a name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Adds a kernel.
    ///
    /// # Errors
    ///
    /// A kernel of the same name is there for the same GPUs, no launch can follow the recipe, or the code is not of it.
    pub fn add(&mut self, entry: Entry) -> Result<(), PackError> {
        entry.check()?;
        let target = &entry.recipe.target.name;
        if self.entries.iter().any(|other| other.name == entry.name && other.recipe.target.name == *target) {
            return Err(PackError::Twice { kernel: entry.name, target: target.clone() });
        }
        self.entries.push(entry);
        Ok(())
    }

    /// The classes of operators, in order.
    pub fn operators(&self) -> &[Class] {
        &self.operators
    }

    /// Adds a class of an operator, whose kernels are there.
    ///
    /// # Errors
    ///
    /// A kernel that is not there, or sizes that no class has.
    pub fn add_class(&mut self, class: Class) -> Result<(), PackError> {
        class.check(&format!("the class `{class}`"), |name| self.get(name).is_some())?;
        self.operators.push(class);
        Ok(())
    }

    /// The file.
    ///
    /// # Errors
    ///
    /// A pack that is larger than one may be, or a recipe that packs cannot hold.
    pub fn to_bytes(&self) -> Result<Vec<u8>, PackError> {
        file::write(&self.made, &self.entries, &self.operators)
    }

    /// The pack of a file, of which everything is checked.
    ///
    /// # Errors
    ///
    /// A file that is no pack, is damaged, or has a kernel that no launch can follow.
    pub fn from_bytes(bytes: &[u8]) -> Result<Pack, PackError> {
        PackFile::open(bytes)?.pack()
    }
}
