//! The command line of `landfast volume`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Options of `landfast volume`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Volume {
    #[command(subcommand)]
    pub(crate) command: VolumeCommand,
}

/// What to do with volumes.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Make a volume in a new file, or on a device of persistent memory
    #[command(after_long_help = CREATE_NOTES)]
    Create(Create),
    /// Show what a volume is; it may be in use
    Info(One),
    /// Look at all of a volume that is not in use, and change nothing; exit status 1 if it is damaged
    Check(One),
    /// Make a damaged volume whole again, as far as what is left of it tells how
    Repair(One),
    /// List the volumes in a directory
    List(List),
    /// Make a volume larger; a volume never shrinks
    Resize(Resize),
    /// Remove the file of a volume that is not in use
    Remove(Remove),
    /// Serve volumes as network block devices (NBD), or as disks of this machine (ublk), or as files and loop devices (FUSE)
    #[command(after_long_help = SERVE_NOTES)]
    Serve(Serve),
}

/// Options of `landfast volume create`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Create {
    /// The file, which must not exist; or a devdax device
    pub(crate) path: PathBuf,
    /// Bytes of the file, or with K, M or G; a device is used whole. What sectors get is less: `landfast volume info`
    #[arg(long, value_parser = crate::size::size)]
    pub(crate) size: Option<u64>,
    /// How sectors are kept whole [default: block on persistent memory, file on a disk]
    #[arg(long)]
    pub(crate) mode: Option<Mode>,
    /// Bytes of a sector
    #[arg(long, default_value_t = 4096)]
    pub(crate) sector: u32,
    /// Version of the layout: 1.1 is what Linux looks for on namespaces whose labels say nothing, 2.0 what UEFI does
    #[arg(long, default_value = "1.1")]
    pub(crate) layout: Layout,
    /// Let tmpfs and other memory that a power failure erases hold the volume as if it were durable
    #[arg(long)]
    pub(crate) emulate_persistence: bool,
    /// Overwrite a volume that is on the device
    #[arg(long)]
    pub(crate) overwrite: bool,
}

/// How a volume keeps its sectors whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Mode {
    /// By a translation table, the layout of Linux's BTT driver: for persistent memory, whose stores tear
    Block,
    /// By the disk, which writes its own sectors whole: the file is the disk, byte for byte
    File,
    /// By nobody: a file for programs that map it and flush what they store, on a file system with DAX. Nothing serves
    /// it as a disk; a share of its directory maps it in push mode
    Dax,
}

/// The version of the layout.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Layout {
    /// The first 4096 bytes are free
    #[value(name = "1.1")]
    V1_1,
    /// The first arena begins at the first byte
    #[value(name = "2.0")]
    V2_0,
}

/// A volume.
#[derive(Args, Clone, Debug)]
pub(crate) struct One {
    /// Its file or device
    pub(crate) path: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `landfast volume list`.
#[derive(Args, Clone, Debug)]
pub(crate) struct List {
    /// The directory
    #[arg(default_value = ".")]
    pub(crate) directory: PathBuf,
}

/// Options of `landfast volume resize`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Resize {
    /// Its file
    pub(crate) path: PathBuf,
    /// Bytes that its sectors are to have at least, or with K, M or G. A volume of mode block grows by 16 MiB or more
    #[arg(value_parser = crate::size::size)]
    pub(crate) size: u64,
    /// As when it was made
    #[arg(long)]
    pub(crate) emulate_persistence: bool,
}

/// Options of `landfast volume remove`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Remove {
    /// Its file
    pub(crate) path: PathBuf,
}

/// Options of `landfast volume serve`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// Volumes, each PATH or NAME=PATH; without a name it is the file's. A client that names none gets the first
    #[arg(required_unless_present = "config", value_name = "[NAME=]PATH")]
    pub(crate) volumes: Vec<String>,
    /// Settings in TOML; options on the command line win, and volumes of both are served
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Unix socket that only this user may connect to
    #[arg(long, value_name = "PATH")]
    pub(crate) unix: Option<PathBuf>,
    /// TCP address, as in 127.0.0.1:10809
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Directory on which the volumes appear as files, through /dev/fuse; a volume has one way in at a time
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["unix", "listen"])]
    pub(crate) fuse: Option<PathBuf>,
    /// Attach a loop device, /dev/loopN, to each of these files; for root
    #[arg(long = "loop", requires = "fuse")]
    pub(crate) loops: bool,
    /// Make each volume a disk of this machine's kernel, /dev/ublkbN, from this number on; for root, Linux 6.3 and later.
    /// A disk whose server died waits for the next one with its number and volume
    #[arg(long, value_name = "N", conflicts_with_all = ["unix", "listen", "fuse"])]
    pub(crate) ublk: Option<u32>,
    /// Certificate of the server in PEM: nobody is served without TLS then
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// Its private key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Authority in PEM whose clients alone are served
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_clients: Option<PathBuf>,
    /// Let anybody who reaches the address read and write, without a certificate
    #[arg(long)]
    pub(crate) anybody: bool,
    /// Refuse all changes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Serve volumes in tmpfs as if they were durable
    #[arg(long)]
    pub(crate) emulate_persistence: bool,
}

const CREATE_NOTES: &str = "\
Examples:
  On a file system with DAX, or on a disk (the mode follows from what is there):
      landfast volume create /mnt/pmem/disk0 --size 64G
  On a device of persistent memory; Linux opens it as a namespace of mode sector:
      landfast volume create /dev/dax0.0
  For programs that map it, where stores are persistent (landfast diagnose says where):
      landfast volume create /mnt/pmem/region0 --size 4G --mode dax
  In memory, for a try (a power failure loses everything):
      landfast volume create /dev/shm/disk0 --size 1G --emulate-persistence

docs/volumes.md has the layout, byte for byte, and says what a crash leaves.";

const SERVE_NOTES: &str = "\
Examples:
  To programs of this user:
      landfast volume serve /mnt/pmem/disk0 --unix /run/user/1000/disk0.sock
      nbdinfo 'nbd+unix:///?socket=/run/user/1000/disk0.sock'
      qemu-system-x86_64 -drive file=nbd+unix:///disk0?socket=/run/user/1000/disk0.sock ...
  To this machine's kernel, as /dev/nbd0:
      landfast volume serve /mnt/pmem/disk0 --listen 127.0.0.1:10809 --anybody
      nbd-client 127.0.0.1 /dev/nbd0 -N disk0
  To this machine's kernel without NBD, as a file and as /dev/loopN:
      landfast volume serve /mnt/pmem/disk0 --fuse /run/volumes --loop
      mkfs.ext4 /dev/loop0
  To this machine's kernel, as /dev/ublkb0, which waits for the next server if this one dies:
      modprobe ublk_drv
      landfast volume serve /mnt/pmem/disk0 --ublk 0
  Over the network, to clients with a certificate of the authority:
      landfast volume serve db=/mnt/pmem/disk0 --listen 0.0.0.0:10809 \\
          --tls-certificate server.pem --tls-key server.key --tls-clients authority.pem
  What a file says (a volume as a file of an SMB share is `landfast serve --volume`):
      landfast volume serve --config /etc/landfast-volumes.toml

The file holds the same settings:
  listen = \"0.0.0.0:10809\"
  # or unix = \"/run/disks.sock\"
  # or ublk = 0
  # or fuse = \"/run/volumes\"
  #    loop = true
  anybody = false
  read_only = false
  emulate_persistence = false
  [tls]
  certificate = \"server.pem\"
  key = \"server.key\"
  clients = \"authority.pem\"
  [[volume]]
  name = \"db\"
  path = \"/mnt/pmem/disk0\"

SIGTERM and SIGINT end the server: what clients have sent is carried out and answered first. Files and loop devices that
are in use, as by a mounted file system, are served until they are not, or a second signal comes.";
