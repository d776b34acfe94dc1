//! `landfast serve`: starts a server, prints its addresses, serves until a signal ends it, and reads the
//! config again on SIGHUP.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use pmem::DurabilityClass;
use rustix::process::geteuid;
use server::{
    KerberosConfig, Limits, PushPolicy, Running, Server, ServerConfig, ShareConfig, SigningPolicy,
    Users,
};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};
use tree::{Admission, withhold_set_id};

use crate::args::{Serve, Signing};
use crate::config::{self, Guests, Kerberos, Settings, Share, people};
use crate::control::Control;
use crate::failure::Failure;
use crate::files::off_thread;
use crate::metrics::{Endpoint, of_server};
use crate::run_as::{self, Doors};
use crate::volume::SharedVolumes;
use crate::{logging, notify, output};

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(options: &Serve) -> Result<(), Failure> {
    let settings = Settings::gather(options)?;
    let doors = Doors { address: settings.listen, control: &settings.control };
    let doors = (!options.check).then_some(doors);
    // Before any thread is started, because a thread would keep the rights of root.
    let listener = match &settings.run_as {
        Some(account) => run_as::become_user(account, doors)?,
        None => None,
    };
    withhold_set_id().map_err(Failure::system("cannot give up rights"))?;
    if options.check {
        return check(&settings, options);
    }
    let log = logging::Aside::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::system("cannot start the runtime"))?;
    let served = runtime.block_on(serve(settings, options, listener));
    log.own_up();
    served
}

async fn serve(
    mut settings: Settings,
    options: &Serve,
    listener: Option<Arc<TcpListener>>,
) -> Result<(), Failure> {
    let listen = |kind| signal(kind).map_err(Failure::system("cannot listen for signals"));
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut hangup = listen(SignalKind::hangup())?;
    let mut volumes = SharedVolumes::default();
    let config = server_config(&settings, options)?;
    // The addresses first: a server that finds another server there changes nothing else of it.
    let listener = match listener {
        Some(listener) => listener,
        None => run_as::listen(settings.listen)?,
    };
    let at = listener.local_addr().map_err(Failure::system("cannot see where it listens"))?;
    let mut control = Control::open(&settings.control, at.port())?;
    warn_of_people(&settings, &config.users);
    // After the addresses: a second server of the same settings learns from these that there is a first.
    let config = ServerConfig { shares: shares(&settings, &mut volumes)?, ..config };
    let running = Server::start(ServerConfig { listener: Some(listener), ..config }).await?;
    warn_of_root();
    warn_of_guests(&settings);
    warn_of_loopback(&settings);
    if let Some(control) = &mut control {
        control.serve(running.observer());
    }
    let emulate = settings.emulate_persistence;
    let store = crate::store::serve::beside(&options.store, settings.listen, emulate).await?;
    let observer = running.observer();
    let figures = move || observer.report(0).map_or_else(Vec::new, |report| of_server(&report));
    let metrics = match settings.metrics {
        Some(address) => Some(Endpoint::open(address, figures).await?),
        None => None,
    };
    announce(&running, metrics.as_ref());
    notify::say(&notify::ready("serving"));
    loop {
        tokio::select! {
            _ = terminate.recv() => break info!("SIGTERM: stopping"),
            _ = interrupt.recv() => break info!("SIGINT: stopping"),
            _ = hangup.recv() => {
                notify::say(&notify::reloading());
                let status = match reload(&settings, options, &running, &mut volumes).await {
                    Ok(now) => {
                        settings = now;
                        "serving".to_owned()
                    }
                    Err(failure) => {
                        error!("SIGHUP: {failure}; the server goes on as it was");
                        format!("serving as before: {failure}")
                    }
                };
                notify::say(&notify::ready(&status));
            }
        }
    }
    notify::say(notify::STOPPING);
    if let Some(store) = store {
        crate::store::serve::stop_it(store).await;
    }
    running.shutdown().await;
    Ok(())
}

/// Prints what would be served, and takes and changes nothing.
fn check(settings: &Settings, options: &Serve) -> Result<(), Failure> {
    let mut config = next_start(settings, options)?;
    Control::look(&settings.control)?;
    for (share, looked) in settings.shares.iter().zip(&mut config.shares) {
        looked.shown = SharedVolumes::look(share, settings.emulate_persistence)?;
    }
    let classes = Server::check(&config)?;
    let store = crate::store::serve::look(&options.store)?;
    warn_of_people(settings, &config.users);
    warn_of_root();
    warn_of_guests(settings);
    warn_of_loopback(settings);
    let mut text = format!("would serve smb={} rdma={}\n", settings.listen, settings.rdma_listen);
    for (share, class) in settings.shares.iter().zip(classes) {
        text.push_str(&described(share, class));
    }
    text.extend(store);
    output::say(&text)
}

/// A share in one line.
fn described(share: &Share, class: DurabilityClass) -> String {
    let mut text = format!("share {}: {}, class {class}", share.name, share.path.display());
    let named = [("users", &share.users), ("readers", &share.readers)];
    for (what, names) in named.into_iter().filter_map(|(what, names)| Some((what, names.as_ref()?)))
    {
        if !names.is_empty() {
            text.push_str(&format!(", {what} {}", names.join(" ")));
        }
    }
    let names = named.map(|(_, names)| names.as_ref().map(Vec::len));
    match names {
        [None, None] => text.push_str(", for everybody who can log on"),
        [None | Some(0), None | Some(0)] => text.push_str(", for nobody with an account"),
        _ => {}
    }
    let marks = [
        (share.guests == Some(Guests::Read), ", guests read"),
        (share.guests == Some(Guests::Write), ", guests write"),
        (share.read_only, ", read only"),
        (share.encrypt, ", encrypted"),
        (share.write_through, ", write through"),
        (share.persistent_opens.is_some(), ", persistent opens"),
    ];
    for (_, mark) in marks.into_iter().filter(|(is_so, _)| *is_so) {
        text.push_str(mark);
    }
    let volumes: Vec<&str> = share.volumes.iter().map(|volume| &*volume.name).collect();
    if !volumes.is_empty() {
        text.push_str(&format!(", volumes {}", volumes.join(" ")));
    }
    text.push('\n');
    text
}

// Accounts and shares change; the other settings are read to warn of changes that need a restart.
async fn reload(
    before: &Settings,
    options: &Serve,
    running: &Running,
    volumes: &mut SharedVolumes,
) -> Result<Settings, Failure> {
    let mut now = Settings::gather(options)?;
    let users = users(&now, options)?;
    warn_of_people(&now, &users);
    let next = next_start(&now, options)?;
    let reloaded = running.reload(users, shares(&now, volumes)?).await?;
    warn!(
        accounts_in_config = now.users.len(),
        added = ?reloaded.added,
        removed = ?reloaded.removed,
        sessions_ended = reloaded.sessions_ended,
        "SIGHUP: the config is read again"
    );
    warn_of_guests(&now);
    let kept = now.keep_until_restart(before);
    if !kept.is_empty() {
        warn!("SIGHUP: changed, and in force with the next start: {}", kept.join(", "));
    }
    if !reloaded.unchanged.is_empty() {
        let names = reloaded.unchanged.join(", ");
        warn!(
            "SIGHUP: path, devices, volumes, persistent_opens, residency, flash_budget, flash_region_budget and flash_tier change with the next start: shares {names}"
        );
    }
    if !reloaded.moved.is_empty() {
        let names = reloaded.moved.join(", ");
        warn!(
            "SIGHUP: another directory, or none, is where these shares were opened; they go on with the one that \
             they have until the next start: shares {names}"
        );
    }
    if let Err(failure) = off_thread(move || Server::check(&next)).await? {
        warn!("SIGHUP: the next start will refuse this config: {failure}");
    }
    Ok(now)
}

/// What a start with these settings would serve, volumes of shares left out.
fn next_start(settings: &Settings, options: &Serve) -> Result<ServerConfig, Failure> {
    let shares = settings.shares.iter().map(|share| share_config(share, settings)).collect();
    Ok(ServerConfig { shares, ..server_config(settings, options)? })
}

// A misspelled name excludes a user, or the user is to be added to the users file later.
fn warn_of_people(settings: &Settings, users: &Users) {
    for share in &settings.shares {
        for name in people::strangers(share, |name| users.knows(name)) {
            warn!(share = share.name, name, "a share names somebody who has no account");
        }
    }
}

// The kernel decides discretionary access, and it lets root do everything.
fn warn_of_root() {
    if geteuid().is_root() {
        warn!(
            "served as root: whoever enters a share reads and writes files of any owner in it, guests included where \
             they are let in; --run-as USER serves with that user's rights alone"
        );
    }
}

fn warn_of_loopback(settings: &Settings) {
    let (smb, rdma) = (settings.listen.ip(), settings.rdma_listen.ip());
    if rdma.is_loopback() && !smb.is_loopback() {
        warn!(%rdma, %smb, "other machines reach SMB here, and neither SMB Direct nor push mode: see --rdma-listen");
    }
}

// Warns of properties of a share with guests that an operator may not expect.
fn warn_of_guests(settings: &Settings) {
    for share in settings.shares.iter().filter(|share| share.guests.is_some()) {
        warn!(
            share = share.name,
            "anybody who reaches this server enters, unsigned and in the clear"
        );
        if share.encrypt {
            warn!(
                share = share.name,
                "it requires encryption, which guests have not: none gets in"
            );
        } else if settings.signing == Signing::Always {
            warn!(
                "clients that keep to the specification are no guests of a server that requires signing: \
                 --signing when-asked lets them in"
            );
        }
    }
}

/// The one line that programs wait for.
fn announce(running: &Running, metrics: Option<&Endpoint>) {
    let rdma = running.rdma_address().map(|address| format!(" rdma={address}"));
    let metrics = metrics.map(|endpoint| format!(" metrics={}", endpoint.address()));
    let more = [rdma, metrics].into_iter().flatten().collect::<String>();
    let mut out = std::io::stdout();
    // A parent that closed our output does not need the line.
    let _ = writeln!(out, "listening smb={}{more}", running.tcp_address());
    let _ = out.flush();
}

fn server_config(settings: &Settings, options: &Serve) -> Result<ServerConfig, Failure> {
    let mut push = PushPolicy::default();
    if let Some(grace) = settings.recall_grace {
        push.grace = grace;
    }
    let mut limits = Limits::default();
    if let Some(silence) = settings.keepalive {
        limits.silence_max = Some(silence).filter(|silence| !silence.is_zero());
    }
    Ok(ServerConfig {
        signing: match settings.signing {
            Signing::Always => SigningPolicy::Required,
            Signing::WhenAsked => SigningPolicy::WhenAsked,
        },
        guid: settings.guid,
        rdma_listen: Some(settings.rdma_listen),
        announced: settings.announced.clone(),
        rdma_provider: settings.rdma_provider,
        rdma_same_host: settings.rdma_same_host,
        rdma_threads: usize::from(settings.rdma_threads),
        rdma_polling: options.poll.policy(),
        rdma_capture: options.pcap.clone(),
        users: users(settings, options)?,
        limits,
        push,
        flash_budget: settings.flash_budget,
        ..ServerConfig::new(settings.listen)
    })
}

fn shares(settings: &Settings, volumes: &mut SharedVolumes) -> Result<Vec<ShareConfig>, Failure> {
    let emulates = settings.emulate_persistence;
    let share = |share: &Share| {
        Ok(ShareConfig { shown: volumes.of(share, emulates)?, ..share_config(share, settings) })
    };
    settings.shares.iter().map(share).collect()
}

fn share_config(share: &Share, settings: &Settings) -> ShareConfig {
    ShareConfig {
        read_only: share.read_only,
        encrypt_required: share.encrypt,
        write_through: share.write_through,
        users: share.users.clone(),
        readers: share.readers.clone(),
        guests: match share.guests {
            Some(Guests::Write) => Admission::Full,
            Some(Guests::Read) => Admission::Reading,
            None => Admission::Refused,
        },
        persistent_opens: share.persistent_opens.clone(),
        devices: share.devices.clone(),
        residency: match share.residency {
            Some(config::Residency::Lazy) => tree::Residency::Lazy,
            Some(config::Residency::Eager) => tree::Residency::Eager,
            None => tree::Residency::Automatic,
        },
        flash_budget: share.flash_budget,
        flash_region_budget: share.flash_region_budget,
        flash_tier: share.flash_tier.clone(),
        emulate_persistence: settings.emulate_persistence,
        ..ShareConfig::new(share.name.clone(), share.path.clone())
    }
}

fn users(settings: &Settings, options: &Serve) -> Result<Users, Failure> {
    if let Some(user) = settings.users.iter().find(|user| user.password.is_empty()) {
        let (what, value) = ("the password of user", user.name.clone());
        let why = "an empty one is no password; a variable of the shell may not be set";
        return Err(Failure::ConfigValue { what, value, why });
    }
    let users = settings.users.iter().map(|user| (user.name.as_str(), user.password.as_str()));
    let users = match &settings.users_file {
        Some(path) => Users::in_file(path, users)?,
        None => Users::with_passwords(users),
    };
    // The config file can hold accounts, and a user who can write it can add some.
    let users = match &settings.config {
        Some(path) => users.kept_in(path),
        None => users,
    };
    // Whoever reads the store's key, or writes its metadata and pieces, is past every right of the store.
    let users = crate::store::serve::private(&options.store)
        .into_iter()
        .fold(users, |users, path| users.kept_in(path));
    Ok(match &settings.kerberos {
        Some(kerberos) => users.with_kerberos(&kerberos_config(kerberos))?,
        None => users,
    })
}

fn kerberos_config(settings: &Kerberos) -> KerberosConfig {
    let mut config = KerberosConfig {
        principal: settings.principal.clone(),
        users: settings.users.clone(),
        ..KerberosConfig::new(settings.keytab.clone())
    };
    if let Some(seconds) = settings.clock_skew_s {
        config.clock_skew = Duration::from_secs(seconds);
    }
    config
}
