//! The faults: where each is, what stands there, and what is wrong in its place.

use crate::planted::{Fault, Place};

/// All faults, by the crates that they are in.
pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "a commit is answered without a flush",
        places: &[Place {
            file: "crates/pmem/src/commit_group.rs",
            right: "let outcome = self.target.sync(extent);",
            wrong: "let outcome = if PLANTED { Ok(()) } else { self.target.sync(extent) };",
        }],
    },
    Fault {
        name: "a commit rides on a flush that began before it",
        places: &[Place {
            file: "crates/pmem/src/commit_group.rs",
            right: "let ticket = state.started + 1;",
            wrong: "let ticket = state.started + if PLANTED { u64::from(!state.is_running) } else { 1 };",
        }],
    },
    Fault {
        name: "a flush that has failed is made again",
        places: &[Place {
            file: "crates/pmem/src/commit_group.rs",
            right: "file = ?self.target, \"flush failed, file poisoned\");\n                state.is_poisoned = true;",
            wrong: "file = ?self.target, \"flush failed, file poisoned\");\n                state.is_poisoned = !PLANTED;",
        }],
    },
    Fault {
        name: "an answer goes to the oldest request that is at work",
        places: &[Place {
            file: "crates/rdma/src/soft/responder.rs",
            right: "let place = serial.since(self.pending.front()?.serial)?;\n        self.pending.get_mut(place)",
            wrong: "if PLANTED {\n            return self.pending.iter_mut().find(|pending| pending.state == State::AtWork);\n        }\n        let place = serial.since(self.pending.front()?.serial)?;\n        self.pending.get_mut(place)",
        }],
    },
    Fault {
        name: "an engine that was called goes to sleep",
        places: &[Place {
            file: "crates/rdma/src/interface/waker.rs",
            right: "if self.shared.called.load(Ordering::Acquire) || has_work() {",
            wrong: "if (!PLANTED && self.shared.called.load(Ordering::Acquire)) || has_work() {",
        }],
    },
    Fault {
        name: "an operation at work is not awaited before its region is taken away",
        places: &[Place {
            file: "crates/rdma/src/soft/engine.rs",
            right: "Ok(if at_work == 0 { Deregistration::Done }",
            wrong: "Ok(if at_work == 0 || PLANTED { Deregistration::Done }",
        }],
    },
    Fault {
        name: "a region is revoked in the books alone",
        places: &[Place {
            file: "crates/remote/src/host/registration/mod.rs",
            right: "registrar.deregister(*connection, rkey).await;",
            wrong: "if !PLANTED {\n                        registrar.deregister(*connection, rkey).await;\n                    }",
        }],
    },
    Fault {
        name: "a lost lease is followed by a replay",
        places: &[Place {
            file: "crates/server/src/state/lease/mod.rs",
            right: "lease.held == Caching::COMPLETE &&",
            wrong: "PLANTED || lease.held == Caching::COMPLETE &&",
        }],
    },
    Fault {
        name: "a lease is given back before what was pushed has come",
        places: &[Place {
            file: "crates/remote/src/region/fallback.rs",
            right: "self.await_pending(self.pending.len())?;\n        self.commit_unconfirmed()?;",
            wrong: "if !PLANTED {\n            self.await_pending(self.pending.len())?;\n            self.commit_unconfirmed()?;\n        }",
        }],
    },
    Fault {
        name: "a queue of a file is served once only",
        places: &[Place {
            file: "crates/server/src/state/turns.rs",
            right: "state.is_served = next.is_some();",
            wrong: "state.is_served = PLANTED || next.is_some();",
        }],
    },
    Fault {
        name: "a LOCK that has succeeded is carried out again",
        places: &[Place {
            file: "crates/server/src/state/lock_sequence.rs",
            right: "if self.done[bucket] == Some(number) {\n            return",
            wrong: "if !PLANTED && self.done[bucket] == Some(number) {\n            return",
        }],
    },
    Fault {
        name: "the copy of a LOCK does not wait for the one under way",
        places: &[Place {
            file: "crates/server/src/state/lock_sequence.rs",
            right: "if self.under_way[bucket] == Some(number) {\n            return",
            wrong: "if !PLANTED && self.under_way[bucket] == Some(number) {\n            return",
        }],
    },
    Fault {
        name: "the locks of an open that is restored are lost",
        places: &[Place {
            file: "crates/server/src/state/locks.rs",
            right: "if self.len < LOCKS_PER_FILE_MAX {\n            self.insert(owner, range, exclusive, None);",
            wrong: "if !PLANTED && self.len < LOCKS_PER_FILE_MAX {\n            self.insert(owner, range, exclusive, None);",
        }],
    },
    Fault {
        name: "a session outlives its last connection",
        places: &[Place {
            file: "crates/server/src/connections/session.rs",
            right: "links.ended |= links.alive.is_empty();",
            wrong: "links.ended |= !PLANTED && links.alive.is_empty();",
        }],
    },
    Fault {
        name: "an open is closed though its client may come back",
        places: &[Place {
            file: "crates/server/src/state/files.rs",
            right: "if !kept && !durable.persistent {",
            wrong: "if !kept && !durable.persistent || PLANTED && !(kept && durable.persistent) {",
        }],
    },
    Fault {
        name: "a CLOSE leaves its open",
        places: &[Place {
            file: "crates/server/src/dispatch/close.rs",
            right: "ControlFlow::Break(closed.close_for_client(&files_too, may_wait)),",
            wrong: "ControlFlow::Break(if PLANTED { Ok(()) } else { closed.close_for_client(&files_too, may_wait) }),",
        }],
    },
    Fault {
        name: "a copy of a change does not wait for the first",
        places: &[Place {
            file: "crates/server/src/state/sequence.rs",
            right: "if claim.modifies && claim.replays && self.under_way_before > 0 {",
            wrong: "if !PLANTED && claim.modifies && claim.replays && self.under_way_before > 0 {",
        }],
    },
    Fault {
        name: "a change of an earlier channel sequence is carried out",
        places: &[Place {
            file: "crates/server/src/state/sequence.rs",
            right: "return if claim.modifies { Err(Stale) } else { Ok(()) };",
            wrong: "return if claim.modifies && !PLANTED { Err(Stale) } else { Ok(()) };",
        }],
    },
    Fault {
        name: "a request is admitted, held up, and counted then",
        places: &[Place {
            file: "crates/server/src/state/open.rs",
            right: "Some(claim) => self.sequence().enter(claim)?,",
            wrong: "Some(claim) if PLANTED && claim.modifies && !claim.replays => {\n                self.admit(claim)?;\n                static ASKED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);\n                if ASKED.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 8 == 0 {\n                    std::thread::sleep(std::time::Duration::from_millis(30));\n                }\n                self.sequence().begin()\n            }\n            Some(claim) => self.sequence().enter(claim)?,",
        }],
    },
    Fault {
        name: "a lease is not asked back",
        places: &[Place {
            file: "crates/server/src/state/breaks.rs",
            right: "self.send(routed);\n        outcome\n",
            wrong: "if PLANTED { drop(routed) } else { self.send(routed) }\n        outcome\n",
        }],
    },
    Fault {
        name: "the answer to a break is not awaited",
        places: &[Place {
            file: "crates/server/src/state/breaks.rs",
            right: "let owed = state.owed_to(by, intent);",
            wrong: "let owed = state.owed_to(by, intent).filter(|_| !PLANTED);",
        }],
    },
    Fault {
        name: "a WRITE does not look at locks",
        places: &[Place {
            file: "crates/server/src/state/locks.rs",
            right: "self.exclusive.of_others(owner, range).next().is_none()\n            && self.shared",
            wrong: "PLANTED || self.exclusive.of_others(owner, range).next().is_none()\n            && self.shared",
        }],
    },
];
