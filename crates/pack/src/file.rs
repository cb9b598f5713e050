//! The file: header, code, and what is checked before anything of it is used.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tilewright_launch::{Code, Recipe};

use crate::error::PackError;
use crate::header;
use crate::json::{At, object};

/// The first bytes of a pack.
pub const MAGIC: [u8; 8] = *b"TWPACK\0\x01";
/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u64 = 1;
/// Bytes before the header.
const HEADER: usize = 8 + 8 + 8 + 32;
/// Code begins at multiples of this.
const ALIGNMENT: usize = 16;
const MOST_BYTES: u64 = 256 << 20;
const MOST_HEADER: u64 = 16 << 20;
const MOST_KERNELS: u64 = 4096;

/// Code of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Image {
    /// PTX text.
    Ptx(String),
    /// A binary for one kind of GPU.
    Binary(Vec<u8>),
}

impl Image {
    /// The code, to be loaded.
    pub fn code(&self) -> Code<'_> {
        match self {
            Image::Ptx(text) => Code::Ptx(text),
            Image::Binary(bytes) => Code::Binary(bytes),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Image::Ptx(text) => text.as_bytes(),
            Image::Binary(bytes) => bytes,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Image::Ptx(_) => "ptx",
            Image::Binary(_) => "binary",
        }
    }
}

/// The program that a kernel was compiled from, so that it can be compiled again and compared.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Source {
    /// The program as text, over no constants but those below.
    pub program: String,
    /// Sizes that the code relies on being multiples of numbers.
    pub multiples: Vec<(String, i64)>,
    /// Sizes for which candidates were compared.
    pub sizes: Vec<(String, i64)>,
}

impl Source {
    /// A program with the options of its compilation.
    pub fn new(program: String, multiples: Vec<(String, i64)>, sizes: Vec<(String, i64)>) -> Self {
        Source { program, multiples, sizes }
    }
}

/// A kernel of a pack.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The name in the pack.
    pub name: String,
    /// Everything that launches read of it.
    pub recipe: Recipe,
    /// Its code.
    pub image: Image,
    /// The program, if it was kept.
    pub source: Option<Source>,
}

impl Entry {
    /// A kernel as PTX text.
    pub fn of_ptx(recipe: Recipe, ptx: impl Into<String>) -> Self {
        Entry { name: recipe.name.clone(), recipe, image: Image::Ptx(ptx.into()), source: None }
    }

    /// A kernel as a binary for one kind of GPU.
    pub fn of_binary(recipe: Recipe, bytes: Vec<u8>) -> Self {
        Entry { name: recipe.name.clone(), recipe, image: Image::Binary(bytes), source: None }
    }

    /// With another name in the pack than that of the kernel.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// With the program that it was compiled from.
    pub fn with_source(mut self, source: Source) -> Self {
        self.source = Some(source);
        self
    }

    /// The identity: the SHA-256 of recipe and code, in hexadecimal digits.
    ///
    /// # Errors
    ///
    /// A recipe that packs cannot hold.
    pub fn id(&self) -> Result<String, PackError> {
        let mut hash = Sha256::new();
        hash.update(header::write(&self.recipe)?.to_string());
        hash.update([0]);
        hash.update(self.image.bytes());
        Ok(hex(&hash.finalize()))
    }

    /// Checks that a launch can follow the recipe, and that the code can be of it.
    fn check(&self) -> Result<(), PackError> {
        let kernel = || self.name.clone();
        self.recipe.check().map_err(|error| PackError::Recipe { kernel: kernel(), error })?;
        let wrong = |reason| Err(PackError::Code { kernel: kernel(), reason });
        match &self.image {
            Image::Binary(bytes) if !bytes.starts_with(b"\x7fELF") => {
                wrong("it does not begin as an ELF file does")
            }
            Image::Binary(_) => Ok(()),
            Image::Ptx(text) if text.contains('\0') => wrong("the text has a NUL character"),
            Image::Ptx(text) => {
                let mut entries = text.split(".entry").skip(1);
                let (Some(entry), None) = (entries.next(), entries.next()) else {
                    return wrong("the text has not exactly one `.entry`");
                };
                let Some((name, rest)) = entry.split_once('(') else {
                    return wrong("the entry has no parameters");
                };
                if name.trim() != self.recipe.entry {
                    return wrong("the entry has another name than the recipe's");
                }
                let list = rest.split_once(')').map_or("", |(list, _)| list);
                let code = list.lines().map(|line| line.split("//").next().unwrap_or_default());
                let params: usize = code.map(|line| line.matches(".param").count()).sum();
                if params != self.recipe.passed.len() {
                    return wrong("the entry has another number of parameters than the recipe");
                }
                let target = text.lines().find_map(|line| line.trim().strip_prefix(".target"));
                match target {
                    Some(target)
                        if target.trim().split([',', ' ']).next() != Some(&self.recipe.target.name) =>
                    {
                        wrong("its `.target` is another one than the recipe's")
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Kernels, each by its name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pack {
    /// The maker, in words: a program and its version.
    made: String,
    entries: Vec<Entry>,
}

impl Pack {
    /// A pack without kernels. It says who made it, and has no time: the same kernels make the same bytes.
    pub fn new(made: impl Into<String>) -> Self {
        Pack { made: made.into(), entries: Vec::new() }
    }

    /// The maker, in words.
    pub fn made(&self) -> &str {
        &self.made
    }

    /// The kernels, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The kernel with a name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Adds a kernel.
    ///
    /// # Errors
    ///
    /// A kernel of the same name is there, no launch can follow the recipe, or the code is not of it.
    pub fn add(&mut self, entry: Entry) -> Result<(), PackError> {
        entry.check()?;
        if self.get(&entry.name).is_some() {
            return Err(PackError::Twice(entry.name));
        }
        self.entries.push(entry);
        Ok(())
    }

    /// The file.
    ///
    /// # Errors
    ///
    /// A pack that is larger than one may be, or a recipe that packs cannot hold.
    pub fn to_bytes(&self) -> Result<Vec<u8>, PackError> {
        // Places of code are counted from the end of the header, whose length they would else change.
        let (mut code, mut kernels) = (Vec::new(), Vec::new());
        for entry in &self.entries {
            code.resize(code.len().next_multiple_of(ALIGNMENT), 0);
            let bytes = entry.image.bytes();
            kernels.push(object([
                ("name", json!(entry.name)),
                ("id", json!(entry.id()?)),
                ("recipe", header::write(&entry.recipe)?),
                ("code", json!({ "kind": entry.image.kind(), "at": code.len(), "bytes": bytes.len() })),
                ("source", entry.source.as_ref().map_or(Value::Null, write_source)),
            ]));
            code.extend_from_slice(bytes);
        }
        let header = json!({ "format": FORMAT, "made": self.made, "kernels": kernels }).to_string();
        let mut bytes = MAGIC.to_vec();
        let begin = (HEADER + header.len()).next_multiple_of(ALIGNMENT);
        let length = (begin + code.len()) as u64;
        within("the length", length, MOST_BYTES)?;
        within("the length of the header", header.len() as u64, MOST_HEADER)?;
        within("the number of kernels", self.entries.len() as u64, MOST_KERNELS)?;
        bytes.extend((header.len() as u64).to_le_bytes());
        bytes.extend(length.to_le_bytes());
        let mut content = header.into_bytes();
        content.resize(begin - HEADER, 0);
        content.extend(code);
        bytes.extend(Sha256::digest(&content));
        bytes.extend(content);
        Ok(bytes)
    }

    /// The pack of a file.
    ///
    /// # Errors
    ///
    /// A file that is no pack, is damaged, or has a kernel that no launch can follow.
    pub fn from_bytes(bytes: &[u8]) -> Result<Pack, PackError> {
        if bytes.len() < HEADER || bytes[..8] != MAGIC {
            return Err(PackError::Magic);
        }
        let word =
            |at: usize| bytes[at..at + 8].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        let (header, said, given) = (word(8), word(16), bytes.len() as u64);
        if said != given {
            return Err(PackError::Length { given, said });
        }
        within("the length", given, MOST_BYTES)?;
        within("the length of the header", header, MOST_HEADER.min(given - HEADER as u64))?;
        let content = &bytes[HEADER..];
        if bytes[24..HEADER] != Sha256::digest(content)[..] {
            return Err(PackError::Hash);
        }
        let text = &content[..header as usize];
        let value: Value =
            serde_json::from_slice(text).map_err(|error| PackError::Json(error.to_string()))?;
        let at = At { value: &value, place: "the header".to_string() };
        let format = at.field("format")?.number()?;
        if format > FORMAT {
            return Err(PackError::Format { given: format, known: FORMAT });
        }
        let kernels = at.field("kernels")?.list()?;
        within("the number of kernels", kernels.len() as u64, MOST_KERNELS)?;
        let begin = (HEADER + text.len()).next_multiple_of(ALIGNMENT) - HEADER;
        let code = content.get(begin..).unwrap_or_default();
        let mut pack = Pack::new(at.field("made")?.text()?);
        let mut behind = 0;
        for kernel in &kernels {
            let entry = read_entry(kernel, code, &mut behind)?;
            let id = kernel.field("id")?;
            if id.text()? != entry.id()? {
                return id.wrong("the hash of its recipe and code");
            }
            pack.add(entry)?;
        }
        Ok(pack)
    }
}

fn within(what: &'static str, value: u64, most: u64) -> Result<(), PackError> {
    if value <= most { Ok(()) } else { Err(PackError::Limit { what, value, most }) }
}

fn write_source(source: &Source) -> Value {
    let pairs =
        |list: &[(String, i64)]| list.iter().map(|(name, value)| json!([name, value])).collect::<Vec<_>>();
    object([
        ("program", json!(source.program)),
        ("multiples", json!(pairs(&source.multiples))),
        ("sizes", json!(pairs(&source.sizes))),
    ])
}

fn read_source(at: &At<'_>) -> Result<Source, PackError> {
    let pairs = |name| -> Result<Vec<(String, i64)>, PackError> {
        let list = at.field(name)?;
        if list.is_null() {
            return Ok(Vec::new());
        }
        let pair = |at: &At<'_>| match &at.list()?[..] {
            [name, value] => Ok((name.text()?, value.integer()?)),
            _ => at.wrong("a name and a number"),
        };
        list.list()?.iter().map(pair).collect()
    };
    Ok(Source::new(at.field("program")?.text()?, pairs("multiples")?, pairs("sizes")?))
}

/// A kernel, whose code lies behind all code before it.
fn read_entry(at: &At<'_>, code: &[u8], behind: &mut usize) -> Result<Entry, PackError> {
    let (name, recipe) = (at.field("name")?.text()?, header::read(&at.field("recipe")?)?);
    let place = at.field("code")?;
    let (begin, count): (usize, usize) = (place.field("at")?.number()?, place.field("bytes")?.number()?);
    let outside = || PackError::Place(name.clone());
    let end = begin.checked_add(count).ok_or_else(outside)?;
    if begin != behind.next_multiple_of(ALIGNMENT) {
        return Err(outside());
    }
    let bytes = code.get(begin..end).ok_or_else(outside)?;
    *behind = end;
    let kind = place.field("kind")?;
    let image = match kind.text()?.as_str() {
        "ptx" => match std::str::from_utf8(bytes) {
            Ok(text) => Image::Ptx(text.to_string()),
            Err(_) => {
                return Err(PackError::Code { kernel: name, reason: "the text is no UTF-8" });
            }
        },
        "binary" => Image::Binary(bytes.to_vec()),
        _ => return kind.wrong("ptx or binary"),
    };
    let source = at.field("source")?;
    let source = if source.is_null() { None } else { Some(read_source(&source)?) };
    Ok(Entry { name, recipe, image, source })
}
