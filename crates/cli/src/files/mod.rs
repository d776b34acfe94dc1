//! `landfast ls|get|put|rm|stat`: files of a share from the command line.

use std::fs;
use std::io::{self, IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::OpenOptions;
use client::blocking::File;
use smb::FileTime;

use crate::args::{Get, Put, Remote};
use crate::failure::Failure;
use crate::remote;

/// Lists a directory, one entry a line: kind, size, time of the last write (UTC), name.
pub(crate) fn list(options: &Remote) -> Result<(), Failure> {
    let url = remote::url(&options.url)?;
    let entries = remote::connect(&url)?.list(&url.path)?;
    let mut out = io::stdout().lock();
    for entry in entries.iter().filter(|entry| !matches!(entry.name.as_str(), "." | "..")) {
        let kind =
            if entry.attributes.contains(smb::info::FileAttributes::DIRECTORY) { 'd' } else { '-' };
        let (size, time, name) =
            (entry.end_of_file, utc(entry.last_write_time), entry.name.as_str());
        writeln!(out, "{kind} {size:>14} {time} {name}").map_err(Failure::system("output"))?;
    }
    Ok(())
}

/// Copies a remote file here.
pub(crate) fn get(options: &Get) -> Result<(), Failure> {
    let url = remote::url(&options.url)?;
    let client = remote::connect(&url)?;
    let file = client.open(&url.path, &OpenOptions::read())?;
    let local = options.local.clone().unwrap_or_else(|| last_name(&url.path));
    let mut target: Box<dyn Write> = if is_pipe(&local) {
        Box::new(io::stdout().lock())
    } else {
        Box::new(fs::File::create(&local).map_err(Failure::local("cannot write", &local))?)
    };
    let len = file.stat()?.len;
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < len {
        let taken = file.read_at(at, &mut buffer)?;
        if taken == 0 {
            break;
        }
        target.write_all(&buffer[..taken]).map_err(Failure::local("cannot write", &local))?;
        at += wide(taken);
        progress(at, len);
    }
    target.flush().map_err(Failure::local("cannot write", &local))?;
    file.close()?;
    Ok(())
}

/// Copies a local file there, and returns when the server has it on its medium.
pub(crate) fn put(options: &Put) -> Result<(), Failure> {
    let url = remote::url(&options.url)?;
    let failed = || Failure::local("cannot read", &options.local);
    let (mut source, len): (Box<dyn Read>, u64) = if is_pipe(&options.local) {
        (Box::new(io::stdin().lock()), 0)
    } else {
        let file = fs::File::open(&options.local).map_err(failed())?;
        let len = file.metadata().map_err(failed())?.len();
        (Box::new(file), len)
    };
    let client = remote::connect(&url)?;
    let file = client.open(&url.path, &OpenOptions::create())?;
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let taken = fill(&mut source, &mut buffer).map_err(failed())?;
        if taken == 0 {
            break;
        }
        file.write_at(at, &buffer[..taken])?;
        at += wide(taken);
        progress(at, len);
    }
    finish(file)
}

fn finish(file: File) -> Result<(), Failure> {
    file.flush()?;
    file.close()?;
    Ok(())
}

/// Removes a file or an empty directory.
pub(crate) fn remove(options: &Remote) -> Result<(), Failure> {
    let url = remote::url(&options.url)?;
    Ok(remote::connect(&url)?.delete(&url.path)?)
}

/// Shows what the server knows of a file.
pub(crate) fn stat(options: &Remote) -> Result<(), Failure> {
    let url = remote::url(&options.url)?;
    let stat = remote::connect(&url)?.stat(&url.path)?;
    println!("kind        {}", if stat.is_directory() { "directory" } else { "file" });
    println!("length      {}", stat.len);
    println!("allocated   {}", stat.allocation_size);
    println!("attributes  {:#010x}", stat.attributes.bits());
    println!("created     {}", utc(stat.creation_time));
    println!("written     {}", utc(stat.last_write_time));
    println!("changed     {}", utc(stat.change_time));
    Ok(())
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

fn is_pipe(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn last_name(path: &str) -> PathBuf {
    path.rsplit(['/', '\\']).next().unwrap_or(path).into()
}

/// A percentage that rewrites itself, only where somebody watches and it takes a while.
fn progress(done: u64, total: u64) {
    let mut out = io::stderr();
    if total > PROGRESS_FROM && out.is_terminal() {
        let end = if done >= total { "\r\x1b[K" } else { "" };
        let _ = write!(out, "\r{:>3} %{end}", done.saturating_mul(100) / total);
        let _ = out.flush();
    }
}

/// `2026-11-20T12:34:56Z`, from the days of the civil calendar.
fn utc(time: FileTime) -> String {
    let ns = u64::try_from(time.to_unix_ns()).unwrap_or(0);
    let since: SystemTime = UNIX_EPOCH + Duration::from_nanos(ns);
    let seconds = since.duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a number of days since 1970, by eras of 400 years that begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("a usize fits a u64 on every target")
}

// One request of the largest size every server takes.
const CHUNK: usize = 1 << 20;
const PROGRESS_FROM: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_777), (2026, 11, 20));
    }

    #[test]
    fn a_get_without_a_local_name_takes_the_remote_one() {
        assert_eq!(last_name("a/b\\c.txt"), PathBuf::from("c.txt"));
    }
}
