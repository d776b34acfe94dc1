//! `landfast replica test-topology`: what two machines and the way between them are good for, before a group runs there.
//!
//! ```text
//!   beta:   test-topology db.toml beta --answer      listens where member beta would, takes what comes
//!   alpha:  test-topology db.toml alpha --to beta    round trips, bandwidth, disks; estimates
//! ```

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use replica::topology::{
    DiskRates, Estimates, LinkRates, Report, Wanted, answer, measure_disk, measure_links,
};
use replica::wire::{Identity, LinkError, LinkOptions, Listener, dial};
use replica::{MemberId, MemberSet};

use super::ReplicaFailure;
use super::args::TestTopology;
use super::group::{Group, MemberEntry};
use crate::failure::Failure;
use crate::{interrupt, output};

/// Answers another member's measurement, or makes one.
pub(super) fn run(options: &TestTopology) -> Result<(), Failure> {
    let group = Group::read(&options.file)?;
    let me = group.member(&options.member)?;
    if options.answer {
        return answers(&group, me);
    }
    let other = other_of(&group, me, options.to.as_deref())?;
    let stem = format!("{}-{}-{}", group.file.name, me.name, other.name);
    let named = |path: &Option<PathBuf>, suffix: &str| {
        path.clone().unwrap_or_else(|| PathBuf::from(format!("{stem}.{suffix}")))
    };
    let (json, page) = (named(&options.json, "json"), named(&options.html, "html"));
    // Whether they can be written is known before anything is measured.
    let (json_file, page_file) = (Out::open(&json)?, Out::open(&page)?);
    let report = measure(&group, me, other, options)?;
    let text = report.to_json().map_err(|_| ReplicaFailure::DirectoryName)?;
    json_file.write(&(text + "\n"))?;
    page_file.write(&report.to_html())?;
    let kept = format!("{} has all figures, {} the charts\n", json.display(), page.display());
    let is_device =
        |path: &Path| fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    let mut volumes = group.file.volumes.iter().enumerate();
    let on_device = volumes.any(|(number, volume)| is_device(&me.volume(number, volume)));
    let note = if on_device { NOT_MEASURED } else { "" };
    output::say(&(shown(&report) + note + &kept))
}

fn answers(group: &Group, me: &MemberEntry) -> Result<(), Failure> {
    interrupt::run(async |stops| {
        let identity = identity(group, me)?;
        let listener = Listener::bind(me.listens_at()).map_err(ReplicaFailure::from)?;
        let address = listener.local_addr();
        let names = group.clone();
        let listening = listener
            .run(identity, LinkOptions::default(), move |member, link| {
                let name = names.name_of(member);
                match answer(link) {
                    Ok(()) => tracing::info!(member = %name, "a measurement has ended"),
                    Err(error) => tracing::warn!(member = %name, %error, "a measurement broke off"),
                }
            })
            .map_err(ReplicaFailure::from)?;
        output::tell(&format!("{} answers measurements at {address}, until Ctrl-C\n", me.name));
        stops.received().await;
        drop(listening);
        Ok(())
    })
}

fn measure(
    group: &Group,
    me: &MemberEntry,
    other: &MemberEntry,
    options: &TestTopology,
) -> Result<Report, ReplicaFailure> {
    let time = Duration::from_secs(options.seconds.into());
    let (identity, member) = (identity(group, me)?, MemberId(other.number));
    let link_options = LinkOptions::default();
    output::note(&format!("links to {}, {} s each ...\n", other.name, options.seconds));
    let open = || dial(&other.addresses, &identity, member, &link_options);
    let link = measure_links(open, &STREAMS, time).map_err(|source| nobody(other, source))?;
    let disk = |directory: &Path| {
        output::note(&format!("{} ...\n", directory.display()));
        measure_disk(directory, DISK_LEN, time).map_err(ReplicaFailure::from)
    };
    let log = disk(existing(&me.directory))?;
    let volumes = group.file.volumes.iter().enumerate();
    let volume = volumes.map(|(number, volume)| me.volume(number, volume)).next();
    let volume = volume.as_deref().and_then(Path::parent).map(existing);
    // Volumes beside the log are measured with it.
    let data = match volume.filter(|it| *it != log.directory && !it.starts_with("/dev")) {
        Some(directory) => disk(directory)?,
        None => log.clone(),
    };
    let volume_bytes = group.file.volumes.iter().map(|volume| volume.size.0).sum();
    let wanted = Wanted {
        volume_bytes,
        writes_per_second: options.writes_per_second,
        outage_s: options.outage,
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(Report {
        time_s: now.as_secs(),
        source: me.name.clone(),
        destination: other.name.clone(),
        estimates: Estimates::new(&link, &log, &data, &wanted),
        link,
        log,
        data,
        wanted,
    })
}

fn nobody(other: &MemberEntry, source: LinkError) -> ReplicaFailure {
    ReplicaFailure::NoAnswer { member: other.name.clone(), source }
}

fn identity(group: &Group, me: &MemberEntry) -> Result<Identity, ReplicaFailure> {
    let all = group.file.members.iter().map(|member| MemberId(member.number));
    let members = all.fold(MemberSet::default(), MemberSet::with);
    Ok(Identity::from_secret(group.id, MemberId(me.number), members, &group.secret()?)?)
}

/// The member that is named, or the only other one.
fn other_of<'g>(
    group: &'g Group,
    me: &MemberEntry,
    name: Option<&str>,
) -> Result<&'g MemberEntry, ReplicaFailure> {
    if let Some(name) = name {
        return match name == me.name {
            true => Err(ReplicaFailure::Refused(format!("{name} is the member that measures"))),
            false => group.member(name),
        };
    }
    let mut others = group.file.members.iter().filter(|member| member.number != me.number);
    match (others.next(), others.next()) {
        (Some(other), None) => Ok(other),
        (None, _) => Err(ReplicaFailure::Refused(format!("{} is the only member", me.name))),
        (Some(_), Some(_)) => {
            Err(ReplicaFailure::Refused("several other members: name one with --to".to_owned()))
        }
    }
}

/// The directory, or the nearest one above that is there already: `prepare` may not have run yet.
fn existing(directory: &Path) -> &Path {
    directory.ancestors().find(|it| it.is_dir()).unwrap_or_else(|| Path::new("/"))
}

/// A file that is to be written: what is there stays until all of the new one is.
struct Out {
    path: PathBuf,
    to: Target,
}

enum Target {
    /// Beside it, and then in its place.
    Beside(tempfile::NamedTempFile),
    /// Into what is there and no file: a pipe, a terminal.
    Into(fs::File),
}

impl Out {
    fn open(path: &Path) -> Result<Self, ReplicaFailure> {
        // Of a symbolic link the target is replaced.
        let target = fs::canonicalize(path);
        let path = target.as_deref().unwrap_or(path);
        let failed = |source| ReplicaFailure::File { path: path.to_owned(), source };
        let is_special = fs::metadata(path).is_ok_and(|found| !found.is_file());
        let to = match is_special {
            true => Target::Into(fs::File::options().write(true).open(path).map_err(failed)?),
            false => {
                let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
                let mode = fs::Permissions::from_mode(0o666);
                let mut beside = tempfile::Builder::new();
                let beside = beside
                    .permissions(mode)
                    .tempfile_in(directory.unwrap_or_else(|| Path::new(".")));
                Target::Beside(beside.map_err(failed)?)
            }
        };
        Ok(Self { path: path.to_owned(), to })
    }

    fn write(self, text: &str) -> Result<(), ReplicaFailure> {
        let failed = |source| ReplicaFailure::File { path: self.path.clone(), source };
        match self.to {
            Target::Into(mut file) => file.write_all(text.as_bytes()).map_err(failed),
            Target::Beside(mut file) => {
                file.write_all(text.as_bytes()).map_err(failed)?;
                file.persist(&self.path).map(drop).map_err(|error| failed(error.error))
            }
        }
    }
}

/// The report as text.
fn shown(report: &Report) -> String {
    let Report { source, destination, link, log, data, estimates, .. } = report;
    let mut out = format!("{source} to {destination}\n");
    links(&mut out, link);
    disk(&mut out, "log", log);
    if data.directory != log.directory {
        disk(&mut out, "volumes", data);
    }
    let _ = writeln!(
        out,
        "estimates, for a member whose disks are as fast as these:\n\
         \x20 first copy            {:.0} s, bound by: {}\n\
         \x20 write of 4 KiB        {:.0} us alone, {:.0} us synchronous, {:.0} us semi-synchronous\n\
         \x20 writes for hours      {}\n\
         \x20 log_size recommended  {} MiB, for an outage of {} s",
        estimates.initial_copy_s,
        estimates.initial_copy_bound,
        estimates.write_alone_us,
        estimates.write_sync_us,
        estimates.write_semi_sync_us,
        rate(estimates.steady_per_second),
        estimates.log_bytes >> 20,
        report.wanted.outage_s,
    );
    out
}

fn links(out: &mut String, link: &LinkRates) {
    let trip = &link.round_trip;
    let _ = writeln!(
        out,
        "round trip: p50 {:.1} us, p90 {:.1}, p99 {:.1}, longest {:.1} of {}",
        trip.p50_us, trip.p90_us, trip.p99_us, trip.max_us, trip.count
    );
    for stream in &link.streams {
        let _ = writeln!(out, "{} link(s): {}", stream.streams, rate(stream.bytes_per_second));
    }
}

fn disk(out: &mut String, what: &str, disk: &DiskRates) {
    let _ = writeln!(
        out,
        "{what} in {}: durable append of 4 KiB p50 {:.0} us, p99 {:.0}; write {}, read {}",
        output::shown(&disk.directory.display().to_string()),
        disk.append.p50_us,
        disk.append.p99_us,
        rate(disk.write_per_second),
        rate(disk.read_per_second),
    );
}

fn rate(bytes_per_second: f64) -> String {
    format!("{:.0} MiB/s", bytes_per_second / f64::from(1 << 20))
}

/// What is measured writes to a file: a device may hold what somebody wants.
const NOT_MEASURED: &str =
    "volumes that are devices are not measured: for them the estimates take the disk of the log\n";
/// Links at once, for the bandwidth.
const STREAMS: [usize; 3] = [1, 2, 4];
/// Bytes of the file with which a disk is measured.
const DISK_LEN: u64 = 1 << 30;
