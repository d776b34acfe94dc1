//! The text files of the repository, which the rules read.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::workspace;

/// Every text file of the repository with its path from the root.
#[derive(Debug)]
pub(super) struct Texts(pub(super) Vec<(PathBuf, String)>);

impl Texts {
    pub(super) fn read() -> Result<Self, Failure> {
        let root = workspace::root();
        let mut texts = Vec::new();
        for path in workspace::files()? {
            let bytes = std::fs::read(root.join(&path)).map_err(Failure::io("reading", &path))?;
            // Corpora and captures are bytes, not text.
            if let Ok(text) = String::from_utf8(bytes) {
                texts.push((path, text));
            }
        }
        Ok(Self(texts))
    }

    pub(super) fn with_extension(
        &self,
        extension: &str,
    ) -> impl Iterator<Item = &(PathBuf, String)> {
        self.0.iter().filter(move |(path, _)| path.extension().is_some_and(|e| e == extension))
    }
}
