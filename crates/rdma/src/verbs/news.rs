//! Asynchronous events of devices, and what they do to connections.
//!
//! | event | what happens to a connection |
//! |---|---|
//! | a port is down, a device has failed or is being removed | the connection ends at once, with that reason |
//! | its completion queue has failed | the same |
//! | its queue pair has failed | the connection ends for the reason that completions or the connection manager give, or else for this one |
//!
//! No thread waits for these events alone: a sleeping engine has the descriptor among those that it
//! sleeps on, and a spinning engine looks at the descriptor every [`ASK_EVERY`].

use std::time::{Duration, Instant};

use super::connecting::UNTOLD;
use super::connection::{Connection, Stage};
use super::engine::VerbsEngine;
use super::sys::news::News;
use crate::common::timers::Due;
use crate::interface::{AdapterFault, ConnectFailure, DisconnectReason};
use basics::Key;

impl VerbsEngine {
    /// Asks every device for events, if that is due.
    pub(super) fn ask_devices(&mut self, now: Instant) {
        if now.duration_since(self.asked) >= ASK_EVERY {
            self.asked = now;
            (0..self.devices.len()).for_each(|place| self.ask_device(place));
        }
    }

    /// Asks one device, which has reported an event or whose turn it is.
    pub(super) fn ask_device(&mut self, place: usize) {
        let Some(known) = self.devices.get_mut(place).filter(|known| !known.is_silent) else {
            return;
        };
        if !known.news.ask() {
            // The descriptors of the device stay readable for ever, so the engine could not sleep
            // on them any more.
            known.is_silent = true;
            self.poller.remove(&*known.news);
            self.poller.remove(&*known.announcements);
        }
    }

    /// Whether a device has reported an event that was not looked at.
    pub(super) fn has_news_of_devices(&self) -> bool {
        self.devices.iter().any(|known| known.news.has_unread())
    }

    /// Handles the events that devices have reported.
    pub(super) fn take_news(&mut self) -> bool {
        if !self.has_news_of_devices() {
            return false;
        }
        for place in 0..self.devices.len() {
            for news in self.devices[place].news.take() {
                self.heard(place, news);
            }
        }
        true
    }

    fn heard(&mut self, place: usize, news: News) {
        let device = self.devices[place].device.name();
        match news {
            News::PortDown { port } => {
                tracing::warn!(device, port, "a port is down: its connections end");
                self.end_those(AdapterFault::PortDown, |connection| {
                    connection.device == place && connection.queue.id().port() == port
                });
            }
            News::Device => {
                tracing::warn!(device, "the device has failed: its connections end");
                self.end_those(AdapterFault::Device, |connection| connection.device == place);
            }
            News::Completions { name } => {
                self.end_those(AdapterFault::CompletionQueue, |connection| {
                    connection.device == place && connection.queue.completions_name() == name
                });
            }
            News::QueuePair { number, by_peer } => self.doubt(place, number, by_peer),
        }
    }

    fn end_those(&mut self, fault: AdapterFault, concerns: impl Fn(&Connection) -> bool) {
        let concerned = |key: &Key| self.qps.get(*key).is_some_and(&concerns);
        let keys: Vec<Key> = self.qps.keys().filter(concerned).collect();
        for key in keys {
            self.end_by_adapter(key, fault);
        }
    }

    /// A connection, or an attempt at one, ends because of the device beneath it.
    pub(super) fn end_by_adapter(&mut self, key: Key, fault: AdapterFault) {
        let Some(connection) = self.qps.get(key) else { return };
        if connection.is_initiator && !matches!(connection.stage, Stage::Up) {
            let errno = match fault {
                AdapterFault::PortDown => libc::ENETDOWN,
                _ => libc::ENODEV,
            };
            self.fail(key, ConnectFailure::HostIo { errno }, Vec::new());
        } else {
            self.end(key, DisconnectReason::HostAdapter(fault));
        }
    }

    /// A queue pair has failed. A completion or the connection manager may give a better reason
    /// within a moment.
    fn doubt(&mut self, place: usize, number: u32, by_peer: bool) {
        let concerned = |key: &Key| {
            let connection = self.qps.get(*key);
            connection.is_some_and(|connection| {
                connection.device == place && connection.queue.number() == number
            })
        };
        let Some(key) = self.qps.keys().find(concerned) else { return };
        let Some(connection) = self.qps.get_mut(key) else { return };
        let told =
            if by_peer { UNTOLD } else { DisconnectReason::HostAdapter(AdapterFault::QueuePair) };
        connection.told.get_or_insert(told);
        self.timers.after(PATIENCE, Due::linger(key));
    }
}

/// How often an engine that does not sleep asks its devices: each time is a system call.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// How long completions and the connection manager may take to report why a queue pair failed.
const PATIENCE: Duration = Duration::from_millis(200);
