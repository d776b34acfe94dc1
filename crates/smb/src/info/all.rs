//! FileAllInformation: eight fixed classes and the name.
//!
//! ```text
//!  0       40         64         72   76       80         88     92          96
//!  +-------+----------+----------+----+--------+----------+------+-----------+------
//!  | basic | standard | internal | ea | access | position | mode | alignment | name
//!  +-------+----------+----------+----+--------+----------+------+-----------+------
//! ```
//!
//! Spec: MS-FSCC §2.4, FileAllInformation.

use super::{Access, Alignment, Basic, Ea, FileName, Internal, Mode, Position, Standard};
use crate::parse_error::ParseError;

/// Many classes at once.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct All {
    /// Times and attributes.
    pub basic: Basic,
    /// Sizes.
    pub standard: Standard,
    /// File id.
    pub internal: Internal,
    /// EA size.
    pub ea: Ea,
    /// Rights.
    pub access: Access,
    /// Position.
    pub position: Position,
    /// Mode.
    pub mode: Mode,
    /// Alignment.
    pub alignment: Alignment,
    /// Name.
    pub name: FileName,
}

impl All {
    /// Bytes before the characters of the name. A buffer that holds these but not the whole name
    /// is answered with BUFFER_OVERFLOW and as much as fits.
    pub const FIXED_LEN: usize = 100;

    /// Reads the class.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let at = |start: usize| bytes.get(start..).unwrap_or_default();
        Ok(Self {
            basic: Basic::parse(bytes)?,
            standard: Standard::parse(at(40))?,
            internal: Internal::parse(at(64))?,
            ea: Ea::parse(at(72))?,
            access: Access::parse(at(76))?,
            position: Position::parse(at(80))?,
            mode: Mode::parse(at(88))?,
            alignment: Alignment::parse(at(92))?,
            name: FileName::parse(at(96))?,
        })
    }

    /// Appends the class.
    pub fn emit(&self, out: &mut Vec<u8>) {
        self.basic.emit(out);
        self.standard.emit(out);
        self.internal.emit(out);
        self.ea.emit(out);
        self.access.emit(out);
        self.position.emit(out);
        self.mode.emit(out);
        self.alignment.emit(out);
        self.name.emit(out);
    }
}
