//! Bounds of what one peer, and all peers together, may make the server spend.
//!
//! Every queue and table is bounded by a constant here or by a field of [`Limits`]; `docs/limits.md` is the
//! ledger of the bounds: resource, account, place of the check, and test (`tests/bounds/ledger.rs` compares the
//! two). [`crate::state::account`] counts resources that several connections share.
//!
//! Memory an unauthenticated connection can hold: one read buffer of [`UNAUTHENTICATED_FRAME_MAX`], one
//! response, one half-done authentication; at the default of 1,024 such connections about 80 MiB.
//! A queue pair of SMB Direct with its buffers costs as much: 1,024 of them were 190 MiB.

use std::time::Duration;

pub(crate) use tree::limits::{EA_NAMES_INLINE_MAX, IO_INLINE_MAX};

/// Bounds an operator may want to change.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at once, authenticated or not. A further one is closed at once.
    pub connections_max: usize,
    /// Connections that have not authenticated yet. A further one closes the oldest.
    pub unauthenticated_max: usize,
    /// Connections over which only guests have logged on. A further one closes the oldest.
    pub guest_connections_max: usize,
    /// Connections over which one user has logged on. A logon over a further one is refused.
    pub user_connections_max: usize,
    /// Files that all guests together have open; a further open is refused.
    pub guest_opens_max: usize,
    /// Files that one user has open, in all sessions; a further open is refused.
    pub user_opens_max: usize,
    /// Files that all users together have open; a further open is refused.
    pub opens_max: usize,
    /// Address space of regions that are mapped into memory, of one user, in bytes; a further MAP is refused.
    pub user_mapped_max: u64,
    /// The same of all users together.
    pub mapped_max: u64,
    /// The time from accepting a connection to its first authenticated session.
    pub authentication_timeout: Duration,
    /// How long a client's machine may give no sign of life, not even an answer to a TCP probe, before
    /// its connections end; `None`: the setting of the host, most often for ever.
    pub silence_max: Option<Duration>,
    /// Largest READ and WRITE, in bytes.
    pub io_size_max: u32,
    /// How long a peer on SMB Direct may leave RDMA Reads unanswered while it answers other operations.
    pub rdma_read_patience: Duration,
    /// Credits one authenticated connection may hold: the requests it can have open.
    pub credits_max: u16,
    /// How long a client may take to acknowledge a lease or oplock break.
    pub break_timeout: Duration,
    /// How long a stopping server waits for requests in progress.
    pub shutdown_grace: Duration,
}

impl Limits {
    /// Fits the bounds to the number of descriptors of the process: no user, and not all guests, can take the
    /// descriptors of the others, nor all together the reserve with which the server accepts connections, looks
    /// files up and writes logs. Returns the size of the reserve; `None`: there are too few to serve.
    pub(crate) fn fit(&mut self, descriptors: usize) -> Option<usize> {
        let descriptors = Some(descriptors).filter(|count| *count >= DESCRIPTORS_MIN)?;
        let kept = (descriptors / 4).min(DESCRIPTORS_KEPT_MAX);
        let rest = descriptors - kept;
        if self.opens_max.saturating_add(self.connections_max) <= rest {
            return Some(kept);
        }
        // In the same ratio as the defaults.
        let opens = rest - self.connections_max.min(rest / 9 * 2);
        self.opens_max = self.opens_max.min(opens);
        self.user_opens_max = self.user_opens_max.min(opens / 7 * 4);
        self.guest_opens_max = self.guest_opens_max.min(opens / 7 * 2);
        let connections = rest - self.opens_max;
        if connections < self.connections_max {
            self.connections_max = connections;
            let (quarter, third) = (connections / 4, connections / 3);
            self.user_connections_max = self.user_connections_max.min(quarter);
            self.guest_connections_max = self.guest_connections_max.min(third);
            self.unauthenticated_max = self.unauthenticated_max.min(third);
        }
        Some(kept)
    }

    /// Fits the bounds of mapped regions to the address space of the process: regions leave three quarters of it to
    /// everything else, and one user leaves three quarters of that quarter to the others.
    pub(crate) fn fit_mapped(&mut self, address_space: u64) {
        self.mapped_max = self.mapped_max.min(address_space / 4);
        self.user_mapped_max = self.user_mapped_max.min(self.mapped_max / 4);
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 16_384,
            unauthenticated_max: 1_024,
            guest_connections_max: 1_024,
            // A quarter: no single user excludes the others.
            user_connections_max: 4_096,
            // With the descriptors of connections and DESCRIPTORS_KEPT_MAX this is what dist/landfast.service asks
            // for.
            guest_opens_max: 16_384,
            user_opens_max: 32_768,
            opens_max: 57_344,
            user_mapped_max: 8 << 40,
            // A quarter of what x86-64 has.
            mapped_max: 32 << 40,
            authentication_timeout: Duration::from_secs(30),
            // SMB clients probe an idle server every minute; Samba and Windows wait two hours.
            silence_max: Some(rdma::SILENCE_MAX),
            io_size_max: 8 << 20,
            // Adapters serve Reads by themselves: a peer that has not answered in this time never
            // will.
            rdma_read_patience: Duration::from_secs(10),
            // The number that Windows and Samba grant.
            credits_max: 8_192,
            // MS-SMB2 §3.3.2.5: 35 seconds, what Windows and Samba use.
            break_timeout: Duration::from_secs(35),
            shutdown_grace: Duration::from_secs(5),
        }
    }
}

/// Descriptors reserved for uses that no peer holds for long: files that are looked up, push connections, logs,
/// the control socket. A quarter of them if there are few.
pub(crate) const DESCRIPTORS_KEPT_MAX: usize = 8_192;
/// A process with fewer descriptors does not start to serve.
pub(crate) const DESCRIPTORS_MIN: usize = 256;
/// Largest frame before authentication: NEGOTIATE with contexts and SPNEGO tokens stay under it.
pub(crate) const UNAUTHENTICATED_FRAME_MAX: usize = 64 * 1024;
/// Credits before authentication, which takes a handful, and of guests.
pub(crate) const UNAUTHENTICATED_CREDITS_MAX: u16 = 512;
/// Largest answer of QUERY_INFO, QUERY_DIRECTORY and IOCTL, and input of SET_INFO and IOCTL.
pub(crate) const TRANSACT_SIZE_MAX: u32 = 8 << 20;
/// The same over SMB Direct, where an answer travels in fragments that the peer has room for.
pub(crate) const DIRECT_TRANSACT_SIZE_MAX: u32 = 1 << 20;
/// Input of an IOCTL that writes no bytes of a file: as many ranges as one FILE_LEVEL_TRIM may name.
pub(crate) const CONTROL_INPUT_MAX: usize = 8 + 16 * smb::fsctl::FILE_RANGES_MAX;
/// Opens of one session.
pub(crate) const OPENS_PER_SESSION_MAX: u32 = 65_536;
/// Pipes of one session; a client that browses has one or two.
pub(crate) const PIPES_PER_SESSION_MAX: u32 = 64;
/// The same of one user, of all guests, and of all: answers that nobody fetches wait in each, 256 KiB of them.
pub(crate) const PIPES_PER_USER_MAX: usize = 1_024;
pub(crate) const PIPES_OF_GUESTS_MAX: usize = 256;
pub(crate) const PIPES_MAX: usize = 4_096;
/// Bytes written to a pipe whose calls the calling thread carries out; those of more, a thread that may wait.
pub(crate) const PIPE_INLINE_MAX: usize = 1_024;
/// The unit in which address space of regions is counted, in bytes: what a region takes is rounded up to it.
pub(crate) const MAPPED_UNIT: u64 = 1 << 20;
/// Tree connects of one session.
pub(crate) const TREES_PER_SESSION_MAX: usize = 1_024;
/// Tree connects of a guest's session.
pub(crate) const TREES_PER_GUEST_MAX: usize = 64;
/// Tree connects of one user, of all guests, and of all: some 200 bytes each.
pub(crate) const TREES_PER_USER_MAX: usize = 131_072;
pub(crate) const TREES_OF_GUESTS_MAX: usize = 65_536;
pub(crate) const TREES_MAX: usize = 524_288;
/// Durable opens that wait for their client: of one user, and of all.
pub(crate) const ORPHANS_PER_USER_MAX: usize = 4_096;
pub(crate) const ORPHANS_MAX: usize = 65_536;
/// How long a durable open waits for its client if the client names no time: the default of Samba.
pub(crate) const DURABLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest a client can ask for: MS-SMB2 §3.3.5.9.10.
pub(crate) const DURABLE_TIMEOUT_MAX: Duration = Duration::from_secs(300);
/// How long a reconnecting client is made to wait for the end of its old connection to be noticed.
pub(crate) const RECONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// Sessions of one connection; Windows uses one per user.
pub(crate) const SESSIONS_PER_CONNECTION_MAX: usize = 64;
/// Sessions of guests among them: clients try another name, or none.
pub(crate) const GUESTS_PER_CONNECTION_MAX: usize = 4;
/// Connections of one session, as many as Windows and Samba allow.
pub(crate) const CHANNELS_PER_SESSION_MAX: usize = 32;
/// Sessions of the whole server.
pub(crate) const SESSIONS_MAX: usize = 65_536;
/// Authentications in progress on one connection.
pub(crate) const AUTHENTICATIONS_MAX: usize = 4;

/// Memory of answers that have not left, in bytes, of one connection. Four of the largest READs: a
/// client with more of them in progress gains nothing, since answers leave one after the other.
pub(crate) const ANSWERS_PER_CONNECTION_MAX: usize = 32 << 20;
/// The same of one user: the bytes in flight at 100 Gbit/s with 10 ms of round trip.
pub(crate) const ANSWERS_PER_USER_MAX: usize = 128 << 20;
/// The same of all guests.
pub(crate) const ANSWERS_OF_GUESTS_MAX: usize = 64 << 20;
/// The same of all: eight users who have all that one may have.
pub(crate) const ANSWERS_MAX: usize = 1 << 30;
/// An answer up to this length that is made at once is not counted: a connection gathers
/// [`GATHERED_MAX`] of them and makes no more before they have left. One credit pays for this length.
pub(crate) const ANSWER_UNCOUNTED_MAX: usize = 64 << 10;
/// Answers gathered before they are written, in bytes.
pub(crate) const GATHERED_MAX: usize = 128 << 10;
/// All answers of a compound in one frame, beside its headers: as much as one request may ask for. A
/// request for more than the rest gets INSUFFICIENT_RESOURCES.
pub(crate) const COMPOUND_ANSWER_MAX: usize = 8 << 20;
/// A peer that receives no byte of an answer for this long is gone.
pub(crate) const WRITE_PATIENCE: Duration = Duration::from_secs(60);
/// The same while others wait for the memory of that answer, and the bytes that the peer has to receive in that time:
/// this number, and this part of all it holds.
pub(crate) const WRITE_PATIENCE_WANTED: Duration = Duration::from_secs(5);
pub(crate) const WRITE_PROGRESS_WANTED: u64 = 64 << 10;
pub(crate) const WRITE_PART_WANTED: u64 = 8;
/// How long a connection waits for others whose peer has closed its sending side, before what it has asked for is given up:
/// a client that was killed looks the same, and others may want what it has open.
pub(crate) const CLOSED_PATIENCE: Duration = Duration::from_secs(5);

/// Requests that are kept while they are carried out, and long requests being received, in bytes, of one
/// connection. Four of the largest WRITEs.
pub(crate) const REQUESTS_PER_CONNECTION_MAX: usize = 32 << 20;
/// The same of one user, of all guests, and of all.
pub(crate) const REQUESTS_PER_USER_MAX: usize = 128 << 20;
pub(crate) const REQUESTS_OF_GUESTS_MAX: usize = 64 << 20;
pub(crate) const REQUESTS_MAX: usize = 1 << 30;

/// The cost of a request beside its bytes while it is in progress, in bytes: its future, its places in tables, its
/// task. 5.5 KB of heap were measured for each of 8,192 that waited for a lock.
pub(crate) const REQUEST_COST: usize = 8 << 10;
/// Requests of a peer of SMB Direct that wait for a request before them or for their bytes, and parts of messages that
/// have come, in bytes: of one connection, of one user, of all guests, and of all. As much as a peer can have in flight
/// with all its SMB2 credits is one connection's; where several hold too much together, the one with most of it ends.
pub(crate) const BACKLOG_PER_CONNECTION_MAX: usize = 32 << 20;
pub(crate) const BACKLOG_PER_USER_MAX: usize = 128 << 20;
pub(crate) const BACKLOG_OF_GUESTS_MAX: usize = 64 << 20;
pub(crate) const BACKLOG_MAX: usize = 512 << 20;
/// So much of it no account counts, so that short requests cost nothing; all that a stranger may have.
pub(crate) const BACKLOG_UNCOUNTED_MAX: usize = 128 << 10;
/// Receive buffers of connections of SMB Direct, in bytes: of one user, of all guests, and of all. A connection has 2 MiB
/// of them; one for which there is no room keeps those of a stranger.
pub(crate) const RECEIVES_PER_USER_MAX: usize = 256 << 20;
pub(crate) const RECEIVES_OF_GUESTS_MAX: usize = 64 << 20;
pub(crate) const RECEIVES_MAX: usize = 1 << 30;
/// The cost of each request of a compound beside that, in bytes: its header, and the state to sign its answer.
pub(crate) const COMPOUND_REQUEST_COST: usize = 512;
/// Requests that wait for other clients (a lock, a break, a recall), in bytes with the cost of each: of one
/// connection, of one user, of all guests, and of all. Windows has 512 of them on a connection; this allows 4,096.
pub(crate) const WAITING_PER_CONNECTION_MAX: usize = 32 << 20;
pub(crate) const WAITING_PER_USER_MAX: usize = 128 << 20;
pub(crate) const WAITING_OF_GUESTS_MAX: usize = 64 << 20;
pub(crate) const WAITING_MAX: usize = 512 << 20;
/// Bytes of its frame, and of the finished answers in it, that a request which waits without end may keep.
pub(crate) const WAITING_KEPT_MAX: usize = 64 << 10;
/// Bytes that connections keep for their next long frames and answers, of one user: where there is no room, memory is freed
/// with each frame, and nobody waits.
pub(crate) const SPARES_PER_USER_MAX: usize = 128 << 20;
/// The same of all guests, and of all.
pub(crate) const SPARES_OF_GUESTS_MAX: usize = 64 << 20;
pub(crate) const SPARES_MAX: usize = 512 << 20;
/// Requests of one connection that release something, and are kept although there is no room for
/// requests.
pub(crate) const RELEASES_PER_CONNECTION_MAX: usize = 64;

/// Requests of one connection that occupy a thread for blocking work; further requests wait for their turn
/// without a thread. More than a disk works on at once.
pub(crate) const JOBS_PER_CONNECTION_MAX: usize = 64;
/// The same of one user: a quarter of the threads.
pub(crate) const JOBS_PER_USER_MAX: usize = 128;
/// The same of all guests: few, because a scan of names in memory keeps a core busy, and 128 of them side by side
/// made others wait for seconds on two cores.
pub(crate) const JOBS_OF_GUESTS_MAX: usize = 16;
/// The same of all. The runtime has 512 such threads; of the others some free resources, these and what ended
/// connections had open, some compute, and each log of persistent opens has one.
pub(crate) const JOBS_MAX: usize = 352;
/// The same for requests that release something, above all CLOSE: they do not wait for scans.
pub(crate) const RELEASE_JOBS_PER_CONNECTION_MAX: usize = 16;
pub(crate) const RELEASE_JOBS_PER_USER_MAX: usize = 16;
pub(crate) const RELEASE_JOBS_OF_GUESTS_MAX: usize = 8;
pub(crate) const RELEASE_JOBS_MAX: usize = 64;
/// The same for ends of connections and sessions, and of durable opens that nobody comes back for.
pub(crate) const END_JOBS_PER_USER_MAX: usize = 16;
pub(crate) const END_JOBS_OF_GUESTS_MAX: usize = 4;
pub(crate) const END_JOBS_MAX: usize = 32;
/// The same for ends of push regions that were written, which guests do not have.
pub(crate) const SETTLE_JOBS_PER_USER_MAX: usize = 8;
pub(crate) const SETTLE_JOBS_MAX: usize = 16;
/// Threads for removals of names that a CREATE puts off as it fails, of all.
pub(crate) const PUT_OFF_MAX: usize = 8;
/// What goes to one file system has this part of those threads, from those for releases on, of a connection as of a user and of
/// all: what waits for a disk that hangs leaves the rest to others.
pub(crate) const LANES: usize = 4;

/// Threads that compute signatures and seals of long frames, of one user: they wait for nothing, and so a frame waits for
/// no disk. Several times the cores of most machines.
pub(crate) const PROTECTIONS_PER_USER_MAX: usize = 16;
/// The same of all guests, and of all.
pub(crate) const PROTECTIONS_OF_GUESTS_MAX: usize = 4;
pub(crate) const PROTECTIONS_MAX: usize = 24;

/// Threads that scan the names of directories, of one user: each keeps a core busy as long as it scans, and turns
/// of others behind it are [`LOOKS_PER_TURN_MAX`] names long. With 16 of them on two cores an honest client waited
/// 160 ms.
pub(crate) const SCANS_PER_USER_MAX: usize = 4;
/// The same of all guests, and of all.
pub(crate) const SCANS_OF_GUESTS_MAX: usize = 2;
pub(crate) const SCANS_MAX: usize = 32;

/// Byte-range locks of one file.
pub(crate) const LOCKS_PER_FILE_MAX: usize = 16_384;
/// The same of one user on all files, of all guests, and of all: 40 bytes each.
pub(crate) const LOCKS_PER_USER_MAX: usize = 131_072;
pub(crate) const LOCKS_OF_GUESTS_MAX: usize = 65_536;
pub(crate) const LOCKS_MAX: usize = 1 << 20;
/// Copies of LOCK requests of one open that wait for the first copy. Each of them is woken when any copy of its open
/// ends; a client sends one for each channel it has lost.
pub(crate) const LOCK_COPIES_PER_OPEN_MAX: usize = 64;
/// Ranges of a TRIM that the calling thread compares with locks; a thread that may block compares more.
pub(crate) const TRIM_RANGES_INLINE_MAX: usize = 64;

/// Characters of a search pattern where the calling thread scans the names: the cost of a pattern for each name
/// grows with its length.
pub(crate) const PATTERN_CHARS_INLINE_MAX: usize = 32;
/// Names that one turn of a QUERY_DIRECTORY scans, before others have their turns: some 10 ms.
pub(crate) const LOOKS_PER_TURN_MAX: usize = 2_048;
/// The same on the calling thread, where memory lies behind everything: half a millisecond.
pub(crate) const LOOKS_INLINE_MAX: usize = 128;

/// Break notices that have not left: some 300 bytes each. A client that does not receive them does not keep to the
/// rules of leases: its connection ends.
pub(crate) const NOTICES_PER_CONNECTION_MAX: usize = 8_192;
/// The same of one user, of all guests, and of all: 20 MB, 20 MB, and 80 MB.
pub(crate) const NOTICES_PER_USER_MAX: usize = 65_536;
pub(crate) const NOTICES_OF_GUESTS_MAX: usize = 65_536;
pub(crate) const NOTICES_MAX: usize = 262_144;

/// Characters of a user's name; Windows takes 256 with its domain.
pub(crate) const USER_NAME_MAX: usize = 256;
/// Sessions of one user: a quarter of all.
pub(crate) const SESSIONS_PER_USER_MAX: usize = 16_384;
/// The same of all guests: what their connections may have.
pub(crate) const GUEST_SESSIONS_MAX: usize = 4_096;

/// Requests of a compound whose signatures are verified, and whose answers are signed, where the frame has arrived: more go
/// to a thread. Each takes some 0.5 µs a side; clients chain three to five.
pub(crate) const SIGNED_INLINE_MAX: usize = 128;
/// How long a request may keep a thread that others wait for (a reactor, an engine). A longer turn is counted and
/// reported with its command.
pub(crate) const REACTOR_TURN_MAX: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_leave_scarce_address_space_to_everything_else() {
        let of = |address_space| {
            let mut limits = Limits::default();
            limits.fit_mapped(address_space);
            (limits.mapped_max, limits.user_mapped_max)
        };
        assert_eq!(of(1 << 47), (32 << 40, 8 << 40));
        assert_eq!(of(1 << 57), (32 << 40, 8 << 40));
        assert_eq!(of(1 << 39), (128 << 30, 32 << 30));
        assert_eq!(of(4 << 30), (1 << 30, 256 << 20));
        let mut limits = Limits { user_mapped_max: 1, ..Limits::default() };
        limits.fit_mapped(1 << 47);
        assert_eq!(limits.user_mapped_max, 1, "a lower setting is kept");
    }

    #[test]
    fn files_of_a_user_leave_scarce_descriptors_to_connections() {
        let mut limits = Limits::default();
        // The number that dist/landfast.service asks for is enough for all.
        assert_eq!(limits.fit(81_920), Some(8_192));
        assert_eq!((limits.opens_max, limits.connections_max), (57_344, 16_384));
        for (count, kept) in [(65_536, 8_192), (4_096, 1_024), (1_024, 256), (256, 64)] {
            let mut limits = Limits::default();
            assert_eq!(limits.fit(count), Some(kept));
            assert!(limits.opens_max + limits.connections_max + kept <= count);
            assert!(limits.user_opens_max < limits.opens_max * 2 / 3);
            assert!(limits.user_connections_max * 3 < limits.connections_max);
            assert!(limits.guest_opens_max > 0 && limits.unauthenticated_max > 0);
        }
        assert_eq!(limits.fit(255), None, "too few to serve");
        // A lower setting is kept, and leaves more to others.
        let mut limits = Limits { connections_max: 10, user_opens_max: 2, ..Limits::default() };
        limits.fit(1_024);
        assert_eq!((limits.connections_max, limits.opens_max), (10, 1_024 - 256 - 10));
        assert_eq!(limits.user_opens_max, 2);
        assert_eq!(limits.unauthenticated_max, Limits::default().unauthenticated_max);
    }
}
