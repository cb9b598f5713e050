/*
 * y = factor * x by a kernel of a pack, on a context, a stream and memory that the program has from the driver. Usage: scale FILE.twpack
 *
 *   tilewright pack build scale.tile -o scale.twpack
 *   cc -I include examples/scale.c -o scale -L LIB -ltilewright_capi -Wl,-rpath,LIB -ldl
 *
 * The driver is loaded by hand, so that no toolkit is needed; a program with a toolkit includes <cuda.h> and links with libcuda.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tilewright.h"

#define COUNT 4096

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

int main(int argc, char **argv) {
    const char *library = getenv("TILEWRIGHT_LIBCUDA");
    void *driver = dlopen(library != NULL ? library : "libcuda.so.1", RTLD_NOW);
    if (argc != 2 || driver == NULL) {
        fprintf(stderr, "usage: scale FILE.twpack, on a machine with a CUDA driver\n");
        return 1;
    }
    int (*init)(unsigned) = (int (*)(unsigned))symbol(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))symbol(driver, "cuDevicePrimaryCtxRetain");
    int (*make_current)(void *) = (int (*)(void *))symbol(driver, "cuCtxSetCurrent");
    int (*create_stream)(void **, unsigned) = (int (*)(void **, unsigned))symbol(driver, "cuStreamCreate");
    int (*synchronize)(void *) = (int (*)(void *))symbol(driver, "cuStreamSynchronize");
    int (*allocate)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))symbol(driver, "cuMemAlloc_v2");
    int (*to_gpu)(uint64_t, const void *, size_t, void *) =
        (int (*)(uint64_t, const void *, size_t, void *))symbol(driver, "cuMemcpyHtoDAsync_v2");
    int (*from_gpu)(void *, uint64_t, size_t, void *) =
        (int (*)(void *, uint64_t, size_t, void *))symbol(driver, "cuMemcpyDtoHAsync_v2");

    static float host[COUNT];
    for (int i = 0; i < COUNT; i++) {
        host[i] = (float)i;
    }
    void *context = NULL, *stream = NULL;
    uint64_t x = 0, y = 0;
    int wrong = init(0) | retain(&context, 0) | make_current(context) | create_stream(&stream, 1);
    wrong |= allocate(&x, sizeof host) | allocate(&y, sizeof host) | to_gpu(x, host, sizeof host, stream);
    if (wrong != 0) {
        fprintf(stderr, "the driver failed\n");
        return 1;
    }

    tw_pack_t *pack = NULL;
    tw_kernel_t *kernel = NULL;
    tw_plan_t *plan = NULL;
    const int64_t sizes[] = {COUNT};
    check(tw_pack_open_file(argv[1], &pack), "opening the pack");
    check(tw_pack_kernel(pack, "scale", &kernel), "loading the kernel");
    check(tw_plan(kernel, sizes, 1, &plan), "planning the launch");
    uint64_t workspace = 0;
    check(tw_plan_workspace(plan, &workspace), "asking for the workspace");

    /* Tensors are compared with the kernel's parameters. */
    const tw_tensor_t tx = {.size = sizeof tx, .dtype = TW_DTYPE_F32, .address = x, .rank = 1, .shape = sizes};
    const tw_tensor_t ty = {.size = sizeof ty, .dtype = TW_DTYPE_F32, .address = y, .rank = 1, .shape = sizes, .writable = 1};
    const tw_arg_t args[] = {
        {.size = sizeof(tw_arg_t), .kind = TW_TENSOR, .value.tensor = &tx},
        {.size = sizeof(tw_arg_t), .kind = TW_TENSOR, .value.tensor = &ty},
        {.size = sizeof(tw_arg_t), .kind = TW_F32, .value.f32 = 0.5f},
    };
    check(tw_launch(plan, stream, args, 3, NULL), "launching with tensors");

    /* Addresses are not. */
    const tw_arg_t raw[] = {
        {.size = sizeof(tw_arg_t), .kind = TW_POINTER, .value.pointer = x},
        {.size = sizeof(tw_arg_t), .kind = TW_POINTER, .value.pointer = y},
        {.size = sizeof(tw_arg_t), .kind = TW_F32, .value.f32 = 0.5f},
    };
    const tw_launch_options_t options = {.size = sizeof options};
    check(tw_launch(plan, stream, raw, 3, &options), "launching with addresses");

    if (from_gpu(host, y, sizeof host, stream) != 0 || synchronize(stream) != 0) {
        fprintf(stderr, "the work failed\n");
        return 1;
    }
    printf("workspace: %llu bytes, y[%d] = %g\n", (unsigned long long)workspace, COUNT - 1, (double)host[COUNT - 1]);
    check(tw_plan_free(plan), "freeing the plan");
    check(tw_kernel_free(kernel), "freeing the kernel");
    check(tw_pack_free(pack), "freeing the pack");
    return 0;
}
