// Boxes that are written by TMA at coordinates ahead of a tensor and behind it: does the device take them?
//
//     nvcc -std=c++17 -gencode arch=compute_90a,code=sm_90a -o tensor_store_ahead tensor_store_ahead.cu
//     for x in 0 -8 -16 -1073741824 1073741824; do for y in 0 -1 -16; do ./tensor_store_ahead $x $y; done; done
//
// A box of 16 × 16 halves (no swizzle) is stored to a tensor of 64 × 64 at coordinates (x, y), which the kernel reads from its parameters. It prints the state of the context
// and how many elements were written. A third argument of 1 adds instead (cp.reduce.async.bulk.tensor).
// On H100 and H200 (driver 580) x that is no multiple of 16 bytes (2, 4), and every negative coordinate, however small and whether or not the box meets the tensor, are illegal instructions; boxes behind the end are dropped. The PTX ISA says neither.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_runtime.h>
__global__ void store(const __grid_constant__ CUtensorMap map, int x, int y, int add) {
    __shared__ alignas(128) unsigned short box[256];
    box[threadIdx.x] = 0x3c00;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t from = (uint32_t)__cvta_generic_to_shared(box);
        if (add) asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x), "r"(y), "r"(from) : "memory");
        else asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x), "r"(y), "r"(from) : "memory");
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
int main(int c, char **v) {
    int x = atoi(v[1]), y = atoi(v[2]), add = c > 3 && atoi(v[3]);
    void *d; cudaMalloc(&d, 64 * 64 * 2); cudaMemset(d, 0, 64 * 64 * 2);
    void *f; cudaDriverEntryPointQueryResult q; cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &q);
    CUtensorMap map; cuuint64_t size[2] = {64, 64}, stride[1] = {128}; cuuint32_t box[2] = {16, 16}, step[2] = {1, 1};
    ((CUresult(*)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
        CUtensorMapL2promotion, CUtensorMapFloatOOBfill))f)(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, d, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    store<<<1, 256>>>(map, x, y, add);
    const char *state = cudaGetErrorString(cudaDeviceSynchronize());
    static unsigned short h[4096]; int n = 0;
    if (cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost) == cudaSuccess) for (unsigned short e : h) n += e == 0x3c00;
    printf("(%d, %d)%s: %s, %d elements\n", x, y, add ? " add" : "", state, n);
}
