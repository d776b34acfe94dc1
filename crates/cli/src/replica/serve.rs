//! `landfast replica serve`: runs a member, offers its volumes, and answers on its control socket.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use basics::Environment;
use block::{BlockDevice, FileDevice};
use pmem::DurabilityClass;
use replica::ring::Ring;
use replica::runtime::{Member, Setup, StartError};
use replica::wire::{Identity, Listener};
use replica::witness::etcd::Etcd;
use replica::witness::{FileWitness, NoWitness, Witness};
use replica::{MemberId, MemberSet};

use super::ReplicaFailure;
use super::args::Serve;
use super::ask::Answers;
use super::automatic;
use super::control::Control;
use super::front::Front;
use super::group::{Group, MemberEntry};
use super::views::Shown;
use crate::failure::Failure;
use crate::metrics::{Endpoint, of_member};
use crate::volume::VolumeFailure;
use crate::{interrupt, notify, output};

/// Runs a member until a signal ends it.
pub(super) fn run(options: &Serve) -> Result<(), Failure> {
    interrupt::run(async |stops| {
        let group = Group::read(&options.file)?;
        let entry = group.member(&options.member)?.clone();
        let etcd = automatic::etcd(&group, &entry)?.map(Arc::new);
        let member = Arc::new(start(&group, &entry, options, etcd.clone())?);
        let names: Vec<String> = group.file.volumes.iter().map(|it| it.name.clone()).collect();
        let shown = Shown::new(&entry.directory, tokio::runtime::Handle::current());
        let answers = Answers::new(Arc::clone(&member), group.clone(), entry.name.clone(), shown);
        let control = Control::listen(&entry.control(), move |wish| answers.answer(wish))?;
        let mut front = Front::new(options, names, Arc::clone(&member))?;
        let status = format!("{}: member {} at {}", group.file.name, entry.name, member.address());
        let figures = {
            let (member, group) = (Arc::clone(&member), group.clone());
            move || of_member(&group.file.name, &member.report(), |it| group.name_of(it))
        };
        let metrics = match options.metrics {
            Some(address) => Some(Endpoint::open(address, figures).await?),
            None => None,
        };
        let promoter = automatic::start(&group, &entry, etcd, &member)?;
        let figures = metrics.as_ref().map(|it| format!(", metrics={}", it.address()));
        output::tell(&format!("{status}{}\n", figures.unwrap_or_default()));
        notify::say(&notify::ready(&status));
        let stop = loop {
            tokio::select! {
                stop = stops.received() => break stop,
                () = tokio::time::sleep(PAUSE) => front.follow()?,
            }
        };
        tracing::info!(?stop, "ending");
        notify::say(notify::STOPPING);
        // What runs on the volumes stops before they go.
        drop(promoter);
        front.end(stops).await?;
        drop(control);
        member.end();
        Ok(())
    })
}

fn start(
    group: &Group,
    entry: &MemberEntry,
    options: &Serve,
    etcd: Option<Arc<Etcd>>,
) -> Result<Member, ReplicaFailure> {
    let map = pmem::OpenOptions { emulate_persistence: options.emulate_persistence };
    let config = group.config(entry);
    let volumes = open_volumes(group, entry, options.emulate_persistence)?;
    let ring = Ring::open(&entry.log(), map)?;
    if ring.medium().class() == DurabilityClass::Volatile && !options.emulate_persistence {
        let source = VolumeFailure::Volatile;
        return Err(ReplicaFailure::Volume { path: entry.log(), source });
    }
    let members = config.others.iter().fold(MemberSet::of(config.me), |all, (it, _)| all.with(*it));
    let identity = Identity::from_secret(group.id, config.me, members, &group.secret()?)?;
    let listener = Listener::bind(entry.listens_at())?;
    let witness: Arc<dyn Witness> = match (&group.file.witness_file, etcd) {
        (_, Some(etcd)) => etcd,
        (Some(path), None) => Arc::new(FileWitness::new(&group.resolved(path), group.id)),
        (None, None) => Arc::new(NoWitness),
    };
    let addresses = group
        .file
        .members
        .iter()
        .map(|member| (MemberId(member.number), member.addresses.clone()))
        .collect();
    let started = Member::start(Setup {
        config,
        ring,
        volumes,
        directory: entry.kept(),
        map,
        identity,
        addresses,
        links: group.links(entry),
        one_sided: group.one_sided(entry, listener.local_addr()),
        listener,
        witness,
        compression: group.file.compression.into(),
        rpo: group.rpo(),
        environment: Environment::host(),
    });
    // A member that has grown or not remembers the sizes, whatever the file says.
    started.map_err(|error| match error {
        StartError::OtherSize { volume, found, wanted } if volume < group.file.volumes.len() => {
            let path = entry.volume(volume, &group.file.volumes[volume]);
            ReplicaFailure::Size { path, found, wanted }
        }
        error => error.into(),
    })
}

fn open_volumes(
    group: &Group,
    entry: &MemberEntry,
    emulates: bool,
) -> Result<Vec<Arc<dyn BlockDevice>>, ReplicaFailure> {
    let mut devices: Vec<Arc<dyn BlockDevice>> = Vec::new();
    for (number, volume) in group.file.volumes.iter().enumerate() {
        let path = entry.volume(number, volume);
        let device = open_volume(&path, emulates)
            .map_err(|source| ReplicaFailure::Volume { path: path.clone(), source })?;
        devices.push(Arc::new(device));
    }
    Ok(devices)
}

// The log is used again for what has been flushed to the volumes: they have to keep it as the log does.
fn open_volume(path: &Path, emulates: bool) -> Result<FileDevice, VolumeFailure> {
    let file = File::options().read(true).write(true).open(path)?;
    if pmem::is_in_memory(&file) && !emulates {
        return Err(VolumeFailure::Volatile);
    }
    crate::volume::lock(&file)?;
    Ok(FileDevice::new(file)?)
}

/// How often it is looked at whether the member is the source.
const PAUSE: Duration = Duration::from_millis(20);
