//! Operators with arguments by position and options by methods: two tables on top of [`Call`](crate::Call).
//!
//! Every operator of `tilewright kernels` has a row. Those of operators whose program is a text file follow from the program (`listed.rs`, which a test writes): tensors that it reads and tensors that
//! it writes are arguments, numbers are methods. Rows of products, attention and layers of experts (`products.rs`) have the methods of their options, too.

/// A method of a call's type, or those that several operators have.
macro_rules! method {
    (all convolution = $of:literal) => {
        method!(
            #[doc = concat!("Pixels of ", $of, " from one output to the next: a number, or one a mode, as `\"2x1\"`; 1 if nothing is said.")]
            option stride = "stride"
        );
        method!(
            #[doc = concat!("Zeros around ", $of, ": a number, or one a mode; 1 if nothing is said.")]
            option padding = "padding"
        );
        method!(
            #[doc = concat!("Pixels of ", $of, " from one tap to the next: a number, or one a mode; 1 if nothing is said.")]
            option dilation = "dilation"
        );
        method!(
            /// Groups of channels, a mode ahead of that of the channels, and of the filter's first.
            option groups = "groups"
        );
    };
    (all epilogue = $of:literal) => {
        method!(
            /// Multiplies the sums by a number.
            part_number alpha = Alpha
        );
        method!(
            #[doc = concat!("Adds a number to each ", $of, ", of the result's type.")]
            part_tensor bias = Bias
        );
        method!(
            /// The larger of each value and 0.
            part relu = Relu
        );
        method!(
            /// Gelu, by tanh.
            part gelu = Gelu
        );
        method!(
            /// Silu.
            part silu = Silu
        );
        method!(
            /// Adds a tensor of the result's type and shape.
            part_tensor residual = Residual
        );
    };
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
    ($(#[$doc:meta])* integer $name:ident = $param:literal) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(mut self, number: i32) -> Self {
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

/// Defines a type of calls for each row, and the method of the library that begins one: `Type = method, "operator" (tensors that it reads; those that it writes) { further methods }`,
/// behind the operator's name perhaps an option of all its calls, `with "option" "value"`. `all convolution` and `all epilogue` are the methods that several rows have (`method!`).
macro_rules! operators {
    ($(
        $(#[$doc:meta])*
        $Type:ident = $begin:ident, $operator:literal $(with $set:literal $to:literal)? ($($read:ident),* ; $($write:ident),*) {
            $($(#[$of:meta])* $kind:ident $name:ident = $what:tt $($word:ident $value:literal)?;)*
        }
    )*) => {
        use tilewright_kernels::epilogue::Part;
        use tilewright_launch::{PreparedChain, Stream, View, ViewMut, Workspace};

        use crate::call::Call;
        use crate::error::OpsError;
        use crate::library::Library;
        use crate::name::Name;
        use crate::value::{Kind, Parts, Value};
        use crate::why::Why;

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

                /// With a size that no tensor's shape tells: see [`Call::size`].
                #[inline]
                pub fn size(mut self, name: &'a str, size: i64) -> Self {
                    self.call = self.call.size(name, size);
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
                    $(of.call.set(const { Name::new($set) }, $to.into());)?
                    $(of.call.begin(const { Name::new(stringify!($read)) }, $read.into());)*
                    $(of.call.begin(const { Name::new(stringify!($write)) }, $write.into());)*
                    of
                }
            )*
        }
    };
}

mod listed;
mod products;

pub use listed::*;
pub use products::*;
