//! `landfast serve`: start, say where, serve until told to stop.

use std::io::Write as _;
use std::time::Duration;

use server::share::Admission;
use server::{KerberosConfig, PushPolicy, Server, ServerConfig, ShareConfig, SigningPolicy, Users};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use crate::args::{Serve, Signing};
use crate::config::{Guests, Kerberos, Settings, Share};
use crate::control::Control;
use crate::failure::Failure;

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(options: &Serve) -> Result<(), Failure> {
    let settings = Settings::gather(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::system("cannot start the runtime"))?;
    runtime.block_on(serve(&settings, options))
}

async fn serve(settings: &Settings, options: &Serve) -> Result<(), Failure> {
    let failed = Failure::system("cannot listen for signals");
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let running = Server::start(server_config(settings, options)?).await?;
    warn_of_guests(settings);
    let port = running.tcp_address().port();
    let _control = Control::open(&settings.control, port, running.observer())?;
    announce(&running);
    tokio::select! {
        _ = terminate.recv() => info!("SIGTERM: stopping"),
        _ = tokio::signal::ctrl_c() => info!("SIGINT: stopping"),
    }
    running.shutdown().await;
    Ok(())
}

// What an operator may not expect of a share that takes guests.
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
fn announce(running: &server::Running) {
    let rdma = running.rdma_address().map(|address| format!(" rdma={address}"));
    let mut out = std::io::stdout();
    // Whoever closed our output does not want to know.
    let _ = writeln!(out, "listening smb={}{}", running.tcp_address(), rdma.unwrap_or_default());
    let _ = out.flush();
}

fn server_config(settings: &Settings, options: &Serve) -> Result<ServerConfig, Failure> {
    let mut push = PushPolicy::default();
    if let Some(grace) = settings.recall_grace {
        push.grace = grace;
    }
    let share = |share: &Share| ShareConfig {
        read_only: share.read_only,
        encrypt_required: share.encrypt,
        users: share.users.clone(),
        readers: share.readers.clone(),
        guests: match share.guests {
            Some(Guests::Write) => Admission::Full,
            Some(Guests::Read) => Admission::Reading,
            None => Admission::Refused,
        },
        persistent_opens: share.persistent_opens.clone(),
        devices: share.devices.clone(),
        emulate_persistence: settings.emulate_persistence,
        ..ShareConfig::new(share.name.clone(), share.path.clone())
    };
    let users = settings.users.iter().map(|user| (user.name.as_str(), user.password.as_str()));
    let users = match &settings.users_file {
        Some(path) => Users::in_file(path, users)?,
        None => Users::with_passwords(users),
    };
    let users = match &settings.kerberos {
        Some(kerberos) => users.with_kerberos(&kerberos_config(kerberos))?,
        None => users,
    };
    Ok(ServerConfig {
        signing: match settings.signing {
            Signing::Always => SigningPolicy::Required,
            Signing::WhenAsked => SigningPolicy::WhenAsked,
        },
        rdma_listen: Some(settings.rdma_listen),
        announced: settings.announced.clone(),
        rdma_provider: settings.rdma_provider,
        rdma_threads: usize::from(settings.rdma_threads),
        rdma_polling: options.poll.policy(),
        rdma_capture: options.pcap.clone(),
        shares: settings.shares.iter().map(share).collect(),
        users,
        push,
        ..ServerConfig::new(settings.listen)
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
