//! The connections of a client: one that has logged on, and others that have joined its session.
//!
//! ```text
//!  all there      a request goes over any of them; breaks come over any of them
//!  one is lost    what it was asked is asked again over another, as a copy (MS-SMB2 §3.2.4.1.2: the
//!                 channel sequence counts up, and the request has the flag of a replay)
//!  all are lost   recovery.rs
//! ```
//!
//! What cannot be asked twice without harm is not: then the client gives up the whole session.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smb::{Command, Header, HeaderFlags, NtStatus};

use crate::client::Client;
use crate::wire::{Answer, Joinable, Lost, PATIENCE, Wire};

/// The connections of one session.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    wires: Vec<Wire>,
    joinable: Option<Joinable>,
    /// How often one of several was lost.
    sequence: u16,
    /// A connection from before, if the server was not told that it is of no use any more.
    silent: Option<Wire>,
}

impl Client<'_> {
    /// Asks; one request in some [`CUT`] is the last of its connection.
    pub(crate) fn ask(
        &mut self,
        command: Command,
        flags: HeaderFlags,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Answer, Lost> {
        let repeats = REPEATED.contains(&command);
        self.ask_repeatedly(command, flags, repeats, body)
    }

    /// The same; says whether the request may be sent again when the channel is lost, and others are there.
    pub(crate) fn ask_repeatedly(
        &mut self,
        command: Command,
        mut flags: HeaderFlags,
        repeats: bool,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Answer, Lost> {
        // Offsets in a body count from the header.
        let mut bytes = vec![0; Header::LEN];
        body(&mut bytes);
        let patience = Instant::now() + PATIENCE;
        let mut is_copy = false;
        loop {
            let asked = self.ask_once(command, flags, &bytes[Header::LEN..], repeats);
            match asked {
                Err(Lost::Connection) if repeats && !self.channels.wires.is_empty() => {
                    self.counts.repeated += 1;
                    is_copy = true;
                    flags |= HeaderFlags::REPLAY;
                }
                // MS-SMB2 §3.3.5.2.10: the first copy is still under way.
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

    // Over one of the channels, which is gone if the connection is lost.
    fn ask_once(
        &mut self,
        command: Command,
        flags: HeaderFlags,
        body: &[u8],
        repeats: bool,
    ) -> Result<Answer, Lost> {
        let count = self.channels.wires.len();
        let at = self.random.below(count.max(1));
        let wire = self.channels.wires.get_mut(at).ok_or(Lost::Connection)?;
        self.counts.requests += 1;
        let emit = |out: &mut Vec<u8>| out.extend_from_slice(body);
        if self.cuts && self.random.one_in(CUT) {
            self.counts.cuts += 1;
            let started = wire.start(command, flags, emit);
            std::thread::sleep(Duration::from_micros(self.random.next() % 2_000));
            let goes_on = repeats && count > 1;
            if !goes_on && self.random.one_in(2) {
                self.channels.silent = Some(self.channels.wires.remove(at));
            } else {
                self.lose_channel(at);
            }
            return started.and(Err(Lost::Connection));
        }
        let id = match wire.start(command, flags, emit) {
            Ok(id) => id,
            Err(lost) => {
                self.lose_channel(at);
                return Err(lost);
            }
        };
        self.await_answer(at, id)
    }

    // Breaks come over any channel, and are acknowledged over the same.
    fn await_answer(&mut self, mut at: usize, id: u64) -> Result<Answer, Lost> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut readable: Vec<_> = self.channels.readable(deadline)?;
            // From the last on: those before keep their places when one is gone.
            while let Some(ready) = readable.pop() {
                let expected = (ready == at).then_some(id);
                match self.channels.wires[ready].take(expected) {
                    Ok(Some(answer)) => return Ok(answer),
                    Ok(None) => {}
                    Err(Lost::Connection) => {
                        self.lose_channel(ready);
                        if ready == at {
                            return Err(Lost::Connection);
                        }
                        at -= usize::from(ready < at);
                    }
                    Err(lost) => return Err(lost),
                }
            }
        }
    }

    // From here on whatever comes over it is from before.
    fn lose_channel(&mut self, at: usize) {
        let wire = self.channels.wires.remove(at);
        self.counts.breaks += wire.breaks;
        wire.cut();
        self.channels.sequence = self.channels.sequence.wrapping_add(1);
        for wire in &mut self.channels.wires {
            wire.sequence = self.channels.sequence;
        }
    }

    /// One more channel, or one less.
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
        let mut wire = Wire::join(self.place, self.guid, &session)?;
        wire.sequence = self.channels.sequence;
        self.counts.channels += 1;
        self.channels.wires.push(wire);
        Ok(())
    }

    /// A connection that has entered the share.
    pub(crate) fn connect(&mut self) -> Result<(), Lost> {
        self.disconnect();
        let mut wire = Wire::enter(self.place, self.guid, self.session)?;
        wire.sequence = self.channels.sequence;
        self.session = wire.session;
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

    /// Ends the session, and with it all connections.
    pub(crate) fn log_off(&mut self) -> Result<(), Lost> {
        // Whoever else is there hears of it by the end of the connection.
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

impl Channels {
    // Waits until something comes, and says over which.
    fn readable(&self, deadline: Instant) -> Result<Vec<usize>, Lost> {
        let mut watched: Vec<_> = self
            .wires
            .iter()
            .map(|wire| PollFd::from_borrowed_fd(wire.as_fd(), PollFlags::IN))
            .collect();
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| Lost::Connection)?;
        match poll(&mut watched, Some(&left)) {
            Ok(0) => Err(Lost::Fault(format!("no answer for {} s", PATIENCE.as_secs()))),
            Ok(_) => {
                let is_ready =
                    |(at, fd): (usize, &PollFd<'_>)| (!fd.revents().is_empty()).then_some(at);
                Ok(watched.iter().enumerate().filter_map(is_ready).collect())
            }
            Err(_) => Ok(Vec::new()),
        }
    }
}

/// What may be asked again without harm: the same bytes at the same place, the same size, the same
/// name, a lock by its number. A CLOSE may not: the answer to its copy, that the file is closed, may
/// come before it is.
const REPEATED: [Command; 6] = [
    Command::READ,
    Command::WRITE,
    Command::SET_INFO,
    Command::FLUSH,
    Command::LOCK,
    Command::QUERY_INFO,
];
/// One connection is cut for so many requests.
const CUT: usize = 150;
/// Connections of a client.
const CHANNELS_MAX: usize = 3;
const PAUSE: Duration = Duration::from_millis(2);
