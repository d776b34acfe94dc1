//! What differs between the file that a member runs by and another one, and what of it can change while the member runs.
//!
//! Each key has its row in [`WAYS`]: a test finds one that has none.

use serde_json::{Map, Value};

use super::group::{GroupFile, MemberEntry};

/// A key with two values.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Difference {
    /// As people name it: `window`, `member beta: mode`, `volume data: size`.
    pub(super) key: String,
    /// What the member runs by.
    pub(super) from: String,
    /// What the file says.
    pub(super) to: String,
    pub(super) way: Way,
}

/// How a member gets another value of a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Way {
    /// While it runs.
    Now,
    /// While it runs, where it is safe that members have different values for a while.
    LeastInSync,
    /// A volume of this number has so many bytes from then on.
    Size { volume: u8, bytes: u64 },
    /// With its next start, because of this.
    Restart(&'static str),
    /// Not at all, because of this.
    Never(&'static str),
}

/// All differences, as far as they matter to the member `me`.
pub(super) fn between(old: &GroupFile, new: &GroupFile, me: u8) -> Vec<Difference> {
    let (before, after) = (values(old), values(new));
    let mut found = Vec::new();
    for (key, way) in WAYS {
        compare(&mut found, key, (before.get(*key), after.get(*key)), *way);
    }
    volumes(&mut found, old, new);
    members(&mut found, old, new, me);
    found
}

fn volumes(found: &mut Vec<Difference>, old: &GroupFile, new: &GroupFile) {
    if old.volumes.len() != new.volumes.len() {
        let count = |file: &GroupFile| file.volumes.len().to_string();
        found.push(Difference {
            key: "volumes".to_owned(),
            from: count(old),
            to: count(new),
            way: Way::Never(FIXED_VOLUMES),
        });
        return;
    }
    for (number, (was, is)) in (0..).zip(old.volumes.iter().zip(&new.volumes)) {
        if was.name != is.name {
            let key = format!("volume {}: name", was.name);
            let (from, to, way) = (was.name.clone(), is.name.clone(), Way::Restart(NAMED));
            found.push(Difference { key, from, to, way });
        }
        if was.size != is.size {
            found.push(Difference {
                key: format!("volume {}: size", is.name),
                from: was.size.text(),
                to: is.size.text(),
                way: Way::Size { volume: number, bytes: is.size.0 },
            });
        }
    }
}

fn members(found: &mut Vec<Difference>, old: &GroupFile, new: &GroupFile, me: u8) {
    let of = |file: &GroupFile, name: &str| -> Option<MemberEntry> {
        file.members.iter().find(|member| member.name == name).cloned()
    };
    let whole = |name: &str, from: &str, to: &str| Difference {
        key: format!("member {name}"),
        from: from.to_owned(),
        to: to.to_owned(),
        way: Way::Restart(MEMBERS),
    };
    for was in &old.members {
        let Some(is) = of(new, &was.name) else {
            found.push(whole(&was.name, "there", "removed"));
            continue;
        };
        let (before, after) = (values(was), values(&is));
        for (key, of_own, of_others) in MEMBER_WAYS {
            let way = if was.number == me { Some(*of_own) } else { *of_others };
            let name = format!("member {}: {key}", was.name);
            if let Some(way) = way {
                compare(found, &name, (before.get(*key), after.get(*key)), way);
            }
        }
    }
    let is_new = |member: &&MemberEntry| of(old, &member.name).is_none();
    found.extend(new.members.iter().filter(is_new).map(|it| whole(&it.name, "not there", "added")));
}

fn compare(
    found: &mut Vec<Difference>,
    key: &str,
    (from, to): (Option<&Value>, Option<&Value>),
    way: Way,
) {
    let (from, to) = (from.unwrap_or(&Value::Null), to.unwrap_or(&Value::Null));
    if from != to {
        let (key, from, to) = (key.to_owned(), shown(from), shown(to));
        found.push(Difference { key, from, to, way });
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(all) if all.is_empty() => "none".to_owned(),
        other => other.to_string(),
    }
}

fn values(of: &impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(of) {
        Ok(Value::Object(values)) => values,
        _ => Map::new(),
    }
}

const AT_START: Way = Way::Restart("it is read when a member starts");
const NAMED: &str =
    "its name is what clients ask for, as they have it since this member has started";
const FIXED_VOLUMES: &str = "records name volumes by their place in the file: make a group with the others, and copy what they hold";
const MEMBERS: &str = "a member makes its links, and room for what others lack, when it starts: every member gets the \
    new file and is started again, the destinations first";

/// All keys of a group but volumes and members.
const WAYS: &[(&str, Way)] = &[
    ("name", Way::Restart("figures and units have it since this member has started")),
    ("id", Way::Never("that is the file of another group")),
    (
        "log_size",
        Way::Never(
            "a log keeps the size with which it was made: all members are ended, and each but one with everything is made \
             anew with `prepare --overwrite`, and copied",
        ),
    ),
    ("secret_file", AT_START),
    ("least_in_sync", Way::LeastInSync),
    ("silence_ms", Way::Now),
    (
        "read_lease_ms",
        Way::Restart(
            "a member remembers its promises by this time: end all members, then start all with the new one",
        ),
    ),
    ("window", Way::Now),
    ("retention_s", Way::Now),
    ("congestion", Way::Now),
    ("compression", Way::Now),
    ("rpo_ms", Way::Now),
    ("rpo_throttle", Way::Now),
    ("transport", Way::Restart("the engine of RDMA is opened when a member starts")),
    ("links_are_private", AT_START),
    (
        "seal_records",
        Way::Restart(
            "an epoch is sealed or not, and a member begins one as the source when it starts",
        ),
    ),
    ("rdma_provider", Way::Restart("the engine of RDMA is opened when a member starts")),
    ("bandwidth", Way::Now),
    (
        "connections",
        Way::Restart("a source makes its links with as many as its file had when it started"),
    ),
    ("witness_file", Way::Restart("who records who is the source is asked when a member starts")),
    ("etcd", Way::Restart("who records who is the source is asked when a member starts")),
    (
        "unit",
        Way::Restart("units are started and stopped by the promoter, which begins with the member"),
    ),
    ("removed", Way::Now),
];

/// All keys of a member: what they are to itself, and to the others, where they matter to these.
const MEMBER_WAYS: &[(&str, Way, Option<Way>)] = &[
    ("number", NUMBER, Some(NUMBER)),
    (
        "addresses",
        Way::Restart(
            "it listens at the first of them, unless `listen` says where, since it has started",
        ),
        Some(Way::Restart("links are made to where it was when this member started")),
    ),
    ("listen", Way::Restart("it listens since it has started"), None),
    ("from", AT_START, None),
    ("rdma", AT_START, Some(AT_START)),
    ("directory", Way::Restart("its log is open; move the directory while it does not run"), None),
    ("mode", Way::Now, Some(Way::Now)),
    ("volumes", Way::Restart("its volumes are open; move them while it does not run"), None),
];
const NUMBER: Way =
    Way::Never("logs and maps know members by their numbers, which they keep for good");

#[cfg(test)]
mod tests {
    use super::super::group::{Compression, Size, tests::file};
    use super::*;

    #[test]
    fn every_key_of_a_file_has_its_way() {
        let mut file = file();
        // What is not written where it is not there.
        file.bandwidth = Some(Size(1 << 20));
        file.connections = 2;
        file.removed = vec![3];
        file.units = vec![super::super::group::UnitEntry {
            systemd: Some("x".to_owned()),
            start: Vec::new(),
            stop: Vec::new(),
        }];
        file.members[0].volumes = vec!["x".into()];
        let known = |key: &String| {
            WAYS.iter().any(|(of, _)| of == key) || ["volume", "member"].contains(&key.as_str())
        };
        let unknown: Vec<String> = values(&file).keys().filter(|it| !known(it)).cloned().collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        let known = |key: &String| MEMBER_WAYS.iter().any(|(of, ..)| of == key) || key == "name";
        let of = values(&file.members[0]);
        let unknown: Vec<String> = of.keys().filter(|it| !known(it)).cloned().collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn differences_are_named_with_both_values() {
        let old = file();
        let mut new = old.clone();
        new.window = Size(32 << 20);
        new.compression = Compression::Lz4;
        new.members[1].mode = super::super::group::EntryMode::Async;
        // What another keeps on its machine does not matter here.
        new.members[1].directory = "/elsewhere".into();
        new.volumes[0].size = Size(2 << 30);
        let found = between(&old, &new, 0);
        let said: Vec<String> =
            found.iter().map(|it| format!("{} {} {}", it.key, it.from, it.to)).collect();
        let wanted = [
            "window 16M 32M",
            "compression none lz4",
            "volume data: size 1G 2G",
            "member beta: mode sync async",
        ];
        assert_eq!(said, wanted);
        assert_eq!(between(&old, &new, 1).len(), 5);
        assert!(between(&old, &old, 0).is_empty());
    }

    #[test]
    fn a_file_of_another_group_or_with_other_members_is_told() {
        let old = file();
        let mut new = old.clone();
        new.id = "ff112233445566778899aabbccddeeff".to_owned();
        new.members.pop();
        let found = between(&old, &new, 0);
        assert!(matches!(found[0].way, Way::Never(_)), "{found:?}");
        assert_eq!(found[1].key, "member beta");
        assert!(matches!(found[1].way, Way::Restart(_)), "{found:?}");
    }
}
