//! Options of `landfast serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rdma::ProviderChoice;
use serde::Deserialize;

use crate::poll::Poll;

/// Options of `landfast serve`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = SERVE_EXAMPLES)]
pub(crate) struct Serve {
    /// Directory to export as the share "data"
    pub(crate) directory: Option<PathBuf>,
    /// Directory to export under a name; may be given many times
    #[arg(long = "share", value_name = "NAME=PATH")]
    pub(crate) shares: Vec<String>,
    /// Device of persistent memory (devdax) that a node in the share's directory may stand for: such
    /// a node, made by mknod, is then a file as long as the device. May be given many times
    #[arg(long = "device", value_name = "SHARE=PATH")]
    pub(crate) devices: Vec<String>,
    /// Volume that is a file of a share's top directory, as long as the volume: read, written and flushed by messages,
    /// each sector whole; push mode is refused. Nobody else can use the volume meanwhile. May be given many times
    #[arg(long = "volume", value_name = "SHARE=[NAME=]PATH")]
    pub(crate) volumes: Vec<String>,
    /// Which files of a share have their pages in memory only when a client asks for them: all that are mapped for push
    /// mode (lazy), or none (eager) [default: those on disks that are longer than the budget]. May be given many times
    #[arg(long = "residency", value_name = "SHARE=lazy|eager")]
    pub(crate) residency: Vec<String>,
    /// Most memory for such pages, as in 4G [default: an eighth of the machine's]; with SHARE= the most for one share.
    /// May be given many times
    #[arg(long = "flash-budget", value_name = "[SHARE=]SIZE")]
    pub(crate) flash_budgets: Vec<String>,
    /// Most memory for such pages of any one file of a share. May be given many times
    #[arg(long = "flash-region-budget", value_name = "SHARE=SIZE")]
    pub(crate) flash_region_budgets: Vec<String>,
    /// Directory on a device faster than the share's, flash or persistent memory, and the most bytes there: such pages
    /// that were read once are read from there when they have left the memory. The file itself always has every byte.
    /// May be given many times
    #[arg(long = "flash-tier", value_name = "SHARE=SIZE:DIRECTORY")]
    pub(crate) flash_tiers: Vec<String>,
    /// Let anybody into a share who has no account, to read, or to write too. Nothing of their sessions
    /// is signed or encrypted, and they get no push mode; clients that keep to the specification come in
    /// only with `--signing when-asked`. May be given many times
    #[arg(long = "guests", value_name = "SHARE=read|write")]
    pub(crate) guests: Vec<String>,
    /// Account that may log on; may be given many times. Visible to other local users in the
    /// process list: prefer a config file on shared machines
    #[arg(long = "user", value_name = "NAME:PASSWORD")]
    pub(crate) users: Vec<String>,
    /// File of accounts that `landfast passwd` writes; read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) users_file: Option<PathBuf>,
    /// Keys of the service `cifs/HOST`, for logons by Kerberos ticket; read again when they change
    #[arg(long, value_name = "FILE")]
    pub(crate) keytab: Option<PathBuf>,
    /// Take tickets for this service only, instead of all those of the keytab
    #[arg(long, value_name = "cifs/HOST@REALM", requires = "keytab")]
    pub(crate) principal: Option<String>,
    /// User who may log on by ticket without having a password here, `*` for all of the realm; may be
    /// given many times
    #[arg(long = "kerberos-user", value_name = "NAME", requires = "keytab")]
    pub(crate) kerberos_users: Vec<String>,
    /// Settings in TOML; options on the command line win
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address for SMB over TCP [default: 127.0.0.1:4450]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Address for SMB Direct and push mode [default: port 5445 of the address of --listen]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) rdma_listen: Option<SocketAddr>,
    /// User to serve as, where root starts the server: it binds the port of --listen, and everything else is done
    /// with that user's rights and no others, reading config, users file and keytab included. A name of
    /// /etc/passwd, with the groups that /etc/group lists it in, or UID:GID, with that group alone
    #[arg(long, value_name = "USER")]
    pub(crate) run_as: Option<String>,
    /// Address that clients looking for more channels are told, where the machine does not know it
    /// itself (containers, translated addresses); `rss`: several connections to it are worth while,
    /// `rdma`: it leads to the RDMA listener too. May be given many times
    #[arg(long = "announce", value_name = "ADDR[,rss][,rdma]")]
    pub(crate) announced: Vec<server::Announced>,
    /// What does RDMA: "soft" needs nothing of the machine (iWARP over TCP), "shm" serves processes of this
    /// host alone, through memory that both share, "verbs" uses the machine's RDMA adapters through
    /// libibverbs and librdmacm, and listens on addresses of theirs only [default: soft]
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) rdma_provider: Option<ProviderChoice>,
    /// Let clients of this host that run as the server's user, or as any user where root is the server's, push through
    /// memory that both share, in place of TCP. Provider "soft" alone, and without --pcap
    #[arg(long)]
    pub(crate) rdma_same_host: bool,
    /// Let tmpfs and other memory that a power failure erases answer commits as if it were
    /// durable. For measurements and tests only: nothing survives a reboot
    #[arg(long)]
    pub(crate) emulate_persistence: bool,
    /// Which sessions are signed. Push mode is only for those that are [default: always]
    #[arg(long)]
    pub(crate) signing: Option<Signing>,
    /// Threads that serve SMB Direct and push mode, each its share of the connections [default: 1]
    #[arg(long, value_name = "COUNT")]
    pub(crate) rdma_threads: Option<u16>,
    /// How the RDMA engine waits for work
    #[arg(long, default_value = "adaptive")]
    pub(crate) poll: Poll,
    /// Unix socket for `landfast status`, or "off" [default: $XDG_RUNTIME_DIR/landfast/PORT.sock; without a
    /// logon /run/landfast/PORT.sock of root, /run/landfast/UID/PORT.sock of another user]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// Tell Prometheus and whoever else asks, at http://ADDR:PORT/metrics, how many connections, sessions, opens and bytes
    /// there are; no name of a user or file is among the figures
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Say what would be served, and end: whether config, accounts, keys, shares and what they need fit together, as the
    /// user of --run-as. No address is taken and nothing is changed; a server of the same config may run meanwhile
    #[arg(long)]
    pub(crate) check: bool,
    /// Write all RDMA traffic to a capture file that tshark and Wireshark read; it lies outside of the shares, and may be
    /// a pipe that somebody reads
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: crate::store::args::Serving,
}

/// Which sessions must sign each message.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Signing {
    /// Every session with a user behind it
    Always,
    /// Those whose client asks for it
    WhenAsked,
}

const SERVE_EXAMPLES: &str = "\
Examples:
  Export one directory to user alice, on loopback and unprivileged ports:
      landfast serve /srv/data --user alice:secret
  Two shares from a config file, on the network:
      landfast serve --config /etc/landfast.toml --listen 0.0.0.0:445
  A device of persistent memory as the file `log` of a share:
      mknod /srv/data/log c $(stat -c '0x%t 0x%T' /dev/dax0.0)
      landfast serve /srv/data --user alice:secret --device data=/dev/dax0.0
  A disk whose sectors are never torn as the file `disk0` of a share (docs/volumes.md):
      landfast serve /srv/data --user alice:secret --volume data=/mnt/pmem/disk0
  Tickets of a Kerberos realm (docs/kerberos.md says how to make the keytab):
      landfast serve /srv/data --keytab /var/lib/landfast/cifs.keytab --kerberos-user '*'
  A directory that anybody may read and alice may change:
      landfast serve /srv/data --user alice:secret --guests data=read --signing when-asked
  Measure in memory (a power failure loses everything):
      landfast serve /dev/shm/x --user a:a --emulate-persistence

The config file holds the same settings:
  listen = \"127.0.0.1:4450\"
  rdma_listen = \"127.0.0.1:5445\"
  rdma_threads = 1
  rdma_provider = \"soft\"
  rdma_same_host = false
  recall_grace_ms = 5000
  emulate_persistence = false
  keepalive_s = 120
  control = \"/run/landfast/files.sock\"
  metrics = \"127.0.0.1:9445\"
  run_as = \"landfast\"
  announce = [\"192.0.2.7,rss,rdma\"]
  flash_budget = \"4G\"
  signing = \"always\"
  server_guid = \"0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0\"
  users_file = \"/var/lib/landfast/users\"
  [[share]]
  name = \"data\"
  path = \"/srv/data\"
  users = [\"alice\"]
  readers = [\"bob\"]
  guests = \"read\"
  read_only = false
  encrypt = false
  write_through = false
  persistent_opens = \"/var/lib/landfast/data.opens\"
  devices = [\"/dev/dax0.0\"]
  residency = \"lazy\"
  flash_budget = \"1G\"
  flash_region_budget = \"256M\"
  flash_tier = \"64G:/nvme/cache\"
  [[share.volume]]
  name = \"disk0\"
  path = \"/mnt/pmem/disk0\"
  [kerberos]
  keytab = \"/var/lib/landfast/cifs.keytab\"
  principal = \"cifs/files.example.org@EXAMPLE.ORG\"
  users = [\"carol\"]
  clock_skew_s = 300
  [[user]]
  name = \"alice\"
  password = \"secret\"

A config file with passwords that others may read is refused: chmod 600 it. So are a config file, users file, keytab \
or persistent_opens inside a share, whose clients could read and replace it. An account is named once, in whatever case, \
and a user of a share is not among its readers too; a --user takes the place of the [[user]] of that name.

SIGTERM and SIGINT stop the server cleanly: regions are recalled, answers sent, files closed. SIGHUP has it read the \
config file again: accounts change at once, and the log says what needs a restart. A mistake in it changes nothing: serve --check \
with the same options finds it beforehand.

A service manager that sets NOTIFY_SOCKET is told of the start, of each reload and of the end (dist/landfast.service).";
