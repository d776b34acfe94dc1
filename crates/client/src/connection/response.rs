//! An answer, and waiting for it.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use smb::{Header, MessageId, NtStatus, ParseError};
use tokio::sync::oneshot;

use super::open_requests::Answer;
use super::{Connection, Leftover};
use crate::error::{ClientError, ConnectionError};
use crate::transport::InFrame;

/// One PDU of a received frame. Its header and its signature or seal are checked.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    frame: Arc<InFrame>,
    range: Range<usize>,
    header: Header,
}

impl Response {
    pub(super) fn new(frame: Arc<InFrame>, range: Range<usize>, header: Header) -> Self {
        Self { frame, range, header }
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// The bytes from the SMB2 header on.
    pub(crate) fn pdu(&self) -> &[u8] {
        &self.frame[self.range.clone()]
    }

    /// This answer if it reports success, its status as an error otherwise.
    pub(crate) fn success(self) -> Result<Self, ClientError> {
        self.accept(&[])
    }

    /// As [`Response::success`], with further statuses that are no errors.
    pub(crate) fn accept(self, also: &[NtStatus]) -> Result<Self, ClientError> {
        let Header { status, command, .. } = self.header;
        match status.is_success() || also.contains(&status) {
            true => Ok(self),
            false => Err(ClientError::PeerStatus { command, status }),
        }
    }

    /// Parses the body.
    pub(crate) fn parse<'a, T>(
        &'a self,
        parse: impl FnOnce(&'a [u8]) -> Result<T, ParseError>,
    ) -> Result<T, ClientError> {
        let command = self.header.command;
        parse(self.pdu()).map_err(|error| ClientError::PeerMalformed { command, error })
    }
}

/// A request in flight. A caller that drops it before the answer cancels the request where that ends a wait;
/// what is left to do is done when the answer comes.
#[derive(Debug)]
pub(crate) struct PendingResponse {
    message_id: MessageId,
    answer: oneshot::Receiver<Answer>,
    connection: Connection,
    leftover: Option<Leftover>,
    is_answered: bool,
}

impl PendingResponse {
    pub(super) fn new(
        message_id: MessageId,
        answer: oneshot::Receiver<Answer>,
        connection: Connection,
    ) -> Self {
        Self { message_id, answer, connection, leftover: None, is_answered: false }
    }

    /// Says what is left to do with the answer if the caller stops waiting before it comes.
    pub(crate) fn leaving(mut self, leftover: Leftover) -> Self {
        self.leave(leftover);
        self
    }

    /// As [`PendingResponse::leaving`].
    pub(crate) fn leave(&mut self, leftover: Leftover) {
        self.leftover = Some(leftover);
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        if !self.is_answered {
            let leftover = self.leftover.take();
            self.connection.shared.abandon(self.message_id, &mut self.answer, leftover);
        }
    }
}

impl Future for PendingResponse {
    type Output = Result<Response, ConnectionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The sender is dropped unused only together with the whole table.
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        let answer = answer.unwrap_or(Err(ConnectionError::Closed));
        // The request of a late answer is still open.
        self.is_answered = !matches!(answer, Err(ConnectionError::PeerLate(_)));
        Poll::Ready(answer)
    }
}
