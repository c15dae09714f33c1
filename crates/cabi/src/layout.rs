//! Declares C structures, and writes down how they lie in memory, so that a test can compare all of it
//! with what a C compiler says.

/// A structure as it lies in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What C calls it, with `struct` or `union` in front.
    pub name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Its fields: path, offset, bytes.
    pub fields: Vec<(&'static str, usize, usize)>,
}

/// Declares structures once: as Rust types, and as entries of the list that the test walks through.
macro_rules! c_structs {
    ($($(#[$meta:meta])* struct $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $name {
                $(pub $field: $type,)*
            }
        )*

        pub(crate) fn layouts() -> Vec<$crate::layout::Layout> {
            vec![$($crate::layout::Layout {
                name: concat!("struct ", stringify!($name)),
                size: size_of::<$name>(),
                fields: vec![$((
                    stringify!($field),
                    core::mem::offset_of!($name, $field),
                    $crate::layout::size_behind(|of: &$name| &raw const of.$field),
                ),)*],
            }),*]
        }
    };
}

/// Declares numbers once: as constants, and as entries of the list that the test walks through.
macro_rules! c_constants {
    ($($type:ty { $($name:ident = $value:expr,)* })*) => {
        $($(pub const $name: $type = $value;)*)*

        /// Every constant with its value, for comparison with the headers.
        #[must_use]
        pub fn constants() -> Vec<(&'static str, i128)> {
            vec![$($((stringify!($name), i128::from($name)),)*)*]
        }
    };
}

pub(crate) use {c_constants, c_structs};

/// Bytes of a field.
pub(crate) const fn size_behind<S, T>(_: fn(&S) -> *const T) -> usize {
    size_of::<T>()
}
