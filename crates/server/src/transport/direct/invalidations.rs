//! Which answer invalidates which of the peer's tokens.
//!
//! A READ or WRITE on channel `V1_INVALIDATE` is answered with Send-with-Invalidate of its first
//! token, error answers too: the peer counts on it before it uses the memory again. The token is
//! noted once the request is known to be of an established session (`dispatch`), for whoever has none asks
//! for nothing, and travels with the last fragment of the final answer.
//!
//! Spec: MS-SMB2 §3.3.4.1 and §3.3.5.12; MS-SMBD §3.1.4.2.

use std::collections::HashMap;

use smb::{NtStatus, compound};
use smbdirect::Token;

use super::error::End;

/// The tokens of requests under way, by message id.
#[derive(Debug)]
pub(super) struct Invalidations {
    tokens: HashMap<u64, Token>,
    max: usize,
}

impl Invalidations {
    /// For a peer that may have `max` requests under way.
    pub(super) fn new(max: usize) -> Self {
        Self { tokens: HashMap::new(), max }
    }

    /// A request came that wants `token` invalidated by its answer.
    pub(super) fn note(&mut self, message_id: u64, token: Token) -> Result<(), End> {
        if self.tokens.len() >= self.max {
            // Whoever keeps to its credits never gets here; others are about to be dropped.
            return Err(End::PeerTooManyRequests);
        }
        self.tokens.insert(message_id, token);
        Ok(())
    }

    /// What an answer that is about to leave invalidates.
    pub(super) fn take(&mut self, answer: &[u8]) -> Option<Token> {
        if self.tokens.is_empty() {
            return None;
        }
        // A sealed answer does not parse: sealed requests noted nothing. The answers of a compound leave
        // together, and a Send invalidates one token.
        let answers = compound::walk(answer).map_while(Result::ok).map(|(_, header)| header);
        let last = answers.filter(|header| header.status != NtStatus::PENDING);
        let mut tokens = last.filter_map(|header| self.tokens.remove(&header.message_id.0));
        let first = tokens.next();
        tokens.for_each(drop);
        first
    }
}

#[cfg(test)]
mod tests {
    use smb::{Command, Header, MessageId};

    use super::*;

    fn answer(id: u64, status: NtStatus) -> Vec<u8> {
        let mut out = Vec::new();
        Header::request(Command::READ, MessageId(id)).response(status).emit(&mut out);
        out
    }

    #[test]
    fn the_final_answer_takes_the_token_whatever_its_status() {
        let mut invalidations = Invalidations::new(2);
        invalidations.note(7, Token(0xabc)).unwrap();
        assert_eq!(invalidations.take(&answer(6, NtStatus::SUCCESS)), None);
        assert_eq!(invalidations.take(&answer(7, NtStatus::PENDING)), None, "more will follow");
        assert_eq!(invalidations.take(&answer(7, NtStatus::ACCESS_DENIED)), Some(Token(0xabc)));
        assert_eq!(invalidations.take(&answer(7, NtStatus::SUCCESS)), None, "once");
    }

    #[test]
    fn a_peer_cannot_make_the_table_grow() {
        let mut invalidations = Invalidations::new(1);
        invalidations.note(1, Token(1)).unwrap();
        assert!(matches!(invalidations.note(2, Token(2)), Err(End::PeerTooManyRequests)));
    }
}
