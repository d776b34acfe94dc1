//! The figures of a server of shares.

use server::report::FlashReport;
use server::{Report, Status};

use super::{Family, count};

/// What `report` counts. The tables' rows name people and files, and are not told.
pub(crate) fn of_server(report: &Report) -> Vec<Family> {
    let counters = &report.counters;
    let mut families = vec![
        Family::gauge("landfast_uptime_seconds", "Seconds since the server started")
            .with(&[], count(report.uptime_s)),
        Family::gauge("landfast_connections", "Connections by whether somebody has logged on")
            .with(&[("state", "open")], count(counters.connections - counters.unauthenticated))
            .with(&[("state", "unauthenticated")], count(counters.unauthenticated))
            .with(&[("state", "push")], count(counters.push_connections)),
    ];
    families.extend(
        [
            ("landfast_sessions", "Authenticated sessions", count(counters.sessions)),
            ("landfast_opens", "Open handles", count(counters.opens)),
            (
                "landfast_orphans",
                "Durable handles that wait for their client",
                count(counters.orphans),
            ),
            ("landfast_files", "Files and directories that are open", count(counters.files)),
            ("landfast_leases", "Leases and oplocks held", count(counters.leases)),
            ("landfast_regions", "Regions mapped for push mode", count(counters.regions)),
            ("landfast_locks", "Byte-range locks held", count(counters.locks)),
            (
                "landfast_answer_bytes",
                "Bytes of answers that have not left",
                count(counters.answer_bytes),
            ),
            (
                "landfast_request_bytes",
                "Bytes of requests in progress",
                count(counters.request_bytes),
            ),
            (
                "landfast_waiting_bytes",
                "Bytes of requests that wait for other clients",
                count(counters.waiting_bytes),
            ),
            (
                "landfast_jobs",
                "Threads that requests occupy for blocking work",
                count(counters.jobs),
            ),
        ]
        .map(|(name, help, value)| Family::gauge(name, help).with(&[], value)),
    );
    if let Some(heap) = &report.heap {
        let family = Family::gauge("landfast_heap_bytes", "Bytes of the heap of the process");
        let family = family.with(&[("state", "in_use")], count(heap.in_use_bytes));
        families.push(family.with(&[("state", "held")], count(heap.held_bytes)));
    }
    families.extend(report.flash.iter().flat_map(flash));
    families.extend(grown(counters));
    families
}

/// The memory for pages of files that are mapped lazily.
fn flash(pages: &FlashReport) -> [Family; 3] {
    let bytes = Family::gauge("landfast_flash_bytes", "Memory for pages of lazily mapped files")
        .with(&[("state", "budget")], count(pages.budget))
        .with(&[("state", "resident")], count(pages.resident))
        .with(&[("state", "dirty")], count(pages.dirty));
    let moved = Family::counter("landfast_flash_pages", "Pages of lazily mapped files that moved")
        .with(&[("way", "fetched")], count(pages.fetched))
        .with(&[("way", "ahead")], count(pages.ahead))
        .with(&[("way", "evicted")], count(pages.evictions))
        .with(&[("way", "written")], count(pages.written))
        .with(&[("way", "lost")], count(pages.failures));
    let waits = Family::counter(
        "landfast_flash_waits",
        "Placements that waited for the write-back of pages",
    );
    [bytes, moved, waits.with(&[], count(pages.waits))]
}

/// What only grows.
fn grown(counters: &Status) -> [Family; 5] {
    [
        (
            "landfast_connections_refused",
            "Connections closed at once as there were too many",
            counters.connections_refused,
        ),
        ("landfast_logons_failed", "Logons refused", counters.logons_failed),
        (
            "landfast_panics",
            "Bugs that panicked, each of which ended a connection or request",
            counters.panics,
        ),
        (
            "landfast_long_turns",
            "Requests that kept a reactor or an engine for more than a millisecond",
            counters.long_turns,
        ),
        (
            "landfast_directories_synced",
            "Directories synced for changed names",
            counters.directories_synced,
        ),
    ]
    .map(|(name, help, value)| Family::counter(name, help).with(&[], count(value)))
}
