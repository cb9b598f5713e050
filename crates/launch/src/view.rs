//! Tensors in memory of others, and the arguments of a launch.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use crate::dtype::DType;

/// The most modes of a tensor.
pub const MAX_RANK: usize = 8;

/// A tensor in memory of a GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor {
    pub(crate) pointer: u64,
    pub(crate) dtype: DType,
    /// The number of modes, which may be more than are kept: no kernel takes such a tensor.
    pub(crate) rank: usize,
    pub(crate) shape: [i64; MAX_RANK],
    pub(crate) strides: [i64; MAX_RANK],
}

impl Tensor {
    fn row_major(pointer: u64, dtype: DType, extents: &[i64]) -> Self {
        let mut shape = [1i64; MAX_RANK];
        shape.iter_mut().zip(extents).for_each(|(to, extent)| *to = *extent);
        let mut strides = [1i64; MAX_RANK];
        for mode in (1..extents.len().min(MAX_RANK)).rev() {
            strides[mode - 1] = strides[mode].saturating_mul(shape[mode]);
        }
        Tensor { pointer, dtype, rank: extents.len(), shape, strides }
    }

    fn with_strides(mut self, strides: &[i64]) -> Self {
        // Another number of strides than of modes is refused by the launch, as a tensor of more modes than any kernel's.
        if strides.len() != self.rank {
            self.rank = usize::MAX;
        }
        self.strides.iter_mut().zip(strides).for_each(|(to, stride)| *to = *stride);
        self
    }
}

macro_rules! views {
    ($($(#[$doc:meta])* $name:ident, $life:ty, $safety:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<'a> {
            pub(crate) tensor: Tensor,
            memory: PhantomData<$life>,
        }

        impl<'a> $name<'a> {
            /// The tensor at an address of a GPU, whose elements lie in row-major order without gaps. It has at most [`MAX_RANK`] modes.
            ///
            /// # Safety
            ///
            #[doc = $safety]
            pub unsafe fn new(pointer: u64, dtype: DType, shape: &[i64]) -> $name<'a> {
                $name { tensor: Tensor::row_major(pointer, dtype, shape), memory: PhantomData }
            }

            /// With other strides, in elements.
            ///
            /// # Safety
            ///
            /// As of `new`, for every element that the strides lead to.
            pub unsafe fn with_strides(self, strides: &[i64]) -> $name<'a> {
                $name { tensor: self.tensor.with_strides(strides), memory: PhantomData }
            }

            /// The address of the first element.
            pub fn pointer(&self) -> u64 {
                self.tensor.pointer
            }

            /// The element type.
            pub fn dtype(&self) -> DType {
                self.tensor.dtype
            }

            /// The extents.
            pub fn shape(&self) -> &[i64] {
                &self.tensor.shape[..self.tensor.rank.min(MAX_RANK)]
            }

            /// The strides, in elements.
            pub fn strides(&self) -> &[i64] {
                &self.tensor.strides[..self.tensor.rank.min(MAX_RANK)]
            }
        }
    )*};
}

views! {
    /// A tensor that kernels read, in memory that somebody else owns.
    View, &'a [u8], "The memory is the GPU's, has every element, and is neither freed nor written until the work of each launch that was given the view has ended, unless what does so is ordered behind it on the same stream.";
    /// A tensor that kernels write, in memory that somebody else owns.
    ViewMut, &'a mut [u8], "The memory is the GPU's, has every element, and is neither freed, read nor written until the work of each launch that was given the view has ended, unless what does so is ordered behind it on the same stream.";
}

impl Clone for View<'_> {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for View<'_> {}

impl ViewMut<'_> {
    /// The same tensor, for kernels that read it.
    pub fn as_view(&self) -> View<'_> {
        View { tensor: self.tensor, memory: PhantomData }
    }
}

/// An array of tensors, which may lie anywhere, by its table. Element type, shape and strides are those of a tensor with one mode more, the first, which counts them; its own stride is no distance
/// and is not compared.
#[derive(Clone, Copy, Debug)]
pub struct TensorArray<'a> {
    tensor: Tensor,
    writable: bool,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> TensorArray<'a> {
    /// The array whose table lies at an address of a GPU, of tensors whose elements lie in row-major order without gaps, for kernels that read them.
    ///
    /// # Safety
    ///
    /// As of [`Arg::table`], for launches by plans of the kernels of whose plan ([`Plan::table`](crate::Plan::table)) or chain ([`Chain::table`](crate::Chain::table)) the table is.
    pub unsafe fn new(table: u64, dtype: DType, shape: &[i64]) -> TensorArray<'a> {
        TensorArray { tensor: Tensor::row_major(table, dtype, shape), writable: false, memory: PhantomData }
    }

    /// With other strides, in elements, of which the first is not used.
    ///
    /// # Safety
    ///
    /// As of `new`, for every element that the strides lead to.
    pub unsafe fn with_strides(self, strides: &[i64]) -> TensorArray<'a> {
        TensorArray { tensor: self.tensor.with_strides(strides), ..self }
    }

    /// The same tensors, for kernels that write them, too.
    pub fn writable(self) -> TensorArray<'a> {
        TensorArray { writable: true, ..self }
    }
}

/// An argument of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Arg<'a>(pub(crate) Kind<'a>);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind<'a> {
    Read(&'a Tensor),
    Write(&'a Tensor),
    Table(u64),
    Array(&'a Tensor),
    ArrayWrite(&'a Tensor),
    F32(f32),
    F64(f64),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
}

impl Kind<'_> {
    /// The words for it in messages.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Kind::Read(_) => "a view",
            Kind::Write(_) => "a view for writing",
            Kind::Table(_) => "a table of tensors",
            Kind::Array(_) | Kind::ArrayWrite(_) => "an array of tensors",
            Kind::F32(_) => "an f32",
            Kind::F64(_) => "an f64",
            Kind::I32(_) => "an i32",
            Kind::U32(_) => "a u32",
            Kind::I64(_) => "an i64",
            Kind::U64(_) => "a u64",
        }
    }
}

impl<'a> Arg<'a> {
    /// The element type, the shape and the strides of a view, or of an array of tensors; `None` of a table and of a number.
    #[inline]
    pub fn tensor(&self) -> Option<(DType, &[i64], &[i64])> {
        match self.0 {
            Kind::Read(tensor) | Kind::Write(tensor) | Kind::Array(tensor) | Kind::ArrayWrite(tensor) => {
                let rank = tensor.rank.min(MAX_RANK);
                Some((tensor.dtype, &tensor.shape[..rank], &tensor.strides[..rank]))
            }
            _ => None,
        }
    }

    /// The same tensor with its first two modes as one, where they lie as one.
    pub fn joined(&self) -> Option<Joined<'a>> {
        let (tensor, written) = match self.0 {
            Kind::Read(tensor) => (tensor, false),
            Kind::Write(tensor) => (tensor, true),
            _ => return None,
        };
        if !(2..=MAX_RANK).contains(&tensor.rank) {
            return None;
        }
        let ([outer, inner, ..], [step, within, ..]) = (tensor.shape, tensor.strides);
        let follow = outer == 1 || inner.checked_mul(within) == Some(step);
        let (mut shape, mut strides) = ([1; MAX_RANK], [1; MAX_RANK]);
        shape[..MAX_RANK - 1].copy_from_slice(&tensor.shape[1..]);
        strides[..MAX_RANK - 1].copy_from_slice(&tensor.strides[1..]);
        shape[0] = outer.checked_mul(inner).filter(|_| follow)?;
        let tensor = Tensor { rank: tensor.rank - 1, shape, strides, ..*tensor };
        Some(Joined { tensor, written, memory: PhantomData })
    }

    /// The same tensor with neighbouring modes as one, where they lie as one and it then has these extents.
    pub fn folded(&self, extents: &[i64]) -> Option<Joined<'a>> {
        let (tensor, written) = match self.0 {
            Kind::Read(tensor) => (tensor, false),
            Kind::Write(tensor) => (tensor, true),
            _ => return None,
        };
        let rank = tensor.rank.min(MAX_RANK);
        let (mut shape, mut strides) = ([1; MAX_RANK], [1; MAX_RANK]);
        let mut modes = tensor.shape[..rank].iter().copied().zip(tensor.strides[..rank].iter().copied());
        for (mode, wanted) in extents.iter().enumerate() {
            let (mut extent, mut stride) = modes.next()?;
            while extent != *wanted {
                let (inner, step) = modes.next()?;
                // A mode of one element has any stride.
                if extent != 1 && inner != 1 && inner.checked_mul(step) != Some(stride) {
                    return None;
                }
                if inner != 1 {
                    stride = step;
                }
                extent = extent.checked_mul(inner).filter(|all| *all <= *wanted)?;
            }
            (*shape.get_mut(mode)?, strides[mode]) = (extent, stride);
        }
        // What is left has one element.
        if modes.any(|(extent, _)| extent != 1) {
            return None;
        }
        let tensor = Tensor { rank: extents.len(), shape, strides, ..*tensor };
        Some(Joined { tensor, written, memory: PhantomData })
    }

    /// A number below 16 for the kind of argument, and its address or its bits: all that a launch reads of it beside [`Arg::tensor`].
    #[inline]
    pub fn word(&self) -> (u64, u64) {
        match self.0 {
            Kind::Read(tensor) => (1, tensor.pointer),
            Kind::Write(tensor) => (2, tensor.pointer),
            Kind::Table(pointer) => (3, pointer),
            Kind::F32(x) => (4, u64::from(x.to_bits())),
            Kind::F64(x) => (5, x.to_bits()),
            Kind::I32(x) => (6, u64::from(x.cast_unsigned())),
            Kind::U32(x) => (7, u64::from(x)),
            Kind::I64(x) => (8, x.cast_unsigned()),
            Kind::U64(x) => (9, x),
            Kind::Array(tensor) => (10, tensor.pointer),
            Kind::ArrayWrite(tensor) => (11, tensor.pointer),
        }
    }

    /// The table of an array of tensors: the address at which the bytes of [`Plan::table`](crate::Plan::table) lie.
    ///
    /// # Safety
    ///
    /// The bytes are those of this plan, or of one of the same kernel at sizes with the same shapes, and they and the tensors that they name stay where they are
    /// until the work of each launch that was given the table has ended.
    pub unsafe fn table(pointer: u64) -> Arg<'static> {
        Arg(Kind::Table(pointer))
    }
}

/// A tensor with several modes as one ([`Arg::joined`], [`Arg::folded`]), of which an argument is made.
#[derive(Clone, Copy, Debug)]
pub struct Joined<'a> {
    tensor: Tensor,
    written: bool,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> From<&'a Joined<'_>> for Arg<'a> {
    fn from(joined: &'a Joined<'_>) -> Self {
        Arg(if joined.written { Kind::Write(&joined.tensor) } else { Kind::Read(&joined.tensor) })
    }
}

impl<'a> From<&'a View<'_>> for Arg<'a> {
    fn from(view: &'a View<'_>) -> Self {
        Arg(Kind::Read(&view.tensor))
    }
}

impl<'a> From<&'a ViewMut<'_>> for Arg<'a> {
    fn from(view: &'a ViewMut<'_>) -> Self {
        Arg(Kind::Read(&view.tensor))
    }
}

impl<'a> From<&'a mut ViewMut<'_>> for Arg<'a> {
    fn from(view: &'a mut ViewMut<'_>) -> Self {
        Arg(Kind::Write(&view.tensor))
    }
}

impl<'a> From<&'a TensorArray<'_>> for Arg<'a> {
    fn from(array: &'a TensorArray<'_>) -> Self {
        Arg(if array.writable { Kind::ArrayWrite(&array.tensor) } else { Kind::Array(&array.tensor) })
    }
}

macro_rules! numbers {
    ($($ty:ty => $kind:ident;)*) => {$(
        impl From<$ty> for Arg<'_> {
            fn from(value: $ty) -> Self {
                Arg(Kind::$kind(value))
            }
        }
    )*};
}
numbers! {
    f32 => F32;
    f64 => F64;
    i32 => I32;
    u32 => U32;
    i64 => I64;
    u64 => U64;
}

/// The arguments of a launch, one for each parameter that is no part of the workspace: a tuple of views and numbers, or a slice of [`Arg`]s.
pub trait Args<'a>: sealed::Sealed {
    /// Calls a function with them.
    fn with<R>(self, call: impl FnOnce(&[Arg<'a>]) -> R) -> R;
}

mod sealed {
    /// A trait that only this crate implements.
    pub trait Sealed {}
}

impl sealed::Sealed for &[Arg<'_>] {}

impl<'a> Args<'a> for &[Arg<'a>] {
    fn with<R>(self, call: impl FnOnce(&[Arg<'a>]) -> R) -> R {
        call(self)
    }
}

impl<const N: usize> sealed::Sealed for [Arg<'_>; N] {}

impl<'a, const N: usize> Args<'a> for [Arg<'a>; N] {
    fn with<R>(self, call: impl FnOnce(&[Arg<'a>]) -> R) -> R {
        call(&self)
    }
}

macro_rules! tuples {
    ($($($name:ident)*;)*) => {$(
        impl<$($name),*> sealed::Sealed for ($($name,)*) {}

        impl<'a, $($name: Into<Arg<'a>>),*> Args<'a> for ($($name,)*) {
            #[allow(non_snake_case, reason = "the names are those of the types")]
            fn with<R>(self, call: impl FnOnce(&[Arg<'a>]) -> R) -> R {
                let ($($name,)*) = self;
                call(&[$($name.into()),*])
            }
        }
    )*};
}
tuples! {
    ;
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
    A B C D E F G H I;
    A B C D E F G H I J;
    A B C D E F G H I J K;
    A B C D E F G H I J K L;
}

/// An argument of a launch of which nothing but its kind is checked.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Raw {
    /// The address of a tensor, or of a table of tensors.
    Ptr(u64),
    /// An `f32`.
    F32(f32),
    /// An `f64`.
    F64(f64),
    /// An `i32`.
    I32(i32),
    /// A `u32`.
    U32(u32),
    /// An `i64`.
    I64(i64),
    /// A `u64`.
    U64(u64),
}
