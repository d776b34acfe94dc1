//! The settings of `landfast volume serve` in a TOML file, under those of the command line.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::args::Serve;
use crate::failure::Failure;

/// The file in its written form.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    unix: Option<PathBuf>,
    listen: Option<SocketAddr>,
    fuse: Option<PathBuf>,
    ublk: Option<u32>,
    #[serde(default, rename = "loop")]
    loops: bool,
    #[serde(default)]
    anybody: bool,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    emulate_persistence: bool,
    tls: Option<Tls>,
    #[serde(default)]
    volume: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    clients: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Option<String>,
    path: PathBuf,
}

/// The options with what the file says where the command line says nothing; volumes of both are served.
pub(super) fn gathered(options: &Serve) -> Result<Serve, Failure> {
    let Some(path) = &options.config else { return Ok(options.clone()) };
    let file = read(path)?;
    let mut all = options.clone();
    // A way in on the command line takes the place of those of the file.
    let is_named = all.unix.is_some() || all.listen.is_some();
    if !is_named && all.fuse.is_none() && all.ublk.is_none() {
        (all.unix, all.listen) = (file.unix, file.listen);
        (all.fuse, all.ublk) = (file.fuse, file.ublk);
        all.loops |= file.loops;
    }
    all.anybody |= file.anybody;
    all.read_only |= file.read_only;
    all.emulate_persistence |= file.emulate_persistence;
    if let Some(tls) = file.tls.filter(|_| all.tls_certificate.is_none()) {
        (all.tls_certificate, all.tls_key) = (Some(tls.certificate), Some(tls.key));
        all.tls_clients = tls.clients;
    }
    let mut volumes = Vec::new();
    for entry in file.volume {
        volumes.push(written(&entry)?);
    }
    volumes.append(&mut all.volumes);
    all.volumes = volumes;
    check(&all)?;
    Ok(all)
}

fn read(path: &Path) -> Result<File, Failure> {
    let text = std::fs::read_to_string(path).map_err(Failure::local("cannot read", path))?;
    toml::from_str(&text)
        .map_err(|source| Failure::ConfigSyntax { path: path.into(), source: Box::new(source) })
}

// As the command line has it.
fn written(entry: &Entry) -> Result<String, Failure> {
    let refused = |value: String, why| Failure::ConfigValue { what: "volume", value, why };
    let path = entry.path.to_str().ok_or_else(|| {
        refused(entry.path.display().to_string(), "the path is to be written in UTF-8")
    })?;
    match &entry.name {
        Some(name) if name.is_empty() || name.contains(['/', '=']) => {
            Err(refused(name.clone(), "a name has neither slash nor ="))
        }
        Some(name) => Ok(format!("{name}={path}")),
        None => Ok(path.to_owned()),
    }
}

// What the command line's parser refuses of options that stand on it.
fn check(all: &Serve) -> Result<(), Failure> {
    if all.volumes.is_empty() {
        return Err(Failure::ConfigMissing("nothing to serve: name a volume, here or in the file"));
    }
    let is_network = all.unix.is_some() || all.listen.is_some();
    if [is_network, all.fuse.is_some(), all.ublk.is_some()].into_iter().filter(|way| *way).count()
        > 1
    {
        return Err(Failure::ConfigMissing(
            "a volume has one way in at a time: fuse, or ublk, or unix and listen",
        ));
    }
    if all.loops && all.fuse.is_none() {
        return Err(Failure::ConfigMissing(
            "loop devices are attached to the files of fuse: name its directory",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::args::VolumeCommand;
    use super::*;
    use crate::args::{Arguments, Command};

    fn gather(text: &str, line: &[&str]) -> Result<Serve, Failure> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("volumes.toml");
        std::fs::write(&path, text).unwrap();
        let begin = ["landfast", "volume", "serve", "--config", path.to_str().unwrap()];
        let Command::Volume(volume) = Arguments::parse_from(begin.iter().chain(line)).command
        else {
            unreachable!()
        };
        let VolumeCommand::Serve(serve) = volume.command else { unreachable!() };
        gathered(&serve)
    }

    const FILE: &str = "listen = \"127.0.0.1:10809\"\nanybody = true\n\
        [tls]\ncertificate = \"c.pem\"\nkey = \"c.key\"\nclients = \"a.pem\"\n\
        [[volume]]\nname = \"db\"\npath = \"/srv/a=b\"\n[[volume]]\npath = \"/srv/disk0\"\n";

    #[test]
    fn a_file_says_what_the_command_line_does_not() {
        let all = gather(FILE, &[]).unwrap();
        assert_eq!(all.volumes, ["db=/srv/a=b", "/srv/disk0"]);
        assert_eq!(all.listen, Some("127.0.0.1:10809".parse().unwrap()));
        assert_eq!(all.tls_clients, Some("a.pem".into()));
        assert!(all.anybody && !all.read_only && !all.loops);
        let all =
            gather(FILE, &["/srv/more", "--fuse", "/run/v", "--loop", "--read-only"]).unwrap();
        assert_eq!((all.listen, all.fuse), (None, Some("/run/v".into())));
        assert!(all.loops && all.read_only);
        assert_eq!(all.volumes.len(), 3);
    }

    #[test]
    fn a_file_that_cannot_be_is_refused() {
        let volume = "[[volume]]\npath = \"/v\"\n";
        for text in [
            "listen = \"127.0.0.1:1\"\n".to_owned(),
            format!("fuse = \"/run/v\"\nunix = \"/run/s\"\n{volume}"),
            format!("ublk = 0\nunix = \"/run/s\"\n{volume}"),
            format!("ublk = 0\nfuse = \"/run/v\"\n{volume}"),
            format!("unix = \"/run/s\"\nloop = true\n{volume}"),
            format!("sockets = 1\n{volume}"),
            "unix = \"/run/s\"\n[[volume]]\nname = \"a/b\"\npath = \"/v\"\n".to_owned(),
        ] {
            assert!(gather(&text, &[]).is_err(), "{text}");
        }
    }
}
