//! The one table of what C sees: macros that make a function, a struct or a constant, and its line in the header, of the same text.

/// A type as C declares it.
#[cfg(test)]
pub(crate) trait InC {
    /// The declaration of a name with the type.
    fn declare(name: &str) -> String;
}

/// An item of the header.
#[cfg(test)]
pub(crate) struct Item {
    pub(crate) doc: Vec<&'static str>,
    /// The lines of C.
    pub(crate) text: String,
}

/// A struct as C has to lay it out.
#[cfg(test)]
pub(crate) struct Laid {
    pub(crate) name: &'static str,
    pub(crate) bytes: usize,
    pub(crate) fields: Vec<(&'static str, usize)>,
}

#[cfg(test)]
macro_rules! types_of_c {
    ($($ty:ty = $name:literal;)*) => {$(
        impl InC for $ty {
            fn declare(name: &str) -> String {
                format!(concat!($name, " {}"), name)
            }
        }
    )*};
}
#[cfg(test)]
types_of_c! {
    u32 = "uint32_t";
    i32 = "int32_t";
    u64 = "uint64_t";
    i64 = "int64_t";
    f32 = "float";
    f64 = "double";
    usize = "size_t";
    std::ffi::c_char = "char";
    std::ffi::c_void = "void";
}

#[cfg(test)]
impl<T: InC> InC for *const T {
    fn declare(name: &str) -> String {
        format!("const {}", T::declare(&format!("*{name}")))
    }
}

#[cfg(test)]
impl<T: InC> InC for *mut T {
    fn declare(name: &str) -> String {
        T::declare(&format!("*{name}"))
    }
}

/// Functions that C calls.
macro_rules! functions {
    ($($(#[doc = $doc:literal])* fn $name:ident($($param:ident: $ty:ty),*) -> $result:ty $body:block)*) => {
        $(
            $(#[doc = $doc])*
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($param: $ty),*) -> $result $body
        )*

        /// The functions of the header.
        #[cfg(test)]
        pub(crate) fn functions() -> Vec<crate::table::Item> {
            use crate::table::{InC, Item};
            vec![$({
                let params: Vec<String> = vec![$(<$ty as InC>::declare(stringify!($param))),*];
                let params = if params.is_empty() { "void".to_string() } else { params.join(", ") };
                let call = format!("{}({params})", stringify!($name));
                Item { doc: vec![$($doc),*], text: format!("{};", <$result as InC>::declare(&call)) }
            }),*]
        }
    };
}
pub(crate) use functions;

/// Structs, and unions, that both sides lay out alike.
macro_rules! structs {
    ($($(#[doc = $doc:literal])* $kind:ident $name:ident { $($(#[doc = $about:literal])* $field:ident: $ty:ty,)* })*) => {
        $(
            $(#[doc = $doc])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            #[allow(non_camel_case_types, reason = "it is the name in C")]
            pub $kind $name {
                $($(#[doc = $about])* pub $field: $ty,)*
            }

            #[cfg(test)]
            impl crate::table::InC for $name {
                fn declare(name: &str) -> String {
                    format!("{} {name}", stringify!($name))
                }
            }
        )*

        /// The structs of the header.
        #[cfg(test)]
        pub(crate) fn structs() -> Vec<crate::table::Item> {
            use crate::table::{InC, Item};
            vec![$({
                let mut text = format!("typedef {} {} {{\n", stringify!($kind), stringify!($name));
                $(
                    for line in [$($about),*] {
                        text += &format!("    /*{line} */\n");
                    }
                    text += &format!("    {};\n", <$ty as InC>::declare(stringify!($field)));
                )*
                text += &format!("}} {};", stringify!($name));
                Item { doc: vec![$($doc),*], text }
            }),*]
        }

        /// The structs as they are laid out here.
        #[cfg(test)]
        pub(crate) fn laid() -> Vec<crate::table::Laid> {
            use std::mem::{offset_of, size_of};
            vec![$(crate::table::Laid {
                name: stringify!($name),
                bytes: size_of::<$name>(),
                fields: vec![$((stringify!($field), offset_of!($name, $field))),*],
            }),*]
        }
    };
}
pub(crate) use structs;

/// Numbers with names.
macro_rules! constants {
    ($list:ident: $($(#[doc = $doc:literal])* $name:ident: $ty:ty = $value:literal;)*) => {
        $($(#[doc = $doc])* pub const $name: $ty = $value;)*

        /// These numbers in the header.
        #[cfg(test)]
        pub(crate) fn $list() -> Vec<crate::table::Item> {
            vec![$(crate::table::Item {
                doc: vec![$($doc),*],
                text: format!("#define {} {}", stringify!($name), $value),
            }),*]
        }
    };
}
pub(crate) use constants;
