//! The options of attention, once: whatever the program, forward or backward, they say what is computed.

/// Defines a configuration of attention by [`parameters!`](crate::config::parameters): the options that all have stand between those ahead of them and those behind, and
/// those that say what is computed in this one alone beside them. `copied` are fields that are [`AttentionConfig`](super::AttentionConfig)'s too.
macro_rules! options {
    (
        $(#[$meta:meta])*
        pub struct $Config:ident, $name:literal, $programs:ident copied($($copied:ident)*) {
            { $($ahead:tt)* } { $($beside:tt)* } { $($end:tt)* } { $($behind:tt)* }
        }
    ) => {
        $crate::attention::options::options! {
            @shared $Config { $(#[$meta])* pub struct $Config, $name, $programs } copied($($copied)*)
            { $($ahead)* }
            {
                /// Elements of a head of v and o, a multiple of 16, or same: as many as of q.
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
            }
            { $($beside)* }
            {
                /// The order of the modes of q, k, v and o, and of their gradients: bshd or bhsd (b batches, s places, h heads, d elements).
                modes: Modes as OWN = Modes::Bshd,
                /// Sequences of their own lengths one behind the other: q[tq, hq, d], k[tk, hk, d], v[tk, hk, dv], o[tq, hq, dv], lse[hq, tq]; cu_q and cu_k have the places where they begin, and behind them the end; sq and sk are the longest.
                varlen: bool as FLAG = false,
            }
            { $($end)* }
            { $($behind)* }
        }
    };
    (
        @shared $Config:ident { $($head:tt)* } copied($($copied:ident)*)
        { $($(#[doc = $first_doc:literal])+ $first:ident: $first_type:ty as $first_codec:ident = $first_default:expr,)+ }
        { $($(#[doc = $doc:literal])+ $field:ident: $type:ty as $codec:ident = $default:expr,)+ }
        { $($(#[doc = $own_doc:literal])+ $own:ident: $own_type:ty as $own_codec:ident = $own_default:expr,)* }
        { $($(#[doc = $next_doc:literal])+ $next:ident: $next_type:ty as $next_codec:ident = $next_default:expr,)+ }
        { $($(#[doc = $end_doc:literal])+ $end:ident: $end_type:ty as $end_codec:ident = $end_default:expr,)* }
        { $($behind:tt)* }
    ) => {
        $crate::config::parameters! {
            $($head)* {
                $($(#[doc = $first_doc])+ $first: $first_type as $first_codec = $first_default,)+
                $($(#[doc = $doc])+ $field: $type as $codec = $default,)+
                $($(#[doc = $own_doc])+ $own: $own_type as $own_codec = $own_default,)*
                $($(#[doc = $next_doc])+ $next: $next_type as $next_codec = $next_default,)+
                $($(#[doc = $end_doc])+ $end: $end_type as $end_codec = $end_default,)*
                $($behind)*
            }
        }

        impl $Config {
            /// The parameters that say what is computed.
            pub(super) const OPTIONS: &'static [&'static str] = &[
                $(stringify!($first),)+
                $(stringify!($field),)+
                $(stringify!($own),)*
                $(stringify!($next),)+
                $(stringify!($end),)*
            ];

            /// The function that is computed, as [`AttentionConfig`]($crate::attention::AttentionConfig) has it, with blocks of as many keys where the configuration has some.
            pub fn computed(&self) -> $crate::attention::AttentionConfig {
                $crate::attention::AttentionConfig {
                    dtype: self.dtype,
                    d: self.d,
                    $($field: Clone::clone(&self.$field),)+
                    $($next: Clone::clone(&self.$next),)+
                    $($copied: Clone::clone(&self.$copied),)*
                    ..Default::default()
                }
            }

            /// Elements of a head of v.
            pub fn values(&self) -> i64 {
                self.dv.unwrap_or(self.d)
            }
        }
    };
}
pub(crate) use options;

/// Defines a configuration of attention forward by [`options!`].
macro_rules! forward {
    (
        $(#[$meta:meta])*
        pub struct $Config:ident, $name:literal, $programs:ident { { $($ahead:tt)* } { $($behind:tt)* } }
    ) => {
        $crate::attention::options::options! {
            $(#[$meta])*
            pub struct $Config, $name, $programs copied(bn lse strides) {
                {
                    $($ahead)*
                    /// Elements of a head of q and k, a multiple of 16 up to 256.
                    d: i64 as INT = 128,
                }
                {
                    /// Writes lse[b, hq, sq] as well: the logarithm of each query's sum of exponentials.
                    lse: bool as FLAG = false,
                }
                {
                    /// The distances of neighbours along each mode of q, k, v and o but the last are sizes: q_b, q_s, q_h and so on.
                    strides: bool as FLAG = false,
                }
                { $($behind)* }
            }
        }
    };
}
pub(super) use forward;
