//! The properties that the new file takes over from the old one, and the files that are not
//! replaced.

use client::{Client, ClientError, FileStat, OpenOptions, SmbUrl};
use smb::NtStatus;
use smb::create::{AccessMask, CreateOptions};
use smb::info::security::{Ace, Dacl, SecurityDescriptor, Sid};
use smb::info::{FileAttributes, FileInfoClass, FileName, SecurityInformation};

use super::source::Source;
use crate::failure::Failure;
use crate::files::{check_directory, check_spelling, last_name};
use crate::output;

/// The properties that the new file takes over.
pub(super) struct Replaced {
    pub(super) stat: FileStat,
    pub(super) security: Option<(SecurityInformation, Vec<u8>)>,
}

/// Looks at the old file. A URL that names a directory then names a file in it.
pub(super) async fn look(
    client: &Client,
    url: &mut SmbUrl,
    source: &Source,
) -> Result<Option<Replaced>, Failure> {
    let mut found = Replaced::at(client, url).await?;
    let mut is_named_by_source = false;
    check_spelling("cannot replace", client, url).await?;
    check_directory(url, found.as_ref().map(|found| found.stat))?;
    if found.as_ref().is_some_and(|found| found.stat.is_directory()) {
        let name = source.name()?.ok_or_else(|| Failure::Unfit {
            action: "cannot write",
            what: url.to_string(),
            why: "it is a directory, and standard input has no name to go in under",
        })?;
        url.path = if url.path.is_empty() { name } else { format!("{}/{name}", url.path) };
        url.is_directory = false;
        is_named_by_source = true;
        found = Replaced::at(client, url).await?;
    }
    let refused = |why| Failure::Unfit { action: "cannot replace", what: url.to_string(), why };
    if last_name(&url.path).to_string_lossy().contains(':') {
        // A stream has no name of its own that a file could take.
        return Err(refused("what follows a colon names a stream, and whole files alone are put"));
    }
    if is_link(client, &url.path).await.map_err(Failure::remote("cannot write", url))? {
        // A rename would replace the link, and only the server knows the target of the link.
        return Err(refused(
            "it is a symbolic link: name the file that it points to, or remove it first",
        ));
    }
    let Some(replaced) = &found else { return Ok(None) };
    if is_named_by_source {
        refuse_other_spelling(client, url).await?;
    }
    if replaced.stat.is_directory() {
        return Err(refused("it is a directory"));
    }
    if replaced.stat.attributes.contains(FileAttributes::READONLY) {
        return Err(refused("it is marked read-only"));
    }
    // A user who may not write to the file may not replace it. A temporary exclusion of writers does not matter
    // here.
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

/// A copy into a directory has the name of its source, and two sources may differ by case alone: `readme` is not to replace
/// `Readme`. Whoever names the file in the URL means the file that the server finds by that name.
async fn refuse_other_spelling(client: &Client, url: &SmbUrl) -> Result<(), Failure> {
    let there = spelled(client, &url.path).await.map_err(Failure::remote("cannot write", url))?;
    match there.filter(|there| last_name(there) != last_name(&url.path)) {
        None => Ok(()),
        Some(there) => Err(Failure::Unfit {
            action: "cannot replace",
            what: format!(
                "{url}, which is {} there",
                output::shown(&last_name(&there).to_string_lossy())
            ),
            why: "the server ignores case, and these may be two files: to replace it write its name at the end of the URL",
        }),
    }
}

/// Whether a name denotes a symbolic link, as far as the server shows its links.
async fn is_link(client: &Client, path: &str) -> Result<bool, ClientError> {
    // The server finds a name in any case, except for an open by the rules of POSIX, which alone shows a
    // link.
    let path = match (spelled(client, path).await?, path.rsplit_once(['/', '\\'])) {
        (Some(spelled), _) => spelled,
        // No file, or a link without a target.
        (None, Some((directory, name))) => {
            let directory = spelled(client, directory).await?;
            directory.map_or_else(|| path.to_owned(), |directory| format!("{directory}/{name}"))
        }
        (None, None) => path.to_owned(),
    };
    let itself = OpenOptions {
        options: CreateOptions::OPEN_REPARSE_POINT,
        posix: true,
        ..OpenOptions::attributes()
    };
    match client.open(&path, &itself).await {
        Ok(file) => {
            let found = file.opened_as();
            file.close().await?;
            Ok(found.attributes.contains(FileAttributes::REPARSE_POINT))
        }
        Err(error) if error.status().is_some() => Ok(false),
        Err(error) => Err(error),
    }
}

/// A path in the server's spelling, if the file exists and the server reports the spelling.
async fn spelled(client: &Client, path: &str) -> Result<Option<String>, ClientError> {
    match client.open(path, &OpenOptions::attributes()).await {
        Ok(file) => {
            let name = file.query_info(FileInfoClass::NORMALIZED_NAME, NAME_LEN_MAX).await;
            file.close().await?;
            let name = name.ok().and_then(|name| FileName::parse(&name).ok());
            Ok(name.map(|found| found.name.as_str().to_owned()))
        }
        Err(error) if error.status().is_some() => Ok(None),
        Err(error) => Err(error),
    }
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

/// The same access list without set-ID bits, which the new bytes do not get (write(2) clears them, too).
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

pub(super) fn status<T>(outcome: &Result<T, ClientError>) -> Option<NtStatus> {
    outcome.as_ref().err().and_then(ClientError::status)
}

const OWNERS: SecurityInformation = SecurityInformation::OWNER.union(SecurityInformation::GROUP);
/// Bytes of FileNormalizedNameInformation: a path of 32,767 characters.
const NAME_LEN_MAX: u32 = 65_538;
/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;
