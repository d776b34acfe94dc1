//! The client: addresses as users write them, and a hostile server.

pub mod hostile;

use client::{SmbUrl, UrlError};

/// Text that may be an address.
pub(crate) fn url(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(url) = text.parse::<SmbUrl>() else { return };
    assert!(!url.host.is_empty() && !url.share.is_empty());
    let servers: Vec<String> =
        url.servers().map(|(host, port)| format!("{}:{port}", bracket(host))).collect();
    let again = format!(
        "smb://{};{}:{}@{}/{}/{}{}",
        escape(&url.domain),
        escape(&url.user),
        escape(&url.password),
        servers.join(","),
        escape(&url.share),
        escape(&url.path),
        if url.is_directory { "/" } else { "" },
    );
    assert_eq!(again.parse::<SmbUrl>(), Ok::<_, UrlError>(url));
}

fn escape(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn bracket(host: &str) -> String {
    if host.contains(':') || host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}
