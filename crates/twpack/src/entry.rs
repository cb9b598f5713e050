//! Kernels of a pack: a recipe with its code for one or more kinds of GPUs, and perhaps the program.

use tilewright_launch::{Code, ParamKind, Passed, Recipe, Scalar};

use crate::error::PackError;
use crate::header;
use crate::json::{At, Json, object};
use crate::ptx;
use crate::sha256::{hex, sha256};

/// The most images of a kernel.
const MOST_IMAGES: u64 = 32;

/// Code of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Image {
    /// PTX text, which the driver's assembler takes for each GPU that the recipe's target names.
    Ptx(String),
    /// A binary for one kind of GPU.
    Binary {
        /// The compute capability. GPUs of the same major number and at least this minor one run it, unless the recipe's target is for its own alone.
        capability: (u32, u32),
        /// The file, as assemblers write it.
        bytes: Vec<u8>,
    },
}

impl Image {
    /// The code, to be loaded.
    pub fn code(&self) -> Code<'_> {
        match self {
            Image::Ptx(text) => Code::Ptx(text),
            Image::Binary { bytes, .. } => Code::Binary(bytes),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Image::Ptx(_) => Kind::Ptx,
            Image::Binary { capability, .. } => Kind::Binary(*capability),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Image::Ptx(text) => text.as_bytes(),
            Image::Binary { bytes, .. } => bytes,
        }
    }
}

/// The kind of an image. A kernel has one of each, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Ptx,
    Binary((u32, u32)),
}

impl Kind {
    /// The words for it in messages.
    pub(crate) fn words(self, target: &str) -> String {
        match self {
            Kind::Ptx => format!("{target} (PTX)"),
            Kind::Binary((major, minor)) => format!("sm_{major}{minor} (binary)"),
        }
    }

    /// True if a GPU runs the code of a kernel that it runs.
    fn runs_on(self, capability: (u32, u32)) -> bool {
        match self {
            Kind::Ptx => true,
            Kind::Binary((major, minor)) => major == capability.0 && minor <= capability.1,
        }
    }
}

/// The number of the image that suits a GPU best: the newest binary that it runs, else the text.
pub(crate) fn best(kinds: impl Iterator<Item = Kind>, capability: (u32, u32)) -> Option<usize> {
    let suits = kinds.enumerate().filter(|(_, kind)| kind.runs_on(capability));
    suits.max_by_key(|(_, kind)| *kind).map(|(number, _)| number)
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

    pub(crate) fn write(&self) -> Json {
        let pair = |(name, value): &(String, i64)| vec![name.as_str().into(), (*value).into()].into();
        let pairs = |list: &[(String, i64)]| Json::List(list.iter().map(pair).collect());
        object([
            ("program", self.program.as_str().into()),
            ("multiples", pairs(&self.multiples)),
            ("sizes", pairs(&self.sizes)),
        ])
    }

    pub(crate) fn read(at: &At<'_>) -> Result<Source, PackError> {
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
}

/// A kernel of a pack.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The name in the pack. Kernels for different GPUs may have the same one.
    pub name: String,
    /// Everything that launches read of it.
    pub recipe: Recipe,
    /// Its code: the text first, if there is one, then binaries by their compute capability.
    pub images: Vec<Image>,
    /// The program, if it was kept.
    pub source: Option<Source>,
}

impl Entry {
    /// A kernel as PTX text.
    pub fn of_ptx(recipe: Recipe, ptx: impl Into<String>) -> Self {
        Entry { name: recipe.name.clone(), recipe, images: vec![Image::Ptx(ptx.into())], source: None }
    }

    /// A kernel as a binary for GPUs of one compute capability.
    pub fn of_binary(recipe: Recipe, capability: (u32, u32), bytes: Vec<u8>) -> Self {
        let images = vec![Image::Binary { capability, bytes }];
        Entry { name: recipe.name.clone(), recipe, images, source: None }
    }

    /// With a binary for GPUs of one compute capability beside the code that there is, in the place of one for the same.
    pub fn with_binary(mut self, capability: (u32, u32), bytes: Vec<u8>) -> Self {
        let image = Image::Binary { capability, bytes };
        self.images.retain(|other| other.kind() != image.kind());
        self.images.push(image);
        self.images.sort_by_key(Image::kind);
        self
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

    /// The PTX text, if it has one.
    pub fn ptx(&self) -> Option<&str> {
        self.images.iter().find_map(|image| match image {
            Image::Ptx(text) => Some(text.as_str()),
            Image::Binary { .. } => None,
        })
    }

    /// The code that suits GPUs of a compute capability best: the newest binary that they run, else the PTX text; `None` if they run none of it.
    pub fn image_for(&self, capability: (u32, u32)) -> Option<&Image> {
        let number = best(self.images.iter().map(Image::kind), capability)?;
        self.recipe.target.runs_on(capability).then(|| &self.images[number])
    }

    /// The identity: a SHA-256 of recipe and code, in hexadecimal digits.
    ///
    /// # Errors
    ///
    /// A recipe that packs cannot hold.
    pub fn id(&self) -> Result<String, PackError> {
        let recipe = sha256(header::write(&self.recipe)?.to_string().as_bytes());
        Ok(id(&recipe, self.images.iter().map(|image| (image.kind(), sha256(image.bytes())))))
    }

    /// Checks that a launch can follow the recipe, and that the code can be of it.
    pub(crate) fn check(&self) -> Result<(), PackError> {
        let kinds: Vec<Kind> = self.images.iter().map(Image::kind).collect();
        check_kinds(&self.name, &kinds)?;
        check_recipe(&self.name, &self.recipe)?;
        self.images.iter().try_for_each(|image| check_image(&self.name, &self.recipe, image))
    }
}

/// The identity of a kernel with these hashes.
pub(crate) fn id(recipe: &[u8; 32], images: impl Iterator<Item = (Kind, [u8; 32])>) -> String {
    let image = |(kind, hash): (Kind, [u8; 32])| match kind {
        Kind::Ptx => format!("\nptx {}", hex(&hash)),
        Kind::Binary((major, minor)) => format!("\nbinary {major}.{minor} {}", hex(&hash)),
    };
    let text = hex(recipe) + &images.map(image).collect::<String>();
    hex(&sha256(text.as_bytes()))
}

/// Checks that a kernel has code, of each kind once, in order.
pub(crate) fn check_kinds(name: &str, kinds: &[Kind]) -> Result<(), PackError> {
    let wrong = |reason| Err(PackError::Code { kernel: name.to_string(), reason });
    if kinds.is_empty() {
        return wrong("there is none");
    }
    if kinds.len() as u64 > MOST_IMAGES {
        let (what, value) = ("the number of images of a kernel", kinds.len() as u64);
        return Err(PackError::Limit { what, value, most: MOST_IMAGES });
    }
    if !kinds.is_sorted_by(|a, b| a < b) {
        return wrong("the text comes first, then binaries by compute capability, each once");
    }
    Ok(())
}

/// Checks that a launch can follow a recipe.
pub(crate) fn check_recipe(name: &str, recipe: &Recipe) -> Result<(), PackError> {
    recipe.check().map_err(|error| PackError::Recipe { kernel: name.to_string(), error })
}

/// Bytes of a parameter of the function, as a launch passes it.
fn passed_bytes(recipe: &Recipe, passed: Passed) -> Option<u64> {
    let kind = |param: u32| recipe.params.get(param as usize).map(|param| &param.kind);
    Some(match passed {
        Passed::Size(_) => 4,
        Passed::Scalar(param) => match kind(param)? {
            ParamKind::Scalar(Scalar::F32 | Scalar::I32 | Scalar::U32) => 4,
            _ => 8,
        },
        Passed::Map(map) => match kind(recipe.maps.get(map as usize)?.param)? {
            ParamKind::Tensor(tensor) if tensor.array => 8,
            _ => 128,
        },
        _ => 8,
    })
}

/// Checks that code can be of a recipe, which launches can follow.
pub(crate) fn check_image(name: &str, recipe: &Recipe, image: &Image) -> Result<(), PackError> {
    let wrong = |reason| Err(PackError::Code { kernel: name.to_string(), reason });
    match image {
        Image::Binary { bytes, .. } if !bytes.starts_with(b"\x7fELF") => {
            wrong("a binary does not begin as an ELF file does")
        }
        Image::Binary { capability, .. } if !recipe.target.runs_on(*capability) => {
            wrong("a binary is for GPUs that the recipe is not for")
        }
        Image::Binary { .. } => Ok(()),
        Image::Ptx(text) => {
            let entry = match ptx::entry(text) {
                Ok(entry) => entry,
                Err(reason) => return wrong(reason),
            };
            if entry.name != recipe.entry {
                return wrong("the entry has another name than the recipe's");
            }
            if entry.target != recipe.target.name {
                return wrong("its `.target` is another one than the recipe's");
            }
            if entry.params.len() != recipe.passed.len() {
                return wrong("the entry has another number of parameters than the recipe");
            }
            let same = |(bytes, passed): (&u64, &Passed)| passed_bytes(recipe, *passed) == Some(*bytes);
            if !entry.params.iter().zip(&recipe.passed).all(same) {
                return wrong("a parameter of the entry has another number of bytes than the recipe passes");
            }
            Ok(())
        }
    }
}
