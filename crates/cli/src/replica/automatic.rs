//! A group whose source etcd records, and whose members become the source by themselves.

use std::sync::{Arc, Weak};
use std::time::Duration;

use replica::MemberId;
use replica::core::Wish;
use replica::runtime::Member;
use replica::witness::automatic::{Automatic, Promoted};
use replica::witness::etcd::{Etcd, EtcdOptions, EtcdTls};
use replica::witness::promoter::{Decision, PromoterConfig, Standing};
use replica::witness::units::{Unit, Units};

use super::ReplicaFailure;
use super::group::{EtcdEntry, Group, MemberEntry, UnitEntry};

/// The etcd of a group, if it has one.
pub(super) fn etcd(group: &Group, entry: &MemberEntry) -> Result<Option<Etcd>, ReplicaFailure> {
    let Some(written) = &group.file.etcd else { return Ok(None) };
    let read = |path: &std::path::Path| {
        let path = group.resolved(path);
        std::fs::read(&path).map_err(|source| ReplicaFailure::File { path, source })
    };
    let me = Some(MemberId(entry.number));
    let mut options = EtcdOptions::new(group.id, me, written.endpoints.clone());
    options.lease = Duration::from_secs(written.lease_s);
    if let Some(user) = &written.user {
        let bytes = written.password_file.as_deref().map(read).transpose()?.unwrap_or_default();
        let password = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        options.user = Some((user.clone(), password));
    }
    if let Some(path) = &written.authority_file {
        options.tls = Some(EtcdTls { authority: read(path)?, identity: None });
    }
    Ok(Some(Etcd::open(options)?))
}

/// Begins to promote a member by itself, if the group wants that.
pub(super) fn start(
    group: &Group,
    entry: &MemberEntry,
    etcd: Option<Arc<Etcd>>,
    member: &Arc<Member>,
) -> Result<Option<Automatic>, ReplicaFailure> {
    let (Some(etcd), Some(written)) = (etcd, &group.file.etcd) else { return Ok(None) };
    if !written.automatic {
        return Ok(None);
    }
    let config = config(group, entry, written);
    let units = group.file.units.iter().map(unit).collect();
    let units = Units::new(group.file.name.clone(), units);
    let part = Part(Arc::downgrade(member));
    Automatic::start(etcd, config, units, part).map(Some).map_err(ReplicaFailure::Promoter)
}

fn config(group: &Group, entry: &MemberEntry, written: &EtcdEntry) -> PromoterConfig {
    let number = |name: &String| group.member(name).ok().map(|member| MemberId(member.number));
    PromoterConfig {
        patience_ns: written.patience_ms.saturating_mul(1_000_000),
        preference: written.preference.iter().filter_map(number).collect(),
        fails_back_ns: written.fails_back_s.map(|seconds| seconds.saturating_mul(1_000_000_000)),
        ..PromoterConfig::new(MemberId(entry.number))
    }
}

fn unit(entry: &UnitEntry) -> Unit {
    match &entry.systemd {
        Some(name) => Unit::Systemd { name: name.clone() },
        None => Unit::Command {
            name: entry.start.join(" "),
            start: entry.start.clone(),
            stop: entry.stop.clone(),
        },
    }
}

/// The member, as its promoter sees it.
struct Part(Weak<Member>);

impl Promoted for Part {
    fn standing(&self) -> Standing {
        let member = self.0.upgrade();
        member.map(|member| Standing::of(&member.report().status)).unwrap_or_default()
    }

    fn carry_out(&mut self, decision: Decision) {
        let Some(member) = self.0.upgrade() else { return };
        let nonce = || {
            let nonce = member.nonce();
            nonce.inspect_err(|error| tracing::error!(%error, "no random numbers")).ok()
        };
        let wish = match decision {
            Decision::Promote { above } => nonce().map(|nonce| Wish::Promote {
                nonce,
                above,
                was_in_sync: false,
                by_force: false,
            }),
            Decision::Demote => Some(Wish::Demote),
            Decision::HandOver { to } => nonce().map(|nonce| Wish::Reverse { to, nonce }),
            Decision::StartUnits | Decision::StopUnits => None,
        };
        if let Some(wish) = wish {
            member.want(wish);
        }
    }
}
