//! The figures of a member of a group of replicated volumes.

use replica::runtime::Report;

use super::{Family, count};

/// What `report` says of a member; `name_of` names the others.
pub(crate) fn of_member(
    group: &str,
    report: &Report,
    name_of: impl Fn(replica::MemberId) -> String,
) -> Vec<Family> {
    let status = &report.status;
    let own = [("group", group)];
    let own = &own[..];
    let truth = |is_so: bool| f64::from(u8::from(is_so));
    let mut families: Vec<Family> = [
        ("landfast_replica_is_source", "1 at the source", truth(status.is_source)),
        ("landfast_replica_is_ready", "1 while writes are answered here", truth(status.is_ready)),
        (
            "landfast_replica_is_consistent",
            "1 while the volumes are a copy at one moment",
            truth(status.is_consistent),
        ),
        (
            "landfast_replica_has_failed",
            "1 once storage of this member has failed",
            truth(status.has_failed),
        ),
        (
            "landfast_replica_in_sync_members",
            "Members in sync as far as this one knows, itself included",
            count(status.in_sync.iter().count()),
        ),
        ("landfast_replica_log_bytes", "Bytes of the log", count(status.capacity)),
        (
            "landfast_replica_log_used_bytes",
            "Bytes of the log that are not free yet",
            count(status.end.since(status.start)),
        ),
        ("landfast_replica_views", "Views that are open", count(report.views)),
    ]
    .map(|(name, help, value)| Family::gauge(name, help).with(own, value))
    .into();
    let lsns = [
        ("start", status.start),
        ("end", status.end),
        ("durable", status.durable),
        ("committed", status.committed),
        ("applied", status.applied),
    ];
    let family = Family::gauge("landfast_replica_lsn", "Positions in the order of records");
    families.push(lsns.iter().fold(family, |family, (at, lsn)| {
        family.with(&[("group", group), ("at", at)], count(lsn.0))
    }));
    families.extend(
        [
            (
                "landfast_replica_verified",
                "Ranges compared with what their source had",
                report.verified,
            ),
            ("landfast_replica_differences", "Ranges compared that differed", report.differences),
        ]
        .map(|(name, help, value)| Family::counter(name, help).with(own, count(value))),
    );
    families.extend(of_others(group, report, name_of));
    families
}

/// At a source: what the others lack.
fn of_others(
    group: &str,
    report: &Report,
    name_of: impl Fn(replica::MemberId) -> String,
) -> Vec<Family> {
    let status = &report.status;
    let mut families = [
        Family::gauge("landfast_replica_member_is_connected", "1 while the member follows"),
        Family::gauge("landfast_replica_member_is_in_sync", "1 while the member is in sync"),
        Family::gauge(
            "landfast_replica_member_log_remaining_bytes",
            "Bytes of the log that the member has not made durable",
        ),
        Family::gauge(
            "landfast_replica_member_remaining_bytes",
            "Bytes of volumes that are to be copied to the member",
        ),
        Family::gauge(
            "landfast_replica_member_rpo_seconds",
            "Age of the oldest write that the member lacks; absent where nobody knows",
        ),
        Family::gauge(
            "landfast_replica_member_connections",
            "Connections of the link to the member that stand",
        ),
    ];
    for (member, state) in &status.others {
        let name = name_of(*member);
        let labels = [("group", group), ("member", &*name)];
        // Of what is older than all records nobody knows the age.
        let rpo = match state.lacks_since_ns {
            None => Some(0.0),
            Some(0) => None,
            Some(since) => Some(count(report.time_ns.saturating_sub(since)) / 1e9),
        };
        let stand = report.connections.iter().find(|(of, _)| of == member);
        let connections = stand.map_or(0, |(_, count)| u64::try_from(*count).unwrap_or(u64::MAX));
        let values = [
            Some(f64::from(u8::from(state.is_connected))),
            Some(f64::from(u8::from(status.in_sync.contains(*member)))),
            Some(count(status.end.since(state.durable.min(status.end)))),
            Some(count(state.lacks)),
            rpo,
            Some(count(connections)),
        ];
        for (family, value) in families.iter_mut().zip(values) {
            if let Some(value) = value {
                let empty = Family::gauge(family.name, family.help);
                *family = std::mem::replace(family, empty).with(&labels, value);
            }
        }
    }
    families.into_iter().filter(|family| !family.samples.is_empty()).collect()
}
