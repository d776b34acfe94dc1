//! The fuzz targets: for each parser and each machine, what to do with arbitrary bytes.
//!
//! A body panics when something is wrong with *us*; whatever the bytes are is the peer's business.
//! Beside not panicking, a parser must be stable: what it accepted, emitted, parses to the same
//! value. A machine is driven by operations that [`Input`] reads from the bytes, and its promises
//! are asserted after each.
//!
//! The same bodies run under libFuzzer (`fuzz/run`) and, with the inputs kept in `fuzz/corpus`, as
//! an ordinary test.

#![forbid(unsafe_code)]

mod client;
mod databases;
mod input;
mod iwarp;
mod log;
mod nbd;
mod rdma;
mod replica;
mod server;
mod smb;
mod smbdirect;
mod store;
mod volume;

pub use client::hostile;
pub use input::Input;

/// What a target does with one input.
pub type Body = fn(&[u8]);

/// Every target by its name, which is also the name of its folder in `fuzz/corpus`.
pub const TARGETS: &[(&str, Body)] = &[
    ("client_hostile", hostile::target),
    ("client_url", client::url),
    ("databases_params", databases::params),
    ("databases_record", databases::record),
    ("databases_side", databases::side),
    ("iwarp_ddp", iwarp::headers::ddp),
    ("iwarp_fpdu", iwarp::start::fpdu),
    ("iwarp_handshake", iwarp::handshake::handshake),
    ("iwarp_pair", iwarp::pair::pair),
    ("iwarp_private_data", iwarp::start::private_data),
    ("iwarp_rdmap", iwarp::headers::rdmap),
    ("iwarp_start_frame", iwarp::start::start_frame),
    ("iwarp_stream", iwarp::stream::stream),
    ("log_damaged", log::damaged),
    ("log_labels", log::labels),
    ("nbd_handshake", nbd::handshake),
    ("nbd_session", nbd::session),
    ("rdma_shm", rdma::shm::shm),
    ("replica_dirty", replica::dirty),
    ("replica_expand", replica::expand),
    ("replica_label", replica::label),
    ("replica_open", replica::open),
    ("replica_record", replica::record),
    ("replica_scan", replica::scan),
    ("replica_sequence", replica::sequence),
    ("replica_several", replica::several),
    ("replica_witness", replica::witness),
    ("replica_wire", replica::wire),
    ("server_connection", server::connection::connection),
    ("server_first_look", server::direct::first_look),
    ("server_opens", server::names::opens),
    ("server_path", server::names::path),
    ("server_pattern", server::names::pattern),
    ("server_session", server::connection::session),
    ("server_stream", server::names::stream),
    ("server_users", server::names::users),
    ("server_xattrs", server::names::xattrs),
    ("smb_acceptor", smb::auth::acceptor),
    ("smb_beginning", smb::frame::beginning),
    ("smb_compound", smb::frame::compound),
    ("smb_create", smb::commands::create),
    ("smb_fsctl", smb::fsctl::fsctl),
    ("smb_info", smb::info::fixed),
    ("smb_info_lists", smb::info::lists),
    ("smb_initiator", smb::auth::initiator),
    ("smb_kerberos", smb::auth::kerberos),
    ("smb_negotiate", smb::commands::negotiate),
    ("smb_pdu", smb::frame::pdu),
    ("smb_push", smb::push::push),
    ("smb_rpc", smb::rpc::rpc),
    ("smb_sealing", smb::sealing::sealing),
    ("smb_security", smb::info::security),
    ("smb_tokens", smb::auth::tokens),
    ("smbdirect_connection", smbdirect::connection::connection),
    ("smbdirect_data_transfer", smbdirect::messages::data_transfer),
    ("smbdirect_descriptors", smbdirect::messages::descriptors),
    ("smbdirect_handshake", smbdirect::handshake::handshake),
    ("smbdirect_negotiate_request", smbdirect::messages::negotiate_request),
    ("smbdirect_negotiate_response", smbdirect::messages::negotiate_response),
    ("store_piece", store::piece),
    ("store_record", store::record),
    ("store_token", store::token),
    ("store_wire", store::wire),
    ("volume_damaged", volume::damaged),
    ("volume_entries", volume::entries),
    ("volume_info", volume::info),
];

/// The body of the target called `name`.
pub fn find(name: &str) -> Option<Body> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, body)| *body)
}
