//! Tensor maps, encoded by the driver on the host.
#![allow(unsafe_code)]

use std::ptr;

use crate::driver::{Driver, DriverError, INVALID_VALUE, MAP_PLAIN, TensorMap};
use crate::dtype::DType;
use crate::recipe::{Corners, Map, Swizzle};

/// Bytes between elements of a tensor map are below this (CUDA driver API, `cuTensorMapEncodeTiled`).
pub(crate) const STRIDE_LIMIT: i64 = 1 << 40;
/// The address of a tensor of a map, and strides in bytes, are multiples of this.
pub(crate) const MAP_ALIGNMENT: i64 = 16;

impl DType {
    /// The number in `CUtensorMapDataType`; `None` for types narrower than a byte. Of bytes and of signed integers of 16 bits there is none:
    /// they are moved as unsigned ones. (CUDA driver API, `cuda.h` of CUDA 12.)
    pub fn map_code(self) -> Option<i32> {
        Some(match self {
            DType::U8 | DType::I8 | DType::Bool => 0,
            DType::E4M3 | DType::E5M2 | DType::E3M2 | DType::E2M3 | DType::UE8M0 | DType::UE4M3 => 0,
            DType::U16 | DType::I16 => 1,
            DType::U32 => 2,
            DType::I32 => 3,
            DType::U64 => 4,
            DType::I64 => 5,
            DType::F16 => 6,
            DType::F32 => 7,
            DType::F64 => 8,
            DType::BF16 => 9,
            DType::I1 | DType::I2 | DType::I4 | DType::U1 | DType::U2 | DType::U4 | DType::E2M1 => {
                return None;
            }
        })
    }
}

impl Swizzle {
    /// The number in `CUtensorMapSwizzle`.
    pub fn map_code(self) -> i32 {
        match self {
            Swizzle::None => 0,
            Swizzle::B32 => 1,
            Swizzle::B64 => 2,
            Swizzle::B128 => 3,
            Swizzle::B128Atom32 => 4,
        }
    }
}

/// The number in `CUtensorMapL2promotion` for a tensor with these strides in bytes: fills of 256 bytes where every row begins at a multiple of
/// that, else of 128.
pub fn l2_promotion(strides: &[u64]) -> i32 {
    const WIDEST: u64 = 256;
    if strides.iter().all(|stride| stride.is_multiple_of(WIDEST)) { 3 } else { 2 }
}

/// A tensor map but for the address of its tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    dtype: i32,
    /// Extents of the tensor in elements.
    extents: Vec<u64>,
    /// Strides of the tensor in bytes, from dimension 1 on.
    strides: Vec<u64>,
    /// Elements of the tensor that the box reaches over.
    reach: Vec<u32>,
    steps: Vec<u32>,
    swizzle: i32,
    /// The bounding box of the im2col mode, in which the reach is the channels of a pixel, and pixels.
    corners: Option<Corners>,
}

impl Shape {
    /// The map of a tensor with these extents and strides; `None` where [`Recipe::check`](crate::Recipe::check) would refuse it.
    pub(crate) fn new(map: &Map, extents: Vec<u64>, strides: Vec<u64>) -> Option<Self> {
        let rank = map.rank();
        let same = extents.len() == rank && map.steps.len() == rank && strides.len() + 1 == rank;
        let same = same
            && map.corners.as_ref().is_none_or(|corners| {
                let lists = [corners.lower.len(), corners.upper.len()];
                map.extents.len() == 2 && lists.iter().all(|len| len + 2 == rank)
            });
        // A box reaches over a whole step for each of its elements, the last too.
        let reach = match map.corners {
            Some(_) => map.extents.clone(),
            None => map.extents.iter().zip(&map.steps).map(|(extent, step)| extent * step).collect(),
        };
        let (steps, swizzle, corners) = (map.steps.clone(), map.swizzle.map_code(), map.corners.clone());
        same.then_some(Shape {
            dtype: map.dtype.map_code()?,
            extents,
            strides,
            reach,
            steps,
            swizzle,
            corners,
        })
    }

    /// Asks the driver, which touches neither the tensor nor the GPU.
    pub(crate) fn encode(&self, driver: &Driver, pointer: u64) -> Result<TensorMap, DriverError> {
        let mut map = TensorMap([0; 16]);
        let address = usize::try_from(pointer).map_err(|_| DriverError(INVALID_VALUE))?;
        if let Some(Corners { lower, upper }) = &self.corners {
            // SAFETY: the map is aligned as its type says; extents and steps have as many elements as the rank, strides one fewer, corners two fewer
            // (`new`); the driver reads them.
            unsafe {
                driver.encode_pixel_map(
                    &raw mut map,
                    self.dtype,
                    self.extents.len() as u32,
                    ptr::without_provenance_mut(address),
                    self.extents.as_ptr(),
                    self.strides.as_ptr(),
                    lower.as_ptr(),
                    upper.as_ptr(),
                    self.reach[0],
                    self.reach[1],
                    self.steps.as_ptr(),
                    MAP_PLAIN,
                    self.swizzle,
                    l2_promotion(&self.strides),
                    MAP_PLAIN,
                )
            }?;
            return Ok(map);
        }
        // SAFETY: the map is aligned as its type says; extents, box and steps have as many elements as the rank, strides one
        // fewer (`new`); the driver reads them.
        unsafe {
            driver.encode_tensor_map(
                &raw mut map,
                self.dtype,
                self.extents.len() as u32,
                ptr::without_provenance_mut(address),
                self.extents.as_ptr(),
                self.strides.as_ptr(),
                self.reach.as_ptr(),
                self.steps.as_ptr(),
                MAP_PLAIN,
                self.swizzle,
                l2_promotion(&self.strides),
                MAP_PLAIN,
            )
        }?;
        Ok(map)
    }
}
