//! `landfast put`: a local file to a share, whole or not at all.
//!
//! ```text
//!  read  --> DIRECTORY/.landfast-XXXX.part --> flushed --> kept, by its name --> the name flushed
//!            goes by itself with the connection            what was there is replaced
//! ```
//!
//! Until the rename the file of that name is what it was. The part file is marked for deletion from the request that
//! makes it to the frame that renames it, so the server removes it whenever the connection ends, however it ends.
//! Three gaps remain, in which the part may stay beside the old file: the server is killed, the connection ends while
//! it carries out the frame that renames, or behind a rename that it refuses and before the part is marked again.
//! Nothing is marked then of which it is not known that it has the part's name still: it would be the file that was
//! copied. So the name of a part follows from the name that it is to get, and the next put of that name finds what
//! was left and removes it, unless somebody has it open. A put beside another of the same name has a random name for
//! its part: what is left of that one stays.
//!
//! What replaces a file gets its owner, its mode without set-ID bits, its access list (or nothing is replaced), its attributes and its time of creation; its streams, extended attributes and further
//! hard links stay with the old one.
//!
//! [`source`]: what is sent; [`replaced`]: what was there; [`part`]: what is to be there.

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

/// Copies a local file there, and returns when the server has it, under its name, on its medium.
pub(crate) fn run(options: &Put) -> Result<(), Failure> {
    let url = remote::url(&options.url)?;
    let source = Source::open(options)?;
    interrupt::run(async |stops| put(stops, url, source).await)
}

async fn put(stops: &mut Stops, mut url: SmbUrl, mut source: Source) -> Result<(), Failure> {
    let client = stops.or(remote::connect_async(&url)).await?;
    let replaced = stops.or(look(&client, &mut url, &source)).await?;
    let part = stops.or(Part::create(&client, &url, replaced.as_ref())).await?;
    let sent = stops.or(part.fill(&mut source)).await;
    match sent {
        // Not to be interrupted: it is short, and afterwards the file is there or it is not.
        Ok(()) => part.finish(&url).await,
        Err(failure) => {
            part.discard().await;
            Err(failure)
        }
    }
}
