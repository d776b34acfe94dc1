//! A mutant as `cargo mutants --list --json` describes it.

use serde::Deserialize;

/// One change of one place.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Mutant {
    /// `file:line:column: change`.
    pub(crate) name: String,
    pub(crate) package: String,
    pub(crate) file: String,
    pub(crate) function: Option<Function>,
    pub(crate) span: Span,
    pub(crate) replacement: String,
    pub(crate) genre: String,
}

/// The function that a mutant is in.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Function {
    pub(crate) function_name: String,
}

/// What the mutant replaces.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Span {
    pub(crate) start: Place,
}

/// Line and column, in characters, both from 1.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Mutant {
    pub(crate) fn function(&self) -> &str {
        self.function.as_ref().map_or("", |function| &function.function_name)
    }
}

impl Place {
    /// The byte of `source` that this place is.
    pub(crate) fn offset(self, source: &str) -> usize {
        let line = self.line - 1;
        let begin: usize = source.split_inclusive('\n').take(line).map(str::len).sum();
        let rest = source[begin..].char_indices().nth(self.column - 1);
        begin + rest.map_or(0, |(at, _)| at)
    }
}
