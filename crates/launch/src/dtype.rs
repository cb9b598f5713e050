//! Element types, by the names of the tile language.

use std::fmt;

macro_rules! types {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $bits:literal;)*) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum DType {
            $($(#[$doc])* $variant,)*
        }

        impl DType {
            /// Every type.
            pub const ALL: &[DType] = &[$(DType::$variant),*];

            /// The name in the tile language.
            pub fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// Bits of an element.
            pub fn bits(self) -> u32 {
                match self { $(DType::$variant => $bits,)* }
            }
        }
    };
}

types! {
    /// IEEE binary16.
    F16 = "f16", 16;
    /// bfloat16.
    BF16 = "bf16", 16;
    /// IEEE binary32.
    F32 = "f32", 32;
    /// IEEE binary64.
    F64 = "f64", 64;
    /// Float of 4 exponent and 3 mantissa bits (`float8_e4m3fn`).
    E4M3 = "e4m3", 8;
    /// Float of 5 exponent and 2 mantissa bits.
    E5M2 = "e5m2", 8;
    /// Float of 3 exponent and 2 mantissa bits, in a byte.
    E3M2 = "e3m2", 8;
    /// Float of 2 exponent and 3 mantissa bits, in a byte.
    E2M3 = "e2m3", 8;
    /// Float of 2 exponent bits and 1 mantissa bit.
    E2M1 = "e2m1", 4;
    /// Scale of 8 exponent bits.
    UE8M0 = "ue8m0", 8;
    /// Scale of 4 exponent and 3 mantissa bits.
    UE4M3 = "ue4m3", 8;
    /// Signed integer of 1 bit.
    I1 = "i1", 1;
    /// Signed integer of 2 bits.
    I2 = "i2", 2;
    /// Signed integer of 4 bits.
    I4 = "i4", 4;
    /// Signed integer of 8 bits.
    I8 = "i8", 8;
    /// Signed integer of 16 bits.
    I16 = "i16", 16;
    /// Signed integer of 32 bits.
    I32 = "i32", 32;
    /// Signed integer of 64 bits.
    I64 = "i64", 64;
    /// Unsigned integer of 1 bit.
    U1 = "u1", 1;
    /// Unsigned integer of 2 bits.
    U2 = "u2", 2;
    /// Unsigned integer of 4 bits.
    U4 = "u4", 4;
    /// Unsigned integer of 8 bits.
    U8 = "u8", 8;
    /// Unsigned integer of 16 bits.
    U16 = "u16", 16;
    /// Unsigned integer of 32 bits.
    U32 = "u32", 32;
    /// Unsigned integer of 64 bits.
    U64 = "u64", 64;
    /// Truth value in a byte.
    Bool = "bool", 8;
}

impl DType {
    /// The type with this name.
    pub fn named(name: &str) -> Option<DType> {
        DType::ALL.iter().copied().find(|dtype| dtype.name() == name)
    }

    /// The place in [`DType::ALL`].
    #[inline]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Bytes that so many elements take, which lie side by side.
    pub fn bytes_of(self, elements: u64) -> u64 {
        elements.saturating_mul(u64::from(self.bits())).div_ceil(8)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
