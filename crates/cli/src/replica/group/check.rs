//! What a group's file may say.

use replica::wire::CONNECTIONS_MAX;

use super::{GroupFile, Size, Transport};

impl GroupFile {
    /// What cannot be.
    pub(super) fn check(&self) -> Result<(), String> {
        let geometry = replica::format::Geometry::new(self.log_size.0, 1);
        if !geometry.is_sound() {
            return Err(format!(
                "log_size: {} is no multiple of 4096, or too small",
                self.log_size.text()
            ));
        }
        if self.log_size.0 < LOG_LEAST {
            return Err(format!("log_size: {} at least", Size(LOG_LEAST).text()));
        }
        if self.volumes.is_empty() || self.volumes.len() > usize::from(replica::format::VOLUMES_MAX)
        {
            return Err(format!("volume: 1 to {} are possible", replica::format::VOLUMES_MAX));
        }
        if self.members.is_empty() || self.members.len() > usize::from(replica::MEMBERS_MAX) {
            return Err(format!("member: 1 to {} are possible", replica::MEMBERS_MAX));
        }
        for volume in &self.volumes {
            let size = volume.size.0;
            if size == 0 || !size.is_multiple_of(4096) || size > replica::format::VOLUME_LEN_MAX {
                return Err(format!("volume {}: the size must be a multiple of 4096", volume.name));
            }
        }
        check_names("group", std::iter::once(&*self.name))?;
        let names = self.volumes.iter().map(|volume| &*volume.name);
        check_names("volume", names)?;
        check_names("member", self.members.iter().map(|member| &*member.name))?;
        self.check_members()?;
        let count = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        if self.least_in_sync == 0 || self.least_in_sync > count {
            return Err(format!("least_in_sync: 1 to {count} are possible"));
        }
        self.check_times()?;
        if self.witness_file.is_some() && self.etcd.is_some() {
            return Err("witness_file and etcd: one of them".to_owned());
        }
        if !self.units.is_empty() && self.etcd.as_ref().is_none_or(|etcd| !etcd.automatic) {
            return Err("unit: units are started where etcd says `automatic = true`".to_owned());
        }
        for unit in &self.units {
            let is_command = !unit.start.is_empty() && !unit.stop.is_empty();
            if unit.systemd.is_some() == is_command {
                return Err("unit: either `systemd`, or `start` and `stop`".to_owned());
            }
        }
        for name in self.etcd.iter().flat_map(|etcd| &etcd.preference) {
            if !self.members.iter().any(|member| member.name == *name) {
                return Err(format!("etcd: preference: there is no member {name}"));
            }
        }
        self.check_links()?;
        if self.window.0 < u64::from(replica::format::PAYLOAD_MAX) {
            return Err("window: 1M at least".to_owned());
        }
        Ok(())
    }

    fn check_members(&self) -> Result<(), String> {
        let mut numbers: Vec<u8> = self.members.iter().map(|member| member.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.len() != self.members.len() {
            return Err("member: two have one number".to_owned());
        }
        if let Some(number) = numbers.iter().find(|number| **number >= replica::MEMBERS_MAX) {
            return Err(format!(
                "member: numbers are below {}, not {number}",
                replica::MEMBERS_MAX
            ));
        }
        for member in &self.members {
            let path = member.control();
            if path.as_os_str().len() > SOCKET_PATH_MAX {
                return Err(format!(
                    "member {}: {} is longer than the {SOCKET_PATH_MAX} bytes that the name of a socket may have: take a shorter directory",
                    member.name,
                    path.display()
                ));
            }
        }
        if let Some(number) = self.removed.iter().find(|number| **number >= replica::MEMBERS_MAX) {
            return Err(format!("removed: no member had the number {number}"));
        }
        Ok(())
    }

    fn check_times(&self) -> Result<(), String> {
        if self.silence_ms < SILENCE_LEAST_MS {
            return Err(format!("silence_ms: {SILENCE_LEAST_MS} at least"));
        }
        if self.read_lease_ms != 0 && !READ_LEASE_MS.contains(&self.read_lease_ms) {
            return Err(format!(
                "read_lease_ms: {} to {}, or 0: a source that is cut off lets old bytes be read then",
                READ_LEASE_MS.start(),
                READ_LEASE_MS.end()
            ));
        }
        Ok(())
    }

    fn check_links(&self) -> Result<(), String> {
        if self.transport == Transport::Rdma && !self.links_are_private && !self.seal_records {
            return Err("transport: what goes by RDMA is not encrypted, and who sees it can write to the logs: where \
                 nobody but the members reaches the links, say `links_are_private = true`; elsewhere `seal_records = true`, \
                 with which nobody reads or forges a record"
                .to_owned());
        }
        if self.transport == Transport::Rdma && self.bandwidth.is_some() {
            return Err("bandwidth: a cap is kept by TCP alone, not by RDMA".to_owned());
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return Err(format!("connections: 1 to {CONNECTIONS_MAX} are possible"));
        }
        if self.transport == Transport::Rdma && self.connections > 1 {
            return Err("connections: records that go by RDMA have one connection; several are of `transport = \"tcp\"`".to_owned());
        }
        if self.bandwidth.is_some_and(|bandwidth| bandwidth.0 < BANDWIDTH_LEAST) {
            return Err(format!("bandwidth: {} at least", Size(BANDWIDTH_LEAST).text()));
        }
        Ok(())
    }
}

fn check_names<'n>(what: &str, names: impl Iterator<Item = &'n str>) -> Result<(), String> {
    let mut seen = Vec::new();
    for name in names {
        let is_sign = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
        if name.is_empty() || name.starts_with('.') || name.len() > 64 || !name.chars().all(is_sign)
        {
            return Err(format!("{what} {name:?}: 1 to 64 letters, digits, `-`, `_` and `.`"));
        }
        if seen.contains(&name) {
            return Err(format!("{what} {name}: two have this name"));
        }
        seen.push(name);
    }
    Ok(())
}

/// Bytes of the path of a unix socket at most.
const SOCKET_PATH_MAX: usize = 107;
/// Two of the longest records have room, wherever they begin.
const LOG_LEAST: u64 = 4 << 20;
/// With less, a record of the greatest length would take longer than members wait for each other.
const BANDWIDTH_LEAST: u64 = 1 << 20;
/// Members say something every half second.
const SILENCE_LEAST_MS: u64 = 1_500;
/// A promise is asked for anew in a quarter of it; a promotion waits for all of it.
const READ_LEASE_MS: std::ops::RangeInclusive<u64> = 400..=60_000;
