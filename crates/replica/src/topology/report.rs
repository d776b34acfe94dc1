//! All that was measured and estimated, as JSON.

use serde::Serialize;

use super::disk::DiskRates;
use super::estimate::{Estimates, Wanted};
use super::probe::LinkRates;

/// All that was measured and estimated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// When, in seconds since 1970.
    pub time_s: u64,
    /// The end that measured.
    pub source: String,
    /// The other end.
    pub destination: String,
    /// Over links between them.
    pub link: LinkRates,
    /// Where the log would lie, at the end that measured.
    pub log: DiskRates,
    /// Where the volumes would lie.
    pub data: DiskRates,
    /// What is wanted.
    pub wanted: Wanted,
    /// What that will cost.
    pub estimates: Estimates,
}

impl Report {
    /// The report as JSON.
    ///
    /// # Errors
    ///
    /// A directory has a name that is no UTF-8.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::super::{answer, measure_disk, measure_links};
    use super::*;
    use crate::names::{GroupId, MemberId, MemberSet};
    use crate::wire::{Identity, Link, LinkOptions, Listener, dial};

    #[test]
    fn what_is_measured_over_a_link_becomes_json_and_a_page() {
        let of = |me| {
            let (group, members) = (GroupId([9; 16]), MemberSet(0b11));
            Identity::from_secret(group, MemberId(me), members, b"a secret of many bytes").unwrap()
        };
        let (ends, ended) = mpsc::channel();
        let on_link = move |_, link: Link| ends.send(answer(link)).unwrap();
        let options = LinkOptions::default();
        let listening = Listener::bind("127.0.0.1:0").unwrap();
        let listening = listening.run(of(1), options.clone(), on_link).unwrap();
        let address = listening.local_addr().to_string();
        let open = || dial(&[&address], &of(0), MemberId(1), &options);
        let link = measure_links(open, &[1, 3], Duration::from_millis(50)).unwrap();
        // Each of the five links was ended by this end's word.
        for _ in 0..4 + 1 {
            ended.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
        }
        assert!(link.round_trip.count > 0 && link.round_trip.p50_us > 0.0);
        let streams: Vec<_> = link.streams.iter().map(|it| it.streams).collect();
        assert_eq!(streams, [1, 3]);
        assert!(link.streams.iter().all(|it| it.bytes_per_second > 0.0));
        let directory = tempfile::tempdir().unwrap();
        let disk = measure_disk(directory.path(), 1 << 20, Duration::from_secs(1)).unwrap();
        let wanted = Wanted { volume_bytes: 1 << 40, writes_per_second: None, outage_s: 60 };
        let report = Report {
            time_s: 1_764_115_200,
            source: "here".to_owned(),
            destination: "<script>alert(\"there\" & 'now')</script>".to_owned(),
            estimates: Estimates::new(&link, &disk, &disk, &wanted),
            log: disk.clone(),
            data: disk,
            link,
            wanted,
        };
        let json: serde_json::Value = serde_json::from_str(&report.to_json().unwrap()).unwrap();
        assert_eq!(json["link"]["streams"][1]["streams"], 3);
        assert_eq!(json["wanted"]["volume_bytes"], 1_u64 << 40);
        assert!(json["estimates"]["log_bytes"].as_u64().unwrap().is_power_of_two());
        let page = report.to_html();
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert_eq!(page.matches("<svg").count(), 3);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        // Self-contained, and what a name holds is text.
        assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("href="));
        assert!(page.contains("&lt;script&gt;"));
        drop(listening);
    }
}
