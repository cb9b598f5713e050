/*
 * c = a b^T + bias, and c = a b^T of fewer rows, by the kernels that a pack has for their sizes and types. Usage: gemm FILE.twpack
 *
 * A library of `tilewright-ops` writes the pack of what it has compiled, with the classes of sizes (`Library::pack`, docs/my-data-my-stream.md).
 *
 *   cc -I include examples/gemm.c -o gemm -L LIB -ltilewright_capi -Wl,-rpath,LIB -ldl
 *
 * The driver is loaded by hand, so that no toolkit is needed; a program with a toolkit includes <cuda.h> and links with libcuda.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tilewright.h"

enum { ROWS = 130, FEW = 64, COLUMNS = 256, DEPTH = 64 };

/* Ends the program where a call of Tilewright failed. */
static void check(int32_t status, const char *what) {
    if (status != TW_OK) {
        fprintf(stderr, "%s: %s (%d)\n", what, tw_last_error(), (int)status);
        exit(1);
    }
}

/* A function of the driver. */
static void *symbol(void *driver, const char *name) {
    void *found = dlsym(driver, name);
    if (found == NULL) {
        fprintf(stderr, "the driver has no %s\n", name);
        exit(1);
    }
    return found;
}

/* A tensor of halves in row-major order. */
static tw_tensor_t halves(uint64_t address, uint32_t rank, const int64_t *shape, uint32_t writable) {
    tw_tensor_t tensor = {.size = sizeof tensor, .dtype = TW_DTYPE_F16, .address = address};
    tensor.rank = rank;
    tensor.shape = shape;
    tensor.writable = writable;
    return tensor;
}

int main(int argc, char **argv) {
    const char *libcuda = getenv("TILEWRIGHT_LIBCUDA");
    void *driver = dlopen(libcuda != NULL ? libcuda : "libcuda.so.1", RTLD_NOW);
    if (argc != 2 || driver == NULL) {
        fprintf(stderr, "usage: gemm FILE.twpack, on a machine with a CUDA driver\n");
        return 1;
    }
    int (*init)(unsigned) = (int (*)(unsigned))symbol(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))symbol(driver, "cuDevicePrimaryCtxRetain");
    int (*make_current)(void *) = (int (*)(void *))symbol(driver, "cuCtxSetCurrent");
    int (*create_stream)(void **, unsigned) = (int (*)(void **, unsigned))symbol(driver, "cuStreamCreate");
    int (*synchronize)(void *) = (int (*)(void *))symbol(driver, "cuStreamSynchronize");
    int (*allocate)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))symbol(driver, "cuMemAlloc_v2");
    int (*from_gpu)(void *, uint64_t, size_t, void *) =
        (int (*)(void *, uint64_t, size_t, void *))symbol(driver, "cuMemcpyDtoHAsync_v2");

    void *context = NULL, *stream = NULL;
    uint64_t a = 0, b = 0, bias = 0, c = 0;
    int wrong = init(0) | retain(&context, 0) | make_current(context) | create_stream(&stream, 1);
    wrong |= allocate(&a, 2 * ROWS * DEPTH) | allocate(&b, 2 * COLUMNS * DEPTH);
    wrong |= allocate(&bias, 2 * COLUMNS) | allocate(&c, 2 * ROWS * COLUMNS);
    if (wrong != 0) {
        fprintf(stderr, "the driver failed\n");
        return 1;
    }

    tw_pack_t *pack = NULL;
    tw_library_t *library = NULL;
    check(tw_pack_open_file(argv[1], &pack), "opening the pack");
    check(tw_library_open(pack, &library), "opening the library");

    const int64_t of_a[] = {ROWS, DEPTH}, of_b[] = {COLUMNS, DEPTH}, of_c[] = {ROWS, COLUMNS};
    const tw_tensor_t ta = halves(a, 2, of_a, 0), tb = halves(b, 2, of_b, 0), tc = halves(c, 2, of_c, 1);
    const tw_tensor_t tbias = halves(bias, 1, &of_b[0], 0);
    const tw_operand_t operands[] = {
        {.name = "bias", .arg = {.size = sizeof(tw_arg_t), .kind = TW_TENSOR, .value.tensor = &tbias}},
    };
    tw_gemm_options_t options = {.size = sizeof options, .options = "epilogue=bias"};
    options.operands = operands;
    options.operand_count = 1;
    check(tw_library_gemm(library, stream, &ta, &tb, &tc, &options), "a product with a bias");

    /* Other sizes may have other kernels. */
    const int64_t few_a[] = {FEW, DEPTH}, few_c[] = {FEW, COLUMNS};
    const tw_tensor_t fa = halves(a, 2, few_a, 0), fc = halves(c, 2, few_c, 1);
    check(tw_library_gemm(library, stream, &fa, &tb, &fc, NULL), "a product of few rows");

    uint16_t first = 0;
    if (from_gpu(&first, c, sizeof first, stream) != 0 || synchronize(stream) != 0) {
        fprintf(stderr, "the work failed\n");
        return 1;
    }
    printf("c[0, 0] = 0x%04x\n", (unsigned)first);
    check(tw_library_free(library), "freeing the library");
    check(tw_pack_free(pack), "freeing the pack");
    return 0;
}
