//! The first frames of a link: who is there, and whether that is taken.
//!
//! ```text
//!   dialer                               listener
//!     Claim   group, who, to whom    ->
//!                                    <-  Answer  verdict, group, who
//! ```
//! A connection that is one of several of a link claims with the link's number, and says whether it is the first.
//! Both lie inside TLS, behind the proof of the keys. Nothing else is sent before the answer.
//!
//! Spec: ours, docs/replica-wire.md.

use super::codec::{self, GREETINGS, Head, Take, WireError};
use super::denial::Denial;
use super::error::LinkError;
use super::identity::Identity;
use super::keys::Fingerprint;
use crate::names::{GroupId, MemberId};

const CLAIM: u8 = GREETINGS;
const ANSWER: u8 = GREETINGS + 1;
const CLAIM_OF_SEVERAL: u8 = GREETINGS + 2;

/// A link of several connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct OfSeveral {
    /// A random number that its dialer has given it.
    pub(super) link: u64,
    /// It is the first connection of the link.
    pub(super) begins: bool,
}

/// What the end says that has made the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Claim {
    pub(super) group: GroupId,
    pub(super) me: MemberId,
    pub(super) to: MemberId,
    /// `None` where it is all of its link.
    pub(super) of: Option<OfSeveral>,
}

impl Claim {
    pub(super) fn encode(self) -> Result<Vec<u8>, WireError> {
        let mut out = Vec::new();
        let kind = if self.of.is_some() { CLAIM_OF_SEVERAL } else { CLAIM };
        codec::append(kind, 0, &mut out, |put| {
            put.field("Claim.group", &self.group)?;
            put.field("Claim.me", &self.me)?;
            put.field("Claim.to", &self.to)?;
            let Some(of) = self.of else { return Ok(()) };
            put.field("Claim.link", &of.link)?;
            put.field("Claim.begins", &of.begins)
        })?;
        Ok(out)
    }

    pub(super) fn decode(head: Head, body: &[u8]) -> Result<Self, WireError> {
        let is_of_several = head.kind() == CLAIM_OF_SEVERAL;
        let mut take = open(if is_of_several { CLAIM_OF_SEVERAL } else { CLAIM }, head, body)?;
        let mut claim = Self {
            group: take.field("Claim.group")?,
            me: take.field("Claim.me")?,
            to: take.field("Claim.to")?,
            of: None,
        };
        if is_of_several {
            let link = take.field("Claim.link")?;
            claim.of = Some(OfSeveral { link, begins: take.field("Claim.begins")? });
        }
        close(head, &take)?;
        Ok(claim)
    }

    /// Whether it holds, of an end that has shown `key`.
    pub(super) fn check(self, identity: &Identity, key: Fingerprint) -> Result<(), LinkError> {
        if self.group != identity.group {
            return Err(LinkError::PeerGroup(self.group));
        }
        if self.me == identity.me {
            return Err(LinkError::PeerIsMe(self.me));
        }
        if !identity.has(self.me) {
            return Err(LinkError::PeerUnknown(self.me));
        }
        if let Some(has) = identity.keys.owner(key)
            && has != self.me
        {
            return Err(LinkError::PeerClaims { claims: self.me, has });
        }
        match self.to == identity.me {
            true => Ok(()),
            false => Err(LinkError::PeerOther { wanted: identity.me, found: self.to }),
        }
    }
}

/// What the other end says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Answer {
    pub(super) denial: Option<Denial>,
    pub(super) group: GroupId,
    pub(super) me: MemberId,
}

impl Answer {
    pub(super) fn encode(self) -> Result<Vec<u8>, WireError> {
        let mut out = Vec::new();
        codec::append(ANSWER, 0, &mut out, |put| {
            put.field("Answer.verdict", &self.denial.map_or(0, |denial| denial as u8))?;
            put.field("Answer.group", &self.group)?;
            put.field("Answer.me", &self.me)
        })?;
        Ok(out)
    }

    pub(super) fn decode(head: Head, body: &[u8]) -> Result<Self, WireError> {
        let mut take = open(ANSWER, head, body)?;
        let denial = match take.field::<u8>("Answer.verdict")? {
            0 => None,
            code => Some(Denial::parse(code).ok_or(WireError::Value("Answer.verdict"))?),
        };
        let answer =
            Self { denial, group: take.field("Answer.group")?, me: take.field("Answer.me")? };
        close(head, &take)?;
        Ok(answer)
    }

    /// Whether it is that of the member `wanted`, of an end that has shown `key`.
    pub(super) fn check(
        self,
        identity: &Identity,
        wanted: MemberId,
        key: Fingerprint,
    ) -> Result<(), LinkError> {
        if self.group != identity.group {
            return Err(LinkError::PeerGroup(self.group));
        }
        if self.me == identity.me {
            return Err(LinkError::PeerIsMe(self.me));
        }
        let has = identity.keys.owner(key).unwrap_or(self.me);
        if has != self.me {
            return Err(LinkError::PeerClaims { claims: self.me, has });
        }
        if self.me != wanted {
            return Err(LinkError::PeerOther { wanted, found: self.me });
        }
        self.denial.map_or(Ok(()), |denial| Err(LinkError::PeerDenies(denial)))
    }
}

/// What the other end is told of an error of [`Claim::check`].
pub(super) fn denial_of(error: &LinkError) -> Option<Denial> {
    Some(match error {
        LinkError::PeerGroup(_) => Denial::OtherGroup,
        LinkError::PeerIsMe(_) => Denial::IsMe,
        LinkError::PeerUnknown(_) => Denial::Unknown,
        LinkError::PeerClaims { .. } => Denial::OtherKey,
        LinkError::PeerOther { .. } => Denial::NotWanted,
        LinkError::PeerDenies(denial) => *denial,
        _ => return None,
    })
}

pub(super) fn open(kind: u8, head: Head, body: &[u8]) -> Result<Take<'_>, WireError> {
    if head.kind() != kind {
        return Err(WireError::PeerKind(head.kind()));
    }
    match head.payload_len() {
        0 => Ok(Take::new(body)),
        len => Err(WireError::PayloadDiffers { len: len.into(), expected: 0 }),
    }
}

pub(super) fn close(head: Head, take: &Take<'_>) -> Result<(), WireError> {
    match take.left() {
        0 => Ok(()),
        count => Err(WireError::PeerTrailing { kind: head.kind(), count }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::codec::HEAD_LEN;
    use super::*;

    fn read<T>(
        frame: &[u8],
        decode: fn(Head, &[u8]) -> Result<T, WireError>,
    ) -> Result<T, WireError> {
        let (head, body) = frame.split_first_chunk::<HEAD_LEN>().unwrap();
        decode(Head::decode(head)?, body)
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_are_the_only_greeting(
            kind in 0x7f..0x84_u8,
            payload_len in prop_oneof![9 => Just(0_u32), 1 => any::<u32>()],
            body in vec(prop_oneof![3 => 0..8_u8, 1 => any::<u8>()], 16..30),
        ) {
            let mut frame = vec![b'L', b'R', 1, kind];
            frame.extend_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
            frame.extend_from_slice(&payload_len.to_le_bytes());
            frame.extend_from_slice(&body);
            if let Ok(claim) = read(&frame, Claim::decode) {
                prop_assert_eq!(claim.encode().unwrap(), frame.clone());
            }
            if let Ok(answer) = read(&frame, Answer::decode) {
                prop_assert_eq!(answer.encode().unwrap(), frame);
            }
        }
    }
}
