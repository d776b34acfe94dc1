//! How the connections of a link come together, at both ends.
//!
//! ```text
//!   dialer     makes the first one with a random number of the link, which it begins; then the others, and those that end anew
//!   listener   the first one is a link; others join the link of their number, or are refused where it has ended
//! ```

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};

use super::super::denial::Denial;
use super::super::dial::dial_one_of;
use super::super::error::LinkError;
use super::super::greeting::OfSeveral;
use super::super::identity::Identity;
use super::super::link::OneSender;
use super::super::options::LinkOptions;
use super::super::pace::Pace;
use super::bounds::{CONNECTIONS_MAX, PULSE};
use super::several::Bundle;
use super::threads;
use crate::names::MemberId;

/// Makes a link of several connections. It is there with the first of them; the others are made meanwhile.
pub(in crate::wire) fn dial<A: AsRef<str>>(
    addresses: &[A],
    identity: &Identity,
    member: MemberId,
    options: &LinkOptions,
) -> Result<Arc<Bundle>, LinkError> {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| LinkError::HostResources(std::io::Error::other("no random numbers")))?;
    let link = u64::from_le_bytes(bytes);
    let of = OfSeveral { link, begins: true };
    let (sender, receiver) = dial_one_of(addresses, identity, member, options, Some(of))?;
    let bundle = Bundle::new(member, sender.socket().peer(), Pace::shared(options));
    bundle.attach(0, sender, receiver)?;
    let begun = bundle.beat();
    let addresses: Vec<String> = addresses.iter().map(|it| it.as_ref().to_owned()).collect();
    let maker = Maker {
        bundle: Arc::downgrade(&bundle),
        addresses,
        identity: identity.clone(),
        options: options.clone(),
        link,
    };
    let begun = begun.and_then(|()| threads::apart("dials", move || maker.run()));
    // Its threads would go on.
    begun.inspect_err(|_| bundle.close())?;
    Ok(bundle)
}

/// Makes the connections that are missing, as long as the link is there.
struct Maker {
    bundle: Weak<Bundle>,
    addresses: Vec<String>,
    identity: Identity,
    options: LinkOptions,
    link: u64,
}

impl Maker {
    fn run(self) {
        while let Some(bundle) = self.bundle.upgrade() {
            let state = bundle.lock();
            if state.end.is_some() {
                return;
            }
            let wanted = self.options.connections.min(CONNECTIONS_MAX);
            let is_free = |slot: &usize| !state.parts.iter().any(|part| part.slot == *slot);
            let Some(slot) = (0..wanted).find(is_free) else {
                let waited = bundle.missing.wait_timeout(state, PULSE);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                continue;
            };
            drop(state);
            if self.make(&bundle, slot).is_err() {
                let state = bundle.lock();
                if state.end.is_none() {
                    let waited = bundle.missing.wait_timeout(state, PULSE);
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                }
            }
        }
    }

    fn make(&self, bundle: &Arc<Bundle>, slot: usize) -> Result<(), LinkError> {
        // Each goes another way, where there are several.
        let mut addresses = self.addresses.clone();
        let count = addresses.len().max(1);
        addresses.rotate_left(slot % count);
        let (member, of) = (bundle.member(), OfSeveral { link: self.link, begins: false });
        let made = dial_one_of(&addresses, &self.identity, member, &self.options, Some(of));
        match made {
            Ok((sender, receiver)) => bundle.attach(slot, sender, receiver),
            Err(error) => {
                tracing::debug!(%member, %error, slot, "no further connection");
                if is_over(&error) {
                    bundle.close();
                }
                Err(error)
            }
        }
    }
}

/// The other end has no such link any more.
fn is_over(error: &LinkError) -> bool {
    match error {
        LinkError::Dial { source, .. } => is_over(source),
        error => matches!(error, LinkError::PeerDenies(Denial::NoLink)),
    }
}

/// The links of several connections that a listener has.
#[derive(Debug, Default)]
pub(in crate::wire) struct Bundles(HashMap<(MemberId, u64), Weak<Bundle>>);

impl Bundles {
    /// The link of a connection that a member has made, a new one if it begins it.
    pub(in crate::wire) fn of(
        &mut self,
        member: MemberId,
        of: OfSeveral,
        sender: &OneSender,
        options: &LinkOptions,
    ) -> Result<Arc<Bundle>, LinkError> {
        self.0.retain(|_, bundle| bundle.strong_count() > 0);
        let there = self.0.get(&(member, of.link)).and_then(Weak::upgrade);
        match (there, of.begins) {
            (Some(bundle), false) if bundle.lock().end.is_none() => Ok(bundle),
            (None, true) => {
                let bundle = Bundle::new(member, sender.socket().peer(), Pace::shared(options));
                self.0.insert((member, of.link), Arc::downgrade(&bundle));
                Ok(bundle)
            }
            _ => Err(LinkError::PeerDenies(Denial::NoLink)),
        }
    }
}
