// Two blocks of a cluster show each other words of shared memory, round after round: a test of racecheck, not of ours.
//
//     nvcc -std=c++17 -O2 -lineinfo -gencode arch=compute_90a,code=sm_90a -o racecheck_cluster racecheck_cluster.cu
//     for kind in 0 1 2 3; do compute-sanitizer --tool racecheck --racecheck-report all ./racecheck_cluster $kind; done
//
// Kinds 0 and 3 order every pair of accesses by release and acquire of cluster scope on mbarriers, as `cluster_reduce` does; kind 1 does by the
// cluster's barrier; kind 2 overwrites what peers may still read. Compute Sanitizer of CUDA 13.0 on an H200 reports kinds 0, 2 and 3 and is
// silent about kind 1: it does not follow arrivals at mbarriers from other blocks.
#include <cstdint>
#include <cstdio>
__device__ uint32_t smem(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ void init(uint64_t *b, uint32_t n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(b)), "r"(n)); }
__device__ uint32_t mapa(uint32_t a, uint32_t r) { uint32_t o; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(o) : "r"(a), "r"(r)); return o; }
__device__ void arrive_all(uint64_t *b, int lane) { if (lane < 2) { uint32_t a = mapa(smem(b), lane); asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(a) : "memory"); } }
__device__ void wait(uint64_t *b, uint32_t parity) {
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1; @!p bra L; }" ::"r"(smem(b)), "r"(parity) : "memory"); }
__device__ void csync() { asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ uint32_t rank() { uint32_t r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
// 0: mbarriers across the cluster, 1: the cluster's barrier, 2: nothing before the words are overwritten, 3: mbarriers, each thread reads its own word of both blocks
template <int KIND> __global__ void __cluster_dims__(2, 1, 1) rounds(int *out, int n) {
    __shared__ int word[128];
    __shared__ uint64_t full, empty;
    int t = threadIdx.x, lane = t % 32, total = 0;
    if (t == 0) { init(&full, 8); init(&empty, 8); asm volatile("fence.mbarrier_init.release.cluster;"); }
    csync();
    for (int i = 0; i < n; ++i) {
        if (KIND == 0 || KIND == 3) wait(&empty, (i + 1) & 1);
        word[t] = i + t + rank();
        if (KIND == 1) csync();
        else { __syncwarp(); arrive_all(&full, lane); wait(&full, i & 1); }
        int at = KIND == 3 ? t : (t + 1) % 128;
        for (uint32_t r = 0; r < 2; ++r) {
            int v; uint32_t a = mapa(smem(&word[at]), r);
            asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(a) : "memory");
            total += v;
        }
        if (KIND == 1) csync();
        else if (KIND == 0 || KIND == 3) { __syncwarp(); arrive_all(&empty, lane); }
    }
    csync();
    out[blockIdx.x * 128 + t] = total;
}
template <int KIND> void go(int *d, int which) { if (which == KIND) { rounds<KIND><<<2, 128>>>(d, 8); printf("kind %d: %s\n", KIND, cudaGetErrorString(cudaDeviceSynchronize())); } }
int main(int c, char **v) { int *d; cudaMalloc(&d, 1024); int w = v[1][0] - '0'; go<0>(d, w); go<1>(d, w); go<2>(d, w); go<3>(d, w); }
