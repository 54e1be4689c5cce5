//! Sections whose checked values are those of the file one by one.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use super::{ConfigError, positive_count, positive_duration, positive_rate};

/// A checked value, from the one that files have.
pub(super) trait FromRaw<R>: Sized {
    /// # Errors
    /// The value of this field is out of its range.
    fn from_raw(field: &'static str, raw: R) -> Result<Self, ConfigError>;
}

impl<T> FromRaw<T> for T {
    fn from_raw(_: &'static str, raw: T) -> Result<Self, ConfigError> {
        Ok(raw)
    }
}

impl FromRaw<u64> for Duration {
    fn from_raw(field: &'static str, milliseconds: u64) -> Result<Self, ConfigError> {
        positive_duration(field, milliseconds)
    }
}

impl FromRaw<usize> for NonZeroUsize {
    fn from_raw(field: &'static str, raw: usize) -> Result<Self, ConfigError> {
        positive_count(field, raw)
    }
}

impl FromRaw<u32> for NonZeroU32 {
    fn from_raw(field: &'static str, raw: u32) -> Result<Self, ConfigError> {
        positive_rate(field, raw)
    }
}

/// A section of the file, its checked form and how the one becomes the other. A row is
/// `NAME IN THE FILE: TYPE IN THE FILE = DEFAULT => CHECKED NAME: CHECKED TYPE`; `check` refuses
/// what a single field cannot tell.
macro_rules! config_section {
    (
        $(#[$about:meta])*
        $raw:ident => $checked:ident in $section:literal, check $check:expr;
        $($(#[$meta:meta])* $name:ident: $type:ty = $default:expr => $field:ident: $value:ty,)*
    ) => {
        #[doc = concat!("The checked values of `", $section, "`.")]
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $checked {
            $(#[doc = concat!("The value of `", $section, ".", stringify!($name), "`.")]
            pub $field: $value,)*
        }

        $(#[$about])*
        #[derive(
            Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        #[serde(deny_unknown_fields, default)]
        pub struct $raw {
            $($(#[$meta])* pub $name: $type,)*
        }

        impl Default for $raw {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl TryFrom<&$raw> for $checked {
            type Error = ConfigError;

            fn try_from(raw: &$raw) -> Result<Self, ConfigError> {
                let check: fn(&$raw) -> Result<(), ConfigError> = $check;
                check(raw)?;
                Ok(Self {$(
                    $field: $crate::config::section::FromRaw::from_raw(
                        concat!($section, ".", stringify!($name)),
                        raw.$name,
                    )?,
                )*})
            }
        }
    };
}

pub(super) use config_section;
