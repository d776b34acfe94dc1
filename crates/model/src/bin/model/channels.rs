//! The connections of a client: one that has set up the session, and others that have joined the
//! session.
//!
//! ```text
//!   all are up     a request goes over any of them; breaks come over any of them
//!   one is lost    its open requests are sent again over another, as copies (MS-SMB2 §3.2.4.1.2: the
//!                 channel sequence counts up, and the request has the flag of a replay)
//!  all are lost   recovery.rs
//! ```
//!
//! Each connection is over TCP or SMB Direct; a copy, and its data, may travel over the other kind. A
//! request that would do harm if it were carried out twice is not sent again: then the client gives up
//! the whole session.

use std::time::{Duration, Instant};

use smb::{Command, HeaderFlags, NtStatus};

use crate::ask::Body;
use crate::client::Client;
use crate::link::{self, Lost, Way};
use crate::wire::{Answer, Joinable, Wire};

/// The connections of one session.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    wires: Vec<Wire>,
    joinable: Option<Joinable>,
    /// How often a channel was lost while others remained.
    sequence: u16,
    /// A connection of an earlier session, if the server was not told that the client has given it
    /// up.
    silent: Option<Wire>,
}

impl Client<'_> {
    /// Sends a request; one request in [`CUT`] is the last of its connection.
    pub(crate) fn ask(
        &mut self,
        command: Command,
        flags: HeaderFlags,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Answer, Lost> {
        self.ask_body(command, flags, &Body::of(body))
    }

    /// The same for a request whose data may travel by RDMA.
    pub(crate) fn ask_body(
        &mut self,
        command: Command,
        flags: HeaderFlags,
        body: &Body<'_>,
    ) -> Result<Answer, Lost> {
        self.ask_repeatedly(command, flags, REPEATED.contains(&command), body)
    }

    /// The same; also returns whether the request may be sent again when its channel is lost and others are
    /// up.
    pub(crate) fn ask_repeatedly(
        &mut self,
        command: Command,
        mut flags: HeaderFlags,
        repeats: bool,
        body: &Body<'_>,
    ) -> Result<Answer, Lost> {
        let patience = Instant::now() + link::patience();
        let mut is_copy = false;
        loop {
            let asked = self.ask_once(command, flags, body, repeats);
            let (came, left) =
                (asked.as_ref().map(|(header, _)| header.status), self.channels.wires.len());
            self.note(format_args!("{command:?}, a copy: {is_copy}: {came:?}; {left} channels"));
            match asked {
                Err(Lost::Connection) if repeats && !self.channels.wires.is_empty() => {
                    self.counts.repeated += 1;
                    is_copy = true;
                    flags |= HeaderFlags::REPLAY;
                }
                // MS-SMB2 §3.3.5.2.10: the server is still at work on the first copy.
                Ok((header, _))
                    if is_copy
                        && header.status == NtStatus::FILE_NOT_AVAILABLE
                        && Instant::now() < patience =>
                {
                    std::thread::sleep(PAUSE);
                }
                answered => return answered,
            }
        }
    }

    // Over one of the channels, which is removed if its connection is lost.
    fn ask_once(
        &mut self,
        command: Command,
        flags: HeaderFlags,
        body: &Body<'_>,
        repeats: bool,
    ) -> Result<Answer, Lost> {
        let by_rdma = !self.random.one_in(3);
        let count = self.channels.wires.len();
        let at = self.random.below(count.max(1));
        let wire = self.channels.wires.get_mut(at).ok_or(Lost::Connection)?;
        self.counts.requests += 1;
        if self.cuts && self.random.one_in(CUT) {
            self.counts.cuts += 1;
            let started = wire.start(command, flags, body, by_rdma);
            std::thread::sleep(Duration::from_micros(self.random.next() % 2_000));
            let goes_on = repeats && count > 1;
            if !goes_on && self.random.one_in(2) {
                self.channels.silent = Some(self.channels.wires.remove(at));
            } else {
                self.lose_channel(at);
            }
            return started.and(Err(Lost::Connection));
        }
        let id = match wire.start(command, flags, body, by_rdma) {
            Ok(id) => id,
            Err(lost) => {
                self.lose_channel(at);
                return Err(lost);
            }
        };
        self.counts.by_rdma += u64::from(wire.lends());
        self.await_answer(at, id)
    }

    // Breaks come over any channel, and are acknowledged over the same channel.
    fn await_answer(&mut self, mut at: usize, id: u64) -> Result<Answer, Lost> {
        let deadline = Instant::now() + link::patience();
        loop {
            let (from, came) = Wire::next_of(&mut self.channels.wires, deadline)?;
            let wire = &mut self.channels.wires[from];
            match came.and_then(|frame| wire.take(&frame, (from == at).then_some(id))) {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(Lost::Connection) => {
                    self.lose_channel(from);
                    if from == at {
                        return Err(Lost::Connection);
                    }
                    at -= usize::from(from < at);
                }
                Err(lost) => return Err(lost),
            }
        }
    }

    // From here on, frames that come over this connection are of an earlier session.
    fn lose_channel(&mut self, at: usize) {
        let wire = self.channels.wires.remove(at);
        self.counts.breaks += wire.breaks;
        wire.cut();
        self.channels.sequence = self.channels.sequence.wrapping_add(1);
        for wire in &mut self.channels.wires {
            wire.sequence = self.channels.sequence;
        }
    }

    /// Adds a channel, or removes one.
    pub(crate) fn change_channels(&mut self) -> Result<(), Lost> {
        let count = self.channels.wires.len();
        if count > 1 && self.random.one_in(2) {
            let at = self.random.below(count);
            self.counts.channels_cut += 1;
            self.lose_channel(at);
            return Ok(());
        }
        let Some(session) = self.channels.joinable.clone().filter(|_| count < CHANNELS_MAX) else {
            return Ok(());
        };
        let way = self.way();
        let mut wire = Wire::join(&self.machine, &way, &session)?;
        wire.sequence = self.channels.sequence;
        self.counts.channels += 1;
        self.channels.wires.push(wire);
        Ok(())
    }

    // A third of the clients use TCP alone, a third SMB Direct alone, a third both.
    fn way(&mut self) -> Way {
        let place = self.machine.place;
        let is_direct = match self.number % 3 {
            0 => false,
            1 => true,
            _ => self.random.one_in(2),
        };
        match place.direct.filter(|_| is_direct) {
            Some(address) => {
                self.counts.direct += 1;
                Way::direct(address, &mut self.random)
            }
            None => Way::Tcp(place.tcp),
        }
    }

    /// Makes a connection and enters the share.
    pub(crate) fn connect(&mut self) -> Result<(), Lost> {
        self.disconnect();
        let way = self.way();
        let mut wire = Wire::enter(&self.machine, &way, self.session)?;
        wire.sequence = self.channels.sequence;
        let before = std::mem::replace(&mut self.session, wire.session);
        self.note(format_args!("session {:#x} in place of {before:#x}", wire.session));
        self.channels.joinable = wire.joinable();
        self.channels.wires.push(wire);
        Ok(())
    }

    pub(crate) fn disconnect(&mut self) {
        for wire in std::mem::take(&mut self.channels.wires) {
            self.counts.breaks += wire.breaks;
            wire.cut();
        }
    }

    /// Ends the session, and with it all its connections.
    pub(crate) fn log_off(&mut self) -> Result<(), Lost> {
        // The end of a connection tells the other clients.
        self.channels.wires.truncate(1);
        let status = self.channels.wires.first_mut().ok_or(Lost::Connection)?.log_off()?;
        if status != NtStatus::SUCCESS {
            self.fault(format!("LOGOFF: {status:?}"));
        }
        self.disconnect();
        self.channels.silent = None;
        Ok(())
    }
}

/// Commands that may be sent again without harm: the same bytes at the same place, the same size,
/// the same name, a lock by its number. A CLOSE may not: the answer to the copy, that the file is
/// closed, may come before the file is closed.
const REPEATED: [Command; 6] = [
    Command::READ,
    Command::WRITE,
    Command::SET_INFO,
    Command::FLUSH,
    Command::LOCK,
    Command::QUERY_INFO,
];
/// One connection is cut per this many requests.
const CUT: usize = 150;
/// Connections of a client.
const CHANNELS_MAX: usize = 3;
const PAUSE: Duration = Duration::from_millis(2);
