//! `layout!`: a fixed information class as one declaration.
//!
//! Every class is a run of little-endian fields without holes and some padding at its end, so the
//! declaration is the byte map. The declared size is checked against the fields when compiled.

use crate::create::AccessMask;
use crate::dtyp::{FileTime, Guid};
use crate::info::{FileAttributes, FsAttributes};
use crate::parse_error::ParseError;
use crate::wire::Reader;

/// A field of a fixed layout.
pub(super) trait LayoutField: Sized {
    const LEN: usize;
    fn take(reader: &mut Reader<'_>) -> Result<Self, ParseError>;
    fn put(&self, out: &mut Vec<u8>);
}

macro_rules! integer {
    ($($int:ident)*) => {
        $(impl LayoutField for $int {
            const LEN: usize = size_of::<$int>();
            fn take(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
                reader.$int()
            }
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        })*
    };
}

integer!(u8 u16 u32 u64);

macro_rules! through {
    ($($outer:ty as $inner:ty: $wrap:expr, $unwrap:expr;)*) => {
        $(impl LayoutField for $outer {
            const LEN: usize = <$inner as LayoutField>::LEN;
            fn take(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
                <$inner>::take(reader).map($wrap)
            }
            fn put(&self, out: &mut Vec<u8>) {
                let unwrap: fn(&$outer) -> $inner = $unwrap;
                unwrap(self).put(out);
            }
        })*
    };
}

through! {
    FileTime as u64: FileTime, |time| time.0;
    FileAttributes as u32: FileAttributes::from_bits_retain, |flags| flags.bits();
    FsAttributes as u32: FsAttributes::from_bits_retain, |flags| flags.bits();
    AccessMask as u32: AccessMask::from_bits_retain, |mask| mask.bits();
    bool as u8: |byte| byte != 0, |flag| u8::from(*flag);
}

impl<const N: usize> LayoutField for [u8; N] {
    const LEN: usize = N;
    fn take(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        reader.array()
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl LayoutField for Guid {
    const LEN: usize = 16;
    fn take(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        reader.array().map(Self)
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}

/// Declares a class: `struct Name: total bytes, of them padding { fields }`.
macro_rules! layout {
    (
        $(#[$outer:meta])*
        pub struct $name:ident: $len:literal, pad $pad:literal {
            $($(#[$doc:meta])* pub $field:ident: $kind:ty,)*
        }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $kind,)*
        }

        const _: () = assert!(
            $len == $pad $(+ <$kind as $crate::info::layout::LayoutField>::LEN)*
        );

        impl $name {
            /// Bytes on the wire.
            pub const LEN: usize = $len;

            /// Reads the class; bytes behind it are ignored.
            ///
            /// # Errors
            /// Shorter than [`Self::LEN`].
            pub fn parse(bytes: &[u8]) -> Result<Self, $crate::parse_error::ParseError> {
                let mut reader = $crate::wire::Reader::new(bytes);
                $(let $field = <$kind as $crate::info::layout::LayoutField>::take(&mut reader)?;)*
                reader.bytes($pad)?;
                Ok(Self { $($field,)* })
            }

            /// Appends the class.
            pub fn emit(&self, out: &mut Vec<u8>) {
                $($crate::info::layout::LayoutField::put(&self.$field, out);)*
                out.extend_from_slice(&[0; $pad]);
            }
        }
    };
}

pub(super) use layout;
