//! The limits that bind both sides after the negotiation.
//!
//! Each side sends at most the smaller of its own send size and the receive size of its peer, and
//! needs no receive buffers larger than the send size of its peer.
//!
//! Spec: MS-SMBD §3.1.5.6 and §3.1.5.7, last paragraphs.

use super::request::Offer;
use crate::config::{Config, MESSAGE_SIZE_FLOOR, honest_fragmented_size};
use crate::credits::Credits;

/// The limits of an established connection. All sizes are in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Agreement {
    /// Largest single message that this side sends, header included.
    pub send_size_max: u32,
    /// Largest single message that this side receives, header included: the size of a receive buffer.
    pub receive_size_max: u32,
    /// Largest SMB2 message that this side sends in fragments.
    pub fragmented_send_size_max: u32,
    /// Largest SMB2 message that this side reassembles from fragments.
    pub fragmented_receive_size_max: u32,
    /// Largest server-driven RDMA read or write of one request. Zero means the acceptor wants none.
    pub read_write_size_max: u32,
    pub(crate) send_credit_target: u16,
    pub(crate) credits: Credits,
}

impl Agreement {
    /// The limits that follow from `config` and the peer's offer.
    pub(super) fn between(config: &Config, peer: Offer) -> Self {
        let send_size_max = config.send_size_max.min(peer.receive_size_max);
        let receive_size_max =
            config.receive_size_max.min(peer.preferred_send_size).max(MESSAGE_SIZE_FLOOR);
        // Old cifs.ko advertises 1 MiB that its 255 buffers of 1364 bytes cannot hold: trust a
        // peer's size only as far as the credits that this side requested can hold.
        let believable = honest_fragmented_size(config.send_credit_target, send_size_max);
        let mut credits = Credits::new(config.receive_credit_max);
        credits.requested(peer.credits_requested);
        Self {
            send_size_max,
            receive_size_max,
            fragmented_send_size_max: peer.fragmented_size_max.min(believable),
            fragmented_receive_size_max: config.fragmented_receive_size_max,
            read_write_size_max: config.read_write_size_max,
            send_credit_target: config.send_credit_target,
            credits,
        }
    }

    /// The answer of an acceptor, after its sizes were adapted to the request.
    pub(super) fn answer(&self) -> Offer {
        Offer {
            credits_requested: self.send_credit_target,
            preferred_send_size: self.send_size_max,
            receive_size_max: self.receive_size_max,
            fragmented_size_max: self.fragmented_receive_size_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(config: &Config, peer: Offer) -> [u32; 4] {
        let agreement = Agreement::between(config, peer);
        [
            agreement.send_size_max,
            agreement.receive_size_max,
            agreement.fragmented_send_size_max,
            agreement.fragmented_receive_size_max,
        ]
    }

    #[test]
    fn each_side_is_bound_by_the_sizes_of_the_other() {
        let old_cifs = Offer {
            credits_requested: 255,
            preferred_send_size: 1364,
            receive_size_max: 1364,
            fragmented_size_max: 1 << 20,
        };
        assert_eq!(agreed(&Config::default(), old_cifs), [1364, 1364, 173_910, 1_044_480]);
        let windows = Offer { receive_size_max: 8192, ..old_cifs };
        assert_eq!(agreed(&Config::default(), windows), [8192, 1364, 1_044_480, 1_044_480]);
    }

    #[test]
    fn receive_buffers_have_the_floor_size_for_a_smaller_send_size() {
        let tiny = Offer {
            credits_requested: 1,
            preferred_send_size: 1,
            receive_size_max: 128,
            fragmented_size_max: 131_072,
        };
        assert_eq!(agreed(&Config::default(), tiny), [128, 128, 131_072, 1_044_480]);
    }
}
