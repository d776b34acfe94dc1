//! The order of all locks of the server: this table and that of `tree/src/lock_order.rs`, whose ranks stand here in
//! their places. `basics::ordered` checks the order whenever a thread takes a lock.
//!
//! No lock is held over an await, nor over a system call that may wait but where the table says so. What several tasks
//! wait for beside these locks (claims of names, removals) has its order in ARCHITECTURE.md, "Locks on names".

use basics::ordered::LEAVES;

basics::ranks! {
    /// All ranks of this crate.
    #[allow(dead_code, reason = "a test compares them with those of `tree`")]
    pub(crate) const ALL;
    //   0  `tree::lock_order::Restoring`, while system calls wait
    /// Shared by the changes that requests make through an open, while system calls wait; taken alone by code that
    /// waits for their end.
    pub(crate) Changes = 1, "the changes through an open";
    /// The sessions of the server.
    pub(crate) Sessions = 4, "the table of sessions";
    /// The trees that a session is connected to.
    pub(crate) Trees = 5, "the trees of a session";
    /// The pipes of a session.
    pub(crate) Pipes = 7, "the pipes of a session";
    /// The opens of a session.
    pub(crate) Opens = 8, "the opens of a session";
    //  12  `tree::lock_order::RecordedNames`, while system calls wait
    //  13  `tree::lock_order::Links`, while system calls wait
    //  14  `tree::lock_order::DirectoryNames`, while system calls wait
    /// What opens of one file have to agree on.
    pub(crate) Node = 16, "a node";
    /// Regions, tokens and connections of push mode.
    pub(crate) Push = 18, "the tables of push";
    /// Break notices that wait for the answer of a CREATE: sent under the lock.
    pub(crate) Told = 20, "the notices that wait for an answer";
    /// Nodes by their keys.
    pub(crate) Nodes = LEAVES, "the table of nodes";
    /// Opens without a session.
    pub(crate) Orphans = LEAVES + 1, "the opens without a session";
    /// Orphans to be closed.
    pub(crate) GivenUp = LEAVES + 2, "the opens that are given up";
    /// Durable opens by serial.
    pub(crate) DurableOpens = LEAVES + 3, "the durable opens";
    /// CREATEs that a client may repeat.
    pub(crate) Creates = LEAVES + 4, "the CREATEs that may come again";
    /// Lease keys in use.
    pub(crate) LeaseKeys = LEAVES + 5, "the lease keys";
    /// Directories that are being moved.
    pub(crate) MovingDirectories = LEAVES + 6, "the directories being moved";
    /// Names that are being made.
    pub(crate) Makings = LEAVES + 7, "the names being made";
    /// What waits for its turn at one file.
    pub(crate) Turns = LEAVES + 8, "the turns at a file";
    /// Over which connection a holder of caching was asked.
    pub(crate) Asked = LEAVES + 9, "the connection asked last";
    /// How far the requests of an open have come, where a client may repeat them.
    pub(crate) Sequence = LEAVES + 10, "the sequence of an open";
    /// LOCK requests that were carried out.
    pub(crate) LockSequences = LEAVES + 11, "the lock sequences of an open";
    /// The place of an open among those of its user.
    pub(crate) Place = LEAVES + 12, "the place of an open";
    /// The accounts of users.
    pub(crate) Accounts = LEAVES + 13, "the accounts";
    /// Which connection ends for an account.
    pub(crate) Ending = LEAVES + 14, "the connection that ends for an account";
    /// The exported shares.
    pub(crate) Shares = LEAVES + 15, "the list of shares";
    /// Users and their secrets, and the files that these are read from: a system call may wait.
    pub(crate) Users = LEAVES + 16, "the users";
    /// All that one connection holds: its window, channels, requests, queue and logon; one at a time.
    pub(crate) Connection = LEAVES + 17, "a part of a connection";
    /// Connections by client, and those that may be evicted; failed logons.
    pub(crate) Connections = LEAVES + 18, "a table of connections";
    /// The connections of a session.
    pub(crate) Links = LEAVES + 19, "the connections of a session";
    /// A request that is kept, and what is held for it.
    pub(crate) Kept = LEAVES + 20, "a request that is kept";
    /// The accounts for work over one file system each.
    pub(crate) Lanes = LEAVES + 21, "the accounts over file systems";
    //  54  from LEAVES + 22 on: the leaves of `tree`
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ALL;

    #[test]
    fn all_ranks_of_server_and_tree_are_distinct_and_have_names_of_their_own() {
        let all = || ALL.iter().chain(tree::lock_order::ALL);
        let ranks: BTreeSet<_> = all().map(|(rank, _)| rank).collect();
        let names: BTreeSet<_> = all().map(|(_, name)| name).collect();
        assert_eq!((ranks.len(), names.len()), (all().count(), all().count()));
    }
}
