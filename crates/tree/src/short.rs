//! Short names: eight characters, a period and three, for clients that cannot use long names.
//!
//! ```text
//!  annual report.text   ->   A 4K2P9 ~ 0 . TEX
//!                             | |       |   first three allowed characters of the extension
//!                            | |       0
//!                             | five digits to the base 36: a hash of the whole name in upper case
//!                             first character, if it is allowed
//! ```
//!
//! Short names are computed, not stored: two names of a directory may have the same one (once in
//! sixty million pairs), and then it denotes either.
//!
//! Spec: MS-FSCC §2.1.5.2.1 (8.3 names), MS-FSA §2.1.5.11.4 (FileAlternateNameInformation).

use super::pattern::upcase;

/// The short name of a name: the name itself if it is short.
pub fn short_name(name: &str) -> String {
    if is_short(name) {
        return name.to_ascii_uppercase();
    }
    let mut rest = hash(name);
    let mut digits = [0; 5];
    for digit in digits.iter_mut().rev() {
        let value = usize::try_from(rest % 36).expect("below 36");
        *digit = BASE36[value];
        rest /= 36;
    }
    let first = name.chars().find(char::is_ascii_alphanumeric).unwrap_or('_');
    let digits = digits.map(char::from).iter().collect::<String>();
    let base = format!("{}{digits}~0", first.to_ascii_uppercase());
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let extension: String = extension.chars().filter(char::is_ascii_alphanumeric).take(3).collect();
    if extension.is_empty() { base } else { format!("{base}.{}", extension.to_ascii_uppercase()) }
}

/// Whether a name is its own short name, ignoring case.
pub fn is_short(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "!#$%&'()-@^_`{}~".contains(c);
    let (base, extension) = match name.split_once('.') {
        Some((base, extension)) => (base, Some(extension)),
        None => (name, None),
    };
    let fits = |part: &str, len| !part.is_empty() && part.len() <= len && part.chars().all(legal);
    fits(base, 8) && extension.is_none_or(|extension| fits(extension, 3))
}

/// Whether [`short_name`] may have made a name.
pub(super) fn is_made(name: &str) -> bool {
    let base = name.split('.').next().unwrap_or_default();
    base.len() == 8 && base.ends_with("~0") && is_short(name)
}

// FNV-1a, of the folded name.
fn hash(name: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut buffer = [0; 4];
    for c in name.chars().map(upcase) {
        for byte in c.encode_utf8(&mut buffer).bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

const BASE36: [u8; 36] = *b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_gets_a_short_name_and_others_keep_theirs() {
        assert_eq!(short_name("readme.txt"), "README.TXT");
        for long in ["annual report.text", "a.b.c", "ärger", ".profile", "x.html", "nine chars"] {
            let short = short_name(long);
            assert!(is_short(&short) && is_made(&short), "{long}: {short}");
            assert_eq!(short, short_name(&long.to_uppercase()), "the same in any case");
        }
        assert_ne!(short_name("long name 1"), short_name("long name 2"));
        assert!(!is_made("README.TXT") && !is_made("ABCDEF~1"));
    }
}
