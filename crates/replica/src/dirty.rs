//! Which blocks a member lacks.
