//! A table of names and ids of one program, as constants of a module and as a list for tests.

macro_rules! ids {
    ($(#[$doc:meta])* $module:ident: $kind:ident { $($name:ident = $id:literal,)* }) => {
        $(#[$doc])*
        pub mod $module {
            use super::$kind;

            $(
                #[doc = concat!("`", stringify!($name), "`, in lower case.")]
                pub const $name: $kind = $kind($id);
            )*

            /// All of them with their names.
            pub const ALL: &[($kind, &str)] = &[$(($name, stringify!($name))),*];
        }
    };
}

pub(crate) use ids;
