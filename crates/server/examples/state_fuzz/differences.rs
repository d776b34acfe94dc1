//! What is known to differ between the two servers of a lockstep run, each with its reason.
//!
//! A line is `PATTERN: REASON`; the pattern is compared with `STEP => OURS | THEIRS`, and `*` in it stands for any
//! text. A reason holds no `": "`.

use std::path::Path;

/// The lines of the file.
pub(crate) struct Differences {
    lines: Vec<Known>,
}

struct Known {
    pattern: String,
    /// How often it was met.
    met: u64,
}

impl Differences {
    /// Reads the file.
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("the file of differences");
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let lines = lines.map(|line| {
            let (pattern, reason) = line.rsplit_once(": ").expect("PATTERN: REASON");
            assert!(!reason.trim().is_empty(), "no reason: {line}");
            Known { pattern: pattern.to_owned(), met: 0 }
        });
        Self { lines: lines.collect() }
    }

    /// Whether a line of the file says so.
    pub(crate) fn explain(&mut self, seen: &str) -> bool {
        match self.lines.iter_mut().find(|known| is_like(&known.pattern, seen)) {
            Some(known) => {
                known.met += 1;
                true
            }
            None => false,
        }
    }

    /// Lines that nothing bore out.
    pub(crate) fn unmet(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(|known| known.met == 0).map(|known| known.pattern.as_str())
    }
}

fn is_like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}
