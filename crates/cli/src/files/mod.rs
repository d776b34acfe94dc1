//! `landfast ls|get|put|rm|stat`: files of a share from the command line.

pub(crate) mod get;
pub(crate) mod put;

use std::io::{self, IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use client::{Client, ClientError, FileStat, OpenOptions, SmbUrl};
use smb::create::CreateOptions;
use smb::info::FileInfoClass;
use smb::{Civil, FileTime, NtStatus};

use crate::args::Remote;
use crate::failure::Failure;
use crate::{interrupt, output, remote};

/// Lists a directory by name, one entry a line: kind, size, time of the last write (UTC), name.
pub(crate) fn list(options: &Remote) -> Result<(), Failure> {
    let url = remote::url(&options.url)?;
    let entries = remote::connect(&url)?.list(&url.path);
    let mut entries = entries.map_err(Failure::remote("cannot list", &url))?;
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    let mut out = io::stdout().lock();
    for entry in entries.iter().filter(|entry| !matches!(entry.name.as_str(), "." | "..")) {
        let kind =
            if entry.attributes.contains(smb::info::FileAttributes::DIRECTORY) { 'd' } else { '-' };
        let (size, time, name) =
            (entry.end_of_file, utc(entry.last_write_time), output::shown(&entry.name));
        writeln!(out, "{kind} {size:>14} {time} {name}").map_err(Failure::Output)?;
    }
    Ok(())
}

/// Removes a file or an empty directory, and checks that it is gone.
pub(crate) fn remove(options: &Remote) -> Result<(), Failure> {
    let url = remote::url(&options.url)?;
    interrupt::run(async |stops| {
        let client = stops.or(remote::connect_async(&url)).await?;
        stops.or(remove_by(&client, &url)).await
    })
}

async fn remove_by(client: &Client, url: &SmbUrl) -> Result<(), Failure> {
    let failed = || Failure::remote("cannot remove", url);
    if url.is_directory {
        check_directory(url, Some(client.stat(&url.path).await.map_err(failed())?))?;
    }
    check_spelling("not removed:", client, url).await?;
    let removed = identity(client, &url.path).await.map_err(failed())?;
    client.delete(&url.path).await.map_err(failed())?;
    let refused = |why| Failure::Unfit { action: "not removed:", what: url.to_string(), why };
    match identity(client, &url.path).await {
        // Another client may have made a file of that name.
        Ok(there) if there == removed => {
            Err(refused("the server said it was, and it is still there"))
        }
        Err(error) if error.status() == Some(NtStatus::DELETE_PENDING) => {
            Err(refused("others have it open; it goes when the last of them closes it"))
        }
        _ => Ok(()),
    }
}

/// A disk of a server may hold names that differ by case alone: a name that is spelled as none of them would be any of them.
async fn check_spelling(
    action: &'static str,
    client: &Client,
    url: &SmbUrl,
) -> Result<(), Failure> {
    // Each directory by itself: one that is a link is spelled as what it leads to.
    let mut above = String::new();
    for asked in url.path.split(['/', '\\']) {
        let path = if above.is_empty() { asked.to_owned() } else { format!("{above}/{asked}") };
        let spelled = match client.spelling(&path).await {
            Ok(spelled) => Some(spelled),
            Err(error) if error.status().is_none() => return Ok(()),
            // What is not there has no spelling, nor has a link that leads nowhere.
            Err(_) => None,
        };
        let is_spelled = |spelled: &String| last_name(spelled).as_os_str() == asked;
        if !spelled.as_ref().is_some_and(is_spelled) && is_ambiguous(client, &above, asked).await {
            let why = "several names there differ from it by case alone: spell it as one of them, landfast ls shows them";
            return Err(Failure::Unfit { action, what: url.to_string(), why });
        }
        let Some(spelled) = spelled else { return Ok(()) };
        above = spelled;
    }
    Ok(())
}

/// Whether a directory has several names that could be meant, and none that is spelled so.
async fn is_ambiguous(client: &Client, directory: &str, asked: &str) -> bool {
    // The name of a file, without that of a stream.
    let asked = asked.split_once(':').map_or(asked, |(name, _)| name);
    let entries = match client.list_itself(directory).await {
        Ok(entries) => entries,
        // A directory that this user may not list is not looked at.
        Err(_) => client.list(directory).await.unwrap_or_default(),
    };
    let is_there = entries.iter().any(|it| *it.name == *asked);
    !is_there && entries.iter().filter(|it| are_alike(&it.name, asked)).count() > 1
}

/// Whether a server may take one name for the other: some compare in one case, some in the other, and of `ı` and `i` only one
/// of these says so.
fn are_alike(one: &str, other: &str) -> bool {
    one.to_uppercase() == other.to_uppercase() || one.to_lowercase() == other.to_lowercase()
}

/// The file number of the file system. For a link, the number of the link and not of its target.
async fn identity(client: &Client, path: &str) -> Result<Vec<u8>, ClientError> {
    let looking =
        OpenOptions { options: CreateOptions::OPEN_REPARSE_POINT, ..OpenOptions::attributes() };
    let file = client.open(path, &looking).await?;
    let number = file.query_info(FileInfoClass::INTERNAL, INTERNAL_LEN).await?;
    file.close().await?;
    Ok(number)
}

/// Shows the metadata that the server has of a file.
pub(crate) fn stat(options: &Remote) -> Result<(), Failure> {
    let url = remote::url(&options.url)?;
    let stat = remote::connect(&url)?.stat(&url.path);
    let stat = stat.map_err(Failure::remote("cannot look at", &url))?;
    check_directory(&url, Some(stat))?;
    let kind = if stat.is_directory() { "directory" } else { "file" };
    output::say(&format!(
        "kind        {kind}\nlength      {}\nallocated   {}\nattributes  {:#010x}\ncreated     {}\n\
         written     {}\nchanged     {}\n",
        stat.len,
        stat.allocation_size,
        stat.attributes.bits(),
        utc(stat.creation_time),
        utc(stat.last_write_time),
        utc(stat.change_time),
    ))
}

/// A path that ends in a slash must be a directory, as in other programs.
fn check_directory(url: &SmbUrl, there: Option<FileStat>) -> Result<(), Failure> {
    if !url.is_directory || url.path.is_empty() || there.is_some_and(|stat| stat.is_directory()) {
        return Ok(());
    }
    let why = "the slash at the end says that it is a directory, and there is none of that name";
    Err(Failure::Unfit { action: "not done:", what: format!("{url}/"), why })
}

/// Reads until the buffer is full or the source ends.
fn fill(source: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..])? {
            0 => break,
            taken => filled += taken,
        }
    }
    Ok(filled)
}

/// Runs blocking work on a thread of its own, so that a signal is noticed meanwhile.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Failure::System { action: "a thread ended", source: error.into() })
}

fn is_pipe(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn last_name(path: &str) -> PathBuf {
    path.rsplit(['/', '\\']).next().unwrap_or(path).into()
}

/// A percentage that rewrites itself, only on a terminal and only if the copy takes long.
fn progress(done: u64, total: u64) {
    let mut out = io::stderr();
    if total <= PROGRESS_FROM || !out.is_terminal() {
        return;
    }
    if done >= total {
        clear_progress();
    } else {
        SHOWS_PROGRESS.store(true, Ordering::Relaxed);
        let _ = write!(out, "\r{:>3} %", done.saturating_mul(100) / total);
        let _ = out.flush();
    }
}

/// Erases the percentage, before anything else is printed on its line.
pub(crate) fn clear_progress() {
    if SHOWS_PROGRESS.swap(false, Ordering::Relaxed) {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
}

/// `2026-11-20T12:34:56Z`.
fn utc(time: FileTime) -> String {
    let Civil { year, month, day, hour, minute, second, .. } = time.civil();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("a usize fits a u64 on every target")
}

// One request of the largest size that every server takes.
const CHUNK: usize = 1 << 20;
const PROGRESS_FROM: u64 = 64 << 20;
static SHOWS_PROGRESS: AtomicBool = AtomicBool::new(false);
// MS-FSCC §2.4.22.
const INTERNAL_LEN: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_get_without_a_local_name_takes_the_remote_one() {
        assert_eq!(last_name("a/b\\c.txt"), PathBuf::from("c.txt"));
    }
}
