//! Verbs and their providers.
