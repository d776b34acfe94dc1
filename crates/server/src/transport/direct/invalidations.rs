//! Decides which answer invalidates which token of the peer.
//!
//! A READ or WRITE on channel `V1_INVALIDATE` is answered with Send-with-Invalidate of its first token,
//! also with an error answer: the peer relies on that before it uses the memory again. The token is
//! recorded once the request is known to belong to an established session (`dispatch`), because a peer
//! without a session cannot ask for it, and the last fragment of the final answer carries it.
//!
//! Spec: MS-SMB2 §3.3.4.1 and §3.3.5.12; MS-SMBD §3.1.4.2.

use std::collections::HashMap;

use smb::{NtStatus, compound};
use smbdirect::Token;

use super::error::End;

/// The tokens of open requests, by message id.
#[derive(Debug)]
pub(super) struct Invalidations {
    tokens: HashMap<u64, Token>,
    max: usize,
}

impl Invalidations {
    /// A table for a peer that may have `max` open requests.
    pub(super) fn new(max: usize) -> Self {
        Self { tokens: HashMap::new(), max }
    }

    /// Records that the answer to a request invalidates `token`.
    pub(super) fn note(&mut self, message_id: u64, token: Token) -> Result<(), End> {
        if self.tokens.len() >= self.max {
            // A peer that keeps to its credits never gets here; another is dropped.
            return Err(End::PeerTooManyRequests);
        }
        self.tokens.insert(message_id, token);
        Ok(())
    }

    /// The token that an answer which is about to leave invalidates.
    pub(super) fn take(&mut self, answer: &[u8]) -> Option<Token> {
        if self.tokens.is_empty() {
            return None;
        }
        // A sealed answer does not parse: sealed requests record no token. The answers of a compound
        // leave together, and a Send invalidates one token.
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
    fn the_final_answer_invalidates_the_token_whatever_its_status() {
        let mut invalidations = Invalidations::new(2);
        invalidations.note(7, Token(0xabc)).unwrap();
        assert_eq!(invalidations.take(&answer(6, NtStatus::SUCCESS)), None);
        assert_eq!(invalidations.take(&answer(7, NtStatus::PENDING)), None, "more will follow");
        assert_eq!(invalidations.take(&answer(7, NtStatus::ACCESS_DENIED)), Some(Token(0xabc)));
        assert_eq!(invalidations.take(&answer(7, NtStatus::SUCCESS)), None, "once");
    }

    #[test]
    fn a_peer_cannot_make_the_token_table_grow() {
        let mut invalidations = Invalidations::new(1);
        invalidations.note(1, Token(1)).unwrap();
        assert!(matches!(invalidations.note(2, Token(2)), Err(End::PeerTooManyRequests)));
    }
}
