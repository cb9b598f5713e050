//! The options of attention forward, once: whatever the program, they say what is computed.

/// Defines a configuration of attention forward by [`parameters!`](crate::config::parameters): the options that all have stand between those ahead of them and those behind.
macro_rules! forward {
    (
        $(#[$meta:meta])*
        pub struct $Config:ident, $name:literal, $programs:ident { { $($ahead:tt)* } { $($behind:tt)* } }
    ) => {
        $crate::attention::options::forward! {
            @options $Config { $(#[$meta])* pub struct $Config, $name, $programs } { $($ahead)* } { $($behind)* }
            /// Elements of a head of q and k, a multiple of 16 up to 256.
            d: i64 as INT = 128,
            /// Elements of a head of v and o, a multiple of 16 up to 256, or same: as many.
            dv: Option<i64> as SAME_HEAD = None,
            /// The keys that a query attends to: none (all of them), causal (up to its own place; the last query's is the last key's) or window(n) (the last n of those).
            mask: Mask as OWN = Mask::None,
            /// A further condition under which query i attends to key j: a comparison over i, j, the head h and the batch b, such as i / 512 == j / 512; or none. i is the query's place among the keys.
            attends: Option<Expression> as EXPRESSION = None,
            /// The score instead of x = scale · q kᵀ, an expression over x, i, j, h and b, such as x - 0.1 * float(i - j); or none.
            score: Option<Expression> as EXPRESSION = None,
            /// Scalar parameters for these two, such as slope: f32 = 0.5.
            scalars: Scalars as OWN = Scalars::default(),
            /// Scores x become cap · tanh(x / cap), where cap is a scalar of the launch.
            softcap: bool as FLAG = false,
            /// Adds slope · (j − i) to the scores of query i and key j, with a slope of each head of q (ALiBi).
            alibi: bool as FLAG = false,
            /// Adds bias[bb, bh, sq, sk] to scores, where bb is 1 or b and bh is 1 or hq.
            bias: bool as FLAG = false,
            /// Adds the exponential of a sink, one a head of q, to each query's sum: a key without a value.
            sink: bool as FLAG = false,
            /// Writes lse[b, hq, sq] as well: the logarithm of each query's sum of exponentials.
            lse: bool as FLAG = false,
            /// The order of the modes of q, k, v and o: bshd or bhsd (b batches, s places, h heads, d elements).
            modes: Modes as OWN = Modes::Bshd,
            /// Sequences of their own lengths one behind the other: q[tq, hq, d], k[tk, hk, d], v[tk, hk, dv], o[tq, hq, dv], lse[hq, tq]; cu_q and cu_k have the places where they begin, and behind them the end; sq and sk are the longest.
            varlen: bool as FLAG = false,
            /// The distances of neighbours along each mode of q, k, v and o but the last are sizes: q_b, q_s, q_h and so on.
            strides: bool as FLAG = false,
        }
    };
    (
        @options $Config:ident { $($head:tt)* }
        { $($(#[doc = $first_doc:literal])+ $first:ident: $first_type:ty as $first_codec:ident = $first_default:expr,)+ }
        { $($behind:tt)* }
        $($(#[doc = $doc:literal])+ $field:ident: $type:ty as $codec:ident = $default:expr,)+
    ) => {
        $crate::config::parameters! {
            $($head)* {
                $($(#[doc = $first_doc])+ $first: $first_type as $first_codec = $first_default,)+
                $($(#[doc = $doc])+ $field: $type as $codec = $default,)+
                $($behind)*
            }
        }

        impl $Config {
            /// The parameters that say what is computed.
            pub(super) const OPTIONS: &'static [&'static str] = &[$(stringify!($first),)+ $(stringify!($field)),+];

            /// The function that is computed, as [`AttentionConfig`] has it, with blocks of as many keys.
            pub fn computed(&self) -> AttentionConfig {
                AttentionConfig {
                    dtype: self.dtype,
                    bn: self.bn,
                    $($field: Clone::clone(&self.$field),)+
                    ..AttentionConfig::default()
                }
            }

            /// Elements of a head of v.
            pub fn values(&self) -> i64 {
                self.dv.unwrap_or(self.d)
            }
        }
    };
}
pub(super) use forward;
