//! `smb://USER:PASSWORD@HOST:PORT/SHARE/PATH`.
//!
//! ```text
//!  smb://  [DOMAIN;]USER[:PASSWORD]@  HOST[:PORT] [,HOST[:PORT] ...]  /SHARE  [/PATH]
//! ```
//!
//! User, password, share and path may be percent-encoded. An IPv6 host stands in brackets. Several hosts are servers one
//! of which serves the share at a time, as the members of a group of replicated volumes do.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use zeroize::Zeroizing;

/// The address of a share, and the user.
#[derive(Clone, Eq, PartialEq)]
pub struct SmbUrl {
    /// Domain of the user; mostly empty.
    pub domain: String,
    /// User name; empty for no user, who logs on as "guest".
    pub user: String,
    /// Password.
    pub password: Zeroizing<String>,
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Further servers, host and port, one of which serves the share where the first does not.
    pub others: Vec<(String, u16)>,
    /// Share.
    pub share: String,
    /// Path below the share, with slashes, without one at either end.
    pub path: String,
    /// The URL was written with a slash at its end, as for a directory.
    pub is_directory: bool,
}

impl FromStr for SmbUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let rest = text.strip_prefix("smb://").ok_or(UrlError::ConfigScheme)?;
        let (authority, path) = rest.split_once('/').ok_or(UrlError::ConfigShare)?;
        // The last @, because a password may contain the character.
        let (credentials, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        let (domain, user) = user.split_once(';').unwrap_or(("", user));
        let mut servers =
            host.split(',').map(split_port).collect::<Result<Vec<_>, _>>()?.into_iter();
        let (host, port) = servers.next().ok_or(UrlError::ConfigHost)?;
        let others: Vec<_> = servers.map(|(host, port)| (host.to_owned(), port)).collect();
        let (share, path) = path.split_once('/').unwrap_or((path, ""));
        if host.is_empty() || others.iter().any(|(host, _)| host.is_empty()) {
            return Err(UrlError::ConfigHost);
        }
        if others.len() >= SERVERS_MAX {
            return Err(UrlError::ConfigServers);
        }
        if share.is_empty() {
            return Err(UrlError::ConfigShare);
        }
        let path = decode(path)?;
        Ok(Self {
            domain: decode(domain)?,
            user: decode(user)?,
            password: Zeroizing::new(decode(password)?),
            host: host.to_owned(),
            port,
            others,
            share: decode(share)?,
            is_directory: path.ends_with(['/', '\\']),
            path: path.trim_matches('/').to_owned(),
        })
    }
}

impl SmbUrl {
    /// The servers, host and port, in the order in which they are asked.
    pub fn servers(&self) -> impl Iterator<Item = (&str, u16)> {
        let others = self.others.iter().map(|(host, port)| (host.as_str(), *port));
        std::iter::once((self.host.as_str(), self.port)).chain(others)
    }

    /// The same address with the password of the environment ([`PASSWORD_VARIABLE`]), where `ps` does not show it, if the
    /// address names a user and no password. A guest proves nothing: a server that nobody has named a user to gets no
    /// proof that it could use to guess the password.
    #[must_use]
    pub fn with_password_of_environment(self) -> Self {
        self.with_password_if_needed(|| std::env::var(PASSWORD_VARIABLE).ok())
    }

    fn with_password_if_needed(mut self, password: impl FnOnce() -> Option<String>) -> Self {
        if self.password.is_empty()
            && !self.user.is_empty()
            && let Some(password) = password()
        {
            self.password = password.into();
        }
        self
    }
}

impl fmt::Debug for SmbUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Prints the URL without the password.
impl fmt::Display for SmbUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, share, path, .. } = self;
        let at = if user.is_empty() { "" } else { "@" };
        write!(f, "smb://{user}{at}")?;
        for (index, (host, port)) in self.servers().enumerate() {
            let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{open}{host}{close}:{port}")?;
        }
        write!(f, "/{share}/{path}")
    }
}

fn split_port(host: &str) -> Result<(&str, u16), UrlError> {
    let (host, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or(UrlError::ConfigHost)?;
            match rest.strip_prefix(':') {
                None if !rest.is_empty() => return Err(UrlError::ConfigHost),
                port => (host, port),
            }
        }
        None => host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port))),
    };
    match port {
        None => Ok((host, DEFAULT_PORT)),
        Some(port) => Ok((host, port.parse().map_err(|_| UrlError::ConfigPort)?)),
    }
}

fn decode(text: &str) -> Result<String, UrlError> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(UrlError::ConfigEscape);
        };
        out.push(u8::try_from(high * 16 + low).map_err(|_| UrlError::ConfigEscape)?);
    }
    String::from_utf8(out).map_err(|_| UrlError::ConfigEscape)
}

/// Why a text is not an address.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum UrlError {
    /// It does not begin with `smb://`.
    #[error("the address does not begin with smb://")]
    ConfigScheme,
    /// There is no host.
    #[error("the address names no host")]
    ConfigHost,
    /// There are more servers than a client asks.
    #[error("the address names more than {SERVERS_MAX} servers")]
    ConfigServers,
    /// The port is not a number.
    #[error("the port is not a number up to 65535")]
    ConfigPort,
    /// There is no share.
    #[error("the address names no share")]
    ConfigShare,
    /// A percent sign is not followed by two hex digits of UTF-8.
    #[error("the address is not properly percent-encoded")]
    ConfigEscape,
}

const DEFAULT_PORT: u16 = 445;
/// As many as a group of replicated volumes has members.
const SERVERS_MAX: usize = 8;
/// The environment variable that holds the password of a user whose address has none.
pub const PASSWORD_VARIABLE: &str = "LANDFAST_PASSWORD";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_found() {
        let url: SmbUrl = "smb://WG;al%20ice:p@ss%3A@[::1]:4450/a%2Fb/dir/file".parse().unwrap();
        assert_eq!((url.domain.as_str(), url.user.as_str()), ("WG", "al ice"));
        assert_eq!(url.password.as_str(), "p@ss:");
        assert_eq!((url.host.as_str(), url.port), ("::1", 4450));
        assert_eq!((url.share.as_str(), url.path.as_str()), ("a/b", "dir/file"));
        assert_eq!(url.to_string(), "smb://al ice@[::1]:4450/a/b/dir/file");
        let directory: SmbUrl = "smb://h/s/dir/".parse().unwrap();
        assert_eq!((directory.path.as_str(), directory.is_directory), ("dir", true));
        assert!(!url.is_directory);
    }

    #[test]
    fn optional_parts_of_a_url_may_be_omitted() {
        let url: SmbUrl = "smb://host/share".parse().unwrap();
        assert_eq!((url.user.as_str(), url.port, url.path.as_str()), ("", 445, ""));
    }

    #[test]
    fn a_url_without_a_required_part_is_refused() {
        for (text, error) in [
            ("http://host/share", UrlError::ConfigScheme),
            ("smb:///share", UrlError::ConfigHost),
            ("smb://host", UrlError::ConfigShare),
            ("smb://host/", UrlError::ConfigShare),
            ("smb://host:x/share", UrlError::ConfigPort),
            ("smb://[::1]4450/share", UrlError::ConfigHost),
            ("smb://host/sh%2", UrlError::ConfigEscape),
        ] {
            assert_eq!(text.parse::<SmbUrl>().unwrap_err(), error);
        }
    }

    #[test]
    fn a_share_may_have_several_servers() {
        let url: SmbUrl = "smb://u:p@a:4450,[::1],b/share/f".parse().unwrap();
        let servers: Vec<_> = url.servers().collect();
        assert_eq!(servers, [("a", 4450), ("::1", 445), ("b", 445)]);
        assert_eq!(url.to_string(), "smb://u@a:4450,[::1]:445,b:445/share/f");
        assert_eq!(url.to_string().parse::<SmbUrl>().unwrap().others, url.others);
        for (text, error) in [
            ("smb://a,/share".to_owned(), UrlError::ConfigHost),
            ("smb://,a/share".to_owned(), UrlError::ConfigHost),
            ("smb://a,b:x/share".to_owned(), UrlError::ConfigPort),
            (format!("smb://{}z/share", "a,".repeat(SERVERS_MAX)), UrlError::ConfigServers),
        ] {
            assert_eq!(text.parse::<SmbUrl>().unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn only_a_user_without_a_password_gets_that_of_the_environment() {
        for (text, password) in
            [("smb://u@h/s", "kept"), ("smb://u:own@h/s", "own"), ("smb://h/s", "")]
        {
            let url: SmbUrl = text.parse().unwrap();
            let url = url.with_password_if_needed(|| Some("kept".into()));
            assert_eq!(url.password.as_str(), password, "{text}");
        }
    }

    #[test]
    fn a_password_never_prints() {
        let url: SmbUrl = "smb://u:secret@h/s".parse().unwrap();
        assert!(!format!("{url} {url:?}").contains("secret"));
    }
}
