//! `landfast put`: a local file to a share, whole or not at all.
//!
//! ```text
//!  read  --> DIRECTORY/.landfast-XXXX.part --> flushed --> kept, by its name --> the name flushed
//!            goes by itself with the connection            what was there is replaced
//! ```
//!
//! Until the rename the file of that name is what it was. The part file is marked for deletion from the request that
//! makes it to the frame that renames it, so the server removes it whenever the connection ends, however it ends.
//! Two gaps remain, in which the whole part may stay beside the old file: the connection ends while the server
//! carries out the frame that renames, or behind a rename that it refuses and before the part is marked again.
//! Nothing is marked then of which it is not known that it has the part's name still: it would be the file that was
//! copied.
//!
//! What replaces a file gets its owner, its mode without set-ID bits, its access list (or nothing is replaced), its attributes and its time of creation; its streams, extended attributes and further
//! hard links stay with the old one.

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use client::{Client, ClientError, File, FileStat, OpenOptions, SmbUrl};
use smb::create::{AccessMask, ShareAccess};
use smb::info::security::{Ace, Dacl, SecurityDescriptor, Sid};
use smb::info::{Basic, FileAttributes, FileInfoClass, SecurityInformation};
use smb::{FileTime, NtStatus};
use tokio::time::timeout;

use super::{CHUNK, INTERNAL_LEN, check_directory, fill, is_pipe, off_thread, progress, wide};
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

/// What is sent.
struct Source {
    /// Away while it is read from.
    reader: Option<Box<dyn Read + Send>>,
    path: PathBuf,
    /// Of a regular file, to see whether it changes.
    before: Option<(fs::File, Stamp)>,
}

/// Length and time of the last write.
type Stamp = (u64, Option<SystemTime>);

impl Source {
    fn open(options: &Put) -> Result<Self, Failure> {
        let path = options.local.clone();
        if is_pipe(&path) {
            return Ok(Self { reader: Some(Box::new(io::stdin())), path, before: None });
        }
        let failed = || Failure::local("cannot read", &path);
        let file = fs::File::open(&path).map_err(failed())?;
        let metadata = file.metadata().map_err(failed())?;
        if metadata.is_dir() {
            return Err(failed()(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let before = match metadata.is_file() {
            true => Some((file.try_clone().map_err(failed())?, stamp(&metadata))),
            false => None,
        };
        Ok(Self { reader: Some(Box::new(file)), path, before })
    }

    fn len(&self) -> u64 {
        self.before.as_ref().map_or(0, |(_, (len, _))| *len)
    }

    /// The name it has here, if it has one.
    fn name(&self) -> Result<Option<String>, Failure> {
        let Some(name) = self.path.file_name().filter(|_| !is_pipe(&self.path)) else {
            return Ok(None);
        };
        // A name that is like it may be another file's.
        let unfit = || Failure::Unfit {
            action: "cannot write",
            what: format!("{:?}", self.path),
            why: "its name is not UTF-8, or a backslash or colon in it would mean something else there: write the \
                  name that it is to have at the end of the URL",
        };
        // Also one that means more than one name there, or a stream.
        let name = name.to_str().filter(|name| !name.contains(['\\', ':']));
        name.map(|name| Some(name.to_owned())).ok_or_else(unfit)
    }

    async fn next(&mut self, mut buffer: Vec<u8>) -> Result<(Vec<u8>, usize), Failure> {
        let mut reader = self.reader.take().expect("one read at a time");
        let work = move || {
            let taken = fill(&mut *reader, &mut buffer);
            (reader, buffer, taken)
        };
        let (reader, buffer, taken) = off_thread(work).await?;
        self.reader = Some(reader);
        Ok((buffer, taken.map_err(Failure::local("cannot read", &self.path))?))
    }

    fn check_unchanged(&self, sent: u64) -> Result<(), Failure> {
        let Some((file, before)) = &self.before else { return Ok(()) };
        let now = file.metadata().map_err(Failure::local("cannot read", &self.path))?;
        if stamp(&now) != *before || (before.0 != 0 && sent != before.0) {
            return Err(Failure::Changed(self.path.display().to_string()));
        }
        Ok(())
    }
}

fn stamp(metadata: &fs::Metadata) -> Stamp {
    (metadata.len(), metadata.modified().ok())
}

/// What a file gives to the one that takes its place.
struct Replaced {
    stat: FileStat,
    security: Option<(SecurityInformation, Vec<u8>)>,
}

/// Looks at what is there. What names a directory comes to name a file in it.
async fn look(
    client: &Client,
    url: &mut SmbUrl,
    source: &Source,
) -> Result<Option<Replaced>, Failure> {
    let mut found = Replaced::at(client, url).await?;
    check_directory(url, found.as_ref().map(|found| found.stat))?;
    if found.as_ref().is_some_and(|found| found.stat.is_directory()) {
        let name = source.name()?.ok_or_else(|| Failure::Unfit {
            action: "cannot write",
            what: url.to_string(),
            why: "it is a directory, and standard input has no name to go in under",
        })?;
        url.path = if url.path.is_empty() { name } else { format!("{}/{name}", url.path) };
        url.is_directory = false;
        found = Replaced::at(client, url).await?;
    }
    let Some(replaced) = &found else { return Ok(None) };
    let refused = |why| Failure::Unfit { action: "cannot replace", what: url.to_string(), why };
    if replaced.stat.is_directory() {
        return Err(refused("it is a directory"));
    }
    if replaced.stat.attributes.contains(FileAttributes::READONLY) {
        return Err(refused("it is marked read-only"));
    }
    // Who may not write to it may not replace it. Where others exclude writers for a while nothing is said of that.
    let writing = OpenOptions { access: AccessMask::WRITE_DATA, ..OpenOptions::attributes() };
    match client.open(&url.path, &writing).await {
        Ok(file) => file.close().await.map_err(Failure::remote("cannot write", url))?,
        Err(error) if error.status() == Some(NtStatus::ACCESS_DENIED) => {
            return Err(refused("the server does not let this account write to it"));
        }
        Err(_) => {}
    }
    Ok(found)
}

impl Replaced {
    async fn at(client: &Client, url: &SmbUrl) -> Result<Option<Self>, Failure> {
        let attributes = OpenOptions::attributes();
        let reading =
            OpenOptions { access: attributes.access | AccessMask::READ_CONTROL, ..attributes };
        let mut opened = client.open(&url.path, &reading).await;
        if status(&opened) == Some(NtStatus::ACCESS_DENIED) {
            opened = client.open(&url.path, &OpenOptions::attributes()).await;
        }
        if status(&opened) == Some(NtStatus::OBJECT_NAME_NOT_FOUND) {
            return Ok(None);
        }
        let file = opened.map_err(Failure::remote("cannot write", url))?;
        let stat = file.opened_as();
        let mut security = None;
        for parts in [OWNERS.union(SecurityInformation::DACL), SecurityInformation::DACL] {
            if security.is_none() {
                security =
                    file.security(parts).await.ok().map(|bytes| (parts, without_set_id(bytes)));
            }
        }
        file.close().await.map_err(Failure::remote("cannot write", url))?;
        Ok(Some(Self { stat, security }))
    }
}

/// The file while it is written.
struct Part {
    client: Client,
    file: File,
    url: SmbUrl,
}

impl Part {
    async fn create(
        client: &Client,
        url: &SmbUrl,
        replaced: Option<&Replaced>,
    ) -> Result<Self, Failure> {
        let failed = || Failure::remote("cannot write", url);
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|_| failed()(ClientError::HostRandom))?;
        let name = format!(".landfast-{:016x}.part", u64::from_le_bytes(random));
        let path = match url.path.rsplit_once(['/', '\\']) {
            Some((directory, _)) => format!("{directory}/{name}"),
            None => name,
        };
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
            // From its first moment on: what is empty now can be kept open by whom the old one keeps out.
            options.security = Some(security.clone());
        }
        let mut opened = client.create_temporary(&path, &options).await;
        if options.security.is_some() && status(&opened).is_some() {
            // A server that lets nobody make files of others.
            options.security = None;
            opened = client.create_temporary(&path, &options).await;
        }
        if status(&opened) == Some(NtStatus::ACCESS_DENIED) {
            opened = client.create_temporary(&path, &plain).await;
        }
        let file = opened.map_err(failed())?;
        let part = Self { client: client.clone(), file, url: SmbUrl { path, ..url.clone() } };
        if let Some(replaced) = replaced {
            part.inherit(url, replaced).await?;
        }
        Ok(part)
    }

    // Before there is a byte in it that others must not read.
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
        // It might let in whom the old one keeps out.
        let why = "the server does not give the new file the access list of the old one";
        match kept {
            true => Ok(()),
            false => Err(Failure::Unfit { action: "cannot replace", what: url.to_string(), why }),
        }
    }

    /// All of the source, on the server's medium.
    async fn fill(&self, source: &mut Source) -> Result<(), Failure> {
        let failed = || Failure::remote("cannot write", &self.url);
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

    /// Gives it its name.
    async fn finish(self, url: &SmbUrl) -> Result<(), Failure> {
        let failed = || Failure::remote("cannot write", url);
        let give_up = Instant::now() + OPEN_FOR;
        while let Err(error) = self.file.keep_as(&url.path, true).await {
            // A server may fail behind the rename, too.
            if !self.has_its_name().await {
                tracing::warn!(part = %self.url, "it is there, or {url} is what was sent");
                return Err(Failure::remote("cannot replace", url)(error));
            }
            let is_marked = self.file.delete_on_close(true).await.is_ok();
            // MS-FSA §2.1.5.15.11: a name that somebody has open is not taken from them.
            let is_open = [NtStatus::ACCESS_DENIED, NtStatus::SHARING_VIOLATION];
            let may_pass = error.status().is_some_and(|status| is_open.contains(&status));
            if !is_marked || !may_pass || Instant::now() > give_up {
                self.discard().await;
                return Err(Failure::remote("cannot replace", url)(error));
            }
            tokio::time::sleep(PAUSE).await;
        }
        // The name too.
        self.file.flush().await.map_err(failed())?;
        self.file.close().await.map_err(failed())
    }

    // Whether it is certainly found by its own name still, and not by the one that it was to get.
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

    /// Waits until it is gone, but not for ever: where the connection is lost the server sees to it.
    async fn discard(self) {
        let Self { file, url, .. } = self;
        let closed = timeout(PATIENCE, file.close()).await;
        if !matches!(closed, Ok(Ok(()))) {
            tracing::info!(%url, "the server removes it when it sees that the connection has ended");
        }
    }
}

/// The same access list but for set-ID bits, which other bytes do not get (write(2) takes them away, too).
fn without_set_id(bytes: Vec<u8>) -> Vec<u8> {
    let Ok(mut descriptor) = SecurityDescriptor::parse(&bytes) else { return bytes };
    let Dacl::Aces(aces) = &mut descriptor.dacl else { return bytes };
    let mut changed = false;
    for ace in aces {
        let Ace::Basic { sid, .. } = ace else { continue };
        if let Some(mode) = sid.to_unix_mode().filter(|mode| mode & SET_ID != 0) {
            *sid = Sid::unix_mode(mode & !SET_ID);
            changed = true;
        }
    }
    if !changed {
        return bytes;
    }
    let mut bytes = Vec::new();
    descriptor.emit(&mut bytes);
    bytes
}

fn status<T>(outcome: &Result<T, ClientError>) -> Option<NtStatus> {
    outcome.as_ref().err().and_then(ClientError::status)
}

/// Whether it was done; a server may say that it does not do such things.
fn unless_refused(outcome: Result<(), ClientError>) -> Result<bool, ClientError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.status().is_some() => Ok(false),
        Err(error) => Err(error),
    }
}

const OWNERS: SecurityInformation = SecurityInformation::OWNER.union(SecurityInformation::GROUP);
/// What says nothing about the data.
const KEPT: FileAttributes = FileAttributes::HIDDEN
    .union(FileAttributes::SYSTEM)
    .union(FileAttributes::ARCHIVE)
    .union(FileAttributes::NOT_CONTENT_INDEXED);
/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;
// Who looks at a file has it open for a moment, who copies it for longer.
const OPEN_FOR: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);
// A server that is there needs milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);
