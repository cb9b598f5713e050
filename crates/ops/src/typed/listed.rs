//! Operators whose tensors and numbers are those of their programs, whatever their options. A test writes this file from the programs:
//! `TILEWRIGHT_BLESS=1 cargo test --workspace --test methods`.

operators! {
    /// `y[m, n] = x[m, n]`.
    CopyCall = copy, "copy" (x; y) {}
    /// `y[m, n] = silu(a[m, n]) · b[m, n]`.
    SiluMulCall = silu_mul, "silu_mul" (a, b; y) {}
    /// `y[m, n] = gelu(a[m, n]) · b[m, n], gelu by tanh`.
    GeluMulCall = gelu_mul, "gelu_mul" (a, b; y) {}
    /// `y[m, n] = x · rsqrt(mean(x²) + eps) · w[n] by rows`.
    RmsnormCall = rmsnorm, "rmsnorm" (x, w; y) {
        /// The number `eps`; 0.000001 if nothing is said.
        number eps = "eps";
    }
    /// `h[m, n] = x + r, y[m, n] = h · rsqrt(mean(h²) + eps) · w[n] by rows`.
    AddRmsnormCall = add_rmsnorm, "add_rmsnorm" (x, r, w; h, y) {
        /// The number `eps`; 0.000001 if nothing is said.
        number eps = "eps";
    }
    /// `y[m, n] = (x − mean(x)) · rsqrt(var(x) + eps) · w[n] + b[n] by rows`.
    LayernormCall = layernorm, "layernorm" (x, w, b; y) {
        /// The number `eps`; 0.00001 if nothing is said.
        number eps = "eps";
    }
    /// `h[m, n] = x + r, y[m, n] = (h − mean(h)) · rsqrt(var(h) + eps) · w[n] + b[n] by rows`.
    AddLayernormCall = add_layernorm, "add_layernorm" (x, r, w, b; h, y) {
        /// The number `eps`; 0.00001 if nothing is said.
        number eps = "eps";
    }
    /// `y[t, h, d]: x with the pairs (x[i], x[i + d/2]) of every head turned by the angles of cos, sin[t, d/2]`.
    RopeCall = rope, "rope" (x, cos, sin; y) {}
    /// `y[t, h, d]: x with the pairs (x[2i], x[2i + 1]) of every head turned by the angles of cos, sin[t, d/2]`.
    RopeInterleavedCall = rope_interleaved, "rope_interleaved" (x, cos, sin; y) {}
    /// `dx[m, n] and dw[n] (f32) of rmsnorm, from x, w and dy`.
    RmsnormBackwardCall = rmsnorm_backward, "rmsnorm_backward" (x, w, dy; dx, dw) {
        /// The number `eps`; 0.000001 if nothing is said.
        number eps = "eps";
    }
    /// `dx[m, n], of both summands, and dw[n] (f32) of add_rmsnorm, from x (its h), w, dy and dh`.
    AddRmsnormBackwardCall = add_rmsnorm_backward, "add_rmsnorm_backward" (x, w, dy, dh; dx, dw) {
        /// The number `eps`; 0.000001 if nothing is said.
        number eps = "eps";
    }
    /// `dx[m, n], dw[n] and db[n] (f32) of layernorm, from x, w and dy`.
    LayernormBackwardCall = layernorm_backward, "layernorm_backward" (x, w, dy; dx, dw, db) {
        /// The number `eps`; 0.00001 if nothing is said.
        number eps = "eps";
    }
    /// `dx[m, n], of both summands, dw[n] and db[n] (f32) of add_layernorm, from x (its h), w, dy and dh`.
    AddLayernormBackwardCall = add_layernorm_backward, "add_layernorm_backward" (x, w, dy, dh; dx, dw, db) {
        /// The number `eps`; 0.00001 if nothing is said.
        number eps = "eps";
    }
    /// `y[n] = Σ x[m, n] over m, in f32`.
    SumColumnsCall = sum_columns, "sum_columns" (x; y) {}
    /// `y[n] = Σ x[m, n] / m over m, in f32`.
    MeanColumnsCall = mean_columns, "mean_columns" (x; y) {}
    /// `y[n] = max x[m, n] over m`.
    MaxColumnsCall = max_columns, "max_columns" (x; y) {}
    /// `y[m, n] = exp(x − max(x)) / Σ exp(x − max(x)) by rows`.
    SoftmaxCall = softmax, "softmax" (x; y) {}
    /// `y[m, n] = x − log Σ exp(x) by rows`.
    LogSoftmaxCall = log_softmax, "log_softmax" (x; y) {}
    /// `y[m, n] = softmax of the first lengths[m] elements of each row, 0 behind them`.
    SoftmaxRaggedCall = softmax_ragged, "softmax_ragged" (x, lengths; y) {}
    /// `y[t, n] = w[ids[t], n]`.
    EmbeddingCall = embedding, "embedding" (w, ids; y) {}
    /// `lse[m] = log Σ exp(x[m, n]), loss[m] = lse − x[m, target[m]]`.
    CrossEntropyCall = cross_entropy, "cross_entropy" (x, target; lse, loss) {}
    /// `dx[m, n] = (exp(x − lse[m]) − (n = target[m])) · dloss[m]`.
    CrossEntropyBackwardCall = cross_entropy_backward, "cross_entropy_backward" (x, target, lse, dloss; dx) {}
    /// `loss[m] = Σ target[m, n] · (log target − x[m, n]) over n, where x are logarithms; a target that is not above 0 adds nothing`.
    KlDivCall = kl_div, "kl_div" (x, target; loss) {}
    /// `loss[m] = beta · KL(exp target[m, n], mix) + (1 − beta) · KL(exp x[m, n], mix) over n, mix = beta · exp target + (1 − beta) · exp x`.
    JsdCall = jsd, "jsd" (x, target; loss) {
        /// The number `beta`; 0.5 if nothing is said.
        number beta = "beta";
    }
    /// `y[m, n] = x / (1 − p) where the Philox number of the element is at least p, else 0`.
    DropoutCall = dropout, "dropout" (x; y) {
        /// The number `p`; 0.25 if nothing is said.
        number p = "p";
        /// The number `seed`; 7 if nothing is said.
        integer seed = "seed";
    }
    /// `y[m]: the column of the largest x[m, n], the first of equals; v[m]: that element`.
    ArgmaxCall = argmax, "argmax" (x; y, v) {}
    /// `y[l, n, m] = x[l, m, n]ᵀ`.
    TransposeCall = transpose, "transpose" (x; y) {}
    /// `y[n, m, l] = x[l, m, n]`.
    PermuteReversedCall = permute_reversed, "permute_reversed" (x; y) {}
    /// `y[l, n, m, d] = x[l, m, n, d]`.
    PermuteCall = permute, "permute" (x; y) {}
    /// `y[l, m] = a[l, m, n] · x[l, n], sums in f32`.
    GemvCall = gemv, "gemv" (a, x; y) {}
    /// `y[t, m] = w[ids[t], m, n] · x[n] with weights of i8, sums in f32`.
    GatherGemvCall = gather_gemv, "gather_gemv" (w, ids, x; y) {}
    /// `y[l, n] = a[l, m, n]ᵀ · x[l, m], sums in f32`.
    GemvTransposedCall = gemv_transposed, "gemv_transposed" (a, x; y) {}
    /// `y[m] = Σ x[m, n] over n, in f32`.
    SumRowsCall = sum_rows, "sum_rows" (x; y) {}
    /// `y[b, n] = Σ x[t, n] over the rows t from begins[b] to begins[b + 1], in f32`.
    SumRaggedCall = sum_ragged, "sum_ragged" (x, begins; y) {}
    /// `y[b, n] = the mean of x[t, n] over the rows t from begins[b] to begins[b + 1], in f32, 0 where there is none`.
    MeanRaggedCall = mean_ragged, "mean_ragged" (x, begins; y) {}
    /// `y[m] = Σ x[m, n] / n over n, in f32`.
    MeanRowsCall = mean_rows, "mean_rows" (x; y) {}
    /// `y[m] = max x[m, n] over n`.
    MaxRowsCall = max_rows, "max_rows" (x; y) {}
    /// `y[1] = Σ x[n] over all elements, in f32; the last block adds what the others left`.
    SumAllCall = sum_all, "sum_all" (x; y) {}
    /// `y[1] = the largest x[n] of all, in f32; the last block finds it in what the others left`.
    MaxAllCall = max_all, "max_all" (x; y) {}
    /// `y[m, n] = x / s[m] in e4m3, with s = max(|x|) / 448 of each row`.
    QuantiseRowsFp8Call = quantise_rows_fp8, "quantise_rows_fp8" (x; y, s) {}
    /// `y[m, n] = x / s[m] in i8, with s = max(|x|) / 127 of each row`.
    QuantiseRowsInt8Call = quantise_rows_int8, "quantise_rows_int8" (x; y, s) {}
    /// `y[m, n] = x / s[m, n/128] in e4m3, with s = max(|x|) / 448 of 128 columns of a row`.
    QuantiseBlocksFp8Call = quantise_blocks_fp8, "quantise_blocks_fp8" (x; y, s) {}
    /// `y[m, n] = x / s[m, n/128] in i8, with s = max(|x|) / 127 of 128 columns of a row`.
    QuantiseBlocksInt8Call = quantise_blocks_int8, "quantise_blocks_int8" (x; y, s) {}
    /// `y[m, n] = x / s[m, n/32] in e4m3, with s a power of two for 32 columns of a row (OCP Microscaling Formats)`.
    QuantiseMxfp8E4m3Call = quantise_mxfp8_e4m3, "quantise_mxfp8_e4m3" (x; y, s) {}
    /// `y[m, n] = x / s[m, n/32] in e5m2, with s a power of two for 32 columns of a row (OCP Microscaling Formats)`.
    QuantiseMxfp8E5m2Call = quantise_mxfp8_e5m2, "quantise_mxfp8_e5m2" (x; y, s) {}
    /// `y[m, n] = x / s[m, n/32] in e3m2, a byte each, with s a power of two for 32 columns of a row (OCP Microscaling Formats)`.
    QuantiseMxfp6E3m2Call = quantise_mxfp6_e3m2, "quantise_mxfp6_e3m2" (x; y, s) {}
    /// `y[m, n] = x / s[m, n/32] in e2m3, a byte each, with s a power of two for 32 columns of a row (OCP Microscaling Formats)`.
    QuantiseMxfp6E2m3Call = quantise_mxfp6_e2m3, "quantise_mxfp6_e2m3" (x; y, s) {}
    /// `y[m, n] = x / s[m, n/32] in e2m1, with s a power of two for 32 columns of a row (OCP Microscaling Formats)`.
    QuantiseMxfp4Call = quantise_mxfp4, "quantise_mxfp4" (x; y, s) {}
    /// `y[m, n] = x / s[m, n/16] in e2m1, with s = max(|x|) / 6 in ue4m3 for 16 columns of a row`.
    QuantiseNvfp4Call = quantise_nvfp4, "quantise_nvfp4" (x; y, s) {}
    /// `y[b, d, l] = silu(bias[d] + Σ w[d, k] · x[b, d, l − 3 + k]) over k from 0 to 3`.
    CausalConv1dCall = causal_conv1d, "causal_conv1d" (x, w, bias; y) {}
    /// `y[b, d, l] = (Σ h · cs + skip · u) · silu(z), h = exp(dt · a) · h + dt · u · bs over 16 states, dt = softplus(delta + bias)`.
    SelectiveScanCall = selective_scan, "selective_scan" (u, delta, a, bs, cs, skip, z, bias; y) {}
    /// `y[m, n] = Σ x[m, i] over i from 0 to n, in f32`.
    CumsumCall = cumsum, "cumsum" (x; y) {}
    /// `y[l, n] = Σ x[l, m, n] over m, in f32`.
    SumMiddleCall = sum_middle, "sum_middle" (x; y) {}
    /// `y[l, n] = Σ x[l, m, n] / m over m, in f32`.
    MeanMiddleCall = mean_middle, "mean_middle" (x; y) {}
    /// `y[l, n] = max x[l, m, n] over m`.
    MaxMiddleCall = max_middle, "max_middle" (x; y) {}
    /// `v[m, k], y[m, k]: the k largest x[m, n] of each row, the largest first, and their columns; of equals the first`.
    TopkCall = topk, "topk" (x; v, y) {}
    /// `y[m]: a column drawn by u[m] from the softmax of x[m, n], cut to the fewest largest elements that have p of it`.
    TopPCall = top_p, "top_p" (x, u; y) {
        /// The number `p`; 0.9 if nothing is said.
        number p = "p";
    }
    /// `h[v]: how many x[n] are each of 0..v`.
    HistogramCall = histogram, "histogram" (x; h) {}
    /// `dw[v, n] = Σ dy[t, n] over the t whose ids[t] is v, in f32`.
    EmbeddingBackwardCall = embedding_backward, "embedding_backward" (dy, ids; dw) {}
    /// `y[v, n] = x[t, n] for v = ids[t], of which no two are equal`.
    ScatterCall = scatter, "scatter" (x, ids; y) {}
    /// `y[v, n] += x[t, n] for v = ids[t]`.
    ScatterAddCall = scatter_add, "scatter_add" (x, ids; y) {}
    /// `c[l, m, n] = a[l, m, k] · b[l, n, k]ᵀ for many small matrices, sums in f32`.
    BatchedGemmCall = batched_gemm, "batched_gemm" (a, b; c) {}
    /// `lse[m] = log Σ exp(x[m, k] · w[n, k]ᵀ), loss[m] = lse − the logit of target[m], without the logits in memory`.
    LinearCrossEntropyCall = linear_cross_entropy, "linear_cross_entropy" (x, w, target; lse, loss) {}
    /// `dx[m, k] = g · w and dw[n, k] = gᵀ · x (f32), g[m, n] = (exp(x · wᵀ − lse[m]) − (n = target[m])) · dloss[m], of which some rows are in memory at a time`.
    LinearCrossEntropyBackwardCall = linear_cross_entropy_backward, "linear_cross_entropy_backward" (x, w, target, lse, dloss; dx, dw) {}
    /// `y[b, l, h, 64] = h · cs + skip · x, h = exp(dt · a) · h + dt · x ⊗ bs with 128 states, dt = softplus(delta + bias), a ≤ 0`.
    Mamba2Call = mamba2, "mamba2" (x, delta, a, bs, cs, skip, bias; y) {}
}
