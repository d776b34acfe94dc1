//! The cycles that are there, each with its number of files and its reason.

/// A cycle that is there.
pub(super) struct Listed {
    /// One of its files.
    pub(super) member: &'static str,
    /// How many files it has.
    pub(super) files: usize,
    pub(super) reason: &'static str,
}

pub(super) const LISTED: [Listed; 38] = [
    Listed {
        member: "crates/cli/src/config/mod.rs",
        files: 4,
        reason: "the configuration, and the arguments and the file that it is read from",
    },
    Listed {
        member: "crates/cli/src/failure.rs",
        files: 5,
        reason: "a failure says which user ran the program, what stopped it, which output failed",
    },
    Listed {
        member: "crates/client/src/client.rs",
        files: 2,
        reason: "a client maps regions, which keep their client",
    },
    Listed {
        member: "crates/client/src/connection/mod.rs",
        files: 8,
        reason: "a connection, its tasks and the requests that they answer",
    },
    Listed {
        member: "crates/client/src/file/mod.rs",
        files: 2,
        reason: "a file is opened with options, and what a CREATE answers makes a file",
    },
    Listed {
        member: "crates/client/src/transport/direct/driver.rs",
        files: 2,
        reason: "a transport and the thread that drives it",
    },
    Listed {
        member: "crates/log/src/format/mod.rs",
        files: 3,
        reason: "the formats of a log share its identity and checksum",
    },
    Listed {
        member: "crates/log/src/tail_log.rs",
        files: 2,
        reason: "a log reads its records by a replay, which reads the log",
    },
    Listed {
        member: "crates/pmem/src/open.rs",
        files: 2,
        reason: "a mapping fails with the errors of opening it",
    },
    Listed {
        member: "crates/rdma/src/soft/batch/mod.rs",
        files: 4,
        reason: "a batch and the kinds of work in it share their outcome",
    },
    Listed {
        member: "crates/rdma/src/soft/engine.rs",
        files: 10,
        reason: "the engine and its queue pairs, whose two halves frame each other's messages",
    },
    Listed {
        member: "crates/rdma/src/soft/socket/mod.rs",
        files: 5,
        reason: "a socket is one of three kinds, which share the errors of sockets",
    },
    Listed {
        member: "crates/rdma/src/verbs/engine.rs",
        files: 2,
        reason: "the engine and its way to a connection",
    },
    Listed {
        member: "crates/rdma/src/verbs/sys/device.rs",
        files: 2,
        reason: "devices come from the connection manager, whose ids name devices",
    },
    Listed {
        member: "crates/remote/src/host/handle.rs",
        files: 3,
        reason: "the handle of a host and the commands that carry connections' handles",
    },
    Listed {
        member: "crates/remote/src/region/channel.rs",
        files: 4,
        reason: "a channel and its control side, whose errors are reasons of a fallback",
    },
    Listed {
        member: "crates/remote/src/region/engine.rs",
        files: 2,
        reason: "an engine and the thread that several engines share",
    },
    Listed {
        member: "crates/remote/src/region/mod.rs",
        files: 2,
        reason: "a region and its asynchronous form, which falls back to it",
    },
    Listed {
        member: "crates/replica/src/core/mod.rs",
        files: 9,
        reason: "one state machine: a step takes an event to the part that knows it, and each part acts on the one state",
    },
    Listed {
        member: "crates/server/src/connections/link/mod.rs",
        files: 3,
        reason: "a connection has channels of sessions, a session its connections, and their table both",
    },
    Listed {
        member: "crates/server/src/push/region.rs",
        files: 2,
        reason: "a region and the witness in front of its medium",
    },
    Listed {
        member: "crates/server/src/report/mod.rs",
        files: 4,
        reason: "the rows of a report and their sources; the server makes reports of itself",
    },
    Listed {
        member: "crates/server/src/state/node.rs",
        files: 2,
        reason: "a file has its opens, and an open its file",
    },
    Listed {
        member: "crates/server/src/transport/direct/table.rs",
        files: 7,
        reason: "a peer is in the table that its own transfers look it up in",
    },
    Listed {
        member: "crates/server/src/users/mod.rs",
        files: 2,
        reason: "the file of users and the change of it share their errors",
    },
    Listed {
        member: "crates/smb/src/auth/initiate.rs",
        files: 2,
        reason: "an initiator fails with the errors of its mechanism, and that with its own",
    },
    Listed {
        member: "crates/smb/src/auth/kerberos/mod.rs",
        files: 3,
        reason: "a ticket and its parts share their errors",
    },
    Listed {
        member: "crates/smb/src/header.rs",
        files: 4,
        reason: "a header names its command, and a command says which lengths a message has",
    },
    Listed {
        member: "crates/smbdirect/src/error.rs",
        files: 3,
        reason: "the reason of a close carries the status of a response",
    },
    Listed {
        member: "fuzz/bodies/src/client/hostile/mod.rs",
        files: 4,
        reason: "the parts of one hostile server share its guest",
    },
    Listed {
        member: "xtask/src/compare/mod.rs",
        files: 2,
        reason: "the comparison and the work that it measures, by the same options",
    },
    Listed {
        member: "xtask/src/guest/adapter.rs",
        files: 2,
        reason: "two programs of the same guest take facts from each other",
    },
    Listed {
        member: "xtask/src/peer.rs",
        files: 3,
        reason: "a peer is one of two servers, which have its address",
    },
    Listed {
        member: "xtask/src/sim/mod.rs",
        files: 2,
        reason: "a seed is run elsewhere by the simulator that is built here",
    },
    Listed {
        member: "xtask/src/torture/mod.rs",
        files: 2,
        reason: "the record of the runs holds their verdicts",
    },
    Listed {
        member: "crates/flash/src/lane.rs",
        files: 8,
        reason: "a file is in the lane of its device, whose thread brings the files of the registry to their end",
    },
    Listed {
        member: "crates/tree/src/residency.rs",
        files: 2,
        reason: "the configuration of a share names the residency, which is made of the configuration",
    },
    Listed {
        member: "xtask/src/mutants/mod.rs",
        files: 2,
        reason: "options and judgement are the same whether mutants are built one by one or together",
    },
];
