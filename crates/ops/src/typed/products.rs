//! Products, convolutions, attention and the parts of layers of experts.

operators! {
    /// `c[m, n] = a[m, k] · b[n, k]ᵀ`, or `l` such products of tensors with one mode more. The epilogue's operations are applied in the order in which they are asked for.
    GemmCall = gemm, "gemm" (a, b; c) {
        all epilogue = "column";
        /// Multiplies each row by a number of its own, of `f32`.
        part_tensor row_scale = RowScale;
        /// Multiplies each column by a number of its own, of `f32`.
        part_tensor col_scale = ColScale;
        /// Adds what c holds before, times a number.
        part_number beta = Beta;
        /// Adds the sums of rows to a vector of `f32`.
        part_result row_sums = RowSums;
        /// Adds the sums of columns to a vector of `f32`.
        part_result col_sums = ColSums;
        /// a, of the shape `[m, k]`, has the strides `[1, m]`: in memory it is `[k, m]`.
        choice transposed_a = "a" is "m";
        /// b, of the shape `[n, k]`, has the strides `[1, n]`: in memory it is `[k, n]`.
        choice transposed_b = "b" is "n";
    }
    /// `c[m, n] = a[m, k] · (s ∘ w)[n, k]ᵀ` with weights `w` of a few bits, stored by `repack_weights`, and scales `s[⌈k / group⌉, n]`.
    GemmWeightsCall = gemm_weights, "gemm_weights" (a, w, s; c) {
        /// Zero points, a number for each scale.
        tensor zero_points = "z";
        /// Neighbours along k that share a scale; 128 if nothing is said.
        option group = "group";
        all epilogue = "column";
        /// Multiplies each row by a number of its own, of `f32`.
        part_tensor row_scale = RowScale;
    }
    /// `c[m, n] = a[m, k] · (s ∘ w)[n, k]ᵀ` with weights `w` of 4 bits in rows, two a byte, which no kernel has put in order, and scales `s[⌈k / group⌉, n]`.
    W4a16Call = w4a16, "w4a16" (a, w, s; c) {
        /// Zero points, a number for each scale.
        tensor zero_points = "z";
        /// Neighbours along k that share a scale; 128 if nothing is said.
        option group = "group";
    }
    /// `w`, the weights `x[n, k]` in the order in which [`Library::gemm_weights`] loads them.
    RepackWeightsCall = repack_weights, "repack_weights" (x; w) {
        /// Neighbours along k that share a scale; 128 if nothing is said.
        option group = "group";
        /// The type of the activations, where that has 8 bits.
        option activations = "activations";
    }
    /// `c[m, n] = a[m, k] · b[n, k]ᵀ` in 8-bit floats with scales of blocks, `sa[⌈k / 128⌉, m]` and `sb[⌈n / 128⌉, ⌈k / 128⌉]`.
    GemmFp8BlocksCall = gemm_fp8_blocks, "gemm_fp8_blocks" (a, b, sa, sb; c) {}
    /// `c = Σ a · b` over indices, as einsum writes it. Indices that stand beside each other in the same order wherever they stand are one mode of the tensors.
    ContractionCall = contraction, "contraction" (a, b; c) {
        /// The indices, as torch.einsum writes them; those of a product of matrices, `mk,nk->mn`, if nothing is said.
        option einsum = "einsum";
        all epilogue = "column";
        /// Multiplies each column by a number of its own, of `f32`.
        part_tensor col_scale = ColScale;
        /// Adds what c holds before, times a number.
        part_number beta = Beta;
    }
    /// `y[nb, p, q, kout] = x[nb, h, w, c] ∗ f[kout, r, s, c]`, channels last; of images with one mode, or with three, there is a mode less or more.
    ConvCall = conv, "conv_hopper" with "pass" "fprop" (x, f; y) {
        all convolution = "images";
        all epilogue = "channel";
        /// Multiplies each channel by a number of its own, of `f32`.
        part_tensor col_scale = ColScale;
        /// Adds what the result holds before, times a number.
        part_number beta = Beta;
    }
    /// The data gradient `dx[nb, h, w, c]` of [`Library::conv`], from `dy[nb, p, q, kout]` and the filter.
    ConvDataGradientCall = conv_data_gradient, "conv_hopper" with "pass" "dgrad" (dy, f; dx) {
        all convolution = "images";
        all epilogue = "channel";
        /// Multiplies each channel by a number of its own, of `f32`.
        part_tensor col_scale = ColScale;
        /// Adds what the result holds before, times a number.
        part_number beta = Beta;
    }
    /// The weight gradient `df[kout, r, s, c]` of [`Library::conv`], from `dy[nb, p, q, kout]` and `x[nb, h, w, c]`.
    ConvWeightGradientCall = conv_weight_gradient, "conv_hopper" with "pass" "wgrad" (dy, x; df) {
        all convolution = "images";
    }
    /// `o[b, sq, hq, dv] = softmax(scale · q kᵀ) v` by heads.
    AttentionCall = attention, "attention" (q, k, v; o) {
        /// A query attends to keys up to its own place.
        choice causal = "mask" is "causal";
        /// A query attends to so many keys up to its own place.
        applied window = "mask" to "window";
        /// The factor of scores; that of heads of so many elements if nothing is said, 1 / √d.
        number scale = "scale";
        /// Logarithms of the queries' sums of exponentials, `[b, hq, sq]`.
        result lse = "lse";
        /// Summands of scores, `[b or 1, hq or 1, sq, sk]`.
        tensor bias = "bias";
        /// A score without a value for each head of q.
        tensor sinks = "sinks";
        /// Slopes of each head of q (ALiBi).
        tensor slopes = "slopes";
    }
    /// The gradients `dq`, `dk` and `dv` of attention from its result `o`, that one's gradient `dout` and `lse`, the logarithms of the queries' sums of exponentials.
    AttentionBackwardCall = attention_backward, "attention_backward" (q, k, v, o, dout, lse; dq, dk, dv) {
        /// A query attends to keys up to its own place.
        choice causal = "mask" is "causal";
        /// A query attends to so many keys up to its own place.
        applied window = "mask" to "window";
        /// The factor of scores; that of heads of so many elements if nothing is said, 1 / √d.
        number scale = "scale";
        /// Summands of scores, `[b or 1, hq or 1, sq, sk]`, which get no gradient.
        tensor bias = "bias";
        /// Slopes of each head of q (ALiBi), which get no gradient.
        tensor slopes = "slopes";
    }
    /// Attention of few queries over `k[b, sk, hk, d]` and `v[b, sk, hk, dv]`, of which `len[b]` are there.
    AttentionDecodeCall = attention_decode, "attention_decode" (q, k, v, len; o) {
        /// Keys up to its own place that a query attends to.
        option window = "window";
        /// The factor of scores; 1 / √d if nothing is said.
        number scale = "scale";
        /// Logarithms of the queries' sums of exponentials, `[b, sq, hq]`.
        result lse = "lse";
    }
    /// The same over a cache in pages, `kc[pages, page, hk, d]` and `vc`, with `table[b, mb]`.
    AttentionPagedCall = attention_paged, "attention_decode" (q, kc, vc, table, len; o) {
        /// Keys up to its own place that a query attends to.
        option window = "window";
        /// The factor of scores; 1 / √d if nothing is said.
        number scale = "scale";
        /// Logarithms of the queries' sums of exponentials, `[b, sq, hq]`.
        result lse = "lse";
    }
    /// The experts of tokens with the largest of the logits `x[tokens, experts]`: `ids` and `weights[tokens, k]`.
    MoeRoutingCall = moe_routing, "moe_routing" (x; weights, ids) {
        /// Summands of the scores where experts are chosen.
        tensor bias = "bias";
        /// Scores of logits: softmax or sigmoid.
        option scores = "scores";
        /// The factor of weights.
        number scale = "scale";
    }
    /// The tokens in the order of their experts `ids[tokens · k]`: the token of each row, `rows[m]`, the row of each of the k experts of a token, `places[tokens · k]`, the experts and first rows of
    /// tiles, `groups[t]` and `first[t]`, and the end of each expert's rows, `ends[experts]`.
    MoeSortCall = moe_sort, "moe_sort" (ids; rows, places, groups, first, ends) {
        /// Experts of a token; 2 if nothing is said.
        option experts_of_a_token = "k";
        /// Rows of a tile of the product; 64 if nothing is said.
        option tile = "tile";
        /// The number here of each of all experts, negative where it lies elsewhere.
        tensor map = "map";
    }
    /// `y[m, n] = x[rows[m], n]`.
    MoeGatherCall = moe_gather, "moe_gather" (x, rows; y) {}
    /// `y[m, n] = v / s` in `e4m3` with a scale for 128 columns of a row, `s[⌈n / 128⌉, m]`, of `v = x[m, n]`.
    MoeQuantiseCall = moe_quantise, "moe_quantise" (x; y, s) {
        /// Of `v = silu(x[m, : n]) · x[m, n :]`.
        choice gated = "gated" is true;
    }
    /// `y[m, n] = v / s` in y's type, `e4m3` or `i8`, with a scale for each row, `s[m]`, of `v = x[m, n]`.
    MoeQuantiseRowsCall = moe_quantise_rows, "moe_quantise_rows" (x; y, s) {
        /// Of `v = silu(x[m, : n]) · x[m, n :]`.
        choice gated = "gated" is true;
        /// Of rows `x[rows[m], n]`, zeros where there is none.
        tensor rows = "rows";
    }
    /// `y[m, n] = silu(x[m, : n]) · x[m, n :]`.
    MoeGateCall = moe_gate, "moe_gate" (x; y) {}
    /// `y[m, n] = 0`, where results are to be added.
    MoeClearCall = moe_clear, "moe_clear" (; y) {}
    /// `y[tokens, n] = Σ weights[tokens, k] · c[places[tokens, k], n]` over the k experts of a token, of `places[tokens · k]`.
    MoeCombineCall = moe_combine, "moe_combine" (c, places, weights; y) {}
}
