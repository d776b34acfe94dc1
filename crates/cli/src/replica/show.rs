//! What a member says, as JSON and as text. States and fields are named as Storage Replica names them where it has them.

use std::fmt::Write as _;

use replica::core::{MemberState, Mode};
use replica::runtime::{Noted, Report, Way};
use replica::view::{Available, Mark, Utc};
use replica::{MemberId, MemberSet};
use serde_json::{Value, json};

use super::group::Group;
use crate::output;

/// The state of a member as JSON.
pub(super) fn report(group: &Group, me: &str, report: &Report, views: &[u64]) -> Value {
    let status = &report.status;
    let names = names_of(group, status.in_sync);
    let replicas: Vec<Value> = status
        .others
        .iter()
        .map(|(member, state)| replica(group, report, *member, state))
        .collect();
    let sizes = group.file.volumes.iter().zip(&report.sizes);
    let volumes: Vec<Value> =
        sizes.map(|(entry, bytes)| json!({"name": entry.name, "bytes": bytes})).collect();
    json!({
        "group": group.file.name,
        "id": group.id.to_string(),
        "member": me,
        "role": role(report),
        "state": own_state(report),
        "epoch": status.epoch.to_string(),
        "in_sync": names,
        "is_consistent": status.is_consistent,
        "follows": status.follows.map(|member| group.name_of(member)),
        "is_promoting": status.is_promoting,
        "reads_wait_for": names_of(group, status.reads_wait_for),
        "waits_for": names_of(group, status.waits_for),
        "log": {
            "bytes": status.capacity,
            "start_lsn": status.start.0,
            "end_lsn": status.end.0,
            "durable_lsn": status.durable.0,
            "committed_lsn": status.committed.0,
            "applied_lsn": status.applied.0,
        },
        "volumes": volumes,
        "verified": report.verified,
        "differences": report.differences,
        "views": views,
        "replicas": replicas,
    })
}

fn names_of(group: &Group, members: MemberSet) -> Vec<String> {
    members.iter().map(|member| group.name_of(member)).collect()
}

fn role(report: &Report) -> &'static str {
    if report.status.is_source { "source" } else { "destination" }
}

fn own_state(report: &Report) -> &'static str {
    let status = &report.status;
    match () {
        () if status.has_failed => "StorageFailed",
        () if status.is_source && status.is_ready => "Serving",
        () if status.is_source => "Recovering",
        () if status.is_promoting => "Promoting",
        () if !status.is_consistent => "InitialBlockCopy",
        () if status.follows.is_some() => "ContinuouslyReplicating",
        () => "WaitingForSource",
    }
}

fn replica(group: &Group, report: &Report, member: MemberId, state: &MemberState) -> Value {
    let status = &report.status;
    let mode = report.modes.iter().find(|(of, _)| *of == member).map(|(_, mode)| *mode);
    // Of what is older than all records nobody knows the age.
    let rpo_ms = match state.lacks_since_ns {
        None => Some(0),
        Some(0) => None,
        Some(since) => Some(report.time_ns.saturating_sub(since) / 1_000_000),
    };
    let in_rpo = group.file.rpo_ms.is_none_or(|limit| rpo_ms.is_some_and(|rpo| rpo <= limit));
    let shown = match () {
        () if state.is_suspended => "Suspended",
        () if !state.is_connected => "WaitingForDestination",
        () if state.is_copying => "InitialBlockCopy",
        () if mode == Some(Mode::Async) && in_rpo => "ContinuouslyReplicating_InRPO",
        () if mode == Some(Mode::Async) => "ContinuouslyReplicating_NotInRPO",
        () if status.in_sync.contains(member) => "ContinuouslyReplicating",
        () => "CatchingUp",
    };
    let failure = report.failures.iter().find(|(of, _)| *of == member).map(|(_, why)| why);
    let way = report.ways.iter().find(|(of, _)| *of == member).map(|(_, way)| way);
    let (transport, why) = match way {
        Some(Way::OneSided(provider)) => (format!("rdma ({provider})"), None),
        Some(Way::Messages(why)) => ("tcp".to_owned(), why.as_ref()),
        None => ("tcp".to_owned(), None),
    };
    json!({
        "name": group.name_of(member),
        "state": shown,
        "mode": mode.map(|mode| match mode {
            Mode::Sync => "sync",
            Mode::SemiSync => "semi-sync",
            Mode::Async => "async",
        }),
        "in_sync": status.in_sync.contains(member),
        "durable_lsn": state.durable.0,
        "applied_lsn": state.applied.0,
        "log_bytes_remaining": status.end.0.saturating_sub(state.durable.0),
        "bytes_remaining": state.lacks,
        "rpo_ms": rpo_ms,
        "failure": failure,
        "connections": report.connections.iter().find(|(of, _)| *of == member).map(|(_, it)| it),
        "transport": transport,
        "transport_failure": why,
    })
}

/// An event as JSON.
pub(super) fn event(noted: &Noted, _name: &dyn Fn(MemberId) -> String) -> Value {
    json!({
        "number": noted.number,
        "event": noted.news.number(),
        "time": Utc(noted.time_ns).to_string(),
        "text": noted.news.to_string(),
    })
}

/// The points of views as JSON.
pub(super) fn points_of(available: &Available, marks: &[Mark]) -> Value {
    let marks: Vec<Value> = marks
        .iter()
        .map(|mark| {
            json!({
                "name": mark.name,
                "lsn": mark.at.0,
                "time": Utc(mark.time_ns).to_string(),
                "is_past": mark.is_past,
            })
        })
        .collect();
    json!({"available": available.to_string(), "marks": marks})
}

/// The state of a member as text.
pub(super) fn status(group: &Group, answer: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let log = &answer["log"];
    let (start, end) = (number(&log["start_lsn"]), number(&log["end_lsn"]));
    let names: Vec<String> = answer["in_sync"].as_array().into_iter().flatten().map(text).collect();
    let mut out = format!(
        "{}, member {}: {}, {}, {}\nin sync: {}\nlog: {} of {} bytes; LSN {start} to {end}, committed {}, applied {}\n",
        text(&answer["group"]),
        text(&answer["member"]),
        text(&answer["role"]),
        text(&answer["state"]),
        text(&answer["epoch"]),
        if names.is_empty() {
            "nobody, as far as this member knows".to_owned()
        } else {
            names.join(", ")
        },
        end - start,
        log["bytes"],
        log["committed_lsn"],
        log["applied_lsn"],
    );
    if let Some(source) = answer["follows"].as_str() {
        let _ = writeln!(out, "follows {source}");
    }
    let waits = |key: &str| -> Vec<String> {
        answer[key].as_array().into_iter().flatten().map(text).collect()
    };
    for member in waits("waits_for") {
        let _ = writeln!(
            out,
            "waits until {member} is heard of, which may be the source by now: start it, or `go-on-without` it"
        );
    }
    let waits = waits("reads_wait_for");
    if !waits.is_empty() {
        let _ = writeln!(out, "reads wait for the word of {}", waits.join(", "));
    }
    if number(&answer["verified"]) > 0 {
        let _ = writeln!(
            out,
            "verified: {} ranges, {} differed",
            answer["verified"], answer["differences"]
        );
    }
    if let Some(views) = answer["views"].as_array().filter(|views| !views.is_empty()) {
        let views: Vec<String> = views.iter().map(ToString::to_string).collect();
        let _ = writeln!(out, "views: {}", views.join(", "));
    }
    replicas(&mut out, group, answer);
    out
}

/// What a source says of the others.
fn replicas(out: &mut String, group: &Group, answer: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let replicas = answer["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
    if replicas.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "{:<16} {:<33} {:<9} {:>14} {:>14} {:>9}",
        "member", "state", "mode", "log to send", "to copy", "RPO ms"
    );
    for replica in replicas {
        let _ = writeln!(
            out,
            "{:<16} {:<33} {:<9} {:>14} {:>14} {:>9}",
            text(&replica["name"]),
            text(&replica["state"]),
            text(&replica["mode"]),
            number(&replica["log_bytes_remaining"]),
            number(&replica["bytes_remaining"]),
            replica["rpo_ms"].as_u64().map_or_else(|| "unknown".to_owned(), |ms| ms.to_string()),
        );
        if let Some(failure) = replica["failure"].as_str() {
            let _ = writeln!(out, "  not reached: {failure}");
        }
        if let Some(count) = replica["connections"].as_u64()
            && group.file.connections > 1
        {
            let _ = writeln!(out, "  {count} of {} connections", group.file.connections);
        }
        if let Some(failure) = replica["transport_failure"].as_str() {
            let _ = writeln!(out, "  by TCP, not by RDMA: {failure}");
        } else if let Some(rdma) = replica["transport"].as_str().filter(|it| *it != "tcp") {
            let _ = writeln!(out, "  by {rdma}");
        }
    }
}

/// Events as text.
pub(super) fn events(answer: &Value) -> String {
    let mut out = String::new();
    for event in answer.as_array().into_iter().flatten() {
        let _ = writeln!(
            out,
            "{:>5} {} {} {}",
            event["number"],
            event["time"].as_str().unwrap_or_default(),
            event["event"],
            event["text"].as_str().unwrap_or_default()
        );
    }
    out
}

/// What came of a file's differences, as text.
pub(super) fn changes(answer: &Value) -> String {
    let mut out = String::new();
    let member = output::shown(answer["member"].as_str().unwrap_or_default()).into_owned();
    for change in answer["changes"].as_array().into_iter().flatten() {
        let text = |key: &str| output::shown(change[key].as_str().unwrap_or_default()).into_owned();
        let (outcome, why) = (text("outcome"), text("why"));
        let became = match &*outcome {
            "changed" => "in force now".to_owned(),
            "would-change" => "would be in force at once".to_owned(),
            "restart" => format!("with the next start of the member: {why}"),
            _ => format!("not changed: {why}"),
        };
        let _ = writeln!(out, "{}: {} -> {}, {became}", text("key"), text("from"), text("to"));
    }
    if out.is_empty() {
        let _ = writeln!(out, "member {member} runs by this file: nothing differs");
    }
    out
}

/// Points as text.
pub(super) fn points(answer: &Value) -> String {
    let mut out = format!("any point from {}\n", answer["available"].as_str().unwrap_or_default());
    for mark in answer["marks"].as_array().into_iter().flatten() {
        let _ = writeln!(
            out,
            "mark {} at LSN {}, {}{}",
            output::shown(mark["name"].as_str().unwrap_or_default()),
            mark["lsn"],
            mark["time"].as_str().unwrap_or_default(),
            if mark["is_past"] == true { ": past, the volumes are beyond it" } else { "" }
        );
    }
    out
}

/// A view as text.
pub(super) fn view(group: &Group, answer: &Value) -> String {
    let mut out = format!("view {} at LSN {}\n", answer["view"], answer["lsn"]);
    if let Some(socket) = answer["socket"].as_str() {
        for volume in &group.file.volumes {
            let _ = writeln!(out, "nbd+unix:///{}?socket={socket}", volume.name);
        }
    }
    for key in ["files", "loops"] {
        for path in answer[key].as_array().into_iter().flatten() {
            let _ = writeln!(out, "{}", path.as_str().unwrap_or_default());
        }
    }
    out
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}
