//! The functions of `include/landfast.h`.
//!
//! Safety rules of this module:
//! - A pointer goes to `border` first, and is used only as that gives it.
//! - Every function may be called from any thread. One region's calls wait for each other.
//! - A body runs in `guarded`, so that no panic crosses into C.

mod connection;
mod errors;
mod files;
mod names;
mod regions;
mod store_regions;
mod stores;
mod submitted;

pub use connection::{landfast_connect, landfast_disconnect, landfast_echo};
pub use errors::{
    landfast_class_name, landfast_error_ntstatus, landfast_error_text, landfast_status_name,
    landfast_version,
};
pub use files::{
    landfast_close, landfast_file_size, landfast_flush, landfast_open, landfast_read,
    landfast_set_size, landfast_write,
};
pub use names::{
    landfast_list, landfast_make_directory, landfast_remove, landfast_rename, landfast_stat,
};
pub use regions::{
    landfast_map, landfast_map_options_init, landfast_region_atomic_write, landfast_region_attend,
    landfast_region_commit, landfast_region_describe, landfast_region_lost, landfast_region_read,
    landfast_region_state, landfast_region_verify, landfast_region_write,
    landfast_region_write_commit, landfast_unmap,
};
pub use store_regions::{
    landfast_store_commit, landfast_store_compare_swap, landfast_store_fetch_add,
    landfast_store_notify, landfast_store_read, landfast_store_read_many, landfast_store_size,
    landfast_store_submit_read, landfast_store_submit_write, landfast_store_unmap,
    landfast_store_wait, landfast_store_wait_above, landfast_store_write,
    landfast_store_write_durable, landfast_store_write_many,
};
pub use stores::{
    landfast_store_allocate, landfast_store_allocation_init, landfast_store_close,
    landfast_store_free, landfast_store_map, landfast_store_open, landfast_store_rebuild,
    landfast_store_token,
};
pub use submitted::{
    landfast_region_poll, landfast_region_submit_commit, landfast_region_submit_read,
    landfast_region_submit_write_commit, landfast_region_wait,
};
