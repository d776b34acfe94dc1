//! Describes groups, and makes what a member keeps on its machine.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use replica::core::Core;
use replica::format::Geometry;
use replica::ring::{CreateOptions, Ring};

use super::ReplicaFailure;
use super::args::{Add, Create, Export, Prepare, Remove};
use super::group::{
    Compression, Full, Group, GroupFile, MemberEntry, RdmaProvider, Size, Transport, VolumeEntry,
    new_id, window, write_secret,
};
use crate::failure::Failure;
use crate::output;

/// Writes the file of a new group, and its secret.
pub(super) fn create(options: &Create) -> Result<(), ReplicaFailure> {
    let path = &options.file;
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("group");
    let secret = with_suffix(path, ".secret");
    let file_name = secret.file_name().map(PathBuf::from).unwrap_or_default();
    let volumes = options.volume.iter().map(|text| volume(text)).collect::<Result<_, _>>()?;
    let members: Vec<_> = (0..)
        .zip(&options.member)
        .map(|(number, text)| MemberEntry::parse(text, number))
        .collect::<Result<_, _>>()?;
    check_addresses(&members)?;
    let file = GroupFile {
        name: options.name.clone().unwrap_or_else(|| stem.to_owned()),
        id: new_id()?,
        log_size: Size(options.log_size),
        secret_file: file_name,
        least_in_sync: 1,
        silence_ms: SILENCE_MS,
        read_lease_ms: super::group::read_lease(),
        window: window(),
        retention_s: 0,
        congestion: Full::default(),
        compression: Compression::default(),
        rpo_ms: None,
        rpo_throttle: false,
        transport: Transport::Tcp,
        links_are_private: false,
        seal_records: false,
        rdma_provider: RdmaProvider::Soft,
        bandwidth: None,
        connections: super::group::one_connection(),
        witness_file: None,
        etcd: None,
        units: Vec::new(),
        removed: Vec::new(),
        volumes,
        members,
    };
    Group::write(path, &file, false)?;
    if let Err(failure) = write_secret(&secret) {
        // A group without its secret is none; the next try would find the file in its way.
        let _ = fs::remove_file(path);
        return Err(failure);
    }
    tell(&format!(
        "{} describes the group, {} is its secret: every member needs both\n",
        path.display(),
        secret.display()
    ));
    Ok(())
}

// Of two members with one address the second does not start, or nobody reaches it.
fn check_addresses(members: &[MemberEntry]) -> Result<(), ReplicaFailure> {
    for (at, member) in members.iter().enumerate() {
        // Port 0 is one that the system chooses.
        let is_taken = |address: &String| {
            let is_at = |other: &MemberEntry| other.addresses.contains(address);
            !address.ends_with(":0") && members[..at].iter().any(is_at)
        };
        if let Some(address) = member.addresses.iter().find(|address| is_taken(address)) {
            let (what, text) = ("the address", address.clone());
            return Err(ReplicaFailure::Written { what, text, form: "one for each member" });
        }
    }
    Ok(())
}

/// Makes the log of a member, and its volumes where they are missing.
pub(super) fn prepare(options: &Prepare) -> Result<(), ReplicaFailure> {
    let group = Group::read(&options.file)?;
    let member = group.member(&options.member)?;
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| ReplicaFailure::File { path: path.clone(), source }
    };
    for directory in [member.directory.clone(), member.kept()] {
        // What members keep of volumes is for their user alone.
        let mut made = fs::DirBuilder::new();
        made.recursive(true).mode(0o700).create(&directory).map_err(at(&directory))?;
    }
    for (number, volume) in group.file.volumes.iter().enumerate() {
        let path = member.volume(number, volume);
        if path.exists() {
            continue;
        }
        let mut file = fs::OpenOptions::new();
        let file = file.write(true).create_new(true).mode(0o600).open(&path).map_err(at(&path))?;
        file.set_len(volume.size.0).and_then(|()| file.sync_all()).map_err(at(&path))?;
    }
    let config = group.config(member);
    let volumes = u8::try_from(group.file.volumes.len()).expect("checked: VOLUMES_MAX at most");
    let create = CreateOptions {
        geometry: Geometry::new(config.capacity, volumes),
        overwrite: options.overwrite,
        fills: false,
        medium: pmem::OpenOptions { emulate_persistence: true },
    };
    Ring::create(&member.log(), &Core::first_label(&config), create)?;
    tell(&format!(
        "{}: the log of {} is {}\n",
        group.file.name,
        member.name,
        member.log().display()
    ));
    Ok(())
}

/// Adds a member to the file.
pub(super) fn add(options: &Add) -> Result<(), ReplicaFailure> {
    let _locked = Group::locked(&options.file)?;
    let mut group = Group::read(&options.file)?;
    let taken = |number: &u8| group.file.members.iter().any(|member| member.number == *number);
    let number = match options.number {
        Some(number) => {
            group.file.removed.retain(|removed| *removed != number);
            number
        }
        None => {
            let is_new = |number: &u8| !taken(number) && !group.file.removed.contains(number);
            (0..replica::MEMBERS_MAX).find(is_new).ok_or_else(|| ReplicaFailure::Group {
                path: group.path.clone(),
                why: format!(
                    "all {} numbers are of members, or were of members that are removed ({:?}): with --number one of these is given again, once its machine is gone for good",
                    replica::MEMBERS_MAX, group.file.removed
                ),
            })?
        }
    };
    group.file.members.push(MemberEntry::parse(&options.member, number)?);
    Group::write(&group.path, &group.file, true)
}

/// Removes a member from the file.
pub(super) fn remove(options: &Remove) -> Result<(), ReplicaFailure> {
    let _locked = Group::locked(&options.file)?;
    let mut group = Group::read(&options.file)?;
    let number = group.member(&options.member)?.number;
    group.file.members.retain(|member| member.number != number);
    group.file.removed.push(number);
    Group::write(&group.path, &group.file, true)
}

/// Prints the commands that would make the group again.
pub(super) fn export(options: &Export) -> Result<(), Failure> {
    let group = Group::read(&options.file)?;
    let path = || options.file.clone();
    let file = fs::read_to_string(&options.file)
        .map_err(|source| ReplicaFailure::File { path: path(), source })?;
    let name = &group.file.name;
    // No line of the file ends it early.
    let mut end = "END".to_owned();
    while file.lines().any(|line| line == end) {
        end.push('_');
    }
    let mut text = format!("cat > {name}.toml <<'{end}'\n{}\n{end}\n", file.trim_end());
    let secret = group.file.secret_file.display();
    text += &format!(
        "# and its secret, the file {secret} (relative to the group's), which is not shown\n"
    );
    for member in &group.file.members {
        text += &format!("landfast replica prepare {name}.toml {}\n", member.name);
    }
    output::say(&text)
}

fn volume(text: &str) -> Result<VolumeEntry, ReplicaFailure> {
    let wrong = || ReplicaFailure::Written {
        what: "volume",
        text: text.to_owned(),
        form: "NAME=SIZE, as in data=10G",
    };
    let (name, size) = text.split_once('=').ok_or_else(wrong)?;
    let size = crate::size::size(size).map_err(|_| wrong())?;
    Ok(VolumeEntry { name: name.to_owned(), size: Size(size) })
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

// What was made is there, whether anybody reads of it or not.
fn tell(text: &str) {
    let _ = output::say(text);
}

const SILENCE_MS: u64 = 5_000;
