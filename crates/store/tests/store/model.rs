//! Many operations against a model, with kills.
