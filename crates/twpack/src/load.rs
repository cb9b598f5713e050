//! Kernels of packs on GPUs: whom a program trusts, and the code that suits a GPU.
#![allow(unsafe_code, reason = "whoever loads code vouches for it")]

use std::sync::OnceLock;

use tilewright_launch::{Gpu, Kernel};

use crate::entry::Entry;
use crate::error::PackError;
use crate::file::{self, HEADER, Listed, PackFile};

impl Entry {
    /// Loads the kernel on a GPU, with the code that suits it best.
    ///
    /// # Safety
    ///
    /// The code does what the recipe says: whoever made the entry is trusted ([`Gpu::load`]).
    ///
    /// # Errors
    ///
    /// The GPU runs none of the code; the GPU or its driver does not take the kernel.
    pub unsafe fn load(&self, gpu: &Gpu) -> Result<Kernel, PackError> {
        let capability = gpu.capability();
        let Some(image) = self.image_for(capability) else {
            let code = self.images.iter().map(|image| image.kind().words(&self.recipe.target.name)).collect();
            let (name, device) = (self.name.clone(), gpu.name().to_string());
            return Err(PackError::NotForGpu { name, device, capability, code });
        };
        // SAFETY: as the caller says.
        Ok(unsafe { gpu.load(&self.recipe, image.code()) }?)
    }
}

impl<'a> PackFile<'a> {
    /// The kernel of a name that suits a GPU best: one for its compute capability alone before others, then the one for the newest.
    ///
    /// # Errors
    ///
    /// There is none of the name, or none that the GPU runs.
    pub fn kernel_for(&self, gpu: &Gpu, name: &str) -> Result<&Listed, PackError> {
        let capability = gpu.capability();
        let suits = self.named(name).filter(|kernel| kernel.image_for(capability).is_some());
        let found = suits.max_by_key(|kernel| (kernel.target().specific, kernel.target().capability));
        found.ok_or_else(|| {
            let code: Vec<String> = self.named(name).flat_map(Listed::code).collect();
            if code.is_empty() {
                let mut known: Vec<String> =
                    self.kernels().iter().map(|kernel| kernel.name().to_string()).collect();
                known.sort();
                known.dedup();
                return PackError::NoKernel { name: name.to_string(), known };
            }
            let device = gpu.name().to_string();
            PackError::NotForGpu { name: name.to_string(), device, capability, code }
        })
    }

    /// Loads the kernel of a name on a GPU, with the code that suits it best. Only what is loaded of the file is read.
    ///
    /// # Safety
    ///
    /// The code does what its recipe says: whoever made the pack is trusted ([`Gpu::load`]). [`PackFile::pinned`] and [`include_kernels!`](crate::include_kernels) do without.
    ///
    /// # Errors
    ///
    /// As of [`PackFile::kernel_for`]; a part is damaged or not what it ought to be; the GPU or its driver does not take the kernel.
    pub unsafe fn load(&self, gpu: &Gpu, name: &str) -> Result<Kernel, PackError> {
        let kernel = self.kernel_for(gpu, name)?;
        let recipe = self.recipe(kernel)?;
        let number = kernel.image_for(gpu.capability()).unwrap_or_default();
        let image = self.image(kernel, &recipe, number)?;
        // SAFETY: as the caller says.
        Ok(unsafe { gpu.load(&recipe, image.code()) }?)
    }

    /// The pack, trusted.
    ///
    /// # Safety
    ///
    /// As of [`PackFile::load`], for each of its kernels.
    pub unsafe fn trusted(self) -> Trusted<'a> {
        Trusted(self)
    }

    /// The pack, trusted because its hash is one that the program names ([`PackFile::hash`], which `tilewright pack list` prints).
    ///
    /// # Errors
    ///
    /// It has another hash.
    pub fn pinned(self, hash: &str) -> Result<Trusted<'a>, PackError> {
        let given = self.hash();
        if given == hash {
            return Ok(Trusted(self));
        }
        Err(PackError::Pinned { expected: hash.to_string(), given })
    }
}

/// A pack whose maker is trusted: its kernels are loaded without further ado.
#[derive(Clone, Debug)]
pub struct Trusted<'a>(PackFile<'a>);

impl<'a> Trusted<'a> {
    /// The file.
    pub fn file(&self) -> &PackFile<'a> {
        &self.0
    }

    /// Loads the kernel of a name on a GPU, with the code that suits it best.
    ///
    /// # Errors
    ///
    /// As of [`PackFile::load`].
    pub fn load(&self, gpu: &Gpu, name: &str) -> Result<Kernel, PackError> {
        // SAFETY: whoever made this vouches for the pack.
        unsafe { self.0.load(gpu, name) }
    }
}

/// A pack that is a part of the program ([`include_kernels!`](crate::include_kernels)). Its header is read when a kernel is asked for the first time.
#[derive(Debug)]
pub struct Included {
    bytes: &'static [u8],
    file: OnceLock<Result<Trusted<'static>, PackError>>,
}

impl Included {
    /// A file that begins as a pack does, and is as long as it says.
    ///
    /// # Safety
    ///
    /// As of [`PackFile::load`], for each of its kernels.
    ///
    /// # Panics
    ///
    /// It begins otherwise, or has another length: in a constant, an error of the compiler.
    pub const unsafe fn new(bytes: &'static [u8]) -> Included {
        match file::lengths(bytes) {
            None => panic!("the file is no pack: it does not begin as one does"),
            Some((_, said)) if said != bytes.len() as u64 => {
                panic!("the pack has another length than it says")
            }
            Some((header, said)) if header > said - HEADER as u64 => {
                panic!("the header of the pack is longer than the pack")
            }
            Some(_) => Included { bytes, file: OnceLock::new() },
        }
    }

    /// The pack.
    ///
    /// # Errors
    ///
    /// As of [`PackFile::open`].
    pub fn pack(&self) -> Result<&Trusted<'static>, PackError> {
        let open = || PackFile::open(self.bytes).map(Trusted);
        self.file.get_or_init(open).as_ref().map_err(PackError::clone)
    }

    /// Loads the kernel of a name on a GPU, with the code that suits it best.
    ///
    /// # Errors
    ///
    /// As of [`Included::pack`] and [`PackFile::load`].
    pub fn load(&self, gpu: &Gpu, name: &str) -> Result<Kernel, PackError> {
        self.pack()?.load(gpu, name)
    }
}

/// Makes the pack of a file a part of the program: a `&'static` [`Included`]. The path is as for [`include_bytes!`]; of a pack that a build script has made
/// it is `concat!(env!("OUT_DIR"), "/kernels.twpack")`. A file that is no pack is an error of the compiler.
///
/// The file is trusted as the program's source is: whoever writes the macro vouches for its kernels. It has a block of `unsafe` in it for that, which `#![forbid(unsafe_code)]` refuses.
#[macro_export]
macro_rules! include_kernels {
    ($path:expr $(,)?) => {{
        // SAFETY: the file is a part of the program's source, or made of it.
        #[allow(unsafe_code)]
        static PACK: $crate::Included = unsafe { $crate::Included::new(::core::include_bytes!($path)) };
        &PACK
    }};
}
