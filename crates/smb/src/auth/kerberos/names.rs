//! Names of clients and services: `component/component@REALM`.
//!
//! Spec: RFC 4120 §6.2; what is escaped in text: the manual of MIT Kerberos.

use std::fmt;

use thiserror::Error;

/// A client or a service.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct Principal {
    /// What it consists of: one for a user, two for a service (`cifs`, its host).
    pub components: Vec<String>,
    /// Where it is known.
    pub realm: String,
}

impl Principal {
    /// Reads `component/component@REALM`. A backslash takes the next character for what it is.
    ///
    /// # Errors
    /// It has no realm, or an empty part.
    pub fn parse(text: &str) -> Result<Self, PrincipalError> {
        let mut parts = vec![String::new()];
        let mut realm_at = None;
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            let last = parts.last_mut().expect("there is always one");
            match letter {
                '\\' => last.push(letters.next().ok_or(PrincipalError)?),
                '/' if realm_at.is_none() => parts.push(String::new()),
                '@' if realm_at.is_none() => {
                    realm_at = Some(parts.len());
                    parts.push(String::new());
                }
                '@' => return Err(PrincipalError),
                other => last.push(other),
            }
        }
        let realm = realm_at.and_then(|_| parts.pop()).ok_or(PrincipalError)?;
        if realm.is_empty() || parts.iter().any(String::is_empty) || parts.len() > COMPONENTS_MAX {
            return Err(PrincipalError);
        }
        Ok(Self { components: parts, realm })
    }

    /// Whether the two are one service. Windows asks for tickets in whatever case the user has typed
    /// the host's name; realms are told apart by case everywhere.
    pub fn is_same_service(&self, other: &Self) -> bool {
        let pairs = || self.components.iter().zip(&other.components);
        self.realm == other.realm
            && self.components.len() == other.components.len()
            && pairs().all(|(one, two)| one.eq_ignore_ascii_case(two))
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |text: &str, f: &mut fmt::Formatter<'_>| {
            text.chars().try_for_each(|letter| match letter {
                '/' | '@' | '\\' => write!(f, "\\{letter}"),
                // Names of strangers stand in logs.
                control if control.is_control() => f.write_str("\u{fffd}"),
                other => write!(f, "{other}"),
            })
        };
        for (at, component) in self.components.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "/" })?;
            part(component, f)?;
        }
        f.write_str("@")?;
        part(&self.realm, f)
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// A text is no principal.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("write it as cifs/host.example.org@EXAMPLE.ORG")]
pub struct PrincipalError;

/// More parts than anybody's name has.
pub(super) const COMPONENTS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_parses_into_its_parts_and_its_realm() {
        let service = Principal::parse("cifs/files.example.org@EXAMPLE.ORG").unwrap();
        assert_eq!(service.components, ["cifs", "files.example.org"]);
        assert_eq!(service.realm, "EXAMPLE.ORG");
        let odd = Principal::parse(r"a\/b\@c\\@R").unwrap();
        assert_eq!(odd.components, [r"a/b@c\"]);
        assert_eq!(odd.to_string(), r"a\/b\@c\\@R");
        for wrong in ["", "alice", "alice@", "@R", "a//b@R", "a@b@R", r"a@R\"] {
            assert_eq!(Principal::parse(wrong), Err(PrincipalError), "{wrong}");
        }
    }

    #[test]
    fn services_match_in_any_case_of_the_host_but_not_of_the_realm() {
        let service = |text| Principal::parse(text).unwrap();
        let ours = service("cifs/files@R");
        assert!(ours.is_same_service(&service("CIFS/Files@R")));
        for other in ["cifs/files@r", "cifs/file@R", "cifs@R", "cifs/files/x@R"] {
            assert!(!ours.is_same_service(&service(other)), "{other}");
        }
    }
}
