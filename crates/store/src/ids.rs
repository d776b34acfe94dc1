//! Names and numbers of what a store has.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A region, for good: the number is random and never given twice. 0 stands for every region.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RegionId(pub u64);

/// A client, for good: the number is random.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ClientId(pub u64);

/// A store, for good: drawn by its first daemon.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct StoreId(pub u64);

/// What metadata know of a store's key: a number that only this key gives, and that gives nothing away of it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KeyMark(pub u64);

macro_rules! hexadecimal {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let is_sound = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
                let number = is_sound.then(|| u64::from_str_radix(&text, 16).ok()).flatten();
                number.map(Self).ok_or_else(|| serde::de::Error::custom("not 16 hex digits"))
            }
        }
    };
}

hexadecimal!(RegionId);
hexadecimal!(ClientId);
hexadecimal!(StoreId);
hexadecimal!(KeyMark);

/// Whether a region or a server may be called so: 1 to 128 letters, digits, dots, dashes and underscores, no dot first.
pub fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// The longest name of a region or server, in bytes.
pub const NAME_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_without_paths() {
        assert!(is_name("shuffle-1.part_2"));
        for wrong in ["", ".", "..", ".x", "a/b", "a b", "ü", &"x".repeat(NAME_MAX + 1)] {
            assert!(!is_name(wrong), "{wrong}");
        }
    }
}
