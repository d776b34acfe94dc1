//! `open_set!`: numbers the protocol may extend, as newtypes with named constants.
//!
//! An enum would have to refuse what it does not know; these survive and print as hex.

/// Declares a newtype over an integer with constants, `name()`, `Debug` and `Display`.
macro_rules! open_set {
    (
        $(#[$outer:meta])*
        pub struct $set:ident($int:ty) {
            $($(#[$doc:meta])* $name:ident = $value:literal,)*
        }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $set(pub $int);

        impl $set {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// The name the specification gives it, if we know it.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $set {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($set), " {:#x}"), self.0),
                }
            }
        }

        impl std::fmt::Debug for $set {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}

pub(crate) use open_set;

#[cfg(test)]
mod tests {
    use crate::{Command, NtStatus};

    #[test]
    fn known_values_print_their_name_and_unknown_ones_their_number() {
        assert_eq!(Command::ECHO.to_string(), "ECHO");
        assert_eq!(format!("{:?}", Command(0x1f)), "Command 0x1f");
        assert_eq!(NtStatus::PENDING.name(), Some("PENDING"));
    }
}
