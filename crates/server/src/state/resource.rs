//! What peers can hold of the server, and how much of it each kind of account may hold.

use tokio::sync::Semaphore;

use crate::limits::{
    ANSWERS_MAX, ANSWERS_OF_GUESTS_MAX, ANSWERS_PER_CONNECTION_MAX, ANSWERS_PER_USER_MAX,
    BACKLOG_MAX, BACKLOG_OF_GUESTS_MAX, BACKLOG_PER_CONNECTION_MAX, BACKLOG_PER_USER_MAX,
    END_JOBS_MAX, END_JOBS_OF_GUESTS_MAX, END_JOBS_PER_USER_MAX, GUEST_SESSIONS_MAX, JOBS_MAX,
    JOBS_OF_GUESTS_MAX, JOBS_PER_CONNECTION_MAX, JOBS_PER_USER_MAX, LANES, LOCKS_MAX,
    LOCKS_OF_GUESTS_MAX, LOCKS_PER_USER_MAX, Limits, MAPPED_UNIT, NOTICES_MAX,
    NOTICES_OF_GUESTS_MAX, NOTICES_PER_CONNECTION_MAX, NOTICES_PER_USER_MAX, PIPES_MAX,
    PIPES_OF_GUESTS_MAX, PIPES_PER_USER_MAX, PROTECTIONS_MAX, PROTECTIONS_OF_GUESTS_MAX,
    PROTECTIONS_PER_USER_MAX, PUT_OFF_MAX, RECEIVES_MAX, RECEIVES_OF_GUESTS_MAX,
    RECEIVES_PER_USER_MAX, RELEASE_JOBS_MAX, RELEASE_JOBS_OF_GUESTS_MAX,
    RELEASE_JOBS_PER_CONNECTION_MAX, RELEASE_JOBS_PER_USER_MAX, RELEASES_PER_CONNECTION_MAX,
    REQUESTS_MAX, REQUESTS_OF_GUESTS_MAX, REQUESTS_PER_CONNECTION_MAX, REQUESTS_PER_USER_MAX,
    SCANS_MAX, SCANS_OF_GUESTS_MAX, SCANS_PER_USER_MAX, SESSIONS_MAX, SESSIONS_PER_USER_MAX,
    SETTLE_JOBS_MAX, SETTLE_JOBS_PER_USER_MAX, SPARES_MAX, SPARES_OF_GUESTS_MAX,
    SPARES_PER_USER_MAX, TREES_MAX, TREES_OF_GUESTS_MAX, TREES_PER_USER_MAX, WAITING_MAX,
    WAITING_OF_GUESTS_MAX, WAITING_PER_CONNECTION_MAX, WAITING_PER_USER_MAX,
};

/// What can be held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Resource {
    /// Bytes of answers that have not left.
    Answers,
    /// Bytes of requests that are worked on.
    Requests,
    /// Bytes of requests of SMB Direct that wait before they are looked at.
    Backlog,
    /// Bytes of receive buffers of connections of SMB Direct.
    Receives,
    /// Bytes that connections keep for their next long frames and answers.
    Spares,
    /// Bytes of requests that wait for other clients.
    Waiting,
    /// Requests that release something, where there is no room for requests.
    Releases,
    /// Threads for what may wait.
    Jobs,
    /// Threads for what releases something.
    ReleaseJobs,
    /// Threads for ends of connections, of sessions and of durable opens.
    EndJobs,
    /// Threads for ends of push regions that were written.
    SettleJobs,
    /// Threads for removals of names that a failing CREATE puts off.
    PutOff,
    /// Byte-range locks.
    Locks,
    /// Open files, and directories that are being listed: descriptors.
    Opens,
    /// Sessions.
    Sessions,
    /// Connections over which a user has logged on.
    Connections,
    /// Notices that ask for caching back and have not left.
    Notices,
    /// Threads that look at names of directories.
    Scans,
    /// Threads that compute signatures and seals.
    Protections,
    /// Open pipes.
    Pipes,
    /// Address space of regions mapped into memory, in units of [`MAPPED_UNIT`].
    Mapped,
    /// Tree connects.
    Trees,
}

/// How much of each resource an account may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maxima([usize; RESOURCES]);

impl Maxima {
    pub(super) const UNBOUNDED: Self = Self([Semaphore::MAX_PERMITS; RESOURCES]);

    pub(super) fn with(mut self, what: Resource, max: usize) -> Self {
        self.0[what as usize] = max.min(Semaphore::MAX_PERMITS);
        self
    }

    /// How much of a resource.
    pub(super) fn of(&self, what: Resource) -> usize {
        self.0[what as usize]
    }

    /// Of one lane of work: see [`LANES`].
    pub(super) fn in_lane(self) -> Self {
        let part = |what| self.of(what).div_ceil(LANES);
        self.with(Resource::ReleaseJobs, part(Resource::ReleaseJobs))
            .with(Resource::EndJobs, part(Resource::EndJobs))
            .with(Resource::SettleJobs, part(Resource::SettleJobs))
            .with(Resource::PutOff, part(Resource::PutOff))
    }

    pub(super) fn of_what_is_put_off() -> Self {
        Self::UNBOUNDED.with(Resource::PutOff, PUT_OFF_MAX)
    }

    /// Something for each resource, of its maximum.
    pub(super) fn map<T>(self, make: impl FnMut(usize) -> T) -> [T; RESOURCES] {
        self.0.map(make)
    }

    pub(super) fn of_connection() -> Self {
        Self::UNBOUNDED
            .with(Resource::Answers, ANSWERS_PER_CONNECTION_MAX)
            .with(Resource::Requests, REQUESTS_PER_CONNECTION_MAX)
            .with(Resource::Backlog, BACKLOG_PER_CONNECTION_MAX)
            .with(Resource::Waiting, WAITING_PER_CONNECTION_MAX)
            .with(Resource::Releases, RELEASES_PER_CONNECTION_MAX)
            .with(Resource::Jobs, JOBS_PER_CONNECTION_MAX)
            .with(Resource::ReleaseJobs, RELEASE_JOBS_PER_CONNECTION_MAX)
            .with(Resource::Notices, NOTICES_PER_CONNECTION_MAX)
    }

    pub(super) fn of_user(limits: &Limits) -> Self {
        Self::UNBOUNDED
            .with(Resource::Answers, ANSWERS_PER_USER_MAX)
            .with(Resource::Requests, REQUESTS_PER_USER_MAX)
            .with(Resource::Backlog, BACKLOG_PER_USER_MAX)
            .with(Resource::Receives, RECEIVES_PER_USER_MAX)
            .with(Resource::Spares, SPARES_PER_USER_MAX)
            .with(Resource::Waiting, WAITING_PER_USER_MAX)
            .with(Resource::Jobs, JOBS_PER_USER_MAX)
            .with(Resource::ReleaseJobs, RELEASE_JOBS_PER_USER_MAX)
            .with(Resource::EndJobs, END_JOBS_PER_USER_MAX)
            .with(Resource::SettleJobs, SETTLE_JOBS_PER_USER_MAX)
            .with(Resource::Locks, LOCKS_PER_USER_MAX)
            .with(Resource::Opens, limits.user_opens_max)
            .with(Resource::Mapped, units(limits.user_mapped_max))
            .with(Resource::Sessions, SESSIONS_PER_USER_MAX)
            .with(Resource::Connections, limits.user_connections_max)
            .with(Resource::Notices, NOTICES_PER_USER_MAX)
            .with(Resource::Scans, SCANS_PER_USER_MAX)
            .with(Resource::Protections, PROTECTIONS_PER_USER_MAX)
            .with(Resource::Pipes, PIPES_PER_USER_MAX)
            .with(Resource::Trees, TREES_PER_USER_MAX)
    }

    pub(super) fn of_guests(limits: &Limits) -> Self {
        // Their connections are bounded where they are accepted: the oldest makes room.
        Self::UNBOUNDED
            .with(Resource::Answers, ANSWERS_OF_GUESTS_MAX)
            .with(Resource::Requests, REQUESTS_OF_GUESTS_MAX)
            .with(Resource::Backlog, BACKLOG_OF_GUESTS_MAX)
            .with(Resource::Receives, RECEIVES_OF_GUESTS_MAX)
            .with(Resource::Spares, SPARES_OF_GUESTS_MAX)
            .with(Resource::Waiting, WAITING_OF_GUESTS_MAX)
            .with(Resource::Jobs, JOBS_OF_GUESTS_MAX)
            .with(Resource::ReleaseJobs, RELEASE_JOBS_OF_GUESTS_MAX)
            .with(Resource::EndJobs, END_JOBS_OF_GUESTS_MAX)
            .with(Resource::Locks, LOCKS_OF_GUESTS_MAX)
            .with(Resource::Opens, limits.guest_opens_max)
            // They map nothing.
            .with(Resource::Mapped, 0)
            .with(Resource::Sessions, GUEST_SESSIONS_MAX)
            .with(Resource::Notices, NOTICES_OF_GUESTS_MAX)
            .with(Resource::Scans, SCANS_OF_GUESTS_MAX)
            .with(Resource::Protections, PROTECTIONS_OF_GUESTS_MAX)
            .with(Resource::Pipes, PIPES_OF_GUESTS_MAX)
            .with(Resource::Trees, TREES_OF_GUESTS_MAX)
    }

    pub(super) fn of_all(limits: &Limits) -> Self {
        Self::UNBOUNDED
            .with(Resource::Answers, ANSWERS_MAX)
            .with(Resource::Requests, REQUESTS_MAX)
            .with(Resource::Backlog, BACKLOG_MAX)
            .with(Resource::Receives, RECEIVES_MAX)
            .with(Resource::Spares, SPARES_MAX)
            .with(Resource::Waiting, WAITING_MAX)
            .with(Resource::Jobs, JOBS_MAX)
            .with(Resource::ReleaseJobs, RELEASE_JOBS_MAX)
            .with(Resource::EndJobs, END_JOBS_MAX)
            .with(Resource::SettleJobs, SETTLE_JOBS_MAX)
            .with(Resource::Locks, LOCKS_MAX)
            .with(Resource::Opens, limits.opens_max)
            .with(Resource::Mapped, units(limits.mapped_max))
            .with(Resource::Sessions, SESSIONS_MAX)
            .with(Resource::Notices, NOTICES_MAX)
            .with(Resource::Scans, SCANS_MAX)
            .with(Resource::Protections, PROTECTIONS_MAX)
            .with(Resource::Pipes, PIPES_MAX)
            .with(Resource::Trees, TREES_MAX)
    }
}

// Address space in units, rounded down.
fn units(bytes: u64) -> usize {
    usize::try_from(bytes / MAPPED_UNIT).unwrap_or(usize::MAX)
}

/// How many kinds there are.
pub(super) const RESOURCES: usize = Resource::Trees as usize + 1;
