//! Formats a report for people: a line of numbers, then a table of each kind that has rows.

use server::report::{
    FlashReport, Heap, LeaseRow, OpenRow, PagesRow, RegionRow, Report, Sealing, SessionRow, Table,
    TreeRow,
};

use crate::output::shown;

/// The whole report.
pub(super) fn all(report: &Report) -> String {
    let mut text = summary(report);
    let sessions = ["#", "user", "client", "over", "dialect", "signed", "sealed", "age", "idle"];
    append(&mut text, "sessions", &sessions, &report.sessions, session);
    append(&mut text, "tree connects", &["session", "share", "opens"], &report.trees, tree);
    let opens =
        ["session", "user", "share", "path", "uses", "shares", "access", "caching", "durable"];
    append(&mut text, "opens", &opens, &report.opens, open);
    let leases = ["share", "path", "key", "state", "breaking", "opens"];
    append(&mut text, "leases and oplocks", &leases, &report.leases, lease);
    let regions =
        ["session", "path", "range", "class", "rights", "connection", "state", "commits", "pages"];
    append(&mut text, "regions", &regions, &report.regions, region);
    if let Some(flash) = &report.flash {
        text.push_str(&pages(flash));
    }
    text
}

/// The memory for pages of files that are mapped lazily.
fn pages(flash: &FlashReport) -> String {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let lost = match flash.failures {
        0 => String::new(),
        failures => format!("   LOST {failures} pages whose write-back failed, see the log"),
    };
    format!(
        "\nflash: {} of {} MiB in memory, {} MiB to be written back   pages fetched {}, read ahead {}, zeros {}, \
         evicted {}, written back {}, read past the budget {}   placements that waited {}{lost}\n",
        mib(flash.resident),
        mib(flash.budget),
        mib(flash.dirty),
        flash.fetched,
        flash.ahead,
        flash.zeros,
        flash.evictions,
        flash.written,
        flash.bypassed,
        flash.waits,
    )
}

fn summary(report: &Report) -> String {
    let counters = &report.counters;
    format!(
        "up {}   connections {} ({} not logged on, {} refused)   logons failed {}   \
         push connections {}   durable opens without a client {}{}{}\n",
        span(report.uptime_s),
        counters.connections,
        counters.unauthenticated,
        counters.connections_refused,
        counters.logons_failed,
        counters.push_connections,
        counters.orphans,
        bugs(counters.panics),
        report.heap.map(heap).unwrap_or_default(),
    )
}

// Empty for a server without panics.
fn bugs(panics: u64) -> String {
    if panics == 0 { String::new() } else { format!("   bugs met {panics}, see the log") }
}

fn heap(heap: Heap) -> String {
    let kib = |bytes: usize| bytes.div_ceil(1 << 10);
    format!("   heap {} KiB in use of {} KiB", kib(heap.in_use_bytes), kib(heap.held_bytes))
}

fn session(row: &SessionRow) -> Vec<String> {
    let channels = |of: fn(&server::report::ChannelRow) -> &str| {
        row.channels.iter().map(of).collect::<Vec<_>>().join(",")
    };
    let sealed = match row.sealed {
        Sealing::Required => "yes",
        Sealing::Possible => "can",
        Sealing::No => "no",
    };
    vec![
        row.session.to_string(),
        row.user.clone().unwrap_or_else(|| NOBODY.to_owned()),
        channels(|channel| &channel.client),
        channels(|channel| &channel.transport),
        row.dialect.clone(),
        if row.signed { "yes" } else { "no" }.to_owned(),
        sealed.to_owned(),
        span(row.age_s),
        span(row.idle_s),
    ]
}

fn tree(row: &TreeRow) -> Vec<String> {
    vec![row.session.to_string(), row.share.clone(), row.opens.to_string()]
}

fn open(row: &OpenRow) -> Vec<String> {
    let durable = row.durable.map(|durable| format!("{durable:?}").to_lowercase());
    vec![
        row.session.map_or_else(|| "gone".to_owned(), |session| session.to_string()),
        row.user.clone().unwrap_or_else(|| NOBODY.to_owned()),
        row.share.clone(),
        path(&row.path),
        dash(row.uses.clone()),
        dash(row.shares.clone()),
        format!("{:06x}", row.access),
        dash(row.caching.as_ref().map_or_else(String::new, |of| format!("{} {}", of.by, of.state))),
        dash(durable.unwrap_or_default()),
    ]
}

fn lease(row: &LeaseRow) -> Vec<String> {
    let breaking = row.breaking_to.as_ref().map(|to| {
        format!("to {}, {} ms left", dash(to.clone()), row.breaking_ms.unwrap_or_default())
    });
    vec![
        row.share.clone(),
        path(&row.path),
        row.key.clone().unwrap_or_else(|| "oplock".to_owned()),
        dash(row.state.clone()),
        dash(breaking.unwrap_or_default()),
        row.opens.to_string(),
    ]
}

fn region(row: &RegionRow) -> Vec<String> {
    vec![
        row.session.map_or_else(|| "gone".to_owned(), |session| session.to_string()),
        path(&row.path),
        format!("{}+{}", row.offset, row.length),
        row.class.clone(),
        row.rights.clone(),
        row.connection.to_string(),
        row.state.clone(),
        row.commits.to_string(),
        row.pages.as_ref().map_or_else(|| "whole".to_owned(), lazy),
    ]
}

fn lazy(pages: &PagesRow) -> String {
    let lost = if pages.lost == 0 { String::new() } else { format!(", {} LOST", pages.lost) };
    let cached = if pages.is_direct { "" } else { ", through the page cache" };
    let threads = if pages.is_ring { "" } else { ", without io_uring" };
    let dirty = pages.dirty.div_ceil(1 << 10);
    let tier = match pages.from_tier {
        0 => String::new(),
        count => format!(" ({count} pages from flash_tier)"),
    };
    format!(
        "lazy: {} hits, {} misses{tier}, {dirty} KiB dirty{lost}{cached}{threads}",
        pages.hits, pages.misses
    )
}

// Columns as wide as their longest cell, two spaces apart.
fn append<R>(
    text: &mut String,
    title: &str,
    columns: &[&str],
    table: &Table<R>,
    cells: fn(&R) -> Vec<String>,
) {
    text.push_str(&format!("\n{title}: {}\n", table.total));
    if table.rows.is_empty() {
        return;
    }
    let head = columns.iter().map(|&name| name.to_owned()).collect();
    let lines: Vec<Vec<String>> = [head].into_iter().chain(table.rows.iter().map(cells)).collect();
    let printable: Vec<Vec<String>> = lines
        .into_iter()
        .map(|line| line.iter().map(|cell| shown(cell).into_owned()).collect())
        .collect();
    let width = |column: usize| {
        printable.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    for line in &printable {
        let padded = line.iter().zip(&widths).map(|(cell, width)| format!("  {cell:<width$}"));
        text.push_str(padded.collect::<String>().trim_end());
        text.push('\n');
    }
    let left = table.total.saturating_sub(table.rows.len());
    if left > 0 {
        text.push_str(&format!("  ... and {left} more: --rows\n"));
    }
}

fn path(path: &str) -> String {
    if path.is_empty() { "\\".to_owned() } else { path.to_owned() }
}

fn dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

const NOBODY: &str = "(guest)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_count_omitted_rows_and_hold_no_control_characters() {
        let row = TreeRow { session: 1, share: "a\x1b[2Jb".to_owned(), opens: 12 };
        let mut text = String::new();
        let table = Table { total: 3, rows: vec![row] };
        append(&mut text, "trees", &["session", "share", "opens"], &table, tree);
        let expected = "\ntrees: 3\n  session  share        opens\n  1        a\\u{1b}[2Jb  12\n  ... and 2 more: --rows\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn times_are_printed_in_their_shortest_form() {
        assert_eq!([59, 61, 3_661, 90_000].map(span), ["59s", "1m01s", "1h01m", "1d01h"]);
    }
}
