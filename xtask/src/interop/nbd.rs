//! NBD clients of others against `landfast volume serve`: libnbd's nbdinfo and nbdcopy, QEMU's qemu-img and qemu-io,
//! fio's nbd engine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::failure::{Failure, Outcome, Tally};
use crate::nbd_server::{NbdServer, Volume};
use crate::process::Step;
use crate::workspace;

/// Serves a volume of each kind and runs all clients against each.
pub(crate) fn run() -> Outcome {
    let (memory, disk) = (workspace::scratch_on_tmpfs()?, workspace::scratch()?);
    let mut tally = Tally::default();
    for (name, sector, directory) in [
        ("block mode, sectors of 4096", "4096", memory.path()),
        ("block mode, sectors of 512", "512", memory.path()),
        ("file mode on a disk", "4096", disk.path()),
    ] {
        println!("  {name}");
        let path = directory.join(format!("volume-{sector}"));
        let volume = Volume::create(&path, SIZE, &["--sector", sector])?;
        let site = Site { server: NbdServer::start(&volume)?, directory, name };
        site.clients(&mut tally)?;
        drop(site);
        tally.count(&format!("{name}: whole after all that"), volume.check());
    }
    tls(memory.path(), &mut tally)?;
    killed(memory.path(), &mut tally)?;
    Ok(tally)
}

/// A served volume.
struct Site<'d> {
    server: NbdServer,
    directory: &'d Path,
    name: &'static str,
}

impl Site<'_> {
    fn clients(&self, tally: &mut Tally) -> Result<(), Failure> {
        let mut count = |what: &str, result: Result<(), Failure>| {
            let result = result.map_err(|failure| failure.to_string());
            tally.count(&format!("{}: {what}", self.name), result);
        };
        count("nbdinfo lists and describes it", self.info());
        count("nbdcopy there and back, by four connections", self.copied());
        count("qemu-img converts to it and compares", self.converted());
        count("qemu-io writes, zeroes, discards and reads", self.patterns());
        count("fio verifies random writes", self.verified());
        count("nbdinfo maps data and zeroes", self.mapped());
        Ok(())
    }

    fn uri(&self) -> String {
        self.server.uri()
    }

    fn info(&self) -> Result<(), Failure> {
        let listed = Step::new("nbdinfo").args(["--list", "--json", &self.uri()]).output()?;
        let listed: Value = serde_json::from_str(&listed).unwrap_or_default();
        let export = &listed["exports"][0];
        let says = |name: &str| export[name].as_bool() == Some(true);
        let wanted = ["can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero", "can_df"];
        let lacking: Vec<&str> = wanted.into_iter().filter(|name| !says(name)).collect();
        let has_context = export["contexts"].to_string().contains("base:allocation");
        match lacking.is_empty() && has_context && export["is_read_only"] == false {
            true => Ok(()),
            false => Err(Failure::new(format!("lacking {lacking:?} in {export}"))),
        }
    }

    fn copied(&self) -> Result<(), Failure> {
        let (image, back) = (self.directory.join("image"), self.directory.join("back"));
        write_image(&image, 7)?;
        let connections = ["--connections=4", "--synchronous", "--flush"];
        Step::new("nbdcopy")
            .args(connections[..1].iter())
            .arg("--flush")
            .arg(&image)
            .arg(self.uri())
            .output()?;
        Step::new("nbdcopy").arg(connections[0]).arg(self.uri()).arg(&back).output()?;
        same_beginning(&image, &back)
    }

    fn converted(&self) -> Result<(), Failure> {
        let image = self.directory.join("image");
        write_image(&image, 11)?;
        let convert = ["convert", "-n", "-f", "raw", "-O", "raw"];
        Step::new("qemu-img").args(convert).arg(&image).arg(self.uri()).output()?;
        let back = self.directory.join("back");
        let from = ["convert", "-f", "raw", "-O", "raw"];
        Step::new("qemu-img").args(from).arg(self.uri()).arg(&back).output()?;
        same_beginning(&image, &back)
    }

    /// Patterns at edges of sectors and between them; -f asks for FUA.
    fn patterns(&self) -> Result<(), Failure> {
        let commands = [
            "write -P 0x11 0 1M",
            "write -f -P 0x22 4096 4096",
            "write -P 0x33 5000 3000",
            "write -z 64k 64k",
            "write -z -u 128k 4k",
            "discard 256k 64k",
            "writev -P 0x44 300k 512 1024 4096",
            "flush",
            "read -P 0x11 0 4096",
            "read -P 0x22 4096 904",
            "read -P 0x33 5000 3000",
            "read -P 0x22 8000 192",
            "read -P 0x11 8k 56k",
            "read -P 0 64k 68k",
            "read -P 0x11 132k 124k",
            "read -P 0 256k 44k",
            "read -P 0x44 300k 5632",
            "read -P 0 306k 14k",
            "read -P 0x11 320k 704k",
        ];
        let arguments = commands.iter().flat_map(|command| ["-c", command]);
        let output =
            Step::new("qemu-io").args(["-f", "raw"]).args(arguments).arg(self.uri()).finish()?;
        let said = format!("{}{}", output.stdout, output.stderr);
        // qemu-io ends well although a pattern was another.
        match output.status.success() && !said.contains("failed") {
            true => Ok(()),
            false => Err(Failure::new(said)),
        }
    }

    fn verified(&self) -> Result<(), Failure> {
        let uri = format!("--uri={}", self.uri());
        let job = [
            "--name=verify",
            "--ioengine=nbd",
            "--rw=randwrite",
            "--bs=4k",
            "--iodepth=32",
            "--size=16M",
            "--verify=crc32c",
            "--do_verify=1",
            "--verify_fatal=1",
            "--fsync=64",
        ];
        Step::new("fio").args(job).arg(uri).dir(self.directory).output().map(drop)
    }

    fn mapped(&self) -> Result<(), Failure> {
        let zero = ["-f", "raw", "-c", "write -z -u 0 48M", "-c", "write -P 9 1M 1M"];
        Step::new("qemu-io").args(zero).arg(self.uri()).output()?;
        let map = Step::new("nbdinfo").args(["--map", "--json", &self.uri()]).output()?;
        let map: Value = serde_json::from_str(&map).unwrap_or_default();
        let empty = Vec::new();
        let extents = map.as_array().unwrap_or(&empty);
        let is_data = |extent: &&Value| extent["type"].as_u64() == Some(0);
        let data: Vec<&Value> = extents.iter().filter(is_data).collect();
        match &data[..] {
            [one] if one["offset"] == 1 << 20 && one["length"] == 1 << 20 => Ok(()),
            _ => Err(Failure::new(format!("data are mapped at {data:?}"))),
        }
    }
}

/// TLS with certificates of clients: who has none is told nothing.
fn tls(directory: &Path, tally: &mut Tally) -> Result<(), Failure> {
    println!("  TLS");
    let pki = Pki::make(directory)?;
    let volume = Volume::create(&directory.join("volume-tls"), SIZE, &[])?;
    let server = NbdServer::start_tls(&volume, &pki.server, &pki.key, &pki.authority)?;
    let uri =
        format!("nbds://localhost:{}/?tls-certificates={}", server.port, pki.client.display());
    let listed = Step::new("nbdinfo").args(["--list", &uri]).output();
    let words =
        |result: Result<String, Failure>| result.map(drop).map_err(|error| error.to_string());
    tally.count("TLS: nbdinfo with a certificate", words(listed));
    let image = directory.join("image");
    write_image(&image, 13)?;
    let copied = Step::new("nbdcopy").arg(&image).arg(&uri).output();
    tally.count("TLS: nbdcopy with a certificate", words(copied));
    let clear = format!("nbd://localhost:{}", server.port);
    let refused = Step::new("nbdinfo").arg(&clear).finish()?;
    let told = refused.status.success();
    tally.count("TLS: nothing in the clear", if told { Err(refused.stdout) } else { Ok(()) });
    let stranger =
        format!("nbds://localhost:{}/?tls-certificates={}", server.port, pki.stranger.display());
    let refused = Step::new("nbdinfo").arg(&stranger).finish()?;
    let told = refused.status.success();
    tally.count("TLS: nothing to strangers", if told { Err(refused.stdout) } else { Ok(()) });
    Ok(())
}

/// A server that is killed in the middle of writes leaves a volume that is whole, and comes back.
fn killed(directory: &Path, tally: &mut Tally) -> Result<(), Failure> {
    println!("  SIGKILL");
    let volume = Volume::create(&directory.join("volume-killed"), SIZE, &[])?;
    for round in 1..=5 {
        let mut server = NbdServer::start(&volume)?;
        let uri = format!("--uri={}", server.uri());
        let job = [
            "--name=kill",
            "--ioengine=nbd",
            "--rw=randwrite",
            "--bs=4k",
            "--iodepth=16",
            "--time_based",
            "--runtime=20",
            "--size=16M",
        ];
        let log = directory.join("fio.log");
        let mut writer = Step::new("fio").args(job).arg(uri).dir(directory).serve(&log, false)?;
        std::thread::sleep(Duration::from_millis(700 + 130 * round));
        server.kill();
        writer.kill();
        tally.count(&format!("SIGKILL {round}: the volume is whole"), volume.check());
    }
    Ok(())
}

/// 32 MiB, of which every other MiB is zeroes; the rest is of numbers that `seed` decides.
fn write_image(path: &Path, seed: u64) -> Result<(), Failure> {
    let mut image = vec![0_u8; 32 << 20];
    let mut state = seed;
    for part in image.chunks_mut(1 << 20).step_by(2) {
        for word in part.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
    }
    fs::write(path, image).map_err(Failure::io("writing", path))
}

fn same_beginning(image: &Path, back: &Path) -> Result<(), Failure> {
    let read = |path: &Path| fs::read(path).map_err(Failure::io("reading", path));
    let (image, back) = (read(image)?, read(back)?);
    match back.get(..image.len()) == Some(&image[..]) {
        true => Ok(()),
        false => Err(Failure::new("what came back is not what was written")),
    }
}

/// Certificates of a server, of a client, and of a client of another authority.
struct Pki {
    authority: PathBuf,
    server: PathBuf,
    key: PathBuf,
    /// Directories as libnbd wants them: ca-cert.pem, client-cert.pem, client-key.pem.
    client: PathBuf,
    stranger: PathBuf,
}

impl Pki {
    fn make(directory: &Path) -> Result<Self, Failure> {
        let at = |name: &str| directory.join(name);
        authority(&at("ca"))?;
        authority(&at("other-ca"))?;
        signed(&at("ca"), &at("server"), "localhost")?;
        let (client, stranger) = (at("client"), at("stranger"));
        for (home, issuer) in [(&client, "ca"), (&stranger, "other-ca")] {
            fs::create_dir_all(home).map_err(Failure::io("creating", home))?;
            signed(&at(issuer), &home.join("client"), "client")?;
            for (from, to) in [
                (home.join("client.pem"), "client-cert.pem"),
                (home.join("client.key"), "client-key.pem"),
                (at("ca.pem"), "ca-cert.pem"),
            ] {
                fs::copy(&from, home.join(to)).map_err(Failure::io("copying", &from))?;
            }
        }
        let (server, key) = (at("server.pem"), at("server.key"));
        Ok(Self { authority: at("ca.pem"), server, key, client, stranger })
    }
}

fn authority(stem: &Path) -> Result<(), Failure> {
    let made = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ];
    let extension = ["-subj", "/CN=Landfast test", "-addext", "keyUsage=critical,keyCertSign"];
    let (key, certificate) = (stem.with_extension("key"), stem.with_extension("pem"));
    let step = Step::new("openssl").args(made).args(extension).arg("-keyout").arg(&key);
    step.arg("-out").arg(&certificate).quiet().output().map(drop)
}

fn signed(issuer: &Path, stem: &Path, name: &str) -> Result<(), Failure> {
    let (key, request) = (stem.with_extension("key"), stem.with_extension("csr"));
    let asked = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj"];
    let subject = format!("/CN={name}");
    let step = Step::new("openssl").args(asked).arg(&subject).arg("-keyout").arg(&key);
    step.arg("-out").arg(&request).quiet().output()?;
    let extensions = stem.with_extension("ext");
    fs::write(&extensions, format!("subjectAltName=DNS:{name}\n"))
        .map_err(Failure::io("writing", &extensions))?;
    let step = Step::new("openssl").args(["x509", "-req", "-days", "2", "-CAcreateserial", "-in"]);
    let step = step.arg(&request).arg("-CA").arg(issuer.with_extension("pem"));
    let step =
        step.arg("-CAkey").arg(issuer.with_extension("key")).arg("-extfile").arg(&extensions);
    step.arg("-out").arg(stem.with_extension("pem")).quiet().output().map(drop)
}

/// Bytes of a volume's file: what the clients write fits.
const SIZE: &str = "64M";
