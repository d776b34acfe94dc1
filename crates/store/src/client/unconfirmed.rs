//! What this client wrote to a region and has not made durable, and whether the memory that has it is still the same.
//!
//! A daemon says with each mapping how often its directory may have lost bytes (the loss of power of its machine). A piece goes on
//! where one of the copies that had it before is there with the number that it had. Where none is, what was visible there may be
//! gone, and the next commit says so instead of making durable what is left.

use std::ops::Range;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    /// From the first to the last byte that was written since the last commit of all of it.
    span: Option<Range<u64>>,
    /// Writes so far.
    writes: u64,
    /// By piece: the servers of its copies in sync, and their losses.
    known: Vec<Vec<(String, u64)>>,
    /// The server that may have lost what was written.
    lost: Option<String>,
}

impl Unconfirmed {
    /// Bytes are about to be written.
    pub(super) fn add(&mut self, offset: u64, len: u64) {
        self.writes += 1;
        let end = offset.saturating_add(len);
        let span = self.span.get_or_insert(offset..end);
        *span = span.start.min(offset)..span.end.max(end);
    }

    /// The region was mapped at these copies.
    pub(super) fn mapped(&mut self, now: Vec<Vec<(String, u64)>>) {
        let mut pieces = self.known.iter().zip(&now);
        let is_lost = |before: &[(String, u64)], now: &[(String, u64)]| {
            !before.iter().any(|copy| now.contains(copy))
        };
        let lost = pieces.find(|(before, now)| is_lost(before, now)).map(|(before, _)| before);
        if let Some(before) = lost
            && self.span.is_some()
        {
            self.lost = before.first().map(|(server, _)| server.clone());
        }
        self.known = now;
    }

    /// The server that may have lost what was written and not committed; told once.
    pub(super) fn take_lost(&mut self) -> Option<String> {
        let lost = self.lost.take()?;
        self.span = None;
        Some(lost)
    }

    /// The state before a commit.
    pub(super) fn writes(&self) -> u64 {
        self.writes
    }

    /// A range was committed, when there had been so many writes.
    pub(super) fn committed(&mut self, range: Range<u64>, writes: u64) {
        let is_whole =
            self.span.as_ref().is_none_or(|it| range.start <= it.start && it.end <= range.end);
        if is_whole && self.writes == writes {
            self.span = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(copies: &[(&str, u64)]) -> Vec<Vec<(String, u64)>> {
        vec![copies.iter().map(|(server, losses)| ((*server).to_owned(), *losses)).collect()]
    }

    #[test]
    fn bytes_are_lost_where_no_copy_of_before_is_left_as_it_was() {
        let mut region = Unconfirmed::default();
        region.mapped(at(&[("a", 1), ("b", 1)]));
        region.add(0, 8);
        // One of the copies lost its memory and was filled from the other; then the other went.
        region.mapped(at(&[("b", 1)]));
        region.mapped(at(&[("a", 2), ("b", 1)]));
        region.mapped(at(&[("a", 2)]));
        assert_eq!(region.take_lost(), None);
        region.mapped(at(&[("a", 3)]));
        assert_eq!(region.take_lost().as_deref(), Some("a"));
        assert_eq!(region.take_lost(), None, "told once");
    }

    #[test]
    fn what_was_committed_is_not_counted_as_lost() {
        let mut region = Unconfirmed::default();
        region.mapped(at(&[("a", 1)]));
        region.add(100, 8);
        let writes = region.writes();
        region.committed(100..104, writes);
        region.committed(0..4096, writes - 1);
        region.mapped(at(&[("a", 2)]));
        assert!(region.take_lost().is_some(), "a part was not committed, nor what came meanwhile");
        region.add(100, 8);
        region.committed(0..4096, region.writes());
        region.mapped(at(&[("a", 3)]));
        assert_eq!(region.take_lost(), None);
    }
}
