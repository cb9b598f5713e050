// Boxes that TMA loads from coordinates that are no multiple of 16 bytes along the contiguous dimension: does the device take them, and what arrives?
//
//     nvcc -std=c++17 -gencode arch=compute_90a,code=sm_90a -o tensor_load_within tensor_load_within.cu
//     for rank in 1 2; do for x in 0 1 2 3 4 8 -1 -4 60 61; do ./tensor_load_within $rank $x; done; done
//
// The tensor has 64 floats (rank 1) or 64 × 64 (rank 2), whose elements are their numbers; the box has 16 (rank 1) or 16 × 16. It prints the state of the context, and how many elements
// are what lies at the coordinates, with zeros outside. A third argument of 1 has a box of 18 floats, whose rows are no multiple of 16 bytes: the driver refuses the map.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_runtime.h>
__global__ void load(const __grid_constant__ CUtensorMap map, int rank, int x, int bytes, float *out) {
    __shared__ alignas(128) float box[1024];
    __shared__ alignas(8) uint64_t bar;
    uint32_t b = (uint32_t)__cvta_generic_to_shared(&bar), to = (uint32_t)__cvta_generic_to_shared(box);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" ::"r"(b));
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes));
        if (rank == 1) asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];" ::"r"(to), "l"(&map), "r"(x), "r"(b) : "memory");
        else asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map), "r"(x), "r"(3), "r"(b) : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra L; }" ::"r"(b) : "memory");
    for (int i = threadIdx.x; i < bytes / 4; i += blockDim.x) out[i] = box[i];
}
int main(int c, char **v) {
    int rank = atoi(v[1]), x = atoi(v[2]), wide = c > 3 && atoi(v[3]);
    static float h[4096], r[1024]; for (int i = 0; i < 4096; ++i) h[i] = i + 1;
    float *d, *o; cudaMalloc(&d, sizeof h); cudaMalloc(&o, 4096); cudaMemcpy(d, h, sizeof h, cudaMemcpyHostToDevice);
    void *f; cudaDriverEntryPointQueryResult q; cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &q);
    CUtensorMap map; cuuint64_t size[2] = {64, 64}, stride[1] = {256}; cuuint32_t n = wide ? 18 : 16, box[2] = {n, 16}, step[2] = {1, 1};
    CUresult made = ((CUresult(*)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
        CUtensorMapL2promotion, CUtensorMapFloatOOBfill))f)(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank, d, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    int rows = rank == 1 ? 1 : 16, bytes = rows * (int)n * 4;
    if (made) { printf("rank %d at %d: no map (%d)\n", rank, x, (int)made); return 0; }
    load<<<1, 128>>>(map, rank, x, bytes, o);
    const char *state = cudaGetErrorString(cudaDeviceSynchronize());
    int right = 0;
    if (cudaMemcpy(r, o, bytes, cudaMemcpyDeviceToHost) == cudaSuccess)
        for (int i = 0; i < bytes / 4; ++i) { int at = x + i % (int)n, row = rank == 1 ? 0 : 3 + i / (int)n; right += r[i] == (at >= 0 && at < 64 ? h[row * 64 + at] : 0); }
    printf("rank %d at %d: %s, %d of %d elements\n", rank, x, state, right, bytes / 4);
}
