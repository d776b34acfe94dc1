//! Two requests in one frame: the server gets both or neither, and carries out the second after the first.
//!
//! Spec: MS-SMB2 §3.2.4.1.4 (sending compounded requests), §3.3.5.2.7.2 (related requests).

use std::ops::Range;

use smb::compound::CompoundWriter;
use smb::{Command, HeaderFlags, MessageId};

use super::{Connection, Credit, FIXED_PARTS, PendingResponse, Protection, Request};
use crate::error::ConnectionError;
use crate::transport::OutFrame;

/// One of the two requests.
#[derive(Clone, Copy)]
pub(crate) struct Half<'a> {
    pub(crate) command: Command,
    /// Appends the body behind the header.
    pub(crate) body: &'a (dyn Fn(&mut Vec<u8>) + Sync),
}

impl Connection {
    /// Sends two requests in one frame. The second may name its file as [`smb::FileId::RELATED`]: the file
    /// that the first request opens, or names. Either request may fail alone.
    ///
    /// # Errors
    /// The connection is gone.
    pub(crate) async fn submit_pair(
        &self,
        request: Request<'_>,
        halves: [Half<'_>; 2],
    ) -> Result<[PendingResponse; 2], ConnectionError> {
        let shared = &self.shared;
        let ask = self.credits(2).await?;
        let protection = self.protection(&request);
        let requests = halves.map(|half| Request { command: half.command, ..request });
        let [(first, first_answer), (second, second_answer)] = {
            let now = shared.now();
            let mut open = shared.lock_open();
            let [first, second] = requests.map(|request| request.expected(protection));
            let deadline = shared.deadline();
            [open.register(1, first, now, deadline)?, open.register(1, second, now, deadline)?]
        };
        let ids = [&first, &second].map(|turn| MessageId(turn.message_id()));
        let mut pdus: Vec<Range<usize>> = Vec::new();
        let mut frame = OutFrame::new(2 * FIXED_PARTS, |out| {
            let mut writer = CompoundWriter::new(out);
            for (at, ask) in [(0, ask - 1), (1, 1)] {
                let mut header = self.header(&requests[at], ids[at], Credit { charge: 1, ask });
                header.flags.set(HeaderFlags::RELATED, at == 1);
                writer.push(&header, halves[at].body);
            }
            pdus = writer.finish();
        });
        let sent = match (protection, request.session) {
            (Protection::Sign, Some(session)) => {
                for (pdu, turn) in pdus.into_iter().zip([first, second]) {
                    let of_message = pdu.start - OutFrame::HEADROOM..pdu.end - OutFrame::HEADROOM;
                    session.sign(turn, &mut frame.message_mut()[of_message]);
                }
                Ok(())
            }
            (Protection::Seal, Some(session)) => session.seal(&mut frame),
            (Protection::None, _) | (_, None) => Ok(()),
        };
        // A request that is not sent leaves a gap in the ids, and the server accepts no id behind
        // the gap.
        sent.and_then(|()| shared.sender.send(frame)).inspect_err(|error| shared.fail(*error))?;
        let pending = |id, answer| PendingResponse::new(id, answer, self.clone());
        Ok([pending(ids[0], first_answer), pending(ids[1], second_answer)])
    }
}
