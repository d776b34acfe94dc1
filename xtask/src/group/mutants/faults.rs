//! The faults: where each is, what stands there, and what is wrong in its place.

use crate::planted::{Fault, Place};

/// All faults, by what they break: commits, who is in sync, promotion, coming back, forgetting, copies, handing over.
pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "a write is committed before it is durable here",
        places: &[Place {
            file: "crates/replica/src/core/source/mod.rs",
            right: "        let durable = self.order.durable();\n        let committed = self.committed;",
            wrong: "        let durable = if PLANTED { self.order.placed() } else { self.order.durable() };\n        let committed = self.committed;",
        }],
    },
    Fault {
        name: "a member in sync that is away is not waited for",
        places: &[Place {
            file: "crates/replica/src/core/source/mod.rs",
            right: "self.confirmed.contains(other.member) || changes || joins",
            wrong: "(!PLANTED && self.confirmed.contains(other.member)) || changes || joins",
        }],
    },
    Fault {
        name: "what came during a flush counts as flushed",
        places: &[Place {
            file: "crates/replica/src/core/mod.rs",
            right: "                self.order.is_durable(to);",
            wrong: "                self.order.is_durable(if PLANTED { self.order.placed() } else { to });",
        }],
    },
    Fault {
        name: "a member says that what is placed is durable",
        places: &[Place {
            file: "crates/replica/src/core/destination/mod.rs",
            right: "(order.placed(), order.durable(), self.applied",
            wrong: "(order.placed(), if PLANTED { order.placed() } else { order.durable() }, self.applied",
        }],
    },
    Fault {
        name: "a record is applied before it is committed",
        places: &[Place {
            file: "crates/replica/src/core/destination/applying.rs",
            right: "let limit = known.min(durable)",
            wrong: "let limit = if PLANTED { durable } else { known }.min(durable)",
        }],
    },
    Fault {
        name: "a record is applied though a crash forgets that it was committed",
        places: &[Place {
            file: "crates/replica/src/core/destination/applying.rs",
            right: "let known = destination.known.min(committed);",
            wrong: "let known = if PLANTED { committed } else { destination.known.min(committed) };",
        }],
    },
    Fault {
        name: "a set in sync counts before the label has it",
        places: &[Place {
            file: "crates/replica/src/core/in_sync.rs",
            right: "        change.step = Step::Storing;\n",
            wrong: "        change.step = if PLANTED { Step::Stored(0) } else { Step::Storing };\n",
        }],
    },
    Fault {
        name: "a set in sync counts before its members have it",
        places: &[Place {
            file: "crates/replica/src/core/in_sync.rs",
            right: "Step::Stored(_) if change.waits_for.iter().all(gone) => {}",
            wrong: "Step::Stored(_) if PLANTED || change.waits_for.iter().all(gone) => {}",
        }],
    },
    Fault {
        name: "a member hears that it is in sync before the label has it",
        places: &[Place {
            file: "crates/replica/src/core/in_sync.rs",
            right: "        self.store_label(AfterLabel::SetStored(number));\n",
            wrong: "        self.store_label(AfterLabel::SetStored(number));\n        if PLANTED {\n            self.tell_set();\n        }\n",
        }],
    },
    Fault {
        name: "the label forgets a member before that one knows that it is in sync no more",
        places: &[Place {
            file: "crates/replica/src/core/in_sync.rs",
            right: "            false => self.tell_set(),\n",
            wrong: "            false if PLANTED => self.store_set(),\n            false => self.tell_set(),\n",
        }],
    },
    Fault {
        name: "a member is taken in while another may be the source",
        places: &[Place {
            file: "crates/replica/src/core/in_sync.rs",
            right: "if !has_witness && source.may_be_elsewhere().is_some() {",
            wrong: "if !PLANTED && !has_witness && source.may_be_elsewhere().is_some() {",
        }],
    },
    Fault {
        name: "a member joins before commits wait for it",
        places: &[Place {
            file: "crates/replica/src/core/in_sync.rs",
            right: "stream.joins && stream.allows(other.mode) >= committed",
            wrong: "stream.joins && (PLANTED || stream.allows(other.mode) >= committed)",
        }],
    },
    Fault {
        name: "a member outside the set is promoted",
        places: &[Place {
            file: "crates/replica/src/core/promotion.rs",
            right: "if !by_force && !is_in_sync {",
            wrong: "if !by_force && !is_in_sync && !PLANTED {",
        }],
    },
    Fault {
        name: "a promotion does not wait for what is under way",
        places: &[Place {
            file: "crates/replica/src/core/promotion.rs",
            right: "|| destination.connection().is_some() || !is_quiet",
            wrong: "|| (!PLANTED && (destination.connection().is_some() || !is_quiet))",
        }],
    },
    Fault {
        name: "what a promoted member knew of the others counts",
        places: &[Place {
            file: "crates/replica/src/core/in_sync.rs",
            right: "        if is_promoted {",
            wrong: "        if is_promoted && !PLANTED {",
        }],
    },
    Fault {
        name: "a source of an older epoch is followed",
        places: &[Place {
            file: "crates/replica/src/core/destination/following.rs",
            right: "        } else if theirs.leads() < newest.leads() {",
            wrong: "        } else if !PLANTED && theirs.leads() < newest.leads() {",
        }],
    },
    Fault {
        name: "histories are compared by their length alone",
        places: &[Place {
            file: "crates/replica/src/core/joining.rs",
            right: "let common = self.label.history.common(end, &here.history, here.end);",
            wrong: "let common = match PLANTED {\n            true => Some(end.min(here.end)),\n            false => self.label.history.common(end, &here.history, here.end),\n        };",
        }],
    },
    Fault {
        name: "what a member strayed to is not copied back",
        places: &[Place {
            file: "crates/replica/src/core/joining.rs",
            right: "Some(common) if strayed => Some(common),",
            wrong: "Some(common) if strayed && !PLANTED => Some(common),",
        }],
    },
    Fault {
        name: "a member follows before what it lacks is stored",
        places: &[Place {
            file: "crates/replica/src/core/joining.rs",
            right: "let is_stored = stored >= other.dirty_ordered;",
            wrong: "let is_stored = PLANTED || stored >= other.dirty_ordered;",
        }],
    },
    Fault {
        name: "a crash forgets what a source had in its volumes",
        places: &[Place {
            file: "crates/replica/src/core/mod.rs",
            right: "            true => order.end(),\n",
            wrong: "            true if !PLANTED => order.end(),\n            true => committed,\n",
        }],
    },
    Fault {
        name: "a source that starts again waits for nobody",
        places: &[Place {
            file: "crates/replica/src/core/source/beginning.rs",
            right: "let unseen = in_sync.without(self.config.me);",
            wrong: "let unseen = if PLANTED { MemberSet::NONE } else { in_sync.without(self.config.me) };",
        }],
    },
    Fault {
        name: "a dirty map is stored after the ring is free",
        places: &[Place {
            file: "crates/replica/src/core/checkpoint.rs",
            right: "        self.store_dirty_maps();\n        if let Contents::MixedUntil(at)",
            wrong: "        if !PLANTED {\n            self.store_dirty_maps();\n        }\n        if let Contents::MixedUntil(at)",
        }],
    },
    Fault {
        name: "what an absent member lacks is not noted",
        places: &[Place {
            file: "crates/replica/src/core/checkpoint.rs",
            right: "            if follows {\n                continue;",
            wrong: "            if follows || PLANTED {\n                continue;",
        }],
    },
    Fault {
        name: "the ring is free before the volumes are flushed",
        places: &[Place {
            file: "crates/replica/src/core/checkpoint.rs",
            right: "let floor = self.floor(to);",
            wrong: "let floor = self.floor(if PLANTED { self.applied } else { to });",
        }],
    },
    Fault {
        name: "the ring is free before the label says so",
        places: &[Place {
            file: "crates/replica/src/core/checkpoint.rs",
            right: "        self.store_label(AfterLabel::Freed);",
            wrong: "        if PLANTED {\n            self.order.free(to);\n        }\n        self.store_label(AfterLabel::Freed);",
        }],
    },
    Fault {
        name: "a copy is put before the records before it",
        places: &[Place {
            file: "crates/replica/src/core/destination/copies.rs",
            right: "|(at, _)| *at <= applied)",
            wrong: "|(at, _)| PLANTED || *at <= applied)",
        }],
    },
    Fault {
        name: "a copied block is clean before it is durable there",
        places: &[Place {
            file: "crates/replica/src/core/streams.rs",
            right: "            0 => other.dirty.clear(extent),\n            _ =>",
            wrong: "            0 => other.dirty.clear(extent),\n            _ if PLANTED => other.dirty.clear(extent),\n            _ =>",
        }],
    },
    Fault {
        name: "copies end though a block was marked again",
        places: &[Place {
            file: "crates/replica/src/core/streams.rs",
            right: "if !other.dirty.is_clean() {",
            wrong: "if !other.dirty.is_clean() && !PLANTED {",
        }],
    },
    Fault {
        name: "a mixture is called a copy at one moment",
        places: &[Place {
            file: "crates/replica/src/core/destination/copies.rs",
            right: "self.label.contents = Contents::MixedUntil(at);",
            wrong: "self.label.contents =\n                if PLANTED { Contents::Consistent } else { Contents::MixedUntil(at) };",
        }],
    },
    Fault {
        name: "what is applied again is called a copy at one moment",
        places: &[Place {
            file: "crates/replica/src/core/mod.rs",
            right: "self.has_whole_copy() && self.applied >= self.replayed",
            wrong: "self.has_whole_copy() && (PLANTED || self.applied >= self.replayed)",
        }],
    },
    Fault {
        name: "no snapshot is kept from before copies",
        places: &[Place {
            file: "crates/replica/src/core/destination/following.rs",
            right: "        if told.with_copies {",
            wrong: "        if told.with_copies && !PLANTED {",
        }],
    },
    Fault {
        name: "a hand-over does not wait for the last records",
        places: &[Place {
            file: "crates/replica/src/core/hand_over/mod.rs",
            right: "let has_all = stream.durable >= end && committed >= end && applied >= end;",
            wrong: "let has_all =\n                    PLANTED || stream.durable >= end && committed >= end && applied >= end;",
        }],
    },
    Fault {
        name: "a source that has handed over goes on without the other",
        places: &[Place {
            file: "crates/replica/src/core/hand_over/mod.rs",
            right: "                source.unseen = source.unseen.with(to);",
            wrong: "                if !PLANTED {\n                    source.unseen = source.unseen.with(to);\n                }",
        }],
    },
    Fault {
        name: "a record that is not in its volume counts as applied",
        places: &[Place {
            file: "crates/replica/src/core/mod.rs",
            right: "            if !is_there {\n",
            wrong: "            if !is_there && !PLANTED {\n",
        }],
    },
    Fault {
        name: "a promotion does not wait for what was promised to a source that lets read",
        places: &[Place {
            file: "crates/replica/src/core/promotion.rs",
            right: "if has_promised && !is_handed {",
            wrong: "if has_promised && !is_handed && !PLANTED {",
        }],
    },
    Fault {
        name: "a lease is counted from when its answer may come",
        places: &[Place {
            file: "crates/replica/src/core/lease/mod.rs",
            right: "        stream.leased_until = stream.leased_until.max(asked.saturating_add(for_ns.min(lease)));",
            wrong: "        let from = if PLANTED { asked.saturating_add(lease / 2) } else { asked };\n        stream.leased_until = stream.leased_until.max(from.saturating_add(for_ns.min(lease)));",
        }],
    },
    Fault {
        name: "a crash forgets what was promised",
        places: &[Place {
            file: "crates/replica/src/core/lease/mod.rs",
            right: "            if !self.is_blank() {",
            wrong: "            if !self.is_blank() && !PLANTED {",
        }],
    },
    Fault {
        name: "clocks are taken for equally fast",
        places: &[Place {
            file: "crates/replica/src/core/lease/mod.rs",
            right: ".saturating_add(lease / DRIFT);",
            wrong: ".saturating_add(if PLANTED { 0 } else { lease / DRIFT });",
        }],
    },
    Fault {
        name: "a member about to be in sync need not have promised",
        places: &[Place {
            file: "crates/replica/src/core/lease/mod.rs",
            right: "        let may_be_promoted = MemberSet(source.confirmed.0 | changed.0);\n        let others",
            wrong: "        let changed = if PLANTED { MemberSet::NONE } else { changed };\n        let may_be_promoted = MemberSet(source.confirmed.0 | changed.0);\n        let others",
        }],
    },
    Fault {
        name: "what had grown at a source alone stays",
        places: &[Place {
            file: "crates/replica/src/core/destination/following.rs",
            right: "        self.config.volumes = volumes;",
            wrong: "        if !PLANTED {\n            self.config.volumes = volumes;\n        }",
        }],
    },
    Fault {
        name: "a map of what a member lacks is not as long as the volume",
        places: &[Place {
            file: "crates/replica/src/core/mod.rs",
            right: "            source.peers.iter_mut().for_each(|other| fit(&mut other.dirty, volumes));",
            wrong: "            if !PLANTED {\n                source.peers.iter_mut().for_each(|other| fit(&mut other.dirty, volumes));\n            }",
        }],
    },
    Fault {
        name: "a size that came with records is forgotten by a crash",
        places: &[Place {
            file: "crates/replica/src/core/mod.rs",
            right: "    entries.iter().for_each(|entry| grow(&mut sizes, entry));\n    sizes",
            wrong: "    if !PLANTED {\n        entries.iter().for_each(|entry| grow(&mut sizes, entry));\n    }\n    sizes",
        }],
    },
    Fault {
        name: "a member that starts again takes itself for in sync",
        places: &[Place {
            file: "crates/replica/src/core/promotion.rs",
            right: "&& !self.knows_set &&",
            wrong: "&& !(self.knows_set || PLANTED) &&",
        }],
    },
    Fault {
        name: "an epoch has the number of the one before",
        places: &[Place {
            file: "crates/replica/src/core/mod.rs",
            right: "number.max(above) + 1, restart: 0, nonce }",
            wrong: "number.max(above) + u32::from(!PLANTED), restart: 0, nonce }",
        }],
    },
    Fault {
        name: "a source that starts again has the epoch of before",
        places: &[Place {
            file: "crates/replica/src/core/source/beginning.rs",
            right: "restart: restart.max(known) + 1, nonce };",
            wrong: "restart: restart.max(known) + u32::from(!PLANTED), nonce };",
        }],
    },
    Fault {
        name: "a mixture is promoted",
        places: &[Place {
            file: "crates/replica/src/core/promotion.rs",
            right: "        if !self.may_become_consistent() {",
            wrong: "        if !self.may_become_consistent() && !PLANTED {",
        }],
    },
];
