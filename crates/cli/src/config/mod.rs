//! The server's settings: the TOML file, the command line over it, and the defaults under both.
//!
//! [`file`]: the config file in its written form; [`files`]: each file of the server has a name of its own; [`arguments`]: options that combine several values; [`people`]: checks of accounts against
//! the names in shares; [`restart`]: settings that a running server cannot change.

mod arguments;
mod file;
mod files;
pub(crate) mod people;
mod restart;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use rdma::ProviderChoice;
use serde::Deserialize;
use server::Announced;
use smb::Guid;

use self::file::File;
use crate::args::{Serve, Signing};
use crate::control::Place;
use crate::failure::Failure;
use crate::run_as::Account;

/// The settings of `landfast serve`, from all sources.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) listen: SocketAddr,
    pub(crate) rdma_listen: SocketAddr,
    pub(crate) rdma_provider: ProviderChoice,
    pub(crate) rdma_same_host: bool,
    pub(crate) rdma_threads: u16,
    pub(crate) announced: Vec<Announced>,
    pub(crate) emulate_persistence: bool,
    pub(crate) signing: Signing,
    pub(crate) recall_grace: Option<Duration>,
    /// The GUID of the server; none: a new one each time it starts.
    pub(crate) guid: Option<Guid>,
    /// How long a client may be silent; zero leaves the setting of the host.
    pub(crate) keepalive: Option<Duration>,
    pub(crate) control: Place,
    /// Where figures are told to whoever asks.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) shares: Vec<Share>,
    pub(crate) users: Vec<User>,
    pub(crate) users_file: Option<PathBuf>,
    pub(crate) kerberos: Option<Kerberos>,
    /// The user to serve as, if root starts the server.
    pub(crate) run_as: Option<Account>,
    /// Most bytes of memory for pages of files that are mapped lazily.
    pub(crate) flash_budget: Option<u64>,
    /// The file of these settings; read again on SIGHUP.
    pub(crate) config: Option<PathBuf>,
}

/// A directory that is exported under a name.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Share {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    #[serde(default)]
    pub(crate) read_only: bool,
    #[serde(default)]
    pub(crate) encrypt: bool,
    /// Every change is durable before it is answered.
    #[serde(default)]
    pub(crate) write_through: bool,
    /// Who may enter; without this and `readers` everybody who can log on, with an empty list nobody.
    pub(crate) users: Option<Vec<String>>,
    /// Who may enter and read.
    pub(crate) readers: Option<Vec<String>>,
    /// The rights of users without an account; `None`: no rights.
    pub(crate) guests: Option<Guests>,
    /// The directory that records opens which survive a crash of the server.
    pub(crate) persistent_opens: Option<PathBuf>,
    /// Devices of persistent memory that nodes in the directory may stand for.
    #[serde(default)]
    pub(crate) devices: Vec<PathBuf>,
    /// Volumes that are files of the directory.
    #[serde(default, rename = "volume")]
    pub(crate) volumes: Vec<SharedVolume>,
    /// Whether pages of mapped files come into memory when they are asked for; `None`: those of long files.
    pub(crate) residency: Option<Residency>,
    /// Most bytes for these pages.
    #[serde(default, deserialize_with = "arguments::some_size")]
    pub(crate) flash_budget: Option<u64>,
    /// Most bytes for these pages of one file.
    #[serde(default, deserialize_with = "arguments::some_size")]
    pub(crate) flash_region_budget: Option<u64>,
    /// A faster directory for these pages when they have left the memory, with the most bytes there: `SIZE:DIRECTORY`.
    #[serde(default, deserialize_with = "arguments::some_tier")]
    pub(crate) flash_tier: Option<(u64, PathBuf)>,
}

impl Share {
    pub(crate) fn new(name: &str, path: PathBuf) -> Self {
        Self {
            name: name.into(),
            path,
            read_only: false,
            encrypt: false,
            write_through: false,
            users: None,
            readers: None,
            guests: None,
            persistent_opens: None,
            devices: Vec::new(),
            volumes: Vec::new(),
            residency: None,
            flash_budget: None,
            flash_region_budget: None,
            flash_tier: None,
        }
    }
}

/// A volume that is a file of a share.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct SharedVolume {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// When pages of mapped files come into memory.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Residency {
    Lazy,
    Eager,
}

/// The rights of guests on a share.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Guests {
    Read,
    Write,
}

/// An account.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) password: String,
}

/// Logons by ticket.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kerberos {
    pub(crate) keytab: PathBuf,
    pub(crate) principal: Option<String>,
    #[serde(default)]
    pub(crate) users: Vec<String>,
    pub(crate) clock_skew_s: Option<u64>,
}

impl Settings {
    /// Reads the config file, if one is named, and applies the command line on top.
    pub(crate) fn gather(options: &Serve) -> Result<Self, Failure> {
        let file = File::of(options)?;
        let mut flash_budget = file.flash_budget;
        let shares = shares(options, file.share, &mut flash_budget)?;
        let given = options.users.iter().map(|text| arguments::user(text));
        let users = people::accounts(file.user, given.collect::<Result<_, _>>()?)?;
        shares.iter().try_for_each(people::check_share)?;
        if shares.is_empty() {
            return Err(Failure::ConfigMissing(
                "nothing to serve: name a directory, or --share NAME=PATH",
            ));
        }
        let users_file = options.users_file.clone().or(file.users_file);
        let kerberos = arguments::kerberos(options, file.kerberos);
        let has_owners = kerberos.as_ref().is_some_and(|kerberos| !kerberos.users.is_empty());
        let has_guests = shares.iter().any(|share| share.guests.is_some());
        if users.is_empty() && users_file.is_none() && !has_owners && !has_guests {
            return Err(Failure::ConfigMissing(
                "nobody could log on: name an account with --user NAME:PASSWORD, or --users-file FILE, or \
                 --keytab FILE with --kerberos-user NAME, or let anybody in with --guests SHARE=read",
            ));
        }
        let rdma_threads = options.rdma_threads.or(file.rdma_threads).unwrap_or(1);
        if !(1..=RDMA_THREADS_MAX).contains(&rdma_threads) {
            let (value, why) = (rdma_threads.to_string(), "expected 1 to 64");
            return Err(Failure::ConfigValue { what: "--rdma-threads", value, why });
        }
        let mut announced = options.announced.clone();
        if announced.is_empty() {
            let of_file = file.announce.iter().map(|text| arguments::announcement(text));
            announced = of_file.collect::<Result<_, _>>()?;
        }
        let rdma_provider = provider(options.rdma_provider, file.rdma_provider)?;
        let listen = options.listen.or(file.listen).unwrap_or_else(|| loopback(SMB_PORT));
        let run_as = options.run_as.clone().or(file.run_as);
        let settings = Self {
            rdma_provider,
            rdma_same_host: options.rdma_same_host || file.rdma_same_host,
            rdma_threads,
            announced,
            listen,
            rdma_listen: options
                .rdma_listen
                .or(file.rdma_listen)
                .unwrap_or_else(|| SocketAddr::new(listen.ip(), RDMA_PORT)),
            run_as: run_as.as_deref().map(Account::find).transpose()?,
            flash_budget,
            emulate_persistence: options.emulate_persistence || file.emulate_persistence,
            signing: options.signing.or(file.signing).unwrap_or(Signing::Always),
            control: Place::of(options.control.as_deref().or(file.control.as_deref())),
            guid: guid(file.server_guid)?,
            metrics: options.metrics.or(file.metrics),
            recall_grace: file.recall_grace_ms.map(Duration::from_millis),
            keepalive: keepalive(file.keepalive_s)?,
            shares,
            users,
            users_file,
            kerberos,
            config: options.config.clone(),
        };
        let logs = settings.shares.iter().filter_map(|share| share.persistent_opens.as_deref());
        let read =
            [&settings.users_file, &settings.config].into_iter().filter_map(Option::as_deref);
        let keytab = settings.kerberos.as_ref().map(|kerberos| kerberos.keytab.as_path());
        let others = logs.chain(read).chain(keytab);
        files::check(&settings.control, options.pcap.as_deref(), others)?;
        Ok(settings)
    }
}

/// The shares of the file, and what the command line says of these and of others.
fn shares(
    options: &Serve,
    mut shares: Vec<Share>,
    flash_budget: &mut Option<u64>,
) -> Result<Vec<Share>, Failure> {
    if let Some(path) = &options.directory {
        shares.push(Share::new("data", path.clone()));
    }
    for text in &options.shares {
        shares.push(arguments::share(text)?);
    }
    for text in &options.devices {
        arguments::device(text, &mut shares)?;
    }
    for text in &options.volumes {
        arguments::volume(text, &mut shares)?;
    }
    people::check_volumes(&shares)?;
    arguments::once_for_each_share(options)?;
    for text in &options.guests {
        arguments::guests(text, &mut shares)?;
    }
    for text in &options.residency {
        arguments::residency(text, &mut shares)?;
    }
    for text in &options.flash_budgets {
        arguments::flash_budget(text, flash_budget, &mut shares)?;
    }
    for text in &options.flash_region_budgets {
        arguments::flash_region_budget(text, &mut shares)?;
    }
    for text in &options.flash_tiers {
        arguments::flash_tier(text, &mut shares)?;
    }
    Ok(shares)
}

fn provider(
    given: Option<ProviderChoice>,
    of_file: Option<String>,
) -> Result<ProviderChoice, Failure> {
    let what = "rdma_provider";
    match (given, of_file) {
        (Some(choice), _) => Ok(choice),
        (None, Some(value)) => value.parse().map_err(|_| Failure::ConfigValue {
            what,
            value,
            why: "expected soft, shm or verbs",
        }),
        (None, None) => Ok(ProviderChoice::default()),
    }
}

fn guid(text: Option<String>) -> Result<Option<Guid>, Failure> {
    let Some(value) = text else { return Ok(None) };
    let digits: String = value.chars().filter(|sign| *sign != '-').collect();
    let is_whole = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    match u128::from_str_radix(&digits, 16) {
        Ok(guid) if is_whole => Ok(Some(Guid(guid.to_be_bytes()))),
        _ => {
            let (what, why) = ("server_guid", "expected 32 hex digits, as uuidgen prints");
            Err(Failure::ConfigValue { what, value, why })
        }
    }
}

fn keepalive(seconds: Option<u64>) -> Result<Option<Duration>, Failure> {
    let (what, why) = ("keepalive_s", "expected at most 604800, a week");
    match seconds {
        Some(seconds) if seconds > KEEPALIVE_MAX => {
            Err(Failure::ConfigValue { what, value: seconds.to_string(), why })
        }
        seconds => Ok(seconds.map(Duration::from_secs)),
    }
}

/// A week, in seconds: whoever wants more wants none.
const KEEPALIVE_MAX: u64 = 604_800;

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

// Unprivileged, and free on machines that run another file server on 445.
const SMB_PORT: u16 = 4450;
// The port of MS-SMBD for iWARP, whose ports share the space of TCP.
const RDMA_PORT: u16 = 5445;
/// Each thread may use a core of its own for polling.
const RDMA_THREADS_MAX: u16 = 64;

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use clap::Parser;

    use super::*;
    use crate::args::{Arguments, Command};

    fn gather(line: &[&str]) -> Result<Settings, Failure> {
        let words = ["landfast", "serve"].iter().chain(line);
        let Command::Serve(serve) = Arguments::parse_from(words).command else { unreachable!() };
        Settings::gather(&serve)
    }

    #[test]
    fn the_default_addresses_are_loopback_with_unprivileged_ports() {
        let settings = gather(&["/srv", "--user", "a:b"]).unwrap();
        assert_eq!(settings.listen.to_string(), "127.0.0.1:4450");
        assert_eq!(settings.rdma_listen.to_string(), "127.0.0.1:5445");
        assert_eq!(settings.rdma_threads, 1);
        assert!(!settings.emulate_persistence);
        assert_eq!(settings.signing, Signing::Always);
    }

    #[test]
    fn rdma_listens_on_the_address_of_smb_by_default() {
        let rdma = |line: &[&str]| {
            gather(&[&["/srv", "--user", "a:b"], line].concat()).unwrap().rdma_listen.to_string()
        };
        assert_eq!(rdma(&["--listen", "0.0.0.0:445"]), "0.0.0.0:5445");
        assert_eq!(rdma(&["--listen", "[::]:445"]), "[::]:5445");
        assert_eq!(
            rdma(&["--listen", "192.0.2.1:445", "--rdma-listen", "127.0.0.1:1"]),
            "127.0.0.1:1"
        );
    }

    #[test]
    fn an_account_whose_name_cannot_log_on_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("landfast.toml");
        std::fs::write(&path, "[[user]]\nname = \"u@corp\"\npassword = \"p\"\n").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        for line in [["--user", "u@corp:p"], ["--config", path.to_str().unwrap()]] {
            let refused = gather(&[&["/srv"], &line[..]].concat()).unwrap_err();
            assert!(refused.to_string().contains("nobody could log on as \"u@corp\""), "{refused}");
        }
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("landfast.toml");
        let text = "listen = \"127.0.0.1:1\"\nrdma_listen = \"127.0.0.1:2\"\nsigning = \"when-asked\"\n\
            [[share]]\nname = \"x\"\npath = \"/x\"\n[[user]]\nname = \"u\"\npassword = \"p\"\n";
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let settings =
            gather(&["--config", path.to_str().unwrap(), "--listen", "127.0.0.1:3"]).unwrap();
        assert_eq!(settings.listen.port(), 3);
        assert_eq!(settings.rdma_listen.port(), 2);
        assert_eq!(settings.signing, Signing::WhenAsked);
        assert_eq!(settings.shares[0].name, "x");
    }

    #[test]
    fn a_file_with_passwords_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("landfast.toml");
        let file = ["/srv", "--user", "a:b", "--config", path.to_str().unwrap()];
        let set = |mode| std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        std::fs::write(&path, "[[user]]\nname = \"u\"\npassword = \"p\"\n").unwrap();
        for mode in [0o644, 0o640, 0o602, 0o604] {
            set(mode);
            let refused = gather(&file).unwrap_err();
            assert!(matches!(&refused, Failure::ConfigOpen(_)), "{mode:o}: {refused}");
            assert!(refused.to_string().contains("chmod 600"));
        }
        set(0o600);
        gather(&file).unwrap();
        std::fs::write(&path, "rdma_threads = 3\n").unwrap();
        set(0o644);
        gather(&file).unwrap();
    }

    #[test]
    fn a_server_guid_is_32_hex_digits_with_or_without_dashes() {
        let guid = |text: &str| guid(Some(text.to_owned()));
        let expected =
            Guid([0, 17, 34, 51, 68, 85, 102, 119, 136, 153, 170, 187, 204, 221, 238, 255]);
        for text in ["00112233-4455-6677-8899-aabbccddeeff", "00112233445566778899AABBCCDDEEFF"] {
            assert_eq!(guid(text).unwrap(), Some(expected));
        }
        for text in
            ["", "0011", "+0112233445566778899aabbccddeeff", "g0112233445566778899aabbccddeeff"]
        {
            assert!(matches!(guid(text), Err(Failure::ConfigValue { .. })), "{text}");
        }
    }

    #[test]
    fn volumes_are_listed_in_the_file_or_for_a_share_on_the_command_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("landfast.toml");
        let text = "[[share]]\nname = \"logs\"\npath = \"/x\"\n[[share.volume]]\nname = \"a\"\npath = \"/v/a\"\n";
        std::fs::write(&path, text).unwrap();
        let file = ["/srv", "--user", "a:b", "--config", path.to_str().unwrap()];
        let with = |volume| gather(&[&file[..], &["--volume", volume]].concat());
        let settings = with("Logs=b=/v/c=d").unwrap();
        let named = |name: &str, path: &str| SharedVolume { name: name.into(), path: path.into() };
        assert_eq!(settings.shares[0].volumes, [named("a", "/v/a"), named("b", "/v/c=d")]);
        assert_eq!(with("data=/v/disk0").unwrap().shares[1].volumes, [named("disk0", "/v/disk0")]);
        for wrong in ["/v/disk0", "nowhere=/v/disk0", "data=/", "data=/v/a"] {
            assert!(matches!(with(wrong), Err(Failure::ConfigValue { .. })), "{wrong}");
        }
    }

    #[test]
    fn devices_are_listed_in_the_file_or_for_a_share_on_the_command_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("landfast.toml");
        let text = "[[share]]\nname = \"logs\"\npath = \"/x\"\ndevices = [\"/dev/dax0.0\"]\n";
        std::fs::write(&path, text).unwrap();
        let file = ["/srv", "--user", "a:b", "--config", path.to_str().unwrap()];
        let with = |device| gather(&[&file[..], &["--device", device]].concat());
        let settings = with("Logs=/dev/dax1.0").unwrap();
        let listed = |share: &Share| share.devices.clone();
        let both = ["/dev/dax0.0", "/dev/dax1.0"].map(PathBuf::from).to_vec();
        let lists: Vec<_> = settings.shares.iter().map(listed).collect();
        assert_eq!(lists, [both, Vec::new()]);
        assert_eq!(with("data=/dev/dax1.0").unwrap().shares[1].devices.len(), 1);
        for wrong in ["/dev/dax1.0", "nowhere=/dev/dax1.0", "data="] {
            assert!(matches!(with(wrong), Err(Failure::ConfigValue { .. })), "{wrong}");
        }
    }

    #[test]
    fn residency_and_budgets_are_of_the_server_or_of_a_share() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("landfast.toml");
        let text = "flash_budget = \"2G\"\n[[share]]\nname = \"big\"\npath = \"/x\"\nresidency = \"lazy\"\n\
            flash_budget = \"64M\"\nflash_region_budget = \"2M\"\nflash_tier = \"8G:/nvme/cache\"\n";
        std::fs::write(&path, text).unwrap();
        let file = ["--user", "a:b", "--config", path.to_str().unwrap()];
        let settings = gather(&file).unwrap();
        assert_eq!(settings.flash_budget, Some(2 << 30));
        assert_eq!(settings.shares[0].residency, Some(Residency::Lazy));
        assert_eq!(settings.shares[0].flash_budget, Some(64 << 20));
        let with = |option, value| gather(&[&file[..], &[option, value]].concat());
        let settings = with("--flash-budget", "Big=128M").unwrap();
        assert_eq!(settings.shares[0].flash_budget, Some(128 << 20));
        assert_eq!(with("--flash-budget", "1G").unwrap().flash_budget, Some(1 << 30));
        assert_eq!(settings.shares[0].flash_region_budget, Some(2 << 20));
        assert_eq!(settings.shares[0].flash_tier, Some((8 << 30, "/nvme/cache".into())));
        let settings = with("--flash-region-budget", "big=4M").unwrap();
        assert_eq!(settings.shares[0].flash_region_budget, Some(4 << 20));
        let settings = with("--flash-tier", "big=1G:/x:y").unwrap();
        assert_eq!(settings.shares[0].flash_tier, Some((1 << 30, "/x:y".into())));
        let settings = with("--residency", "big=eager").unwrap();
        assert_eq!(settings.shares[0].residency, Some(Residency::Eager));
        for (option, wrong) in [
            ("--residency", "big=cold"),
            ("--residency", "lazy"),
            ("--flash-budget", "small=1G"),
            ("--flash-budget", "4X"),
            ("--flash-budget", "4K"),
            ("--flash-region-budget", "4M"),
            ("--flash-region-budget", "big=4K"),
            ("--flash-tier", "big=/nvme"),
            ("--flash-tier", "big=4K:/nvme"),
            ("--flash-tier", "big=1G:"),
            ("--flash-tier", "1G:/nvme"),
        ] {
            assert!(matches!(with(option, wrong), Err(Failure::ConfigValue { .. })), "{wrong}");
        }
    }

    #[test]
    fn guests_are_admitted_only_to_shares_that_allow_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("landfast.toml");
        let text = "[[share]]\nname = \"shown\"\npath = \"/x\"\nguests = \"read\"\n\
            [[share]]\nname = \"kept\"\npath = \"/y\"\n";
        std::fs::write(&path, text).unwrap();
        // With guests no account is required.
        let file = ["--config", path.to_str().unwrap()];
        let guests = |settings: Settings| {
            settings.shares.iter().map(|share| share.guests).collect::<Vec<_>>()
        };
        assert_eq!(guests(gather(&file).unwrap()), [Some(Guests::Read), None]);
        let with = |guests| gather(&[&file[..], &["--guests", guests]].concat());
        assert_eq!(guests(with("KEPT=write").unwrap()), [Some(Guests::Read), Some(Guests::Write)]);
        for wrong in ["kept", "kept=", "kept=full", "nowhere=read"] {
            assert!(matches!(with(wrong), Err(Failure::ConfigValue { .. })), "{wrong}");
        }
        assert!(matches!(gather(&["/srv"]), Err(Failure::ConfigMissing(_))));
    }

    #[test]
    fn kerberos_takes_its_keytab_from_file_or_command_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("landfast.toml");
        let text = "[kerberos]\nkeytab = \"/one\"\nprincipal = \"cifs/a@R\"\nusers = [\"a\"]\n";
        std::fs::write(&path, text).unwrap();
        let file = ["/srv", "--config", path.to_str().unwrap()];
        let settings = gather(&file).unwrap().kerberos.unwrap();
        assert_eq!(settings.keytab, PathBuf::from("/one"));
        let more = ["--keytab", "/two", "--principal", "cifs/b@R", "--kerberos-user", "b"];
        let settings = gather(&[&file[..], &more].concat()).unwrap().kerberos.unwrap();
        assert_eq!(settings.keytab, PathBuf::from("/two"));
        assert_eq!(settings.principal.as_deref(), Some("cifs/b@R"));
        assert_eq!(settings.users, ["a", "b"]);
        assert!(gather(&["/srv", "--user", "a:b"]).unwrap().kerberos.is_none());
        // A keytab alone admits nobody.
        assert!(matches!(gather(&["/srv", "--keytab", "/two"]), Err(Failure::ConfigMissing(_))));
    }

    #[test]
    fn rdma_threads_from_file_or_command_line_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("landfast.toml");
        std::fs::write(&path, "rdma_threads = 3\n").unwrap();
        let file = ["/srv", "--user", "a:b", "--config", path.to_str().unwrap()];
        assert_eq!(gather(&file).unwrap().rdma_threads, 3);
        let with = |count| gather(&[&file[..], &["--rdma-threads", count]].concat());
        assert_eq!(with("64").unwrap().rdma_threads, 64);
        for count in ["0", "65"] {
            assert!(matches!(with(count), Err(Failure::ConfigValue { .. })), "{count}");
        }
    }

    #[test]
    fn the_keepalive_time_comes_from_the_config_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("landfast.toml");
        let file = ["/srv", "--user", "a:b", "--config", path.to_str().unwrap()];
        for (text, kept) in
            [("", None), ("keepalive_s = 0\n", Some(0)), ("keepalive_s = 30\n", Some(30))]
        {
            std::fs::write(&path, text).unwrap();
            assert_eq!(gather(&file).unwrap().keepalive, kept.map(Duration::from_secs));
        }
        std::fs::write(&path, "keepalive_s = 604801\n").unwrap();
        let refused = gather(&file).unwrap_err().to_string();
        assert!(refused.contains("keepalive_s") && refused.contains("604801"), "{refused}");
    }

    #[test]
    fn announced_addresses_of_the_command_line_replace_those_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("landfast.toml");
        std::fs::write(&path, "announce = [\"192.0.2.1,rss\", \"2001:db8::1,rdma\"]\n").unwrap();
        let file = ["/srv", "--user", "a:b", "--config", path.to_str().unwrap()];
        let settings = gather(&file).unwrap();
        assert!(settings.announced[0].rss && settings.announced[1].rdma);
        let settings = gather(&[&file[..], &["--announce", "192.0.2.9"]].concat()).unwrap();
        assert_eq!(settings.announced.len(), 1);
        std::fs::write(&path, "announce = [\"everywhere\"]\n").unwrap();
        assert!(matches!(gather(&file), Err(Failure::ConfigValue { .. })));
    }

    #[test]
    fn a_password_is_never_repeated_in_an_error() {
        let error = gather(&["/srv", "--user", ":hunter2"]).unwrap_err();
        assert!(!error.to_string().contains("hunter2"));
    }
}
