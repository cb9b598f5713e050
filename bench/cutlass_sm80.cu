// C = A · Bᵀ by one of CUTLASS's kernels of sm_80, behind four C functions for bench/cutlass_sm80.py, which builds a library of each tile:
//
//     nvcc -std=c++17 -O3 -gencode arch=compute_80,code=sm_90 -I CUTLASS/include -DELEMENT=half_t -DTILE_M=128 -DTILE_N=128 -DTILE_K=32 -DWARP_M=64 -DWARP_N=64 -DSTAGES=4 -shared -Xcompiler -fPIC -o tile.so cutlass_sm80.cu
//
// CUTLASS (https://github.com/NVIDIA/cutlass, BSD-3-Clause) is no part of this project: its headers are read where the user has them.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cutlass/cutlass.h"
#include "cutlass/epilogue/thread/linear_combination.h"
#include "cutlass/gemm/device/gemm_universal.h"
#include "cutlass/gemm/threadblock/threadblock_swizzle.h"

namespace {

using Element = cutlass::ELEMENT;
// Elements of 16 bytes.
constexpr int ALIGNMENT = 8;
// Rows of tiles that run at about the same time, at most.
constexpr int TOGETHER = 8;

using Product = cutlass::gemm::device::GemmUniversal<
    Element, cutlass::layout::RowMajor, Element, cutlass::layout::ColumnMajor, Element, cutlass::layout::RowMajor, float,
    cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, cutlass::gemm::GemmShape<TILE_M, TILE_N, TILE_K>, cutlass::gemm::GemmShape<WARP_M, WARP_N, TILE_K>,
    cutlass::gemm::GemmShape<16, 8, 16>, cutlass::epilogue::thread::LinearCombination<Element, ALIGNMENT, float, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<TOGETHER>, STAGES, ALIGNMENT, ALIGNMENT>;

Product::Arguments arguments(const void* a, const void* b, void* c, int64_t m, int64_t n, int64_t k, int parts) {
  return Product::Arguments(cutlass::gemm::GemmUniversalMode::kGemm, {int(m), int(n), int(k)}, parts, {1.0f, 0.0f}, a, b, c, c,
                            m * k, n * k, m * n, m * n, k, k, n, n);
}

}  // namespace

extern "C" {

// Bytes of workspace of a product in so many parts of k.
size_t workspace_bytes(int64_t m, int64_t n, int64_t k, int parts) {
  return Product::get_workspace_size(arguments(nullptr, nullptr, nullptr, m, n, k, parts));
}

// A product of these matrices, or null where the tile does not take it.
void* prepare(const void* a, const void* b, void* c, int64_t m, int64_t n, int64_t k, int parts, void* workspace) {
  const auto given = arguments(a, b, c, m, n, k, parts);
  auto* product = new Product;
  const bool ready = Product::can_implement(given) == cutlass::Status::kSuccess &&
                     product->initialize(given, workspace) == cutlass::Status::kSuccess;
  if (!ready) {
    delete product;
    return nullptr;
  }
  return product;
}

// 0, or CUTLASS's status.
int run(void* product, void* stream) {
  return int(static_cast<Product*>(product)->run(static_cast<cudaStream_t>(stream)));
}

void release(void* product) { delete static_cast<Product*>(product); }

}
