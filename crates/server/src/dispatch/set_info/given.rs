//! Giving a name that was found free: nobody makes it meanwhile, nor one that differs in case alone.
//!
//! The kernel sees to it that a name is given once as it is written, and no more than that.
//!
//! Spec: MS-FSA §2.1.5.1 (names are compared ignoring case).

use std::sync::Arc;

use smb::NtStatus;

use super::Call;
use crate::service::Core;
use crate::share::{FileKey, Share, ShareError, SharePath};
use crate::state::making::{MadeBefore, Makes, Making, Spot};

/// A name that is about to be given.
pub(super) struct NameToGive {
    pub(super) share: Arc<Share>,
    pub(super) path: SharePath,
    /// From before it was looked up.
    pub(super) before: MadeBefore,
    /// What may have it already: what gets it, and what loses it.
    pub(super) may_have_it: [Option<FileKey>; 2],
}

/// What giving a name came to.
pub(super) enum Given<T> {
    Done(T),
    /// Somebody is just making it.
    Making(Arc<Making>),
    /// Something has got it since it was looked up.
    Taken,
}

impl NameToGive {
    /// Gives the name by `give`, if it is still free. Blocks.
    pub(super) fn give<T>(
        &self,
        core: &Core,
        give: impl FnOnce() -> Result<T, ShareError>,
    ) -> Result<Given<T>, ShareError> {
        let Self { share, path, before, may_have_it } = self;
        let spot = Spot::of(&share.new_name(path)?);
        let claim = match core.nodes.makings.claim(spot, share, path, Makes::Name) {
            Ok(claim) => claim,
            Err(making) => return Ok(Given::Making(making)),
        };
        if !claim.is_first_since(*before)
            && let Some(found) = share.locate(path)?.found
            && !may_have_it.contains(&Some(found.key))
        {
            return Ok(Given::Taken);
        }
        give().map(Given::Done)
    }
}

impl<T> Given<T> {
    /// What it came to, if it was given; else returns when it is worth another look.
    pub(super) async fn done(self, call: &Call) -> Result<Option<T>, NtStatus> {
        match self {
            Self::Done(done) => return Ok(Some(done)),
            Self::Making(making) => call.wait_for_work(making.settled(None)).await?,
            Self::Taken => {}
        }
        Ok(None)
    }
}
