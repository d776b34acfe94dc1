//! Requests that have been sent and not answered.
//!
//! ```text
//!            register                    STATUS_PENDING
//!  (free) ------------> [ sent ] ---------------------------> [ pending, async id ]
//!                           \ final response                      / final response
//!                            +----------> answered <-------------+
//! ```
//!
//! Spec: MS-SMB2 §3.2.4.1.3, §3.2.5.1.5.

use std::collections::HashMap;

use smb::{AsyncId, MessageId};
use tokio::sync::oneshot;

use super::Response;
use crate::error::ConnectionError;

/// What an open request ends with.
pub(super) type Answer = Result<Response, ConnectionError>;

#[derive(Debug, Default)]
pub(super) struct OpenRequests {
    next_message_id: u64,
    open: HashMap<MessageId, Open>,
    failed: Option<ConnectionError>,
}

#[derive(Debug)]
struct Open {
    answer: oneshot::Sender<Answer>,
    charge: u16,
    async_id: Option<AsyncId>,
}

impl OpenRequests {
    /// Draws the next message id. The credits for it have been taken.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn register(
        &mut self,
        charge: u16,
    ) -> Result<(MessageId, oneshot::Receiver<Answer>), ConnectionError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let message_id = MessageId(self.next_message_id);
        // MS-SMB2 §3.2.4.1.5: a request uses up as many ids as it costs credits.
        self.next_message_id += u64::from(charge);
        let (answer, receiver) = oneshot::channel();
        self.open.insert(message_id, Open { answer, charge, async_id: None });
        Ok((message_id, receiver))
    }

    /// Notes an interim response and says what the request cost, if it had not said so before.
    pub(super) fn pend(&mut self, message_id: MessageId, async_id: AsyncId) -> Option<u16> {
        let open = self.open.get_mut(&message_id)?;
        open.async_id = Some(async_id);
        Some(std::mem::take(&mut open.charge))
    }

    /// Ends a request: what it cost, and whom to tell.
    pub(super) fn finish(
        &mut self,
        message_id: MessageId,
    ) -> Option<(u16, oneshot::Sender<Answer>)> {
        let open = self.open.remove(&message_id)?;
        Some((open.charge, open.answer))
    }

    /// The async id of an open request, if it has one; nothing if it is not open.
    pub(super) fn async_id(&self, message_id: MessageId) -> Option<Option<AsyncId>> {
        self.open.get(&message_id).map(|open| open.async_id)
    }

    /// Ends all requests, those to come too.
    pub(super) fn fail(&mut self, error: ConnectionError) {
        let error = *self.failed.get_or_insert(error);
        for (_, open) in self.open.drain() {
            // Whoever stopped waiting need not know.
            let _ = open.answer.send(Err(error));
        }
    }

    pub(super) fn failure(&self) -> Option<ConnectionError> {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_uses_as_many_ids_as_credits() {
        let mut open = OpenRequests::default();
        assert_eq!(open.register(3).unwrap().0, MessageId(0));
        assert_eq!(open.register(1).unwrap().0, MessageId(3));
        assert_eq!(open.register(1).unwrap().0, MessageId(4));
    }

    #[test]
    fn the_charge_counts_once_even_with_an_interim_response() {
        let mut open = OpenRequests::default();
        let (id, _answer) = open.register(2).unwrap();
        assert_eq!(open.pend(id, AsyncId(9)), Some(2));
        assert_eq!(open.async_id(id), Some(Some(AsyncId(9))));
        assert_eq!(open.finish(id).unwrap().0, 0);
        assert!(open.finish(id).is_none());
    }

    #[test]
    fn a_failure_ends_what_is_open_and_what_comes_later() {
        let mut open = OpenRequests::default();
        let (_, mut answer) = open.register(1).unwrap();
        open.fail(ConnectionError::PeerClosed);
        open.fail(ConnectionError::Closed);
        assert_eq!(answer.try_recv().unwrap().unwrap_err(), ConnectionError::PeerClosed);
        assert_eq!(open.register(1).unwrap_err(), ConnectionError::PeerClosed);
    }
}
