//! `landfast put`: copies a local file to a share, whole or not at all.
//!
//! ```text
//!   read  --> DIRECTORY/.landfast-XXXX.part --> flushed --> kept under its name --> the name flushed
//!             the server removes it with the connection     the old file is replaced
//! ```
//!
//! Until the rename the file of that name stays unchanged. The part file is marked for deletion from the request that
//! makes it to the frame that renames it, so the server removes it whenever the connection ends, for whatever reason.
//! Three gaps remain in which the part may stay beside the old file: the server is killed; the connection ends while
//! the server carries out the frame that renames; the connection ends between a refused rename and the request that
//! marks the part again. In these gaps the client marks nothing of which it does not know that it still has the
//! part's name: it could be the copied file. So the name of a part follows from the name that it is to get, and the
//! next put of that name finds a part that was left and removes it, unless it is open. A put beside another put of
//! the same name gives its part a random name: such a part is not found later.
//!
//! The new file gets the owner of the old file, its mode without set-ID bits, its access list (or the old file is not replaced), its attributes
//! and its time of creation; streams, extended attributes and further hard links stay with the old file.
//!
//! [`source`]: the bytes to send; [`replaced`]: the old file; [`part`]: the new file.

mod part;
mod replaced;
mod source;

use client::SmbUrl;

use self::part::Part;
use self::replaced::look;
use self::source::Source;
use crate::args::Put;
use crate::failure::Failure;
use crate::interrupt::{self, Stops};
use crate::remote;

/// Copies a local file to the share, and returns when the server has it durably under its name.
pub(crate) fn run(options: &Put) -> Result<(), Failure> {
    let url = remote::url(&options.url)?;
    let source = Source::open(options)?;
    interrupt::run(async |stops| put(stops, url, source).await)
}

async fn put(stops: &mut Stops, mut url: SmbUrl, mut source: Source) -> Result<(), Failure> {
    let client = stops.or(remote::connect_async(&url)).await?;
    let replaced = stops.or(look(&client, &mut url, &source)).await?;
    let part = stops.or(Part::create(&client, &url, replaced.as_ref())).await?;
    let sent = stops.or(part.fill(&mut source, &url)).await;
    match sent {
        // This step is short, and afterwards the file either exists or does not.
        Ok(()) => {
            let what = format!("{url} is about to get what was sent");
            stops.unless_twice(&what, part.finish(&url)).await
        }
        Err(failure) => {
            part.discard().await;
            Err(failure)
        }
    }
}
