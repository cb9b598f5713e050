//! The file: a header that lists kernels with the places and hashes of their parts, and these parts, each checked before it is handed out.

use std::borrow::Cow;
use std::collections::HashSet;

use tilewright_launch::{Recipe, Target};

use crate::class::Class;
use crate::entry::{self, Entry, Image, Kind, Source};
use crate::error::PackError;
use crate::header;
use crate::json::{At, Json, object};
use crate::pack::Pack;
use crate::sha256::{hex, sha256, unhex};

/// The first bytes of a pack.
pub const MAGIC: [u8; 8] = *b"TWPACK\0\x01";
/// The newest format that this version writes and reads.
pub const FORMAT: u64 = 2;
/// The first format with operators: a pack without any is written in the one before.
const OPERATORS: u64 = 2;
/// Bytes before the header.
pub(crate) const HEADER: usize = 8 + 8 + 8 + 32;
/// Parts begin at multiples of this.
const ALIGNMENT: usize = 16;
const MOST_BYTES: u64 = 256 << 20;
const MOST_HEADER: u64 = 4 << 20;
const MOST_KERNELS: u64 = 4096;
const MOST_CLASSES: u64 = 65536;
/// Bytes of a recipe, and of a program.
const MOST_TEXT: u64 = 4 << 20;

/// The place of a part, counted from the end of the header on, and its hash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    begin: usize,
    end: usize,
    hash: [u8; 32],
}

/// A kernel as the header of a pack lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    name: String,
    target: Target,
    id: String,
    recipe: Part,
    images: Vec<(Kind, Part)>,
    source: Option<Part>,
}

impl Listed {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The GPUs that it is for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The identity, as [`Entry::id`].
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The code that there is, in words.
    pub(crate) fn code(&self) -> impl Iterator<Item = String> {
        self.images.iter().map(|(kind, _)| kind.words(&self.target.name))
    }

    /// The number of the image that suits a GPU best.
    pub(crate) fn image_for(&self, capability: (u32, u32)) -> Option<usize> {
        let number = entry::best(self.images.iter().map(|(kind, _)| *kind), capability)?;
        self.target.runs_on(capability).then_some(number)
    }
}

/// The file of a pack, of which everything but the parts of kernels is checked; these are read and checked when they are asked for. [`Pack::from_bytes`] reads all at once.
#[derive(Clone, Debug)]
pub struct PackFile<'a> {
    bytes: Cow<'a, [u8]>,
    /// The end of the header, where places are counted from.
    parts: usize,
    made: String,
    kernels: Vec<Listed>,
    operators: Vec<Class>,
}

/// The lengths of header and file that a file says, if it begins as a pack does.
pub(crate) const fn lengths(bytes: &[u8]) -> Option<(u64, u64)> {
    if bytes.len() < HEADER {
        return None;
    }
    let (mut at, mut words) = (0, [0u64; 2]);
    while at < 8 {
        if bytes[at] != MAGIC[at] {
            return None;
        }
        words[0] |= (bytes[8 + at] as u64) << (8 * at);
        words[1] |= (bytes[16 + at] as u64) << (8 * at);
        at += 1;
    }
    Some((words[0], words[1]))
}

fn within(what: &'static str, value: u64, most: u64) -> Result<(), PackError> {
    if value <= most { Ok(()) } else { Err(PackError::Limit { what, value, most }) }
}

fn form<T>(place: &str) -> Result<T, PackError> {
    Err(PackError::Form { place: place.to_string() })
}

impl<'a> PackFile<'a> {
    /// Reads the header of a file.
    ///
    /// # Errors
    ///
    /// A file that is no pack, or whose header is damaged or lists what cannot be.
    pub fn open(bytes: impl Into<Cow<'a, [u8]>>) -> Result<PackFile<'a>, PackError> {
        let bytes = bytes.into();
        let Some((header, said)) = lengths(&bytes) else { return Err(PackError::Magic) };
        let given = bytes.len() as u64;
        if said != given {
            return Err(PackError::Length { given, said });
        }
        within("the length", given, MOST_BYTES)?;
        within("the length of the header", header, MOST_HEADER.min(given - HEADER as u64))?;
        let text = &bytes[HEADER..HEADER + header as usize];
        if bytes[HEADER - 32..HEADER] != sha256(text) {
            return Err(PackError::Hash { place: "the header".to_string() });
        }
        let value = Json::of(text, "the header")?;
        let at = At::new(&value, "the header");
        let format = at.field("format")?.number()?;
        if format > FORMAT {
            return Err(PackError::Format { given: format, known: FORMAT });
        }
        let listed = at.field("kernels")?;
        let listed = if listed.is_null() { Vec::new() } else { listed.list()? };
        within("the number of kernels", listed.len() as u64, MOST_KERNELS)?;
        let parts = (HEADER + text.len()).next_multiple_of(ALIGNMENT);
        let mut places = Places { bytes: bytes.get(parts..).unwrap_or_default(), behind: 0 };
        let kernels: Vec<Listed> = listed.iter().map(|at| places.kernel(at)).collect::<Result<_, _>>()?;
        let said = (parts + places.behind) as u64;
        if said != given {
            return Err(PackError::Length { given, said });
        }
        if bytes[HEADER + text.len()..parts].iter().any(|byte| *byte != 0) {
            return form("the space between parts");
        }
        let made = at.field("made")?.text()?;
        // What is written again is the same: nothing stands in a header that nobody has read.
        let listed = at.field("operators")?;
        let listed = if listed.is_null() { Vec::new() } else { listed.list()? };
        within("the number of classes of operators", listed.len() as u64, MOST_CLASSES)?;
        let names: HashSet<&str> = kernels.iter().map(Listed::name).collect();
        let class = |at: &At<'_>| {
            let class = Class::read(at)?;
            class.check(&at.place(), |name| names.contains(name))?;
            Ok::<Class, PackError>(class)
        };
        let operators: Vec<Class> = listed.iter().map(class).collect::<Result<_, _>>()?;
        if write_header(&made, &kernels, &operators).to_string().as_bytes() != text {
            return form("the header");
        }
        let file = PackFile { bytes, parts, made, kernels, operators };
        file.check_names()?;
        Ok(file)
    }

    fn check_names(&self) -> Result<(), PackError> {
        let mut names: Vec<(&str, &str)> =
            self.kernels.iter().map(|kernel| (kernel.name(), kernel.target.name.as_str())).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                Err(PackError::Twice { kernel: pair[0].0.to_string(), target: pair[0].1.to_string() })
            }
            None => Ok(()),
        }
    }

    /// The maker, in words.
    pub fn made(&self) -> &str {
        &self.made
    }

    /// The kernels, in order.
    pub fn kernels(&self) -> &[Listed] {
        &self.kernels
    }

    /// The classes of operators, in order ([`Operators`](crate::Operators)).
    pub fn operators(&self) -> &[Class] {
        &self.operators
    }

    /// The kernels of a name, each for other GPUs.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &Listed> {
        self.kernels.iter().filter(move |kernel| kernel.name == name)
    }

    /// The SHA-256 of the header, in hexadecimal digits. The header has the hashes of everything else: two files with one hash are the same pack.
    pub fn hash(&self) -> String {
        hex(&sha256(self.header()))
    }

    fn header(&self) -> &[u8] {
        let length = lengths(&self.bytes).map_or(0, |(header, _)| header as usize);
        self.bytes.get(HEADER..HEADER + length).unwrap_or_default()
    }

    /// The bytes of a part, which are those that were written.
    fn part(&self, part: &Part, what: &str, kernel: &Listed) -> Result<&[u8], PackError> {
        let parts = self.bytes.get(self.parts..).unwrap_or_default();
        let bytes = parts.get(part.begin..part.end).unwrap_or_default();
        if sha256(bytes) == part.hash {
            return Ok(bytes);
        }
        Err(PackError::Hash { place: format!("{what} of kernel `{}`", kernel.name) })
    }

    fn json<T>(
        &self,
        part: &Part,
        what: &str,
        kernel: &Listed,
        read: impl FnOnce(&At<'_>) -> Result<T, PackError>,
        write: impl FnOnce(&T) -> Result<Json, PackError>,
    ) -> Result<T, PackError> {
        let bytes = self.part(part, what, kernel)?;
        let place = format!("{what} of `{}`", kernel.name);
        let value = Json::of(bytes, &place)?;
        let read = read(&At::new(&value, &place))?;
        if write(&read)?.to_string().as_bytes() == bytes { Ok(read) } else { form(&place) }
    }

    /// The recipe of a kernel of this pack.
    ///
    /// # Errors
    ///
    /// It is damaged, or no launch can follow it.
    pub fn recipe(&self, kernel: &Listed) -> Result<Recipe, PackError> {
        let recipe = self.json(&kernel.recipe, "the recipe", kernel, header::read, header::write)?;
        if recipe.target != kernel.target {
            let reason = "its recipe is for other GPUs than the header says";
            return Err(PackError::Code { kernel: kernel.name.clone(), reason });
        }
        entry::check_recipe(&kernel.name, &recipe)?;
        Ok(recipe)
    }

    /// An image of a kernel of this pack, by its number.
    pub(crate) fn image(&self, kernel: &Listed, recipe: &Recipe, number: usize) -> Result<Image, PackError> {
        let (kind, part) = &kernel.images[number];
        let bytes = self.part(part, "the code", kernel)?;
        let image = match kind {
            Kind::Ptx => match std::str::from_utf8(bytes) {
                Ok(text) => Image::Ptx(text.to_string()),
                Err(_) => {
                    let reason = "the text is no UTF-8";
                    return Err(PackError::Code { kernel: kernel.name.clone(), reason });
                }
            },
            Kind::Binary(capability) => Image::Binary { capability: *capability, bytes: bytes.to_vec() },
        };
        entry::check_image(&kernel.name, recipe, &image)?;
        Ok(image)
    }

    /// A kernel of this pack with all its code.
    ///
    /// # Errors
    ///
    /// A part of it is damaged, no launch can follow the recipe, or the code is not of it.
    pub fn entry(&self, kernel: &Listed) -> Result<Entry, PackError> {
        let recipe = self.recipe(kernel)?;
        let image = |number| self.image(kernel, &recipe, number);
        let images = (0..kernel.images.len()).map(image).collect::<Result<_, _>>()?;
        let source = |part| self.json(part, "the program", kernel, Source::read, |source| Ok(source.write()));
        let source = kernel.source.as_ref().map(source).transpose()?;
        Ok(Entry { name: kernel.name.clone(), recipe, images, source })
    }

    /// The whole pack.
    ///
    /// # Errors
    ///
    /// As of [`PackFile::entry`], of any kernel.
    pub fn pack(&self) -> Result<Pack, PackError> {
        let mut pack = Pack::new(self.made.clone());
        for kernel in &self.kernels {
            pack.add(self.entry(kernel)?)?;
        }
        for class in &self.operators {
            pack.add_class(class.clone())?;
        }
        Ok(pack)
    }
}

/// A reader of the places of parts, each of which lies directly behind the one before.
struct Places<'a> {
    /// The bytes behind the header.
    bytes: &'a [u8],
    /// The end of the part before.
    behind: usize,
}

impl Places<'_> {
    fn part(&mut self, at: &At<'_>, kernel: &str, most: u64) -> Result<Part, PackError> {
        let outside = || PackError::Place { kernel: kernel.to_string() };
        let (begin, length): (usize, u64) = (at.field("at")?.number()?, at.field("bytes")?.number()?);
        within("the length of a part", length, most)?;
        let end = begin.checked_add(length as usize).ok_or_else(outside)?;
        let zeros = self.bytes.get(self.behind..begin).ok_or_else(outside)?;
        if begin != self.behind.next_multiple_of(ALIGNMENT) || end > self.bytes.len() {
            return Err(outside());
        }
        if zeros.iter().any(|byte| *byte != 0) {
            return form("the space between parts");
        }
        self.behind = end;
        let hash = at.field("hash")?;
        let hash = unhex(&hash.text()?).map_or_else(|| hash.wrong("the digits of a SHA-256"), Ok)?;
        Ok(Part { begin, end, hash })
    }

    fn kernel(&mut self, at: &At<'_>) -> Result<Listed, PackError> {
        let name = at.field("name")?.text()?;
        let recipe = self.part(&at.field("recipe")?, &name, MOST_TEXT)?;
        let mut images = Vec::new();
        for image in at.field("code")?.list()? {
            let kind = image.field("kind")?;
            let kind = match kind.text()?.as_str() {
                "ptx" => Kind::Ptx,
                "binary" => Kind::Binary(header::read_capability(&image.field("capability")?)?),
                _ => return kind.wrong("ptx or binary"),
            };
            images.push((kind, self.part(&image, &name, MOST_BYTES)?));
        }
        let kinds: Vec<Kind> = images.iter().map(|(kind, _)| *kind).collect();
        entry::check_kinds(&name, &kinds)?;
        let source = at.field("source")?;
        let source = if source.is_null() { None } else { Some(self.part(&source, &name, MOST_TEXT)?) };
        let id = at.field("id")?;
        let hashes = images.iter().map(|(kind, part)| (*kind, part.hash));
        if id.text()? != entry::id(&recipe.hash, hashes) {
            return id.wrong("the hash of the hashes of its recipe and code");
        }
        let target = header::read_target(&at.field("arch")?)?;
        Ok(Listed { name, target, id: id.text()?, recipe, images, source })
    }
}

/// A writer of parts, one behind the other.
#[derive(Default)]
struct Written(Vec<u8>);

impl Written {
    fn put(&mut self, bytes: &[u8]) -> Part {
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
        let begin = self.0.len();
        self.0.extend_from_slice(bytes);
        Part { begin, end: self.0.len(), hash: sha256(bytes) }
    }

    fn entry(&mut self, entry: &Entry) -> Result<Listed, PackError> {
        let recipe = self.put(header::write(&entry.recipe)?.to_string().as_bytes());
        let images: Vec<(Kind, Part)> =
            entry.images.iter().map(|image| (image.kind(), self.put(image.bytes()))).collect();
        let source = entry.source.as_ref().map(|source| self.put(source.write().to_string().as_bytes()));
        for text in [Some(&recipe), source.as_ref()].into_iter().flatten() {
            within("the length of a part", (text.end - text.begin) as u64, MOST_TEXT)?;
        }
        let id = entry::id(&recipe.hash, images.iter().map(|(kind, part)| (*kind, part.hash)));
        let (name, target) = (entry.name.clone(), entry.recipe.target.clone());
        Ok(Listed { name, target, id, recipe, images, source })
    }
}

/// The file with these kernels and classes of operators.
pub(crate) fn write(made: &str, entries: &[Entry], operators: &[Class]) -> Result<Vec<u8>, PackError> {
    within("the number of classes of operators", operators.len() as u64, MOST_CLASSES)?;
    within("the number of kernels", entries.len() as u64, MOST_KERNELS)?;
    let mut parts = Written::default();
    let listed = entries.iter().map(|entry| parts.entry(entry)).collect::<Result<Vec<_>, _>>()?;
    let header = write_header(made, &listed, operators).to_string();
    let begin = (HEADER + header.len()).next_multiple_of(ALIGNMENT);
    let length = (begin + parts.0.len()) as u64;
    within("the length", length, MOST_BYTES)?;
    within("the length of the header", header.len() as u64, MOST_HEADER)?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend((header.len() as u64).to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend(sha256(header.as_bytes()));
    bytes.extend(header.into_bytes());
    bytes.resize(begin, 0);
    bytes.extend(parts.0);
    Ok(bytes)
}

/// The header of kernels, the places of whose parts are known.
fn write_header(made: &str, kernels: &[Listed], operators: &[Class]) -> Json {
    let place = |part: &Part| {
        [
            ("at", Json::Int(part.begin as i64)),
            ("bytes", Json::Int((part.end - part.begin) as i64)),
            ("hash", Json::Text(hex(&part.hash))),
        ]
    };
    let image = |(kind, part): &(Kind, Part)| {
        let [at, bytes, hash] = place(part);
        let (kind, capability) = match kind {
            Kind::Ptx => ("ptx", Json::Null),
            Kind::Binary(capability) => ("binary", header::write_capability(*capability)),
        };
        object([at, bytes, hash, ("kind", kind.into()), ("capability", capability)])
    };
    let kernel = |kernel: &Listed| {
        object([
            ("name", kernel.name.as_str().into()),
            ("arch", header::write_target(&kernel.target)),
            ("id", kernel.id.as_str().into()),
            ("recipe", object(place(&kernel.recipe))),
            ("code", Json::List(kernel.images.iter().map(image).collect())),
            ("source", kernel.source.as_ref().map_or(Json::Null, |part| object(place(part)))),
        ])
    };
    let format = if operators.is_empty() { OPERATORS - 1 } else { OPERATORS };
    object([
        ("format", Json::Int(format as i64)),
        ("made", made.into()),
        ("kernels", Json::List(kernels.iter().map(kernel).collect())),
        ("operators", Json::List(operators.iter().map(Class::write).collect())),
    ])
}
