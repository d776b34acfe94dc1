//! The part file: made, filled, and renamed to the name of the final file.

use std::time::{Duration, Instant};

use client::{Client, ClientError, File, OpenOptions, SmbUrl};
use smb::create::{AccessMask, CreateOptions, ShareAccess};
use smb::info::{Basic, FileAttributes, FileInfoClass, SecurityInformation};
use smb::{FileTime, NtStatus};
use tokio::time::timeout;

use super::replaced::{Replaced, status};
use super::source::Source;
use crate::failure::Failure;
use crate::files::{CHUNK, INTERNAL_LEN, progress, wide};

/// The new file while it is written.
pub(super) struct Part {
    client: Client,
    file: File,
    url: SmbUrl,
}

impl Part {
    pub(super) async fn create(
        client: &Client,
        url: &SmbUrl,
        replaced: Option<&Replaced>,
    ) -> Result<Self, Failure> {
        let failed = || Failure::remote("cannot write", url);
        let mut path = part_path(url, name_hash(url));
        let mut opened = Self::open(client, &path, replaced).await;
        if status(&opened) == Some(NtStatus::OBJECT_NAME_COLLISION)
            && remove_left(client, &path).await.is_ok()
        {
            tracing::info!(part = %path, "removed: an earlier put had left it");
            opened = Self::open(client, &path, replaced).await;
        }
        if status(&opened).is_some_and(|status| TAKEN.contains(&status)) {
            let mut random = [0; 8];
            getrandom::fill(&mut random).map_err(|_| failed()(ClientError::HostRandom))?;
            path = part_path(url, u64::from_le_bytes(random));
            opened = Self::open(client, &path, replaced).await;
        }
        let file = opened.map_err(failed())?;
        let part = Self { client: client.clone(), file, url: SmbUrl { path, ..url.clone() } };
        if let Some(replaced) = replaced {
            part.inherit(url, replaced).await?;
        }
        Ok(part)
    }

    /// Makes the part, exclusively, with the access list of the file that it replaces.
    async fn open(
        client: &Client,
        path: &str,
        replaced: Option<&Replaced>,
    ) -> Result<File, ClientError> {
        let mut options = OpenOptions {
            access: AccessMask::FILE_GENERIC_WRITE
                | AccessMask::READ_ATTRIBUTES
                | AccessMask::DELETE,
            share: ShareAccess::empty(),
            ..OpenOptions::read()
        };
        let plain = options.clone();
        if let Some((_, security)) = replaced.and_then(|replaced| replaced.security.as_ref()) {
            options.access |= AccessMask::WRITE_DAC | AccessMask::WRITE_OWNER;
            // From the first moment: a user whom the old file excludes could open the empty part and keep
            // it open.
            options.security = Some(security.clone());
        }
        let mut opened = client.create_temporary(path, &options).await;
        if options.security.is_some() && status(&opened).is_some() {
            // The server may refuse a file with the owner of the old one.
            options.security = None;
            opened = client.create_temporary(path, &options).await;
        }
        if status(&opened) == Some(NtStatus::ACCESS_DENIED) {
            opened = client.create_temporary(path, &plain).await;
        }
        opened
    }

    // Done before the part holds a byte that others must not read.
    async fn inherit(&self, url: &SmbUrl, replaced: &Replaced) -> Result<(), Failure> {
        let basic = Basic {
            creation_time: replaced.stat.creation_time,
            last_access_time: FileTime::ZERO,
            last_write_time: FileTime::ZERO,
            change_time: FileTime::ZERO,
            attributes: replaced.stat.attributes & KEPT,
        };
        let mut buffer = Vec::new();
        basic.emit(&mut buffer);
        let set = self.file.set_info(FileInfoClass::BASIC, &buffer).await;
        unless_refused(set).map_err(Failure::remote("cannot write", url))?;
        let Some((parts, descriptor)) = &replaced.security else { return Ok(()) };
        let mut kept = false;
        for parts in [*parts, SecurityInformation::DACL] {
            if !kept {
                let set = self.file.set_security(parts, descriptor).await;
                kept = unless_refused(set).map_err(Failure::remote("cannot write", url))?;
            }
        }
        // The part might admit users whom the old file excludes.
        let why = "the server does not give the new file the access list of the old one";
        match kept {
            true => Ok(()),
            false => Err(Failure::Unfit { action: "cannot replace", what: url.to_string(), why }),
        }
    }

    /// Writes and flushes all bytes of the source, which is to be at `url`.
    pub(super) async fn fill(&self, source: &mut Source, url: &SmbUrl) -> Result<(), Failure> {
        let failed = || Failure::remote("cannot write", url);
        let (mut buffer, mut at) = (vec![0; CHUNK], 0);
        loop {
            let (filled, taken) = source.next(buffer).await?;
            buffer = filled;
            if taken == 0 {
                break;
            }
            self.file.write_at(at, &buffer[..taken]).await.map_err(failed())?;
            at += wide(taken);
            progress(at, source.len());
        }
        source.check_unchanged(at)?;
        self.file.flush().await.map_err(failed())
    }

    /// Renames the part to its final name.
    pub(super) async fn finish(self, url: &SmbUrl) -> Result<(), Failure> {
        let failed = || Failure::remote("cannot write", url);
        let give_up = Instant::now() + OPEN_FOR;
        while let Err(error) = self.file.keep_as(&url.path, true).await {
            // A server may fail after the rename, too.
            if !self.has_its_name().await {
                tracing::warn!(
                    part = %self.url,
                    "it is there, or {url} is what was sent; the next put of that name removes it"
                );
                return Err(Failure::remote("cannot replace", url)(error));
            }
            let is_marked = self.file.delete_on_close(true).await.is_ok();
            // MS-FSA §2.1.5.15.11: a file that is open is not replaced.
            let is_open = [NtStatus::ACCESS_DENIED, NtStatus::SHARING_VIOLATION];
            let may_pass = error.status().is_some_and(|status| is_open.contains(&status));
            if !is_marked || !may_pass || Instant::now() > give_up {
                self.discard().await;
                return Err(Failure::remote("cannot replace", url)(error));
            }
            tokio::time::sleep(PAUSE).await;
        }
        // The new name is flushed as well.
        self.file.flush().await.map_err(failed())?;
        self.file.close().await.map_err(failed())
    }

    // Whether the file certainly has its part name still, and not its final name.
    async fn has_its_name(&self) -> bool {
        let own = self.file.query_info(FileInfoClass::INTERNAL, INTERNAL_LEN).await;
        let found = async {
            let file = self.client.open(&self.url.path, &OpenOptions::attributes()).await?;
            let number = file.query_info(FileInfoClass::INTERNAL, INTERNAL_LEN).await?;
            file.close().await?;
            Ok::<_, ClientError>(number)
        };
        matches!((own, found.await), (Ok(own), Ok(found)) if own == found)
    }

    /// Waits until the part is gone, but not for ever: if the connection is lost, the server removes
    /// the part.
    pub(super) async fn discard(self) {
        let Self { file, url, .. } = self;
        let closed = timeout(PATIENCE, file.close()).await;
        if !matches!(closed, Ok(Ok(()))) {
            tracing::info!(%url, "the server removes it when it sees that the connection has ended");
        }
    }
}

/// The path of the part, in the directory of the file.
fn part_path(url: &SmbUrl, number: u64) -> String {
    let name = format!(".landfast-{number:016x}.part");
    match url.path.rsplit_once(['/', '\\']) {
        Some((directory, _)) => format!("{directory}/{name}"),
        None => name,
    }
}

/// The same hash for every spelling of a name. Two names with the same hash only share the name of their
/// parts.
fn name_hash(url: &SmbUrl) -> u64 {
    let name = url.path.rsplit(['/', '\\']).next().unwrap_or_default().to_lowercase();
    // FNV-1a.
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Removes a part that is not open, so that no put is writing it.
async fn remove_left(client: &Client, path: &str) -> Result<(), ClientError> {
    let alone = OpenOptions {
        access: AccessMask::DELETE,
        share: ShareAccess::empty(),
        options: CreateOptions::DELETE_ON_CLOSE
            | CreateOptions::NON_DIRECTORY_FILE
            | CreateOptions::OPEN_REPARSE_POINT,
        ..OpenOptions::attributes()
    };
    client.open(path, &alone).await?.close().await
}

/// Whether the request was carried out; `false` if the server does not support it.
fn unless_refused(outcome: Result<(), ClientError>) -> Result<bool, ClientError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.status().is_some() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Attributes that do not describe the data.
const KEPT: FileAttributes = FileAttributes::HIDDEN
    .union(FileAttributes::SYSTEM)
    .union(FileAttributes::ARCHIVE)
    .union(FileAttributes::NOT_CONTENT_INDEXED);
/// Another client has a file of that name open, writes it or removes it.
const TAKEN: [NtStatus; 3] =
    [NtStatus::OBJECT_NAME_COLLISION, NtStatus::SHARING_VIOLATION, NtStatus::DELETE_PENDING];
// A program that looks at a file has it open for a moment, a program that copies it for longer.
const OPEN_FOR: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);
// A server that answers needs milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);
