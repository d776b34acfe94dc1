//! Wishes to delete in the logs of opens: what a crash leaves of a file's names is what was answered.
//!
//! What is noted is what the node says while the names of the logs are held: of two changes at once the later one is
//! noted last, whoever notes it.
//!
//! Spec: MS-SMB2 §3.3.5.9.10 (persistent opens), MS-FSA §2.1.5.15.3.

use std::io;
use std::sync::Arc;

use tree::MayWait;
use tree::journal::{Journal, WishNote};

use super::node::{Node, OpenRecord};

/// Notes for each persistent open of a file what is to be deleted. Blocks where
/// its shares keep logs.
///
/// # Durability
///
/// After `Ok` the opens come back after a crash with the wishes there were, or later ones. After an error those whose log could be
/// written do: who refuses the change then has it noted again.
pub(crate) fn write_durably(node: &Node, may_wait: MayWait) -> io::Result<()> {
    // One that is just being noted will be persistent.
    let shares: Vec<_> = {
        let state = node.lock();
        let noted = state.opens.iter().filter(|record| record.share.keeps_journal());
        noted.map(|record| Arc::clone(&record.share)).collect()
    };
    let _names = Journal::hold_names_of(shares.iter().filter_map(|share| share.journal(may_wait)));
    let mut notes: Vec<_> = {
        let state = node.lock();
        let note = |record: &OpenRecord| {
            let on_close = record.delete_on_close.is_some();
            let wish = WishNote { on_close, of_name: state.is_record_to_go(record) };
            (Arc::clone(&record.share), (record.serial.0, wish))
        };
        state.opens.iter().map(note).collect()
    };
    notes.sort_by_key(|(share, _)| Arc::as_ptr(share));
    // Each log, also behind one that cannot be written: what the others say is right all the same.
    let of_shares = notes.chunk_by(|(one, _), (other, _)| Arc::ptr_eq(one, other));
    let mut noted = Ok(());
    for of_share in of_shares {
        let wishes: Vec<_> = of_share.iter().map(|(_, wish)| *wish).collect();
        let journal = of_share[0].0.journal(may_wait);
        let here = journal.map_or(Ok(()), |journal| journal.wish_all_durably(&wishes));
        noted = noted.and(here);
    }
    noted
}
