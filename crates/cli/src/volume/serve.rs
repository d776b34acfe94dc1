//! `landfast volume serve`: offers volumes over NBD, or as disks or files of this machine, until a signal ends it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use block::BlockDevice;
use fuse::Mounted;
use nbd::{Address, Export, Exports, Handle, Server, TlsFiles};
use ublk::{Disk, Identity};
use volume::Access;

use super::args::{Mode, Serve};
use super::{NbdFailure, opened, settings};
use crate::failure::Failure;
use crate::{interrupt, notify, output};

/// Serves volumes.
pub(crate) fn run(options: &Serve) -> Result<(), Failure> {
    let options = settings::gathered(options)?;
    match (&options.fuse, options.ublk) {
        (Some(directory), _) => run_fuse(&options, directory),
        (None, Some(first)) => run_ublk(&options, first),
        (None, None) => run_nbd(&options),
    }
}

/// Disks of the kernel. One that is in use when a second signal comes is left for the next server.
fn run_ublk(options: &Serve, first: u32) -> Result<(), Failure> {
    interrupt::run(async |stops| {
        let mut disks = Vec::new();
        for (number, open) in (first..).zip(open_all(options)?) {
            disks.push(Disk::start(&open.device, number, open.identity)?);
        }
        let shown = disks.iter().map(|disk| {
            let again = if disk.was_taken_over() { " (taken over)" } else { "" };
            format!("{}{again}", disk.path().display())
        });
        say_ready(options, &shown.collect::<Vec<_>>());
        let stop = loop {
            tokio::select! {
                stop = stops.received() => break stop,
                () = tokio::time::sleep(PAUSE) => {}
            }
            disks.iter().try_for_each(Disk::check)?;
        };
        tracing::info!(?stop, "ending");
        notify::say(notify::STOPPING);
        let mut is_said = false;
        loop {
            let mut used = Vec::new();
            for mut disk in disks {
                // One that hangs is never unmounted.
                disk.check()?;
                if let Some(user) = disk.try_end()? {
                    used.push((disk, user));
                }
            }
            let Some((disk, user)) = used.first() else { return Ok(()) };
            if !std::mem::replace(&mut is_said, true) {
                output::tell(&format!(
                    "{} is in use by {user}; waiting until it is not; a second signal leaves it for the next server\n",
                    disk.path().display()
                ));
            }
            disks = used.into_iter().map(|(disk, _)| disk).collect();
            tokio::select! {
                _ = stops.received() => return Ok(()),
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    })
}

fn run_nbd(options: &Serve) -> Result<(), Failure> {
    let addresses = addresses(options)?;
    interrupt::run(async |stops| {
        let handle = start(options, &addresses)?;
        let shown: Vec<String> = handle.addresses().iter().map(ToString::to_string).collect();
        say_ready(options, &shown);
        let stop = stops.received().await;
        tracing::info!(?stop, "ending");
        notify::say(notify::STOPPING);
        drop(handle);
        Ok(())
    })
}

fn run_fuse(options: &Serve, directory: &Path) -> Result<(), Failure> {
    interrupt::run(async |stops| {
        let devices = open_all(options)?;
        let devices = devices.into_iter().map(|one| (one.name, one.device)).collect();
        let how = fuse::Options { loops: options.loops };
        let mut mounted = Mounted::new(devices, directory, how)?;
        let mut shown: Vec<String> =
            mounted.paths().iter().map(|path| path.display().to_string()).collect();
        shown.extend(mounted.loops().map(|path| path.display().to_string()));
        say_ready(options, &shown);
        let stop = stops.received().await;
        tracing::info!(?stop, "ending");
        notify::say(notify::STOPPING);
        let ended = |mounted: &mut Mounted| {
            mounted.try_end().map_err(Failure::system("cannot unmount the files of the volumes"))
        };
        if ended(&mut mounted)? {
            return Ok(());
        }
        output::tell(&format!(
            "a file below {} is in use; waiting until it is not (unmount what is mounted on its loop device)\n",
            directory.display()
        ));
        loop {
            tokio::select! {
                _ = stops.received() => return Ok(()),
                () = tokio::time::sleep(PAUSE) => {}
            }
            if ended(&mut mounted)? {
                return Ok(());
            }
        }
    })
}

fn say_ready(options: &Serve, shown: &[String]) {
    let status = format!("serving {} volumes on {}", options.volumes.len(), shown.join(", "));
    output::tell(&format!("{status}\n"));
    notify::say(&notify::ready(&status));
}

/// A volume that is open.
struct OpenVolume {
    name: String,
    mode: Mode,
    identity: Identity,
    device: Arc<dyn BlockDevice>,
}

fn open_all(options: &Serve) -> Result<Vec<OpenVolume>, Failure> {
    let access = if options.read_only { Access::ReadOnly } else { Access::ReadWrite };
    let open = |named: &String| {
        let (name, path) = name_and_path(named)?;
        let failed = Failure::volume("cannot serve the volume", &path);
        let (device, mode) =
            opened::device(&path, access, options.emulate_persistence).map_err(failed)?;
        // Another path to the same volume is the same volume.
        let whole = std::fs::canonicalize(&path).unwrap_or(path);
        let identity = Identity::of(whole.as_os_str().as_encoded_bytes());
        Ok(OpenVolume { name, mode, identity, device })
    };
    options.volumes.iter().map(open).collect()
}

fn start(options: &Serve, addresses: &[Address]) -> Result<Handle, Failure> {
    let mut exports = Vec::new();
    for OpenVolume { name, mode, device, .. } in open_all(options)? {
        let description = format!("landfast volume, mode {mode:?}").to_lowercase();
        exports.push(export(&name, &description, device)?);
    }
    let tls = match (&options.tls_certificate, &options.tls_key) {
        (Some(certificate), Some(key)) => Some(TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            client_authority: options.tls_clients.clone(),
        }),
        _ => None,
    };
    let exports = Exports::new(exports).map_err(NbdFailure::from)?;
    let server = Server::new(exports, tls.as_ref()).map_err(NbdFailure::from)?;
    Ok(server.listen(addresses).map_err(NbdFailure::from)?)
}

fn export(
    name: &str,
    description: &str,
    device: Arc<dyn BlockDevice>,
) -> Result<Export, NbdFailure> {
    Ok(Export::new(name, description, device)?)
}

/// A volume's name and its path; without a name it is that of the file.
pub(crate) fn name_and_path(named: &str) -> Result<(String, PathBuf), Failure> {
    // A path may have the sign too: it is a name's only before the first slash.
    let (name, path) = match named.split_once('=') {
        Some((name, path)) if !name.contains('/') => (Some(name), Path::new(path)),
        _ => (None, Path::new(named)),
    };
    let name = name.or_else(|| path.file_name().and_then(|name| name.to_str()));
    let unnamed = || Failure::ConfigValue {
        what: "volume",
        value: named.to_owned(),
        why: "has no name: write NAME=PATH",
    };
    Ok((name.ok_or_else(unnamed)?.to_owned(), path.to_owned()))
}

fn addresses(options: &Serve) -> Result<Vec<Address>, Failure> {
    let mut addresses = Vec::new();
    addresses.extend(options.unix.clone().map(Address::Unix));
    if let Some(listen) = options.listen {
        let is_proven = options.tls_clients.is_some();
        if !is_proven && !options.anybody {
            return Err(Failure::ConfigValue {
                what: "--listen",
                value: listen.to_string(),
                why: why_not(listen.ip()),
            });
        }
        addresses.push(Address::Tcp(listen));
    }
    if addresses.is_empty() {
        return Err(Failure::ConfigMissing(
            "name a --unix socket, an address to --listen on, a number for --ublk, or a directory for --fuse",
        ));
    }
    Ok(addresses)
}

const fn why_not(address: IpAddr) -> &'static str {
    match address.is_loopback() {
        true => {
            "NBD asks nobody who they are: every user of this machine could read and write the volumes. Give \
             --tls-clients, or --anybody if that is wanted, or take a --unix socket"
        }
        false => {
            "NBD asks nobody who they are: everybody who reaches the address could read and write the volumes. Give \
             --tls-clients, or --anybody if that is wanted"
        }
    }
}

/// How often files that are in use are asked for.
const PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_without_a_name_is_called_as_its_file() {
        let split = |named| name_and_path(named).unwrap();
        assert_eq!(split("/srv/disk0"), ("disk0".to_owned(), PathBuf::from("/srv/disk0")));
        assert_eq!(split("db=/srv/disk0"), ("db".to_owned(), PathBuf::from("/srv/disk0")));
        assert_eq!(split("/srv/a=b"), ("a=b".to_owned(), PathBuf::from("/srv/a=b")));
        name_and_path("/").unwrap_err();
    }
}
