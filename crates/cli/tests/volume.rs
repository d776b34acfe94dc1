//! `landfast volume`: what clients write to a volume never decides what kind of volume it is.

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt as _;
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::process::{Command, Output};

    fn landfast(args: &[&str], path: &Path) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfast"));
        command.arg("volume").args(args).arg(path).output().unwrap()
    }

    fn said(output: &Output) -> String {
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    }

    #[test]
    fn a_volume_of_mode_dax_needs_persistent_stores_and_is_served_as_no_disk() {
        let disk = tempfile::tempdir_in("/var/tmp").unwrap();
        let create = ["create", "--size", "4M", "--mode", "dax"];
        let refused = landfast(&create, &disk.path().join("region"));
        assert!(said(&refused).contains("DAX") && !disk.path().join("region").exists());
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        let region = memory.path().join("region");
        assert!(said(&landfast(&create, &region)).contains("power failure"));
        let made = landfast(&[&create[..], &["--emulate-persistence"]].concat(), &region);
        // Memory of older kernels has no extended attributes to mark it by.
        if !said(&made).contains("mode dax") {
            assert!(made.status.success(), "{}", said(&made));
            return;
        }
        assert_eq!(std::fs::metadata(&region).unwrap().len(), 4 << 20);
        let socket = memory.path().join("sock");
        let serve = ["serve", "--emulate-persistence", "--unix", socket.to_str().unwrap()];
        let refused = said(&landfast(&serve, &region));
        assert!(refused.contains("torn") && refused.contains("push mode"), "{refused}");
        assert!(said(&landfast(&["check"], &region)).contains("nothing to check"));
        assert!(landfast(&["remove"], &region).status.success() && !region.exists());
    }

    #[test]
    fn a_file_that_is_no_volume_is_not_grown() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let notes = dir.path().join("notes.txt");
        std::fs::write(&notes, "my notes\n").unwrap();
        let resize = |path: &Path, size: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_landfast"));
            command.args(["volume", "resize"]).arg(path).arg(size).output().unwrap()
        };
        let refused = resize(&notes, "1M");
        assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
        assert!(said(&refused).contains("truncate --size"), "{}", said(&refused));
        assert_eq!(std::fs::read(&notes).unwrap(), b"my notes\n");
        assert_eq!(landfast(&["remove"], &notes).status.code(), Some(1), "it is not marked either");
        let disk = dir.path().join("disk0");
        assert!(landfast(&["create", "--size", "1M", "--mode", "file"], &disk).status.success());
        let grown = resize(&disk, "2M");
        assert!(grown.status.success(), "{}", said(&grown));
        let shrunk = resize(&disk, "500K");
        assert!(
            said(&shrunk).contains("2097152 bytes, and a volume never shrinks"),
            "{}",
            said(&shrunk)
        );
    }

    #[test]
    fn a_volume_of_mode_file_in_memory_is_served_by_who_says_that_it_may_be_lost() {
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        let disk = memory.path().join("disk0");
        let made = landfast(&["create", "--size", "1M", "--mode", "file"], &disk);
        assert!(!made.status.success() && !disk.exists(), "{}", said(&made));
        assert!(said(&made).contains("--emulate-persistence"), "{}", said(&made));
        std::fs::write(&disk, [0; 8192]).unwrap();
        let serve = |more: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_landfast"));
            let socket = memory.path().join("socket");
            command.args(["volume", "serve"]).arg(&disk).arg("--unix").arg(socket).args(more);
            command
        };
        let refused = serve(&[]).output().unwrap();
        assert!(said(&refused).contains("--emulate-persistence"), "{}", said(&refused));
        let mut emulating = serve(&["--emulate-persistence"]).spawn().unwrap();
        while UnixStream::connect(memory.path().join("socket")).is_err() {
            assert_eq!(emulating.try_wait().unwrap(), None, "it serves");
        }
        emulating.kill().unwrap();
        emulating.wait().unwrap();
    }

    #[test]
    fn a_refused_command_marks_no_file_as_a_volume() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let [disk, keep] = ["disk0", "keep.txt"].map(|name| dir.path().join(name));
        std::fs::write(&keep, [b'k'; 8192]).unwrap();
        assert!(landfast(&["create", "--size", "1M", "--mode", "file"], &disk).status.success());
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfast"));
        let named = |path: &Path| format!("a={}", path.display());
        command.args(["volume", "serve", &named(&disk), &named(&keep), "--unix"]);
        let refused = command.arg(dir.path().join("socket")).output().unwrap();
        assert!(said(&refused).contains("same name"), "{}", said(&refused));
        let refused = landfast(&["remove"], &keep);
        assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
        assert!(keep.exists());
    }

    #[test]
    fn a_volume_of_mode_file_stays_one_whatever_its_bytes_are() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let (file, image) = (dir.path().join("disk0"), dir.path().join("image"));
        let made = landfast(&["create", "--size", "32M", "--mode", "file"], &file);
        assert!(made.status.success(), "{}", said(&made));
        let made = landfast(&["create", "--size", "32M", "--mode", "block"], &image);
        assert!(made.status.success(), "{}", said(&made));
        // A client writes a whole volume of the other mode to its disk.
        let bytes = std::fs::read(&image).unwrap();
        OpenOptions::new().write(true).open(&file).unwrap().write_all_at(&bytes, 0).unwrap();
        let info = said(&landfast(&["info"], &file));
        assert!(info.contains("mode file") && info.contains(&(32 << 20).to_string()), "{info}");
        for (command, status) in [("check", 0), ("repair", 1)] {
            let output = landfast(&[command], &file);
            assert_eq!(output.status.code(), Some(status), "1 of a check is damage");
            assert!(said(&output).contains("nothing to check"), "{}", said(&output));
        }
        assert_eq!(std::fs::read(&file).unwrap(), bytes, "nobody repaired what a client wrote");
        // And served it has the size of the file.
        let socket = dir.path().join("sock");
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfast"));
        command.args(["volume", "serve"]).arg(&file).arg("--unix").arg(&socket);
        let mut server = command.spawn().unwrap();
        let mut greeting = [0; 18];
        let mut client = loop {
            match UnixStream::connect(&socket) {
                Ok(client) => break client,
                Err(_) => assert_eq!(server.try_wait().unwrap(), None, "it serves"),
            }
        };
        use std::io::{Read as _, Write as _};
        client.read_exact(&mut greeting).unwrap();
        client.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x05disk0").unwrap();
        let mut size = [0; 8];
        client.read_exact(&mut size).unwrap();
        assert_eq!(u64::from_be_bytes(size), 32 << 20);
        server.kill().unwrap();
        server.wait().unwrap();
    }

    #[test]
    fn a_file_whose_size_is_not_whole_sectors_becomes_no_volume() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = dir.path().join("disk0");
        for size in ["0", "1000", "513"] {
            let refused = landfast(&["create", "--mode", "file", "--size", size], &file);
            assert_eq!(refused.status.code(), Some(1), "{size}");
            assert!(said(&refused).contains("sectors of 512"), "{}", said(&refused));
            assert!(!file.exists(), "{size}");
        }
    }

    #[test]
    fn removing_a_volume_by_a_link_removes_neither() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let (volume, link) = (dir.path().join("disk0"), dir.path().join("link"));
        let made = landfast(&["create", "--size", "8M", "--mode", "file"], &volume);
        assert!(made.status.success(), "{}", said(&made));
        std::os::unix::fs::symlink(&volume, &link).unwrap();
        let refused = landfast(&["remove"], &link);
        assert!(!refused.status.success() && said(&refused).contains("link"), "{}", said(&refused));
        assert!(link.symlink_metadata().is_ok() && volume.exists());
        // It can be looked at through the link.
        assert!(said(&landfast(&["info"], &link)).contains("mode file"));
    }

    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        for command in ["info", "check", "repair", "remove"] {
            let refused = landfast(&[command], &pipe);
            assert_eq!(refused.status.code(), Some(1), "{command}: {}", said(&refused));
        }
        assert!(pipe.exists());
    }

    /// Bytes of a datagram that a server sends to its service manager.
    fn until_told(socket: &std::os::unix::net::UnixDatagram, word: &str) {
        let mut bytes = [0; 4096];
        loop {
            let len = socket.recv(&mut bytes).unwrap();
            if String::from_utf8_lossy(&bytes[..len]).contains(word) {
                return;
            }
        }
    }

    #[test]
    fn a_volume_in_use_is_served_although_nobody_reads_what_the_server_says() {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            return;
        }
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let (volume, files) = (dir.path().join("disk0"), dir.path().join("files"));
        std::fs::create_dir(&files).unwrap();
        let made = landfast(&["create", "--size", "8M", "--mode", "file"], &volume);
        assert!(made.status.success(), "{}", said(&made));
        let manager = dir.path().join("manager");
        let told = std::os::unix::net::UnixDatagram::bind(&manager).unwrap();
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfast"));
        command.args(["volume", "serve"]).arg(&volume).arg("--fuse").arg(&files);
        let mut server = command.env("NOTIFY_SOCKET", &manager).stdout(full).spawn().unwrap();
        until_told(&told, "READY=1");
        let disk = OpenOptions::new().write(true).open(files.join("disk0")).unwrap();
        let pid = server.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        until_told(&told, "STOPPING=1");
        disk.write_all_at(b"written while it ends", 4096).unwrap();
        disk.sync_all().unwrap();
        drop(disk);
        assert_eq!(server.wait().unwrap().code(), Some(0));
    }
}
