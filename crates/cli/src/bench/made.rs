//! The files that a benchmark measures in: its own, which it makes and removes, or with `--existing` those of
//! the user.
//!
//! ```text
//!   prepare   made by FILE_CREATE: no existing file is written to           --existing: opened, and overwritten
//!   remove    the made files are removed, however the run has ended                     the files stay
//! ```
//!
//! The files stay if the benchmark is killed or cannot reach the server any more; the next benchmark names them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use client::{Client, ClientError, ConnectOptions, OpenOptions, SmbUrl};
use smb::NtStatus;
use smb::create::CreateDisposition;

use super::plan::Plan;
use super::smb::runtime;
use crate::failure::Failure;
use crate::interrupt::Asked;

/// The files that the benchmark made and has to remove.
#[derive(Debug, Default)]
pub(crate) struct Made {
    files: Mutex<Vec<SmbUrl>>,
}

impl Made {
    /// Makes the file as large as the plan wants it, with bytes in every block.
    pub(crate) fn prepare(&self, url: &SmbUrl, plan: &Plan, asked: &Asked) -> Result<(), Failure> {
        self.prepare_file(url, plan.file_size, plan.existing, asked)
    }

    /// Makes a file of `len` bytes, or takes the one that is there where the user said so.
    pub(crate) fn prepare_file(
        &self,
        url: &SmbUrl,
        len: u64,
        existing: bool,
        asked: &Asked,
    ) -> Result<(), Failure> {
        runtime()?.block_on(async {
            let client = Client::connect(url, &ConnectOptions::for_user_of(url)).await?;
            let disposition = match existing {
                true => CreateDisposition::OPEN,
                false => CreateDisposition::CREATE,
            };
            let options = OpenOptions { disposition, ..OpenOptions::read_write() };
            let file = match client.open(&url.path, &options).await {
                Err(error) if status_of(&error) == Some(NtStatus::OBJECT_NAME_COLLISION) => {
                    return Err(Failure::Unfit {
                        action: "cannot measure in",
                        what: url.to_string(),
                        why: "it is there already; name another file, or have it overwritten with --existing",
                    });
                }
                Err(error) => return Err(Failure::remote("cannot measure in", url)(error)),
                Ok(file) => file,
            };
            if !existing {
                self.files.lock().unwrap_or_else(PoisonError::into_inner).push(url.clone());
            }
            let piece = vec![0xa5; PIECE];
            let mut at = file.stat().await?.len;
            while at < len {
                asked.check()?;
                let left = usize::try_from(len - at).unwrap_or(PIECE).min(PIECE);
                file.write_at(at, &piece[..left]).await?;
                at += u64::try_from(left).expect("at most a piece");
            }
            Ok(file.close().await?)
        })
    }

    /// Removes the made files, once no worker measures in them any more.
    pub(crate) fn remove(self) -> Result<(), Failure> {
        let files = self.files.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut outcome = Ok(());
        for url in files {
            let removed = runtime()?.block_on(remove(&url));
            let removed = removed.map_err(Failure::remote("cannot remove", &url));
            outcome = outcome.and(removed);
        }
        outcome
    }
}

// The server may not have noticed the end of the run's connections: then the name is removed with the last open.
async fn remove(url: &SmbUrl) -> Result<(), ClientError> {
    let client = Client::connect(url, &ConnectOptions::for_user_of(url)).await?;
    for _ in 0..LOOKS_MAX {
        match client.delete(&url.path).await {
            Ok(()) => {}
            Err(error) => match status_of(&error) {
                Some(NtStatus::OBJECT_NAME_NOT_FOUND) => return Ok(()),
                Some(NtStatus::DELETE_PENDING) => tokio::time::sleep(PAUSE).await,
                _ => return Err(error),
            },
        }
    }
    Ok(())
}

fn status_of(error: &ClientError) -> Option<NtStatus> {
    match error {
        ClientError::PeerStatus { status, .. } => Some(*status),
        _ => None,
    }
}

const PIECE: usize = 1 << 20;
/// How often the benchmark checks whether a removed file is gone, for two seconds in all.
const LOOKS_MAX: usize = 100;
const PAUSE: Duration = Duration::from_millis(20);
