//! `landfast replica test-topology`: what two machines and the way between them are good for, before a group runs there.
//!
//! ```text
//!   beta:   test-topology db.toml beta --answer      listens where member beta would, takes what comes
//!   alpha:  test-topology db.toml alpha --to beta    round trips, bandwidth, disks; estimates
//! ```

use std::fmt::Write as _;
use std::fs;
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
    let report = measure(&group, me, other, options)?;
    let stem = format!("{}-{}-{}", group.file.name, me.name, other.name);
    let named = |path: &Option<PathBuf>, suffix: &str| {
        path.clone().unwrap_or_else(|| PathBuf::from(format!("{stem}.{suffix}")))
    };
    let (json, page) = (named(&options.json, "json"), named(&options.html, "html"));
    let text = report.to_json().map_err(|_| ReplicaFailure::DirectoryName)?;
    write(&json, &(text + "\n"))?;
    write(&page, &report.to_html())?;
    let kept = format!("{} has all figures, {} the charts\n", json.display(), page.display());
    output::say(&(shown(&report) + &kept))
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
        output::say(&format!("{} answers measurements at {address}, until Ctrl-C\n", me.name))?;
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
    eprintln!("links to {}, {} s each ...", other.name, options.seconds);
    let open = || dial(&other.addresses, &identity, member, &link_options);
    let link = measure_links(open, &STREAMS, time).map_err(|source| nobody(other, source))?;
    let disk = |directory: &Path| {
        eprintln!("{} ...", directory.display());
        measure_disk(directory, DISK_LEN, time).map_err(ReplicaFailure::from)
    };
    let log = disk(existing(&me.directory))?;
    let volumes = group.file.volumes.iter().enumerate();
    let volume = volumes.map(|(number, volume)| me.volume(number, volume)).next();
    let volume = volume.as_deref().and_then(Path::parent).map(existing);
    // Volumes beside the log are measured with it; a device file says nothing of its disk.
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

fn write(path: &Path, text: &str) -> Result<(), ReplicaFailure> {
    fs::write(path, text).map_err(|source| ReplicaFailure::File { path: path.to_owned(), source })
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

/// Links at once, for the bandwidth.
const STREAMS: [usize; 3] = [1, 2, 4];
/// Bytes of the file with which a disk is measured.
const DISK_LEN: u64 = 1 << 30;
