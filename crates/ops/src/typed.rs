//! Operators with arguments by position and options by methods: a table on top of [`Call`].

use tilewright_kernels::epilogue::Part;
use tilewright_launch::{PreparedChain, Stream, View, ViewMut, Workspace};

use crate::call::Call;
use crate::error::OpsError;
use crate::library::Library;
use crate::name::Name;
use crate::value::{Kind, Parts, Value};
use crate::why::Why;

/// A method of a call's type.
macro_rules! method {
    ($(#[$doc:meta])* tensor $name:ident = $param:literal) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(mut self, tensor: &'a View<'_>) -> Self {
            self.call.give(const { Name::new($param) }, tensor.into());
            self
        }
    };
    ($(#[$doc:meta])* result $name:ident = $param:literal) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(mut self, tensor: &'a mut ViewMut<'_>) -> Self {
            self.call.give(const { Name::new($param) }, tensor.into());
            self
        }
    };
    ($(#[$doc:meta])* number $name:ident = $param:literal) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(mut self, number: f32) -> Self {
            self.call.give(const { Name::new($param) }, number.into());
            self
        }
    };
    ($(#[$doc:meta])* option $name:ident = $option:literal) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(mut self, value: impl Into<Value<'a>>) -> Self {
            self.call.set(const { Name::new($option) }, value.into());
            self
        }
    };
    ($(#[$doc:meta])* choice $name:ident = $option:literal is $value:literal) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(mut self) -> Self {
            self.call.set(const { Name::new($option) }, $value.into());
            self
        }
    };
    ($(#[$doc:meta])* applied $name:ident = $option:literal to $word:literal) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(mut self, number: i64) -> Self {
            self.call.set(const { Name::new($option) }, Value(Kind::Applied($word, number)));
            self
        }
    };
    ($(#[$doc:meta])* part $name:ident = $part:ident) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(mut self) -> Self {
            self.apply(Part::$part);
            self
        }
    };
    ($(#[$doc:meta])* part_tensor $name:ident = $part:ident) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(mut self, tensor: &'a View<'_>) -> Self {
            self.call.give(const { Name::new(Part::$part.name()) }, tensor.into());
            self.apply(Part::$part);
            self
        }
    };
    ($(#[$doc:meta])* part_result $name:ident = $part:ident) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(mut self, tensor: &'a mut ViewMut<'_>) -> Self {
            self.call.give(const { Name::new(Part::$part.name()) }, tensor.into());
            self.apply(Part::$part);
            self
        }
    };
    ($(#[$doc:meta])* part_number $name:ident = $part:ident) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(mut self, number: f32) -> Self {
            self.call.give(const { Name::new(Part::$part.name()) }, number.into());
            self.apply(Part::$part);
            self
        }
    };
}

/// Defines a type of calls for each row, and the method of the library that begins one.
macro_rules! operators {
    ($(
        $(#[$doc:meta])*
        $Type:ident = $begin:ident, $operator:literal ($($read:ident),* ; $($write:ident),*) {
            $($(#[$of:meta])* $kind:ident $name:ident = $what:tt $($word:ident $value:literal)?;)*
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            #[must_use = "a call does nothing before it is run"]
            pub struct $Type<'a> {
                call: Call<'a>,
                stream: Stream<'a>,
                parts: Parts,
            }

            impl<'a> $Type<'a> {
                $(method!($(#[$of])* $kind $name = $what $($word $value)?);)*

                /// Adds an operation of the epilogue behind the others.
                #[allow(dead_code, reason = "not every operator has an epilogue")]
                #[inline]
                fn apply(&mut self, part: Part) {
                    self.parts = self.parts.with(part);
                    self.call.set(const { Name::new("epilogue") }, Value(Kind::Parts(self.parts)));
                }

                /// With an option of the operator: see [`Call::option`].
                #[inline]
                pub fn option(mut self, name: &'a str, value: impl Into<Value<'a>>) -> Self {
                    self.call.set(Name::new(name), value.into());
                    self
                }

                /// With a workspace: see [`Call::workspace`].
                #[inline]
                pub fn workspace(mut self, workspace: &'a mut Workspace<'_>) -> Self {
                    self.call.lend(workspace);
                    self
                }

                /// With kernels that may begin early: see [`Call::dependent`].
                #[inline]
                pub fn dependent(mut self, dependent: bool) -> Self {
                    self.call.set_dependent(dependent);
                    self
                }

                /// The call, with arguments by name.
                pub fn call(&self) -> &Call<'a> {
                    &self.call
                }

                /// Puts the launches on the stream: see [`Call::run`].
                ///
                /// # Errors
                ///
                /// As of [`Call::run`].
                #[inline]
                pub fn run(mut self) -> Result<(), OpsError> {
                    self.call.run_on(self.stream)
                }

                /// The launches of a run, for streams to be given any number of times: see [`Call::prepared`].
                ///
                /// # Errors
                ///
                /// As of [`Call::run`].
                pub fn prepared(mut self) -> Result<PreparedChain, OpsError> {
                    self.call.prepare_launches()
                }

                /// Bytes of the workspace that a run takes: see [`Call::workspace_bytes`].
                ///
                /// # Errors
                ///
                /// As of [`Call::run`].
                pub fn workspace_bytes(&self) -> Result<u64, OpsError> {
                    self.call.workspace_bytes()
                }

                /// The choice and its origin: see [`Call::why`].
                ///
                /// # Errors
                ///
                /// As of [`Call::run`].
                pub fn why(&self) -> Result<Why, OpsError> {
                    self.call.why()
                }
            }
        )*

        /// Operators with arguments by position.
        impl Library {
            $(
                $(#[$doc])*
                #[inline]
                pub fn $begin<'a>(
                    &'a self,
                    stream: Stream<'a>,
                    $($read: &'a View<'_>,)*
                    $($write: &'a mut ViewMut<'_>,)*
                ) -> $Type<'a> {
                    let call = Call::new(self, const { Name::new($operator) });
                    let mut of = $Type { call, stream, parts: Parts::new() };
                    $(of.call.begin(const { Name::new(stringify!($read)) }, $read.into());)*
                    $(of.call.begin(const { Name::new(stringify!($write)) }, $write.into());)*
                    of
                }
            )*
        }
    };
}

operators! {
    /// `c[m, n] = a[m, k] · b[n, k]ᵀ`, or `l` such products of tensors with one mode more. The epilogue's operations are applied in the order in which they are asked for.
    GemmCall = gemm, "gemm" (a, b; c) {
        /// Multiplies the sums by a number.
        part_number alpha = Alpha;
        /// Multiplies each row by a number of its own, of `f32`.
        part_tensor row_scale = RowScale;
        /// Multiplies each column by a number of its own, of `f32`.
        part_tensor col_scale = ColScale;
        /// Adds a number to each column, of c's type.
        part_tensor bias = Bias;
        /// The larger of each value and 0.
        part relu = Relu;
        /// Gelu, by tanh.
        part gelu = Gelu;
        /// Silu.
        part silu = Silu;
        /// Adds a matrix of c's type and shape.
        part_tensor residual = Residual;
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
        /// Multiplies the sums by a number.
        part_number alpha = Alpha;
        /// Multiplies each row by a number of its own, of `f32`.
        part_tensor row_scale = RowScale;
        /// Adds a number to each column, of c's type.
        part_tensor bias = Bias;
        /// The larger of each value and 0.
        part relu = Relu;
        /// Gelu, by tanh.
        part gelu = Gelu;
        /// Silu.
        part silu = Silu;
        /// Adds a matrix of c's type and shape.
        part_tensor residual = Residual;
    }
    /// `c[m, n] = a[m, k] · b[n, k]ᵀ` in 8-bit floats with scales of blocks, `sa[⌈k / 128⌉, m]` and `sb[⌈n / 128⌉, ⌈k / 128⌉]`.
    GemmFp8BlocksCall = gemm_fp8_blocks, "gemm_fp8_blocks" (a, b, sa, sb; c) {}
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
    /// `y = x · rsqrt(mean(x²) + eps) · w` by rows.
    RmsnormCall = rmsnorm, "rmsnorm" (x, w; y) {
        /// The summand of the mean of squares.
        number eps = "eps";
    }
    /// `h = x + r`, and `y` as of [`Library::rmsnorm`] of it.
    AddRmsnormCall = add_rmsnorm, "add_rmsnorm" (x, r, w; h, y) {
        /// The summand of the mean of squares.
        number eps = "eps";
    }
    /// `y = (x − mean(x)) · rsqrt(var(x) + eps) · w + b` by rows.
    LayernormCall = layernorm, "layernorm" (x, w, b; y) {
        /// The summand of the variance.
        number eps = "eps";
    }
    /// `h = x + r`, and `y` as of [`Library::layernorm`] of it.
    AddLayernormCall = add_layernorm, "add_layernorm" (x, r, w, b; h, y) {
        /// The summand of the variance.
        number eps = "eps";
    }
    /// `y = softmax(x)` by rows.
    SoftmaxCall = softmax, "softmax" (x; y) {}
    /// `y = log(softmax(x))` by rows.
    LogSoftmaxCall = log_softmax, "log_softmax" (x; y) {}
    /// `y[t, h, d]`: x with the pairs `(x[i], x[i + d/2])` of every head turned by the angles of `cos`, `sin[t, d/2]`.
    RopeCall = rope, "rope" (x, cos, sin; y) {}
    /// The same with the pairs `(x[2i], x[2i + 1])`.
    RopeInterleavedCall = rope_interleaved, "rope_interleaved" (x, cos, sin; y) {}
    /// `y = silu(a) · b`.
    SiluMulCall = silu_mul, "silu_mul" (a, b; y) {}
    /// `y = gelu(a) · b`, gelu by tanh.
    GeluMulCall = gelu_mul, "gelu_mul" (a, b; y) {}
    /// `y[t, n] = w[ids[t], n]`.
    EmbeddingCall = embedding, "embedding" (w, ids; y) {}
    /// `lse` and `loss[m]` of the logits `x[m, n]` with the classes `target[m]`.
    CrossEntropyCall = cross_entropy, "cross_entropy" (x, target; lse, loss) {}
    /// `y[m, n]`, the sums of each row up to a column, in `f32`.
    CumsumCall = cumsum, "cumsum" (x; y) {}
    /// `v[m]`, the largest of each row, and `y[m]`, its column.
    ArgmaxCall = argmax, "argmax" (x; y, v) {}
    /// `v[m, k]`, the k largest of each row, and `y[m, k]`, their columns.
    TopkCall = topk, "topk" (x; v, y) {}
    /// `y[m, n]` in `e4m3` with a scale for each row, `s[m]`.
    QuantiseRowsFp8Call = quantise_rows_fp8, "quantise_rows_fp8" (x; y, s) {}
    /// `y[m, n]` in `e4m3` with a scale for 128 columns of a row, `s[m, ⌈n / 128⌉]`.
    QuantiseBlocksFp8Call = quantise_blocks_fp8, "quantise_blocks_fp8" (x; y, s) {}
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
