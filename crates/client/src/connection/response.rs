//! An answer, and waiting for it.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use smb::{Header, MessageId, NtStatus, ParseError};
use tokio::sync::oneshot;

use super::open_requests::Answer;
use super::{Connection, SessionSecurity};
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

/// A request in flight. Dropping it does not cancel the request.
#[derive(Debug)]
pub(crate) struct PendingResponse {
    message_id: MessageId,
    answer: oneshot::Receiver<Answer>,
    connection: Connection,
}

impl PendingResponse {
    pub(super) fn new(
        message_id: MessageId,
        answer: oneshot::Receiver<Answer>,
        connection: Connection,
    ) -> Self {
        Self { message_id, answer, connection }
    }

    /// Waits for the answer; a caller that stops waiting cancels the request.
    pub(crate) async fn or_cancel(
        mut self,
        session: &SessionSecurity,
    ) -> Result<Response, ConnectionError> {
        let connection = self.connection.clone();
        let mut guard = Cancel { message_id: Some(self.message_id), connection, session };
        let answer = (&mut self).await;
        guard.message_id = None;
        answer
    }
}

/// Cancels a request when dropped, unless it has been answered.
struct Cancel<'a> {
    message_id: Option<MessageId>,
    connection: Connection,
    session: &'a SessionSecurity,
}

impl Drop for Cancel<'_> {
    fn drop(&mut self) {
        if let Some(message_id) = self.message_id {
            self.connection.cancel(message_id, self.session);
        }
    }
}

impl Future for PendingResponse {
    type Output = Result<Response, ConnectionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The sender is dropped unused only together with the whole table.
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        Poll::Ready(answer.unwrap_or(Err(ConnectionError::Closed)))
    }
}
