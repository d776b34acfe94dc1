//! What has to be so: while faults happen, and once they have ended.

use replica::MemberSet;
use replica::core::{Action, Lane};

use crate::disk::shown;
use crate::member::{Member, Writer};
use crate::world::World;

impl World<'_> {
    pub(crate) fn states(&self) -> String {
        let state = |member: &Member| match &member.process {
            None => format!("{}: down", member.id),
            Some(process) => {
                let status = process.core.status();
                let busy: Vec<_> = process
                    .lanes
                    .iter()
                    .filter_map(|(lane, queue)| {
                        queue.running.as_ref().map(|action| format!("{lane:?} {action:?}"))
                    })
                    .collect();
                format!("{}: {status:?} {:?} busy {busy:?}", member.id, member.disk.label.contents)
            }
        };
        self.members.iter().map(state).collect::<Vec<_>>().join("\n   ")
    }

    // A destination that says it may be mounted is what some records made, in their order.
    pub(crate) fn probe(&mut self) {
        for member in &self.members {
            let Some(process) = &member.process else { continue };
            let core = &process.core;
            if core.is_source() || !member.rotten.is_empty() {
                continue;
            }
            if !core.is_consistent() {
                continue;
            }
            let busy = process.lanes.get(&Lane::Volumes).and_then(|it| it.running.as_ref());
            if matches!(busy, Some(Action::Apply(..) | Action::PutCopy)) {
                continue;
            }
            let Some(sum) = core.sum_before(core.applied()) else { continue };
            self.sums.probes += 1;
            // What its ring says beyond has grown no volume yet.
            let volumes = shown(&member.disk.volumes, &core.sizes_at(core.applied()));
            if let Err(fault) = self.truth.is_behind(sum, &volumes) {
                self.fault =
                    Some(format!("{} says it is a copy at {}: {fault}", member.id, core.applied()));
                return;
            }
        }
    }

    // What a source lets be read is the last acknowledged write of each cell, whoever acknowledged it, or one without an answer.
    pub(crate) fn read(&mut self) {
        for at in 0..self.plan.members {
            let clock = self.clock_of(at);
            let member = &self.members[usize::from(at)];
            let Some(process) = &member.process else { continue };
            if !process.core.is_source() || !process.is_open || self.is_stopped(at) {
                continue;
            }
            let may_be_old = process.core.has_handed_over() || process.core.reads_until() <= clock;
            if may_be_old {
                self.sums.reads_waited += 1;
                continue;
            }
            // Without a lease that is promised to nobody; and a lease rests on clocks that do not jump.
            if self.plan.read_lease_ns == 0 || self.plan.jump_every > 0 {
                continue;
            }
            self.sums.reads += 1;
            let volumes = shown(&member.disk.volumes, process.core.sizes());
            if let Err(fault) = self.truth.is_read(&volumes) {
                self.fault = Some(format!("{} lets read what is old: {fault}", member.id));
                return;
            }
        }
    }

    pub(crate) fn is_at_rest(&mut self) -> bool {
        let sources: Vec<u8> = (0..self.plan.members)
            .filter(|at| {
                self.members[usize::from(*at)]
                    .process
                    .as_ref()
                    .is_some_and(|it| it.core.is_source())
            })
            .collect();
        if sources.is_empty() && !self.plan.has_witness {
            self.operator_chooses();
            return false;
        }
        let [source] = sources[..] else { return false };
        let Some(process) = &self.members[usize::from(source)].process else { return false };
        let status = process.core.status();
        let all = (1 << self.plan.members) - 1;
        let is_done = status.is_ready
            && !status.has_failed
            && process.core.reads_until() > self.clock_of(source)
            && status.committed == status.end
            && status.applied == status.end
            && status.in_sync == MemberSet(all)
            && process.writers.iter().all(|writer| matches!(writer, Writer::Idle));
        is_done
            && self.members.iter().filter(|it| it.id.0 != source).all(|it| {
                let Some(process) = &it.process else { return false };
                let its = process.core.status();
                let has_all = its.end == status.end && its.durable == status.end;
                has_all
                    && !its.has_failed
                    && (its.applied == status.end || self.plan.retention_ns > 0)
                    && its.is_consistent
            })
    }

    pub(crate) fn judge(&mut self) -> Result<(), String> {
        let source = self
            .members
            .iter()
            .find(|it| it.process.as_ref().is_some_and(|it| it.core.is_source()))
            .and_then(Member::shown);
        let Some(source) = source else { return Err("no source".to_owned()) };
        self.truth.check(&source).map_err(|fault| format!("at rest: {fault}"))?;
        if self.plan.retention_ns > 0 {
            self.probe();
            return self.fault.take().map_or(Ok(()), Err);
        }
        for member in &self.members {
            let volumes = member.shown().unwrap_or_default();
            if volumes != source {
                let cell = (0..source.len()).find(|at| volumes.get(*at) != Some(&source[*at]));
                return Err(format!(
                    "at rest {} differs from the source in cell {cell:?}",
                    member.id
                ));
            }
        }
        Ok(())
    }
}
