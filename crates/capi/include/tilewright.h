/*
 * Tilewright for C and C++: packs of kernels, launched on one's own streams.
 *
 * Made by `TILEWRIGHT_BLESS=1 cargo test -p tilewright-capi` of crates/capi/src; a test compares both.
 *
 * Functions return TW_OK or why they did nothing; tw_last_error() has the words. Callers owe: addresses of as much memory as is said, texts that end with NUL, handles
 * that this library gave and that nobody frees while they are used, and memory of the GPU that lives until the work has ended. Everything else is checked. Functions may be called from any
 * thread, at the same time too.
 */
#ifndef TILEWRIGHT_H
#define TILEWRIGHT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions return. */

/* Everything went well. */
#define TW_OK 0

/* A pointer is null that must not be. */
#define TW_NULL 1

/* A handle is none of its kind: it is another one's, or was freed. */
#define TW_HANDLE 2

/* A struct has another size than this library's: header and library are of different versions, or `size` was not set. */
#define TW_STRUCT 3

/* A text is no UTF-8, or a number is none of those that the header lists. */
#define TW_VALUE 4

/* A file cannot be read. */
#define TW_FILE 5

/* The bytes are no pack, or are damaged. */
#define TW_PACK 6

/* The pack has no kernel of the name. */
#define TW_NO_KERNEL 7

/* The GPU does not run the kernel. */
#define TW_NOT_FOR_GPU 8

/* There is no CUDA driver, or it is too old. */
#define TW_NO_DRIVER 9

/* No context is current in this thread. */
#define TW_NO_CONTEXT 10

/* The kernel does not take the sizes. */
#define TW_SIZES 11

/* The kernel does not take the arguments. */
#define TW_ARGUMENTS 12

/* The workspace is missing, too small, or not at a multiple of 256 bytes. */
#define TW_WORKSPACE 13

/* The driver failed. */
#define TW_DRIVER 14

/* A mistake of this library. */
#define TW_INTERNAL 15

/* Kinds of arguments. */

/* An address, of a tensor or of a table of tensors; nothing of it is checked. */
#define TW_POINTER 1

/* A tensor, which is compared with the kernel's parameter. */
#define TW_TENSOR 2

/* A float of 32 bits. */
#define TW_F32 3

/* A float of 64 bits. */
#define TW_F64 4

/* A signed integer of 32 bits. */
#define TW_I32 5

/* An unsigned integer of 32 bits. */
#define TW_U32 6

/* A signed integer of 64 bits. */
#define TW_I64 7

/* An unsigned integer of 64 bits. */
#define TW_U64 8

/* The table of an array of tensors, beside tensors: the address in the GPU's memory of what tw_plan_table gives for this plan. */
#define TW_TABLE 9

/* Element types. */

/* IEEE binary16. */
#define TW_DTYPE_F16 1

/* bfloat16. */
#define TW_DTYPE_BF16 2

/* IEEE binary32. */
#define TW_DTYPE_F32 3

/* IEEE binary64. */
#define TW_DTYPE_F64 4

/* Float of 4 exponent and 3 mantissa bits (`float8_e4m3fn`). */
#define TW_DTYPE_E4M3 5

/* Float of 5 exponent and 2 mantissa bits. */
#define TW_DTYPE_E5M2 6

/* Float of 2 exponent bits and 1 mantissa bit. */
#define TW_DTYPE_E2M1 7

/* Scale of 8 exponent bits. */
#define TW_DTYPE_UE8M0 8

/* Scale of 4 exponent and 3 mantissa bits. */
#define TW_DTYPE_UE4M3 9

/* Signed integer of 1 bit. */
#define TW_DTYPE_I1 10

/* Signed integer of 2 bits. */
#define TW_DTYPE_I2 11

/* Signed integer of 4 bits. */
#define TW_DTYPE_I4 12

/* Signed integer of 8 bits. */
#define TW_DTYPE_I8 13

/* Signed integer of 16 bits. */
#define TW_DTYPE_I16 14

/* Signed integer of 32 bits. */
#define TW_DTYPE_I32 15

/* Signed integer of 64 bits. */
#define TW_DTYPE_I64 16

/* Unsigned integer of 1 bit. */
#define TW_DTYPE_U1 17

/* Unsigned integer of 2 bits. */
#define TW_DTYPE_U2 18

/* Unsigned integer of 4 bits. */
#define TW_DTYPE_U4 19

/* Unsigned integer of 8 bits. */
#define TW_DTYPE_U8 20

/* Unsigned integer of 16 bits. */
#define TW_DTYPE_U16 21

/* Unsigned integer of 32 bits. */
#define TW_DTYPE_U32 22

/* Unsigned integer of 64 bits. */
#define TW_DTYPE_U64 23

/* Truth value in a byte. */
#define TW_DTYPE_BOOL 24

/* Float of 3 exponent and 2 mantissa bits, in a byte. */
#define TW_DTYPE_E3M2 25

/* Float of 2 exponent and 3 mantissa bits, in a byte. */
#define TW_DTYPE_E2M3 26

/* Handles. */

/* A pack: kernels as a file. */
typedef struct tw_pack_t tw_pack_t;

/* A kernel on a GPU. */
typedef struct tw_kernel_t tw_kernel_t;

/* The launches of a kernel at fixed sizes. */
typedef struct tw_plan_t tw_plan_t;

/* The operators of a pack on a GPU. */
typedef struct tw_library_t tw_library_t;

/* Structs. `size` is first, so that header and library are found to be of different versions. */

/* A tensor in memory of the GPU, or an array of tensors of one shape. */
typedef struct tw_tensor_t {
    /* sizeof(tw_tensor_t). */
    uint32_t size;
    /* The element type, TW_DTYPE_... */
    uint32_t dtype;
    /* The address of the first element; of an array of tensors that of its table. */
    uint64_t address;
    /* The number of modes, at most 8. */
    uint32_t rank;
    /* 1 if the kernel may write it, else 0. */
    uint32_t writable;
    /* 1 of an array of tensors, which lie anywhere and whose number is the first extent (tw_plan_table, tw_library_table), else 0. */
    uint32_t array;
    /* 0. */
    uint32_t reserved;
    /* The extents. */
    const int64_t *shape;
    /* The strides in elements; null if elements lie in row-major order without gaps. */
    const int64_t *strides;
} tw_tensor_t;

/* The value of an argument, by its kind. */
typedef union tw_value_t {
    /* TW_POINTER and TW_TABLE. */
    uint64_t pointer;
    /* TW_TENSOR. */
    const tw_tensor_t *tensor;
    /* TW_F32. */
    float f32;
    /* TW_F64. */
    double f64;
    /* TW_I32. */
    int32_t i32;
    /* TW_U32. */
    uint32_t u32;
    /* TW_I64. */
    int64_t i64;
    /* TW_U64. */
    uint64_t u64;
} tw_value_t;

/* An argument of a launch. */
typedef struct tw_arg_t {
    /* sizeof(tw_arg_t). */
    uint32_t size;
    /* The kind, TW_POINTER to TW_TABLE. */
    uint32_t kind;
    /* The value. */
    tw_value_t value;
} tw_arg_t;

/* More than its arguments that a launch may be given. */
typedef struct tw_launch_options_t {
    /* sizeof(tw_launch_options_t). */
    uint32_t size;
    /* 1 if the launch may begin before the one ahead of it on the stream has ended, of a kernel that waits for what it depends on; else 0. */
    uint32_t dependent;
    /* The address of the workspace, a multiple of 256; 0: there is none. */
    uint64_t workspace;
    /* Bytes of the workspace. */
    uint64_t workspace_bytes;
    /* The address of the buffer of records, of a kernel with assertions or prints that was compiled with them; else 0. */
    uint64_t records;
} tw_launch_options_t;

/* A tensor or a number by its name. */
typedef struct tw_operand_t {
    /* The name. */
    const char *name;
    /* The value: a TW_TENSOR or a number. */
    tw_arg_t arg;
} tw_operand_t;

/* More than its three tensors that a product may be given. */
typedef struct tw_gemm_options_t {
    /* sizeof(tw_gemm_options_t). */
    uint32_t size;
    /* 1 if the first launch may begin before the one ahead of it on the stream has ended; else 0. */
    uint32_t dependent;
    /* Options that are no defaults, as `epilogue=bias+gelu a=m`: those of a class of the pack (`tilewright pack list`). Null: none. */
    const char *options;
    /* The tensors and numbers of the epilogue. */
    const tw_operand_t *operands;
    /* The number of operands. */
    size_t operand_count;
    /* The address of the workspace, a multiple of 256; 0: there is none. */
    uint64_t workspace;
    /* Bytes of the workspace. */
    uint64_t workspace_bytes;
} tw_gemm_options_t;

/* Functions. */

/* Opens a pack in memory. The bytes are copied. Everything but the kernels is checked now, a kernel when it is asked for. */
int32_t tw_pack_open_memory(const void *bytes, size_t length, tw_pack_t **pack);

/* Opens the pack of a file, whose path is UTF-8. */
int32_t tw_pack_open_file(const char *path, tw_pack_t **pack);

/* Loads the kernel of a name on the GPU of the context that is current in this thread, which must live as long as the kernel. Its code does what its author wrote: trust the pack. */
int32_t tw_pack_kernel(const tw_pack_t *pack, const char *name, tw_kernel_t **kernel);

/* The plan of launches at these sizes, in the order in which the pack lists them (`tilewright pack list`). A kernel keeps its plans: the second for the same sizes is found. */
int32_t tw_plan(const tw_kernel_t *kernel, const int64_t *sizes, size_t count, tw_plan_t **plan);

/* Bytes of the workspace that a launch of the plan needs. */
int32_t tw_plan_workspace(const tw_plan_t *plan, uint64_t *bytes);

/* Makes the table of an array of tensors, the parameter of this name, which lie at these addresses of the GPU: bytes that the caller copies into the GPU's memory, at a multiple of 128, where a launch by
 * the plan finds them (TW_TABLE). Their number is written in any case, and they are if the table is not null. Nothing is copied here. */
int32_t tw_plan_table(const tw_plan_t *plan, const char *param, const uint64_t *addresses, size_t count, void *table, size_t room, uint64_t *bytes);

/* Puts a launch on a stream (a CUstream or cudaStream_t, also 0, 1 and 2), which is one of the current context, that of the kernel's GPU. Nothing waits: memory stays where it is until the work has
 * ended. The arguments are one for each parameter that is no part of the workspace: addresses and numbers, or tensors, tables of them and numbers. The options may be null. */
int32_t tw_launch(const tw_plan_t *plan, void *stream, const tw_arg_t *args, size_t count, const tw_launch_options_t *options);

/* The operators of a pack on the GPU of the context that is current in this thread, which must live as long as the library. Its code does what its author wrote: trust the pack. */
int32_t tw_library_open(const tw_pack_t *pack, tw_library_t **library);

/* Puts `c = a b^T` on a stream, by the kernels of the pack for its sizes, types and options: c[m, n], a[m, k], b[n, k], or as the options say. The first product of its kind loads and plans them;
 * the others call the driver once a launch. A workspace that is too small is TW_WORKSPACE, with the bytes that are needed in the text. The options may be null. */
int32_t tw_library_gemm(const tw_library_t *library, void *stream, const tw_tensor_t *a, const tw_tensor_t *b, const tw_tensor_t *c, const tw_gemm_options_t *options);

/* Makes the table of an array of tensors of a product with these arguments (as `batch=pointers` takes them), the one of this name (`a`, `b`, `c` or an operand), which lie at these addresses of the GPU: bytes
 * that the caller copies into the GPU's memory, at a multiple of 128, whose address is that of the array for tw_library_gemm. Of the product only types, shapes and options count here. Their number is
 * written in any case, and they are if the table is not null. Nothing is copied and nothing launched; the kernels are loaded if they are not. */
int32_t tw_library_table(const tw_library_t *library, const tw_tensor_t *a, const tw_tensor_t *b, const tw_tensor_t *c, const tw_gemm_options_t *options, const char *name, const uint64_t *addresses, size_t count, void *table, size_t room, uint64_t *bytes);

/* The text of this thread's last failure; empty if there was none. It is valid until the next call in this thread. */
const char *tw_last_error(void);

/* Frees a pack; its kernels live on. Null is left alone. */
int32_t tw_pack_free(tw_pack_t *pack);

/* Frees a kernel; its plans live on, and its code stays loaded, for graphs may hold it. Null is left alone. */
int32_t tw_kernel_free(tw_kernel_t *kernel);

/* Frees a library; its kernels stay loaded, for graphs may hold them. Null is left alone. */
int32_t tw_library_free(tw_library_t *library);

/* Frees a plan. Null is left alone. */
int32_t tw_plan_free(tw_plan_t *plan);

#ifdef __cplusplus
}
#endif

#endif
