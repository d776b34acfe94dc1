//! Whole conversations of two streams over a virtual wire, with random operations and random cuts
//! of the bytes.

#![cfg(test)]

mod end;
mod operation;
#[path = "../support/mod.rs"]
mod support;

use end::End;
use iwarp::{Agreement, Received, Role, Stream};
use operation::{Operation, Seen, expected, operation};
use proptest::prelude::*;
use support::profile;

/// The settings of the two ends and of the wire between them.
#[derive(Clone, Debug)]
struct World {
    crc: bool,
    markers: bool,
    emss: usize,
    /// Longest frame announced; 0 announces none.
    fpdu_max: u32,
    depth: u16,
    /// The sizes of the pieces that the wire delivers, repeated from the start.
    cuts: Vec<usize>,
}

impl World {
    fn ends(&self, scripts: [&[Operation]; 2]) -> [End; 2] {
        let profile = Some(profile(self.fpdu_max));
        let agreement = Agreement {
            crc: self.crc,
            markers: self.markers,
            ours: profile,
            theirs: profile,
            ..Agreement::plain(Role::Initiator, self.depth, self.depth)
        };
        let other = Agreement { role: Role::Responder, ..agreement };
        [End::new(&agreement, self.emss, scripts[0]), End::new(&other, self.emss, scripts[1])]
    }

    /// Moves the bytes that `from` sent to `to`, piece by piece.
    fn deliver(&self, from: &mut End, to: &mut End) -> bool {
        let bytes = std::mem::take(&mut from.out);
        let bytes = if self.markers { from.unmarker.strip(&bytes, self.crc) } else { bytes };
        let mut rest = &bytes[..];
        for cut in self.cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, later) = rest.split_at((*cut).min(rest.len()));
            to.inbox.extend_from_slice(piece);
            to.listen();
            rest = later;
        }
        !bytes.is_empty()
    }

    fn converse(&self, scripts: [&[Operation]; 2]) {
        let [mut left, mut right] = self.ends(scripts);
        left.frame(Stream::frame_kick, |size| *size);
        loop {
            // Each end carries out two operations before it receives, so that requests pile up.
            let mut busy = false;
            for end in [&mut left, &mut right] {
                busy |= end.act() | end.act();
                busy |= end.answer();
            }
            busy |= self.deliver(&mut left, &mut right);
            busy |= self.deliver(&mut right, &mut left);
            if !busy {
                break;
            }
        }
        let kick = right.seen.remove(0);
        assert_eq!(kick, Seen::Write(1, 0, Vec::new()));
        check(&left, &right, scripts[0]);
        check(&right, &left, scripts[1]);
    }
}

/// Checks that all of `script` was carried out, received and answered, in order.
fn check(doer: &End, other: &End, script: &[Operation]) {
    assert!(doer.script.is_empty(), "left undone: {:?}", doer.script);
    assert_eq!((doer.stream.outstanding(), other.stream.unanswered()), (0, 0));
    let is_answer = |seen: &&Seen| matches!(seen, Seen::Answer(_));
    let seen: Vec<Seen> = other.seen.iter().filter(|seen| !is_answer(seen)).cloned().collect();
    let answers: Vec<Seen> = doer.seen.iter().filter(is_answer).cloned().collect();
    let wanted: Vec<Seen> = script.iter().flat_map(|operation| expected(operation).0).collect();
    assert_eq!(seen, wanted);
    let wanted: Vec<Seen> =
        script.iter().filter_map(|operation| expected(operation).1).map(Seen::Answer).collect();
    assert_eq!(answers, wanted);
}

fn world() -> impl Strategy<Value = World> {
    let emss = prop_oneof![Just(0_usize), Just(1460), 128_usize..9000, Just(65_483)];
    let fpdu_max = prop_oneof![Just(0_u32), Just(0x1_0000), 200_u32..0x2_0000];
    let cuts = proptest::collection::vec(1_usize..3000, 1..8);
    (any::<bool>(), any::<bool>(), emss, fpdu_max, 1_u16..6, cuts).prop_map(
        |(crc, markers, emss, fpdu_max, depth, cuts)| World {
            crc,
            markers,
            emss,
            fpdu_max,
            depth,
            cuts,
        },
    )
}

fn script() -> impl Strategy<Value = Vec<Operation>> {
    proptest::collection::vec(operation(), 0..12)
}

/// The bytes that an initiator sends, and the indications at a responder fed in these pieces.
fn said(script: &[Operation]) -> Vec<u8> {
    let world =
        World { crc: true, markers: false, emss: 1460, fpdu_max: 0, depth: 16, cuts: vec![] };
    let [mut left, _] = world.ends([script, &[]]);
    left.frame(Stream::frame_kick, |size| *size);
    while left.act() {}
    left.out
}

fn heard(bytes: &[u8], cuts: &[usize]) -> Vec<String> {
    let world =
        World { crc: true, markers: false, emss: 1460, fpdu_max: 0, depth: 16, cuts: vec![] };
    let [_, right] = world.ends([&[], &[]]);
    let mut stream = right.stream;
    let (mut buffer, mut heard, mut rest) = (Vec::new(), Vec::new(), bytes);
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, later) = rest.split_at((*cut).min(rest.len()));
        buffer.extend_from_slice(piece);
        rest = later;
        while let Received::Frame { consumed, indication } = stream.receive(&buffer).unwrap() {
            heard.push(format!("{indication:?}"));
            buffer.drain(..consumed);
        }
    }
    assert!(buffer.is_empty());
    heard
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn both_ends_see_each_operation_and_get_their_answers(
        world in world(), left in script(), right in script(),
    ) {
        world.converse([&left, &right]);
    }

    #[test]
    fn the_same_bytes_give_the_same_indications_however_they_are_cut(
        script in proptest::collection::vec(operation(), 1..8),
        cuts in proptest::collection::vec(1_usize..4000, 1..6),
    ) {
        let bytes = said(&script);
        prop_assert_eq!(heard(&bytes, &cuts), heard(&bytes, &[usize::MAX]));
    }
}

#[test]
fn the_missing_count_never_asks_for_more_than_the_frame() {
    let bytes = said(&[Operation::Send { len: 100, solicited: false, invalidate: None }]);
    let world =
        World { crc: true, markers: false, emss: 1460, fpdu_max: 0, depth: 1, cuts: vec![] };
    let [_, mut right] = world.ends([&[], &[]]);
    // Twenty bytes of kick come first.
    let send = &bytes[20..];
    assert!(matches!(right.stream.receive(&bytes[..20]), Ok(Received::Frame { .. })));
    let mut have = 0;
    while have < send.len() {
        let received = right.stream.receive(&send[..have]).unwrap();
        let Received::Incomplete { missing } = received else { panic!("{received:?}") };
        have += missing;
    }
    assert_eq!(have, send.len());
}
