// One warp overwrites what another has read, round after round, once an mbarrier says so: a test of racecheck, not of ours.
//
//     nvcc -std=c++17 -O2 -lineinfo -gencode arch=compute_90a,code=sm_90a -o racecheck_warp racecheck_warp.cu
//     for kind in 0 1 2 3; do compute-sanitizer --tool racecheck --racecheck-report all ./racecheck_warp $kind; done
//
// In kind 0 the lanes that read meet at `bar.warp.sync`, and one of them arrives; in kind 1 each lane arrives; in kind 2 nothing is waited for; kind 3 is
// kind 0 with `fence.acq_rel.cta` of every lane ahead of `bar.warp.sync`. Kinds 0, 1 and 3 order every pair of accesses (PTX ISA, memory consistency model: `bar.warp.sync` is a
// synchronisation of morally strong accesses between the lanes that take part, and causality order is transitive). Compute Sanitizer of CUDA 13.0 on an H100 reports kinds 0, 2 and
// 3 and is silent about kind 1: it does not follow one lane's arrival for what others of its warp did ahead of `bar.warp.sync`.
#include <cstdint>
#include <cstdio>
__device__ uint32_t smem(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ void init(uint64_t *b, uint32_t n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(b)), "r"(n)); }
__device__ void arrive(uint64_t *b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem(b)) : "memory"); }
__device__ void wait(uint64_t *b, uint32_t parity) {
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra L; }" ::"r"(smem(b)), "r"(parity) : "memory"); }
// Each side is a warp. The words are read by another lane than the one that wrote them.
template <int KIND> __global__ void rounds(int *out, int n) {
    __shared__ int word[32];
    __shared__ uint64_t full, empty;
    int t = threadIdx.x, lane = t % 32, total = 0;
    if (t == 0) { init(&full, 32); init(&empty, KIND == 1 ? 32 : 1); }
    __syncthreads();
    for (int i = 0; i < n; ++i) {
        if (t < 32) {
            if (KIND != 2) wait(&empty, (i + 1) & 1);
            word[lane] = i + lane;
            arrive(&full);
        } else {
            wait(&full, i & 1);
            total += ((volatile int *)word)[(lane + 1) % 32];
            if (KIND == 3) asm volatile("fence.acq_rel.cta;" ::: "memory");
            if (KIND == 0 || KIND == 3) { __syncwarp(); if (lane == 0) arrive(&empty); }
            if (KIND == 1) arrive(&empty);
        }
    }
    if (t >= 32) out[lane] = total;
}
template <int KIND> void go(int *d, int which) { if (which == KIND) { rounds<KIND><<<1, 64>>>(d, 8); printf("kind %d: %s\n", KIND, cudaGetErrorString(cudaDeviceSynchronize())); } }
int main(int c, char **v) { int *d; cudaMalloc(&d, 1024); int w = v[1][0] - '0'; go<0>(d, w); go<1>(d, w); go<2>(d, w); go<3>(d, w); }
