//! `landfast replica serve`: runs a member, offers its volumes, and answers on its control socket.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use basics::Environment;
use block::{BlockDevice, FileDevice};
use fuse::Mounted;
use nbd::{Address, Export, Exports, Handle, Server};
use pmem::DurabilityClass;
use replica::ring::Ring;
use replica::runtime::{Member, Setup};
use replica::wire::{Identity, LinkOptions, Listener, Policy};
use replica::witness::{FileWitness, NoWitness, Witness};
use replica::{MemberId, MemberSet};

use super::ReplicaFailure;
use super::args::Serve;
use super::ask::Answers;
use super::control::Control;
use super::group::{Compression, Group, MemberEntry};
use super::views::Shown;
use crate::failure::Failure;
use crate::volume::{NbdFailure, VolumeFailure};
use crate::{interrupt, notify, output};

/// Runs a member until a signal ends it.
pub(super) fn run(options: &Serve) -> Result<(), Failure> {
    interrupt::run(async |stops| {
        let group = Group::read(&options.file)?;
        let entry = group.member(&options.member)?.clone();
        let member = Arc::new(start(&group, &entry, options)?);
        let names: Vec<String> = group.file.volumes.iter().map(|it| it.name.clone()).collect();
        let shown = Shown::new(&entry.directory, tokio::runtime::Handle::current());
        let answers = Answers::new(Arc::clone(&member), group.clone(), entry.name.clone(), shown);
        let control = Control::listen(&entry.control(), move |wish| answers.answer(wish))?;
        let devices: Vec<(String, Arc<dyn BlockDevice>)> =
            names.into_iter().zip(member.devices()).collect();
        let mut offered = offer(options, devices)?;
        let status = format!(
            "{}: member {} at {}{}",
            group.file.name,
            entry.name,
            member.address(),
            offered.shown()
        );
        output::say(&format!("{status}\n"))?;
        notify::say(&notify::ready(&status));
        let stop = stops.received().await;
        tracing::info!(?stop, "ending");
        notify::say(notify::STOPPING);
        offered.end(stops).await?;
        drop(control);
        member.end();
        Ok(())
    })
}

fn start(group: &Group, entry: &MemberEntry, options: &Serve) -> Result<Member, ReplicaFailure> {
    let map = pmem::OpenOptions { emulate_persistence: options.emulate_persistence };
    let config = group.config(entry);
    let volumes = open_volumes(group, entry)?;
    let ring = Ring::open(&entry.log(), map)?;
    if ring.medium().class() == DurabilityClass::Volatile && !options.emulate_persistence {
        let source = VolumeFailure::Volatile;
        return Err(ReplicaFailure::Volume { path: entry.log(), source });
    }
    let members = config.others.iter().fold(MemberSet::of(config.me), |all, (it, _)| all.with(*it));
    let identity = Identity::from_secret(group.id, config.me, members, &group.secret()?)?;
    let listen = entry.listen.as_ref().or_else(|| entry.addresses.first());
    let listen = listen.map_or("0.0.0.0:0", |address| address);
    let witness: Arc<dyn Witness> = match &group.file.witness_file {
        Some(path) => Arc::new(FileWitness::new(&group.resolved(path), group.id)),
        None => Arc::new(NoWitness),
    };
    let addresses = group
        .file
        .members
        .iter()
        .map(|member| (MemberId(member.number), member.addresses.clone()))
        .collect();
    Ok(Member::start(Setup {
        config,
        ring,
        volumes,
        directory: entry.kept(),
        map: pmem::OpenOptions { emulate_persistence: true },
        identity,
        addresses,
        links: LinkOptions::default(),
        listener: Listener::bind(listen)?,
        witness,
        compression: match group.file.compression {
            Compression::None => Policy::None,
            Compression::Lz4 => Policy::Lz4,
            Compression::Zstd => Policy::Zstd,
            Compression::Adaptive => Policy::Adaptive,
        },
        environment: Environment::host(),
    })?)
}

fn open_volumes(
    group: &Group,
    entry: &MemberEntry,
) -> Result<Vec<Arc<dyn BlockDevice>>, ReplicaFailure> {
    let mut devices: Vec<Arc<dyn BlockDevice>> = Vec::new();
    for (number, volume) in group.file.volumes.iter().enumerate() {
        let path = entry.volume(number, volume);
        let device = open_volume(&path)
            .map_err(|source| ReplicaFailure::Volume { path: path.clone(), source })?;
        let (found, wanted) = (device.geometry().size, volume.size.0);
        if found != wanted {
            return Err(ReplicaFailure::Size { path, found, wanted });
        }
        devices.push(Arc::new(device));
    }
    Ok(devices)
}

fn open_volume(path: &Path) -> Result<FileDevice, VolumeFailure> {
    let file = File::options().read(true).write(true).open(path)?;
    crate::volume::lock(&file)?;
    Ok(FileDevice::new(file)?)
}

/// How the volumes are offered.
enum Offered {
    Nowhere,
    Nbd(Handle),
    Files(Box<Mounted>),
}

fn offer(
    options: &Serve,
    devices: Vec<(String, Arc<dyn BlockDevice>)>,
) -> Result<Offered, Failure> {
    if let Some(directory) = &options.fuse {
        let how = fuse::Options { loops: options.loops };
        return Ok(Offered::Files(Box::new(Mounted::new(devices, directory, how)?)));
    }
    let mut addresses: Vec<Address> = options.unix.clone().map(Address::Unix).into_iter().collect();
    addresses.extend(options.nbd.map(Address::Tcp));
    if addresses.is_empty() {
        return Ok(Offered::Nowhere);
    }
    let exports = devices
        .into_iter()
        .map(|(name, device)| Export::new(&name, "landfast replicated volume", device))
        .collect::<Result<Vec<_>, _>>()
        .map_err(NbdFailure::from)?;
    let exports = Exports::new(exports).map_err(NbdFailure::from)?;
    let server = Server::new(exports, None).map_err(NbdFailure::from)?;
    Ok(Offered::Nbd(server.listen(&addresses).map_err(NbdFailure::from)?))
}

impl Offered {
    fn shown(&self) -> String {
        let places: Vec<String> = match self {
            Self::Nowhere => Vec::new(),
            Self::Nbd(handle) => handle.addresses().iter().map(ToString::to_string).collect(),
            Self::Files(mounted) => mounted
                .paths()
                .iter()
                .map(|path| path.display().to_string())
                .chain(mounted.loops().map(|path| path.display().to_string()))
                .collect(),
        };
        places.iter().fold(String::new(), |text, place| text + ", " + place)
    }

    async fn end(&mut self, stops: &mut interrupt::Stops) -> Result<(), Failure> {
        let Self::Files(mounted) = self else {
            *self = Self::Nowhere;
            return Ok(());
        };
        let mut said = false;
        loop {
            let ended = mounted.try_end();
            if ended.map_err(Failure::system("cannot unmount the files of the volumes"))? {
                return Ok(());
            }
            if !std::mem::replace(&mut said, true) {
                output::say(
                    "a file is in use; waiting until it is not (unmount what is mounted on its loop device)\n",
                )?;
            }
            tokio::select! {
                _ = stops.received() => return Ok(()),
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }
}

/// How often files that are in use are asked for.
const PAUSE: Duration = Duration::from_millis(200);
