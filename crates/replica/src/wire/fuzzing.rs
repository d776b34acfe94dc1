//! What of module `wire` is behind the proof of keys, for the fuzz targets: claims, answers, marks, and what a link of several
//! connections has on the way.

use std::collections::VecDeque;

use super::bundle::{AHEAD_MAX, FRAMES_AHEAD_MAX, Flow, Mark};
use super::codec::{HEAD_LEN, Head, WireError};
use super::greeting::{Answer, Claim};
use crate::message::Message;

/// Head and body of a frame that carries no message: what is accepted, encoded, is the same bytes. Whether it is accepted.
///
/// # Panics
///
/// Two of claim, answer and mark take the frame, or the bytes are others.
pub fn greeting(frame: &[u8]) -> bool {
    let Some((head, body)) = frame.split_first_chunk::<HEAD_LEN>() else { return false };
    let Ok(head) = Head::decode(head) else { return false };
    if head.body_len() != body.len() {
        return false;
    }
    let again: Vec<Result<Vec<u8>, WireError>> = [
        Claim::decode(head, body).map(Claim::encode),
        Answer::decode(head, body).map(Answer::encode),
        Mark::decode(head, body).map(Mark::encode),
    ]
    .into_iter()
    .flatten()
    .collect();
    assert!(again.len() <= 1, "a frame has one meaning");
    again.into_iter().for_each(|bytes| assert_eq!(bytes.expect("it was decoded"), frame));
    true
}

/// A link of several connections whose ends keep to the rules, on connections that the target cuts when it likes.
#[derive(Debug, Default)]
pub struct Several {
    sender: Flow,
    receiver: Flow,
    /// Each with its number, and the frames that are on their way.
    connections: VecDeque<(u64, VecDeque<(u64, usize)>)>,
    made: u64,
    sent: u64,
    taken: u64,
}

impl Several {
    /// A further connection.
    pub fn connects(&mut self) {
        if self.connections.len() < super::CONNECTIONS_MAX {
            self.made += 1;
            self.connections.push_back((self.made, VecDeque::new()));
        }
    }

    /// Sends a frame of so many bytes over one of the connections, if there is one, and room.
    pub fn sends(&mut self, over: usize, len: usize) {
        let count = self.connections.len();
        if count == 0 || !self.sender.has_room(len) {
            return;
        }
        let (number, way) = &mut self.connections[over % count];
        let frame = self.sender.send(Vec::new(), vec![0; len], *number);
        assert_eq!(frame.number, self.sent);
        self.sent += 1;
        way.push_back((frame.number, frame.bytes()));
    }

    /// The first frame on a connection arrives.
    pub fn arrives(&mut self, over: usize) {
        let count = self.connections.len();
        if count == 0 {
            return;
        }
        if let Some((number, len)) = self.connections[over % count].1.pop_front() {
            self.comes(number, len);
        }
    }

    /// A connection ends: what was on its way is lost, and all of it that was not taken goes over the others.
    pub fn ends(&mut self, which: usize) {
        let count = self.connections.len();
        if count < 2 {
            return;
        }
        let (number, lost) = self.connections.remove(which % count).expect("there are so many");
        let mut left: Vec<(u64, usize)> = Vec::new();
        for (frame, of) in self.sender.kept_over(number) {
            let (to, way) = &mut self.connections[left.len() % (count - 1)];
            *of = *to;
            way.push_back((frame.number, frame.bytes()));
            left.push((frame.number, frame.bytes()));
        }
        let is_sent_again = |it: &(u64, usize)| left.contains(it) || it.0 < self.receiver.got();
        assert!(lost.iter().all(is_sent_again), "a frame was lost with its connection");
    }

    /// The receiver takes what is next.
    pub fn takes(&mut self) {
        let Some((message, payload)) = self.receiver.take() else { return };
        let Message::Copied { count } = message else { panic!("nobody sent {message:?}") };
        assert_eq!(count, self.taken, "frames are taken once, in order");
        assert!(payload.is_empty());
        self.taken += 1;
        self.receiver.is_to_be_told();
    }

    /// The sender hears how far the receiver is.
    pub fn tells(&mut self) {
        let got = self.receiver.got();
        self.sender.has_got(got).expect("it was sent");
    }

    /// Everything arrives and is taken.
    pub fn settles(&mut self) {
        for at in 0..self.connections.len() {
            while let Some((number, len)) = self.connections[at].1.pop_front() {
                self.comes(number, len);
            }
        }
        while self.taken < self.sent {
            let before = self.taken;
            self.takes();
            assert!(self.taken > before, "frame {before} is nowhere");
        }
        self.tells();
        assert!(self.sender.has_room(AHEAD_MAX), "what was taken is kept");
    }

    fn comes(&mut self, number: u64, len: usize) {
        let message = Message::Copied { count: number };
        let came = self.receiver.comes(number, message, Vec::new(), len);
        came.expect("no sender that waits for room is too far ahead");
    }

    /// What another end sends that keeps to no rules: a frame of any number and length. What it may make this end hold is
    /// bounded.
    pub fn strays(flow: &mut Stray, number: u64, len: usize) {
        let message = Message::Copied { count: number };
        let expected = flow.flow.got();
        if let Ok(true) = flow.flow.comes(number, message, Vec::new(), len) {
            flow.held.push((number, len));
            let bytes: usize = flow.held.iter().map(|(_, len)| len).sum();
            assert!(flow.held.len() == 1 || bytes <= AHEAD_MAX);
            assert!(number >= expected && number - expected < FRAMES_AHEAD_MAX as u64);
        }
        assert!(flow.flow.has_got(number.max(1)).is_err(), "nothing was sent");
        if let Some((message, _)) = flow.flow.take() {
            assert_eq!(message, Message::Copied { count: expected });
            flow.held.retain(|(number, _)| *number != expected);
        }
    }
}

/// See [`Several::strays`].
#[derive(Debug, Default)]
pub struct Stray {
    flow: Flow,
    held: Vec<(u64, usize)>,
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_connections_end_each_frame_is_taken_once_and_in_order(
            what in vec((0..7_u8, 0..8_usize, 0..200_usize), 0..400),
        ) {
            let mut link = Several::default();
            link.connects();
            for (what, which, len) in what {
                match what {
                    0 => link.connects(),
                    1 => link.ends(which),
                    2 | 3 => link.sends(which, len),
                    4 => link.arrives(which),
                    5 => link.takes(),
                    _ => link.tells(),
                }
            }
            link.settles();
        }

        #[test]
        fn who_keeps_to_no_rules_has_this_end_hold_no_more_than_the_bound(
            what in vec((0..40_000_u64, 0..20_000_000_usize), 0..200),
        ) {
            let mut stray = Stray::default();
            for (number, len) in what {
                Several::strays(&mut stray, number, len);
            }
        }
    }
}
