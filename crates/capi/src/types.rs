//! Structs and numbers that C fills in.

use std::ffi::c_char;

use tilewright_launch::DType;

use crate::table::{constants, structs};

constants! { kinds:
    /// An address, of a tensor or of a table of tensors; nothing of it is checked.
    TW_POINTER: u32 = 1;
    /// A tensor, which is compared with the kernel's parameter.
    TW_TENSOR: u32 = 2;
    /// A float of 32 bits.
    TW_F32: u32 = 3;
    /// A float of 64 bits.
    TW_F64: u32 = 4;
    /// A signed integer of 32 bits.
    TW_I32: u32 = 5;
    /// An unsigned integer of 32 bits.
    TW_U32: u32 = 6;
    /// A signed integer of 64 bits.
    TW_I64: u32 = 7;
    /// An unsigned integer of 64 bits.
    TW_U64: u32 = 8;
    /// The table of an array of tensors, beside tensors: the address in the GPU's memory of what tw_plan_table gives for this plan.
    TW_TABLE: u32 = 9;
}

macro_rules! dtypes {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal, $dtype:ident;)*) => {
        constants! { dtypes: $($(#[doc = $doc])* $name: u32 = $value;)* }

        /// The element type of a number.
        pub(crate) fn dtype(number: u32) -> Option<DType> {
            match number {
                $($value => Some(DType::$dtype),)*
                _ => None,
            }
        }
    };
}

dtypes! {
    /// IEEE binary16.
    TW_DTYPE_F16 = 1, F16;
    /// bfloat16.
    TW_DTYPE_BF16 = 2, BF16;
    /// IEEE binary32.
    TW_DTYPE_F32 = 3, F32;
    /// IEEE binary64.
    TW_DTYPE_F64 = 4, F64;
    /// Float of 4 exponent and 3 mantissa bits (`float8_e4m3fn`).
    TW_DTYPE_E4M3 = 5, E4M3;
    /// Float of 5 exponent and 2 mantissa bits.
    TW_DTYPE_E5M2 = 6, E5M2;
    /// Float of 2 exponent bits and 1 mantissa bit.
    TW_DTYPE_E2M1 = 7, E2M1;
    /// Scale of 8 exponent bits.
    TW_DTYPE_UE8M0 = 8, UE8M0;
    /// Scale of 4 exponent and 3 mantissa bits.
    TW_DTYPE_UE4M3 = 9, UE4M3;
    /// Signed integer of 1 bit.
    TW_DTYPE_I1 = 10, I1;
    /// Signed integer of 2 bits.
    TW_DTYPE_I2 = 11, I2;
    /// Signed integer of 4 bits.
    TW_DTYPE_I4 = 12, I4;
    /// Signed integer of 8 bits.
    TW_DTYPE_I8 = 13, I8;
    /// Signed integer of 16 bits.
    TW_DTYPE_I16 = 14, I16;
    /// Signed integer of 32 bits.
    TW_DTYPE_I32 = 15, I32;
    /// Signed integer of 64 bits.
    TW_DTYPE_I64 = 16, I64;
    /// Unsigned integer of 1 bit.
    TW_DTYPE_U1 = 17, U1;
    /// Unsigned integer of 2 bits.
    TW_DTYPE_U2 = 18, U2;
    /// Unsigned integer of 4 bits.
    TW_DTYPE_U4 = 19, U4;
    /// Unsigned integer of 8 bits.
    TW_DTYPE_U8 = 20, U8;
    /// Unsigned integer of 16 bits.
    TW_DTYPE_U16 = 21, U16;
    /// Unsigned integer of 32 bits.
    TW_DTYPE_U32 = 22, U32;
    /// Unsigned integer of 64 bits.
    TW_DTYPE_U64 = 23, U64;
    /// Truth value in a byte.
    TW_DTYPE_BOOL = 24, Bool;
    /// Float of 3 exponent and 2 mantissa bits, in a byte.
    TW_DTYPE_E3M2 = 25, E3M2;
    /// Float of 2 exponent and 3 mantissa bits, in a byte.
    TW_DTYPE_E2M3 = 26, E2M3;
}

structs! {
    /// A tensor in memory of the GPU, or an array of tensors of one shape.
    struct tw_tensor_t {
        /// sizeof(tw_tensor_t).
        size: u32,
        /// The element type, TW_DTYPE_...
        dtype: u32,
        /// The address of the first element; of an array of tensors that of its table.
        address: u64,
        /// The number of modes, at most 8.
        rank: u32,
        /// 1 if the kernel may write it, else 0.
        writable: u32,
        /// 1 of an array of tensors, which lie anywhere and whose number is the first extent (tw_plan_table, tw_library_table), else 0.
        array: u32,
        /// 0.
        reserved: u32,
        /// The extents.
        shape: *const i64,
        /// The strides in elements; null if elements lie in row-major order without gaps.
        strides: *const i64,
    }
    /// The value of an argument, by its kind.
    union tw_value_t {
        /// TW_POINTER and TW_TABLE.
        pointer: u64,
        /// TW_TENSOR.
        tensor: *const tw_tensor_t,
        /// TW_F32.
        f32: f32,
        /// TW_F64.
        f64: f64,
        /// TW_I32.
        i32: i32,
        /// TW_U32.
        u32: u32,
        /// TW_I64.
        i64: i64,
        /// TW_U64.
        u64: u64,
    }
    /// An argument of a launch.
    struct tw_arg_t {
        /// sizeof(tw_arg_t).
        size: u32,
        /// The kind, TW_POINTER to TW_TABLE.
        kind: u32,
        /// The value.
        value: tw_value_t,
    }
    /// More than its arguments that a launch may be given.
    struct tw_launch_options_t {
        /// sizeof(tw_launch_options_t).
        size: u32,
        /// 1 if the launch may begin before the one ahead of it on the stream has ended, of a kernel that waits for what it depends on; else 0.
        dependent: u32,
        /// The address of the workspace, a multiple of 256; 0: there is none.
        workspace: u64,
        /// Bytes of the workspace.
        workspace_bytes: u64,
        /// The address of the buffer of records, of a kernel with assertions or prints that was compiled with them; else 0.
        records: u64,
    }
    /// A tensor or a number by its name.
    struct tw_operand_t {
        /// The name.
        name: *const c_char,
        /// The value: a TW_TENSOR or a number.
        arg: tw_arg_t,
    }
    /// More than its three tensors that a product may be given.
    struct tw_gemm_options_t {
        /// sizeof(tw_gemm_options_t).
        size: u32,
        /// 1 if the first launch may begin before the one ahead of it on the stream has ended; else 0.
        dependent: u32,
        /// Options that are no defaults, as `epilogue=bias+gelu a=m`: those of a class of the pack (`tilewright pack list`). Null: none.
        options: *const c_char,
        /// The tensors and numbers of the epilogue.
        operands: *const tw_operand_t,
        /// The number of operands.
        operand_count: usize,
        /// The address of the workspace, a multiple of 256; 0: there is none.
        workspace: u64,
        /// Bytes of the workspace.
        workspace_bytes: u64,
    }
}
