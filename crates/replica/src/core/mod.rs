//! Decides what a member of a group does.
