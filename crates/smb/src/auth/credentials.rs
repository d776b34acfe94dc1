//! What a server knows of its users.
//!
//! Only the NT hash is kept: it is what NTLM proves, so whoever reads it can log in. It never
//! prints and is overwritten when dropped.

use std::collections::HashMap;
use std::fmt;

use zeroize::Zeroizing;

use super::legacy;

/// MD4 of the password in UTF-16, as MS-NLMP §3.3.1 defines NTOWFv1.
#[derive(Clone, Eq, PartialEq)]
pub struct NtHash(Zeroizing<[u8; 16]>);

impl NtHash {
    /// Takes over a hash.
    pub fn new(hash: [u8; 16]) -> Self {
        Self(Zeroizing::new(hash))
    }

    /// Hashes a password.
    pub fn of_password(password: &str) -> Self {
        let utf16: Zeroizing<Vec<u8>> =
            Zeroizing::new(password.encode_utf16().flat_map(u16::to_le_bytes).collect());
        Self::new(legacy::md4(&utf16))
    }

    /// The hash itself, to be stored where nobody else can read it: it is as good as the password.
    pub fn reveal(&self) -> &[u8; 16] {
        &self.0
    }

    pub(super) fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for NtHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NtHash(..)")
    }
}

/// What a user proves knowledge of.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// For NTLM.
    pub nt_hash: NtHash,
}

/// Finds users. Called once per authentication; must not block for long.
pub trait UserStore: fmt::Debug + Send + Sync {
    /// The credentials of `user`, both names as the client wrote them.
    ///
    /// `user` may be a user principal name (`name@realm`) with an empty domain. With an empty domain
    /// a server asks as well whether a user who is logged on is still there.
    fn lookup(&self, user: &str, domain: &str) -> Option<Credentials>;

    /// A number that differs once others may be users than before. A server asks for it every
    /// second; it must not block for long.
    fn revision(&self) -> u64 {
        0
    }

    /// Shows the name of each user. Stores that cannot tell whom they have show nobody.
    fn each(&self, show: &mut dyn FnMut(&str)) {
        let _ = show;
    }
}

/// Users in memory, without regard to domain or to upper and lower case.
#[derive(Clone, Debug, Default)]
pub struct UserList(HashMap<String, Credentials>);

impl UserList {
    /// No users.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a user by password.
    pub fn add_password(&mut self, user: &str, password: &str) {
        self.add_hash(user, NtHash::of_password(password));
    }

    /// Adds or replaces a user by NT hash.
    pub fn add_hash(&mut self, user: &str, nt_hash: NtHash) {
        self.0.insert(user.to_lowercase(), Credentials { nt_hash });
    }
}

impl UserStore for UserList {
    fn lookup(&self, user: &str, _domain: &str) -> Option<Credentials> {
        let name = user.split_once('@').map_or(user, |(name, _realm)| name);
        self.0.get(&name.to_lowercase()).cloned()
    }

    fn each(&self, show: &mut dyn FnMut(&str)) {
        self.0.keys().for_each(|name| show(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // MS-NLMP §4.2.2.1.2: NTOWFv1("Password").
    #[test]
    fn a_password_hashes_to_the_specification_s_example() {
        let expected = crate::crypto::hex("a4f49c406510bdcab6824ee7c30fd852");
        assert_eq!(NtHash::of_password("Password").as_bytes()[..], expected);
    }

    #[test]
    fn names_match_in_any_case_and_with_a_realm() {
        let mut users = UserList::new();
        users.add_password("Alice", "secret");
        assert!(users.lookup("ALICE", "ANY").is_some());
        assert!(users.lookup("alice@example.org", "").is_some());
        assert!(users.lookup("bob", "").is_none());
    }

    #[test]
    fn hashes_never_print() {
        let credentials = Credentials { nt_hash: NtHash::new([7; 16]) };
        assert_eq!(format!("{credentials:?}"), "Credentials { nt_hash: NtHash(..) }");
    }
}
