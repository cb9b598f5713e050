//! Words and signs of other languages, with what stands for them here.

/// A foreign word or sign.
pub(super) enum Foreign {
    /// A word, unless the text declares it.
    Word(&'static str),
    /// A word that is called, unless the text declares it.
    Call(&'static str),
    /// A name of a module, the part before the point, and what is behind it.
    Of(&'static [&'static str], &'static str),
    /// A name behind a point of any other.
    Method(&'static str),
    /// A sign.
    Sign(&'static str),
    /// A word that begins a line.
    Begins(&'static str),
    /// A word behind `name:` or in a type's place.
    Type(&'static str),
    /// A named operand of a call.
    Named(&'static str),
}

/// A row: the foreign text, its meaning where it comes from, and what is written here. In the last, `{before}` and `{after}` are the texts
/// of the line on either side, `{inside}` the operands of what is called.
pub(super) struct Row(pub(super) Foreign, pub(super) &'static str, pub(super) &'static str);

use Foreign::{Begins, Call, Method, Named, Of, Sign, Type, Word};

/// Modules of Triton.
const TL: &[&str] = &["tl", "triton"];
/// Modules of TileLang, of Pallas and of cuTile.
const TILES: &[&str] = &["T", "ct", "pl", "cute", "cutlass"];
/// Modules of arrays and of mathematics.
const ARRAYS: &[&str] = &["torch", "np", "numpy", "jnp", "math", "tl", "cute", "F", "std"];

/// Every foreign word; the first row that fits a place is taken.
pub(super) const ROWS: &[Row] = &[
    // CUDA.
    Row(
        Word("blockIdx"),
        "`blockIdx` is CUDA's name of a block's index",
        "write `block.x`, `block.y`, `block.z`",
    ),
    Row(
        Word("threadIdx"),
        "a tile program has no thread's index: a statement computes a whole tile",
        "write the statement for the tile; the coordinate of an element along a mode is `index(axis)`",
    ),
    Row(
        Word("blockDim"),
        "a tile program has no `blockDim`: a block's tile has constant extents",
        "declare the extent, `const BM = 128`, and let the block begin at `block.x * BM`",
    ),
    Row(
        Word("gridDim"),
        "a tile program has no `gridDim`",
        "write the expression that stands in `grid(…)`, e.g. `ceil_div(m, BM)`",
    ),
    Row(
        Word("laneId"),
        "a tile program has no lanes",
        "write the statement for the tile; a sum over lanes is `reduce(x, sum, axis)`",
    ),
    Row(
        Word("warpId"),
        "a tile program has no warps",
        "write the statement for the tile, or a role: `warpgroup name(1) { … }`",
    ),
    Row(Word("__syncthreads"), "`__syncthreads` is CUDA's barrier", "write `syncthreads()`"),
    Row(
        Word("cp_async_fence"),
        "`cp_async_fence` is CuTe's: it ends a group of copies",
        "write `commit_group()`",
    ),
    Row(
        Word("cp_async_wait"),
        "`cp_async_wait` is CuTe's: it waits until so many groups of copies are in flight",
        "write `wait_group(0)`, with that number",
    ),
    Row(
        Word("cp_async_commit_group"),
        "`cp_async_commit_group` ends a group of copies",
        "write `commit_group()`",
    ),
    Row(
        Word("cp_async_wait_group"),
        "`cp_async_wait_group` waits until so many groups of copies are in flight",
        "write `wait_group(0)`, with that number",
    ),
    Row(
        Word("__pipeline_commit"),
        "`__pipeline_commit` is CUDA's: it ends a group of copies",
        "write `commit_group()`",
    ),
    Row(
        Word("__pipeline_wait_prior"),
        "`__pipeline_wait_prior` is CUDA's: it waits until so many groups of copies are in flight",
        "write `wait_group(0)`, with that number",
    ),
    Row(
        Word("warpgroup_arrive"),
        "`warpgroup_arrive` is CuTe's: an asynchronous product needs no fence here",
        "leave it out; a group of products ends with `commit_gemm()`",
    ),
    Row(
        Word("warpgroup_commit_batch"),
        "`warpgroup_commit_batch` is CuTe's: it ends a group of products",
        "write `commit_gemm()`",
    ),
    Row(
        Word("warpgroup_wait"),
        "`warpgroup_wait` is CuTe's: it waits until so many groups of products are in flight",
        "write `wait_gemm(0)`, with that number",
    ),
    Row(
        Word("__syncwarp"),
        "threads of a warp need no barrier here",
        "leave it out; a barrier of the block is `syncthreads()`",
    ),
    Row(
        Word("__shared__"),
        "`__shared__` is CUDA's word for shared memory",
        "write `s = shared_tensor(f32, [BM, BN])`",
    ),
    Row(
        Word("__global__"),
        "`__global__` is CUDA's word for a kernel",
        "write `kernel name(x: f32[n]) grid(ceil_div(n, T)) threads(128) { … }`",
    ),
    Row(
        Word("__device__"),
        "`__device__` is CUDA's word for a function",
        "write `fn name(x, y) { return x + y }`",
    ),
    Row(Word("__restrict__"), "parameters need no `__restrict__`", "write `x: f32[n]`"),
    Row(Word("__shfl_xor_sync"), "threads exchange nothing by hand here", "write `reduce(x, sum, axis)`"),
    Row(Word("__shfl_down_sync"), "threads exchange nothing by hand here", "write `reduce(x, sum, axis)`"),
    Row(
        Word("__shfl_sync"),
        "threads exchange nothing by hand here",
        "write `gather(x, index, axis)`, or leave it out",
    ),
    Row(
        Call("atomicAdd"),
        "`atomicAdd` is CUDA's",
        "write `copy(r, view, add)`, or, for what was there before, `old = atomic_add(view, r)`",
    ),
    Row(
        Call("atomicMax"),
        "`atomicMax` is CUDA's",
        "write `copy(r, view, max)`, or, for what was there before, `old = atomic_max(view, r)`",
    ),
    Row(
        Call("atomicMin"),
        "`atomicMin` is CUDA's",
        "write `copy(r, view, min)`, or, for what was there before, `old = atomic_min(view, r)`",
    ),
    Row(Call("atomicCAS"), "`atomicCAS` is CUDA's", "write `old = atomic_cas(view, expected, r)`"),
    Row(Call("atomicExch"), "`atomicExch` is CUDA's", "write `old = atomic_exchange(view, r)`"),
    Row(Call("expf"), "`expf` is C's", "write `exp`"),
    Row(Call("__expf"), "`__expf` is CUDA's", "write `exp`, which is as fast"),
    Row(Call("exp2f"), "`exp2f` is C's", "write `exp2`"),
    Row(Call("logf"), "`logf` is C's", "write `log`"),
    Row(Call("sqrtf"), "`sqrtf` is C's", "write `sqrt`"),
    Row(Call("rsqrtf"), "`rsqrtf` is CUDA's", "write `rsqrt`"),
    Row(Call("tanhf"), "`tanhf` is C's", "write `tanh`"),
    Row(Call("fabsf"), "`fabsf` is C's", "write `abs`"),
    Row(Call("fmaxf"), "`fmaxf` is C's", "write `max(x, y)`"),
    Row(Call("fminf"), "`fminf` is C's", "write `min(x, y)`"),
    Row(Call("fmaf"), "`fmaf` is C's", "write `x * y + z`, which is one `fma`"),
    Row(Call("__fdividef"), "`__fdividef` is CUDA's", "write `fdividef(x, y)`"),
    Row(Call("__half2float"), "`__half2float` is CUDA's", "write `cast(x, f32)`"),
    Row(Call("__float2half"), "`__float2half` is CUDA's", "write `cast(x, f16)`"),
    Row(
        Call("make_tensor"),
        "`make_tensor` is CuTe's",
        "write `g = global_view(x[block.x * BM :, :], (BM, BK) : (e0, e1))`, `shared_tensor(f16, [BM, BK])` or `register_tensor(f16, [BM, BK])`",
    ),
    Row(
        Call("local_tile"),
        "`local_tile` is CuTe's",
        "write `g = global_view(x[block.x * BM :, :], (BM, BK, ceil_div(k, BK)) : (e0, e1, BK * e1))`",
    ),
    Row(Call("powf"), "`powf` is C's", "write `x * x`, or `exp2(y * log2(x))`"),
    Row(Call("sinf"), "`sinf` is C's", "write `sin`"),
    Row(Call("cosf"), "`cosf` is C's", "write `cos`"),
    Row(Call("erff"), "`erff` is C's", "write `erf`"),
    Row(Call("floorf"), "`floorf` is C's", "write `floor`"),
    Row(Call("ceilf"), "`ceilf` is C's", "write `ceil`"),
    Row(Call("roundf"), "`roundf` is C's", "write `round`"),
    Row(Call("log2f"), "`log2f` is C's", "write `log2`"),
    Row(Call("__logf"), "`__logf` is CUDA's", "write `log`"),
    Row(Call("printf"), "`printf` is C's", "write `print(\"the sum\", x)`"),
    Row(Word("static_cast"), "`static_cast` is C++'s", "write `cast(x, f32)`, of an integer `float(x)`"),
    Row(
        Word("reinterpret_cast"),
        "`reinterpret_cast` is C++'s: memory is read in vectors without being asked",
        "leave it out; the bits of elements of another type are `bitcast(x, u32)`",
    ),
    Row(Word("__ldg"), "`__ldg` is CUDA's", "write `copy(view, r)`: how memory is read is worked out"),
    Row(
        Word("__launch_bounds__"),
        "`__launch_bounds__` is CUDA's",
        "write `threads(128)` behind `grid(…)` of the kernel",
    ),
    Row(Word("warpSize"), "a tile program has no warps", "write the statement for the tile"),
    Row(
        Word("cp_async"),
        "`cp_async` is spelled otherwise",
        "write `copy.async(view, s)`, `commit_group()` and `wait_group(0)`",
    ),
    Row(
        Word("__pipeline_wait_prior"),
        "`__pipeline_wait_prior` is CUDA's",
        "write `wait_group(n)`: all but the last n groups have arrived",
    ),
    Row(Word("INFINITY"), "`INFINITY` is C's", "write `inf`"),
    Row(Word("FLT_MAX"), "`FLT_MAX` is C's", "write `inf`"),
    Row(Word("nullptr"), "there are no pointers", "leave it out"),
    Row(Word("lambda"), "`lambda` is Python's", "write `fn name(x, y) { return x + y }` above the kernel"),
    Row(Word("mut"), "names need no `mut`: a register tensor may be assigned again", "leave it out"),
    // TileLang, Pallas, cuTile.
    Row(
        Of(TILES, "alloc_shared"),
        "`alloc_shared` is TileLang's",
        "write `s = shared_tensor(f16, [BM, BK])`",
    ),
    Row(
        Of(TILES, "alloc_fragment"),
        "`alloc_fragment` is TileLang's",
        "write `r = register_tensor(f32, [BM, BN])`",
    ),
    Row(
        Of(TILES, "alloc_local"),
        "`alloc_local` is TileLang's",
        "write `r = register_tensor(f32, [BM, BN])`",
    ),
    Row(
        Of(TILES, "Pipelined"),
        "`Pipelined` is TileLang's",
        "write `for i in 0..n { … }`; stages are `p = pipeline(STAGES, sa, sb)`, filled by `produce p { … }`, read by `consume p { … }`",
    ),
    Row(
        Of(TILES, "Parallel"),
        "`Parallel` is TileLang's: a statement computes a whole tile",
        "write the statement for the tile, without a loop",
    ),
    Row(Of(TILES, "serial"), "`serial` is TileLang's", "write `for i in 0..n { … }`"),
    Row(Of(TILES, "unroll"), "`unroll` is a word before a loop", "write `unroll for i in 0..n { … }`"),
    Row(Of(TILES, "clear"), "`clear` is TileLang's", "write `fill(acc, 0.0)`"),
    Row(Of(TILES, "ceildiv"), "`ceildiv` is `ceil_div` here", "write `ceil_div(a, b)`"),
    Row(Of(TILES, "cdiv"), "`cdiv` is `ceil_div` here", "write `ceil_div(a, b)`"),
    Row(
        Of(TILES, "program_id"),
        "`program_id` is Pallas's name of a block's index",
        "write `block.x`, `block.y` or `block.z`",
    ),
    Row(
        Of(TILES, "bid"),
        "`bid` is cuTile's name of a block's index",
        "write `block.x`, `block.y` or `block.z`",
    ),
    Row(
        Of(TILES, "load"),
        "memory is viewed, and copied by tiles",
        "write `g = global_view(x[block.x * T :], (T) : (e0))`, `r = register_tensor(f32, [T])`, `copy(g, r)`",
    ),
    Row(
        Of(TILES, "store"),
        "memory is viewed, and copied by tiles",
        "write `g = global_view(y[block.x * T :], (T) : (e0))`, `copy(r, g)`",
    ),
    Row(Of(TILES, "mma"), "a product is `gemm`", "write `gemm(acc, a, b)` for `acc += a · bᵀ`"),
    Row(Of(TILES, "dot"), "a product is `gemm`", "write `gemm(acc, a, b)` for `acc += a · bᵀ`"),
    Row(Of(TILES, "when"), "`when` is Pallas's", "write `if block.x == 0 { … }`"),
    Row(Of(TILES, "ds"), "`ds` is Pallas's", "write `g = global_view(x[block.x * T :], (T) : (e0))`"),
    // Triton, with modules.
    Row(
        Of(TL, "expand_dims"),
        "`expand_dims` is `expand` here",
        "write `expand(x, axis)`, which puts a mode of extent 1 there",
    ),
    Row(
        Of(TL, "broadcast_to"),
        "`broadcast_to` is Triton's",
        "write `broadcast(x, [BM, BN])`, or nothing: modes of extent 1 are repeated",
    ),
    Row(Of(TL, "permute"), "`permute` is Triton's", "write `transpose(x)`"),
    Row(Of(TL, "view"), "`view` is `reshape` here", "write `reshape(x, [A, B])`"),
    Row(Of(TL, "cat"), "`cat` is `join` here", "write `join(x, y)`"),
    Row(Of(TL, "cumsum"), "`cumsum` is a `scan`", "write `scan(x, sum, axis)`"),
    Row(Of(TL, "associative_scan"), "`associative_scan` is `scan` here", "write `scan(x, sum, axis)`"),
    Row(Of(TL, "device_print"), "`device_print` is Triton's", "write `print(\"the sum\", x)`"),
    Row(Of(TL, "device_assert"), "`device_assert` is Triton's", "write `assert(all(x >= 0.0), \"why\")`"),
    Row(Of(TL, "static_assert"), "`static_assert` is Triton's", "write `assert(BM % 16 == 0, \"why\")`"),
    Row(
        Of(TL, "multiple_of"),
        "`multiple_of` is Triton's: what divides a size is asked at launch",
        "leave it out",
    ),
    Row(Of(TL, "max_contiguous"), "`max_contiguous` is Triton's", "leave it out"),
    Row(
        Of(TL, "program_id"),
        "`program_id` is Triton's name of a block's index",
        "write `block.x`, `block.y` or `block.z`",
    ),
    Row(
        Of(TL, "num_programs"),
        "`num_programs` is Triton's",
        "write the expression that stands in `grid(…)`, e.g. `ceil_div(m, BM)`",
    ),
    Row(
        Of(TL, "load"),
        "`load` is Triton's: memory is viewed, and copied by tiles",
        "write `g = global_view(x[block.x * T :], (T) : (e0))`, `r = register_tensor(f32, [T])`, `copy(g, r)`",
    ),
    Row(
        Of(TL, "store"),
        "`store` is Triton's: memory is viewed, and copied by tiles",
        "write `g = global_view(y[block.x * T :], (T) : (e0))`, `copy(r, g)`",
    ),
    Row(
        Of(TL, "dot"),
        "`dot` is Triton's: a product adds to its result, and takes the right factor as N×K",
        "write `gemm(acc, a, b)` for `acc += a · bᵀ`",
    ),
    Row(
        Of(TL, "arange"),
        "`arange` is Triton's: views have the offsets",
        "write `index(axis)` for the coordinate of an element, or `global_view(x[block.x * T :], (T) : (e0))` for addresses",
    ),
    Row(
        Of(TL, "make_block_ptr"),
        "`make_block_ptr` is Triton's",
        "write `g = global_view(x[block.x * BM :, :], (BM, BK) : (e0, e1))`",
    ),
    Row(
        Of(TL, "advance"),
        "`advance` is Triton's: a view has an iteration mode",
        "write `(BM, BK, ceil_div(k, BK)) : (e0, e1, BK * e1)` and index it: `copy(g[:, :, i], r)`",
    ),
    Row(Of(TL, "cdiv"), "`cdiv` is Triton's", "write `ceil_div(a, b)`"),
    Row(
        Of(TL, "constexpr"),
        "`constexpr` is Triton's: constants are declared before the kernel",
        "leave the parameter out and write `const NAME = 1024` above the kernel",
    ),
    Row(Of(TL, "sigmoid"), "there is no function `sigmoid`", "write `1.0 / (1.0 + exp(-x))`"),
    Row(Of(TL, "trans"), "`trans` is Triton's", "write `transpose(x)`"),
    Row(Of(TL, "debug_barrier"), "`debug_barrier` is Triton's", "write `syncthreads()`"),
    Row(Of(TL, "static_range"), "`static_range` is Triton's", "write `unroll for i in 0..n { … }`"),
    Row(Of(TL, "range"), "`range` is Python's", "write `for i in 0..n { … }`"),
    Row(
        Of(TL, "atomic_add"),
        "`atomic_add` takes a view here",
        "write `copy(r, view, add)`, or, for what was there before, `old = atomic_add(view, r)`",
    ),
    Row(
        Of(ARRAYS, "zeros"),
        "there is no function `zeros`",
        "write `t = register_tensor(f32, [BM, BN])` and `fill(t, 0.0)`",
    ),
    Row(
        Of(ARRAYS, "zeros_like"),
        "there is no function `zeros_like`",
        "write `t = register_tensor(f32, [BM, BN])` and `fill(t, 0.0)`",
    ),
    Row(
        Of(ARRAYS, "full"),
        "there is no function `full`",
        "write `t = register_tensor(f32, [BM, BN])` and `fill(t, 1.0)`",
    ),
    Row(Of(ARRAYS, "empty"), "there is no function `empty`", "write `t = register_tensor(f32, [BM, BN])`"),
    Row(
        Of(ARRAYS, "sum"),
        "`sum` is the operation of a `reduce`",
        "write `reduce(x, sum, axis)`; with `keep` the mode stays with extent 1",
    ),
    Row(
        Of(ARRAYS, "max"),
        "a maximum along a mode is a `reduce`",
        "write `reduce(x, max, axis)`; of two tensors `max(x, y)`",
    ),
    Row(
        Of(ARRAYS, "min"),
        "a minimum along a mode is a `reduce`",
        "write `reduce(x, min, axis)`; of two tensors `min(x, y)`",
    ),
    Row(Of(ARRAYS, "mean"), "there is no function `mean`", "write `reduce(x, sum, axis) / float(n)`"),
    Row(Of(ARRAYS, "maximum"), "`maximum` is `max` here", "write `max(x, y)`"),
    Row(Of(ARRAYS, "minimum"), "`minimum` is `min` here", "write `min(x, y)`"),
    Row(
        Of(ARRAYS, "matmul"),
        "a product adds to its result, and takes the right factor as N×K",
        "write `gemm(acc, a, b)` for `acc += a · bᵀ`",
    ),
    Row(
        Of(ARRAYS, "softmax"),
        "there is no function `softmax`",
        "write `e = exp(x - reduce(x, max, 1, keep))` and `e / reduce(e, sum, 1, keep)`",
    ),
    Row(Of(ARRAYS, "where"), "names of modules are not written", "write `where(c, x, y)`"),
    Row(Of(ARRAYS, "inf"), "names of modules are not written", "write `inf` or `-inf`"),
    Row(Of(ARRAYS, "float32"), "element types have no module", "write `f32`"),
    Row(Of(ARRAYS, "float16"), "element types have no module", "write `f16`"),
    Row(Of(ARRAYS, "bfloat16"), "element types have no module", "write `bf16`"),
    Row(Of(ARRAYS, "int32"), "element types have no module", "write `i32`"),
    // Methods.
    Row(Method("to"), "a tensor has no methods", "write `cast({before}, {inside})`"),
    Row(Method("type"), "a tensor has no methods", "write `cast({before}, {inside})`"),
    Row(Method("half"), "a tensor has no methods", "write `cast({before}, f16)`"),
    Row(Method("float"), "a tensor has no methods", "write `cast({before}, f32)`"),
    Row(Method("sum"), "a tensor has no methods", "write `reduce({before}, sum, axis)`"),
    Row(Method("max"), "a tensor has no methods", "write `reduce({before}, max, axis)`"),
    Row(Method("min"), "a tensor has no methods", "write `reduce({before}, min, axis)`"),
    Row(Method("mean"), "a tensor has no methods", "write `reduce({before}, sum, axis) / float(n)`"),
    Row(Method("exp"), "a tensor has no methods", "write `exp({before})`"),
    Row(Method("T"), "a tensor has no attributes", "write `transpose({before})`"),
    Row(Method("t"), "a tensor has no methods", "write `transpose({before})`"),
    Row(
        Method("shape"),
        "a tensor has no attributes",
        "write the constant or the size that it was declared with",
    ),
    Row(
        Method("size"),
        "a tensor has no attributes",
        "write the constant or the size that it was declared with",
    ),
    Row(Method("view"), "a tensor has no methods", "write `reshape({before}, [A, B])`"),
    Row(Method("reshape"), "a tensor has no methods", "write `reshape({before}, [A, B])`"),
    Row(Method("unsqueeze"), "a tensor has no methods", "write `expand({before}, axis)`"),
    // Calls without a module.
    Row(Call("range"), "`range` is Python's", "write `for i in 0..n { … }`"),
    Row(Call("cdiv"), "`cdiv` is `ceil_div` here", "write `ceil_div(a, b)`"),
    Row(
        Call("zeros"),
        "there is no function `zeros`",
        "write `t = register_tensor(f32, [BM, BN])` and `fill(t, 0.0)`",
    ),
    Row(
        Call("ones"),
        "there is no function `ones`",
        "write `t = register_tensor(f32, [BM, BN])` and `fill(t, 1.0)`",
    ),
    Row(
        Call("full"),
        "there is no function `full`",
        "write `t = register_tensor(f32, [BM, BN])` and `fill(t, 1.0)`",
    ),
    Row(
        Call("sum"),
        "`sum` is the operation of a `reduce`",
        "write `reduce(x, sum, axis)`; with `keep` the mode stays with extent 1",
    ),
    Row(Call("mean"), "there is no function `mean`", "write `reduce(x, sum, axis) / float(n)`"),
    Row(Call("cumsum"), "there is no function `cumsum`", "write `scan(x, sum, axis)`"),
    Row(
        Call("softmax"),
        "there is no function `softmax`",
        "write `e = exp(x - reduce(x, max, 1, keep))` and `e / reduce(e, sum, 1, keep)`",
    ),
    Row(Call("sigmoid"), "there is no function `sigmoid`", "write `1.0 / (1.0 + exp(-x))`"),
    Row(Call("relu"), "there is no function `relu`", "write `max(x, 0.0)`"),
    Row(Call("pow"), "there is no function `pow`", "write `x * x`, or `exp2(y * log2(x))`"),
    Row(Call("dot"), "there is no function `dot`", "write `gemm(acc, a, b)` for `acc += a · bᵀ`"),
    Row(Call("matmul"), "there is no function `matmul`", "write `gemm(acc, a, b)` for `acc += a · bᵀ`"),
    Row(Call("load"), "there is no statement `load`", "write `copy(view, r)`"),
    Row(Call("store"), "there is no statement `store`", "write `copy(r, view)`"),
    Row(
        Call("len"),
        "there is no function `len`",
        "write the constant or the size that it was declared with",
    ),
    Row(Call("sync"), "there is no statement `sync`", "write `syncthreads()`"),
    Row(Call("barrier"), "there is no statement `barrier`", "write `syncthreads()`"),
    Row(
        Word("None"),
        "an index adds no modes",
        "write `expand(t, axis)`, which puts a mode of extent 1 there: `t[:, None]` is `expand(t, 1)`",
    ),
    Row(Word("True"), "`True` is Python's", "write a comparison that holds, e.g. `index(0) >= 0`"),
    Row(Word("False"), "`False` is Python's", "write a comparison that does not hold, e.g. `index(0) < 0`"),
    // Beginnings of lines.
    Row(
        Begins("def"),
        "`def` is Python's",
        "write `kernel name(x: f32[n]) grid(ceil_div(n, T)) threads(128) { … }`, of a function `fn name(x, y) { return x + y }`",
    ),
    Row(Begins("elif"), "`elif` is Python's", "write `else if … { … }`"),
    Row(Begins("import"), "`import` is Python's", "write `use \"file.tile\"`, or leave it out"),
    Row(Begins("from"), "`from` is Python's", "write `use \"file.tile\"`, or leave it out"),
    Row(Begins("pass"), "`pass` is Python's", "leave it out: a block may be empty"),
    Row(
        Begins("while"),
        "a loop with a condition has a counter, too",
        "write `for i in 0..n while … { … }`, or `break if …` within a `for`",
    ),
    Row(
        Begins("template"),
        "a tile program has no templates",
        "write `const NAME = 128` above the kernel: the compiler may be given other values",
    ),
    Row(Begins("void"), "`void` is C's", "write `kernel name(…) grid(…) threads(…) { … }`"),
    Row(Begins("var"), "tensors are not declared by a word", "write `t = …`"),
    Row(Begins("auto"), "`auto` is C++'s", "write `t = …`"),
    Row(
        Begins("@triton"),
        "decorators are Python's",
        "write `kernel name(x: f32[n]) grid(ceil_div(n, T)) threads(128) { … }`, and `space { T = 64 | 128 }` for a tuner",
    ),
    // Types.
    Row(Type("float16"), "`float16` is `f16` here", "write `f16`"),
    Row(Type("fp16"), "`fp16` is `f16` here", "write `f16`"),
    Row(Type("half"), "`half` is `f16` here", "write `f16`"),
    Row(Type("__half"), "`__half` is `f16` here", "write `f16`"),
    Row(Type("bfloat16"), "`bfloat16` is `bf16` here", "write `bf16`"),
    Row(Type("__nv_bfloat16"), "`__nv_bfloat16` is `bf16` here", "write `bf16`"),
    Row(Type("float32"), "`float32` is `f32` here", "write `f32`"),
    Row(Type("fp32"), "`fp32` is `f32` here", "write `f32`"),
    Row(Type("float"), "`float` is `f32` here", "write `f32`"),
    Row(Type("float64"), "`float64` is `f64` here", "write `f64`"),
    Row(Type("double"), "`double` is `f64` here", "write `f64`"),
    Row(Type("int8"), "`int8` is `i8` here", "write `i8`"),
    Row(Type("uint8"), "`uint8` is `u8` here", "write `u8`"),
    Row(Type("int16"), "`int16` is `i16` here", "write `i16`"),
    Row(Type("int"), "`int` is `i32` here", "write `i32`"),
    Row(Type("int32"), "`int32` is `i32` here", "write `i32`"),
    Row(Type("uint32"), "`uint32` is `u32` here", "write `u32`"),
    Row(Type("unsigned"), "`unsigned` is `u32` here", "write `u32`"),
    Row(Type("int64"), "`int64` is `i64` here", "write `i64`"),
    Row(Type("long"), "`long` is `i64` here", "write `i64`"),
    Row(Type("fp8"), "there are two 8-bit floats", "write `e4m3` or `e5m2`"),
    Row(Type("float8_e4m3fn"), "`float8_e4m3fn` is `e4m3` here", "write `e4m3`"),
    Row(Type("float8_e5m2"), "`float8_e5m2` is `e5m2` here", "write `e5m2`"),
    // Operands by name.
    Row(
        Named("axis"),
        "the number of a mode is an operand without a name",
        "write the number alone: `reduce(x, sum, 1)`",
    ),
    Row(
        Named("dim"),
        "the number of a mode is an operand without a name",
        "write the number alone: `reduce(x, sum, 1)`",
    ),
    Row(Named("keepdim"), "`keepdim` is the word `keep` here", "write `reduce(x, sum, 1, keep)`"),
    Row(Named("keepdims"), "`keepdims` is the word `keep` here", "write `reduce(x, sum, 1, keep)`"),
    Row(
        Named("mask"),
        "copies have no mask: what lies outside of a tensor is not read or written",
        "write `copy(view, r, outside = 0.0)`, or mask the values: `where(index(0) < n, r, 0.0)`",
    ),
    Row(Named("other"), "what lies outside is `outside` here", "write `copy(view, r, outside = -inf)`"),
    Row(
        Named("dtype"),
        "a type is an operand without a name",
        "write the type first: `register_tensor(f32, [BM, BN])`, or `cast(x, f32)`",
    ),
    // Signs.
    Row(Sign(":="), "there is no `:=`", "write `{before} = {after}`"),
    Row(Sign("..="), "a range ends before its end: there is no `..=`", "write `0..n + 1`"),
    Row(Sign("..."), "a range has two points", "write `0..n`"),
    Row(
        Sign("]["),
        "modes stand in one pair of brackets, with commas between",
        "write `[i, j]` for `[i][j]`",
    ),
    Row(Sign("<<<"), "a launch stands in the kernel's header", "write `grid(ceil_div(n, T)) threads(128)`"),
    Row(Sign("~"), "there is no `~`", "write `not c` of a truth value, `x ^ -1` of an integer"),
    Row(Sign("\\"), "a line goes on within brackets, and behind an operator", "leave the `\\` out"),
    Row(Sign("%%"), "there is no `%%`", "write `%`"),
    Row(Sign("+="), "there is no `+=`: a statement assigns", "write `{before} = {before} + {after}`"),
    Row(Sign("-="), "there is no `-=`: a statement assigns", "write `{before} = {before} - {after}`"),
    Row(Sign("*="), "there is no `*=`: a statement assigns", "write `{before} = {before} * {after}`"),
    Row(Sign("/="), "there is no `/=`: a statement assigns", "write `{before} = {before} / {after}`"),
    Row(Sign("++"), "there is no `++`: a loop counts", "write `for i in 0..n { … }`"),
    Row(Sign("**"), "there is no `**`", "write `x * x`, or `exp2(y * log2(x))`"),
    Row(Sign("&&"), "`&&` is C's", "write `and`"),
    Row(Sign("||"), "`||` is C's", "write `or`"),
    Row(
        Sign("/*"),
        "comments end with the line: there is no `/*`",
        "begin each line of the comment with `//`",
    ),
    Row(Sign("->"), "results have no declared type", "leave `-> …` out"),
    Row(
        Sign("@"),
        "there is no operator `@`: a product adds to its result, and takes the right factor as N×K",
        "write `acc = register_tensor(f32, [M, N])`, `fill(acc, 0.0)`, `gemm(acc, a, b)` for `acc += a · bᵀ`",
    ),
];
