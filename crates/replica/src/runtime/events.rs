//! What operators are told, numbered: the newest are kept in memory, and all go to the log of the process.

use std::collections::VecDeque;

use crate::core::News;

/// Something that has happened at a member.
#[derive(Clone, Copy, Debug)]
pub struct Noted {
    /// Counts the events since the process began, from 1.
    pub number: u64,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// What.
    pub news: News,
}

/// The newest events.
#[derive(Debug, Default)]
pub(super) struct Events {
    count: u64,
    kept: VecDeque<Noted>,
}

impl Events {
    pub(super) fn note(&mut self, time_ns: u64, news: News) {
        // A member that refuses is asked again and again: that is one event, or it would push all others out.
        let newest = self.kept.iter().rev().take(REPEATED);
        if matches!(news, News::Refused(..)) && newest.into_iter().any(|noted| noted.news == news) {
            return;
        }
        self.count += 1;
        tracing::info!(event = news.number(), "{news}");
        if self.kept.len() == EVENTS_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(Noted { number: self.count, time_ns, news });
    }

    /// The number of the newest.
    pub(super) const fn newest(&self) -> u64 {
        self.count
    }

    /// Those behind a number.
    pub(super) fn since(&self, number: u64) -> Vec<Noted> {
        self.kept.iter().filter(|noted| noted.number > number).copied().collect()
    }
}

/// A refusal that is among so many of the newest events is no new one.
const REPEATED: usize = 16;
/// Events that are kept.
const EVENTS_MAX: usize = 4096;
