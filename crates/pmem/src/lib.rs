//! Files as memory with a known durability class.
