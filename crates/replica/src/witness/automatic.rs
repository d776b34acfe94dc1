//! A promoter at work: what etcd shows, the clock and the member go into it, and its decisions are carried out.
//!
//! ```text
//!   etcd's thread --Seen, Blind--> +-----------+ --Promote, Demote, HandOver--> the member
//!   the member   --Stands-------> | promoter  | --what it is-----------------> etcd, under a lease
//!   units' thread --Units...-----> +-----------+ --StartUnits, StopUnits-------> units' thread
//! ```

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::etcd::{Etcd, View};
use super::promoter::{Decision, Promoter, PromoterConfig, Sign, Standing};
use super::units::Units;
use crate::names::MemberId;

/// A member, as a promoter needs it.
pub trait Promoted: Send {
    /// What it is now.
    fn standing(&self) -> Standing;

    /// Carries out [`Decision::Promote`], [`Decision::Demote`] or [`Decision::HandOver`], and does not wait for it.
    fn carry_out(&mut self, decision: Decision);
}

/// The threads of a member that is promoted by itself. They end when this is dropped: units are stopped, and the member's key goes.
pub struct Automatic {
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Automatic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Automatic").finish_non_exhaustive()
    }
}

enum Order {
    Sign(Sign),
    End,
}

impl Automatic {
    /// Begins. What ran on the volumes before is stopped first: it may run from a life that ended badly.
    ///
    /// # Errors
    ///
    /// The threads cannot be started.
    pub fn start(
        etcd: Arc<Etcd>,
        config: PromoterConfig,
        units: Units,
        member: impl Promoted + 'static,
    ) -> io::Result<Self> {
        let (orders, taken) = channel();
        let (signs, watcher) = (orders.clone(), orders.clone());
        let (tell_units, told) = channel();
        let (report, reported) = channel();
        std::thread::Builder::new()
            .name("units".to_owned())
            .spawn(move || keep_units(&units, &told, &signs, &report))?;
        let thread = std::thread::Builder::new().name("promoter".to_owned()).spawn(move || {
            let mut work = Work {
                promoter: Promoter::new(config),
                began: Instant::now(),
                etcd,
                member,
                units: tell_units,
            };
            // The first report: what ran before has stopped.
            if reported.recv().is_ok() {
                match work.etcd.watch(Box::new(move |view| see(view, &watcher))) {
                    Ok(()) => work.go_on(&taken),
                    Err(error) => tracing::error!("{error}"),
                }
            }
            // The second one: what ran now has. Then another may have the part.
            let Work { etcd, units, .. } = work;
            drop(units);
            let _ = reported.recv();
            etcd.announce(None);
        })?;
        Ok(Self { orders, thread: Some(thread) })
    }

    /// Hands the source's part over, if this member is the source; what runs on the volumes stops before.
    pub fn hand_over(&self, to: MemberId) {
        let _ = self.orders.send(Order::Sign(Sign::HandOver(to)));
    }
}

impl Drop for Automatic {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn see(view: View, orders: &Sender<Order>) {
    let sign = match view {
        View::Seen(sight) => Sign::Seen(sight),
        View::Blind(error) => {
            tracing::warn!("{error}");
            Sign::Blind
        }
    };
    // Nobody asks any more once the promoter has ended.
    let _ = orders.send(Order::Sign(sign));
}

struct Work<M> {
    promoter: Promoter,
    began: Instant,
    etcd: Arc<Etcd>,
    member: M,
    units: Sender<Decision>,
}

impl<M: Promoted> Work<M> {
    fn go_on(&mut self, orders: &Receiver<Order>) {
        loop {
            match orders.recv_timeout(TICK) {
                Ok(Order::Sign(sign)) => self.step(sign),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
            let standing = self.member.standing();
            self.step(Sign::Stands(standing));
            self.etcd.announce(self.promoter.alive());
        }
    }

    fn step(&mut self, sign: Sign) {
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        for decision in self.promoter.step(now, sign) {
            tracing::info!("the promoter decides: {decision:?}");
            match decision {
                Decision::StartUnits | Decision::StopUnits => {
                    let _ = self.units.send(decision);
                }
                _ => self.member.carry_out(decision),
            }
        }
    }
}

// The program of the units' thread.
fn keep_units(
    units: &Units,
    orders: &Receiver<Decision>,
    signs: &Sender<Order>,
    report: &Sender<()>,
) {
    stop(units);
    let _ = report.send(());
    let mut runs = false;
    while let Ok(decision) = orders.recv() {
        let sign = if decision == Decision::StartUnits {
            let started = units.start();
            if let Err(error) = &started {
                tracing::error!("{error}");
            }
            runs = started.is_ok();
            Sign::UnitsStarted(runs)
        } else {
            runs = false;
            Sign::UnitsStopped(stop(units))
        };
        let _ = signs.send(Order::Sign(sign));
    }
    if runs {
        stop(units);
    }
    let _ = report.send(());
}

fn stop(units: &Units) -> bool {
    let errors = units.stop().err().unwrap_or_default();
    for error in &errors {
        tracing::error!("{error}");
    }
    errors.is_empty()
}

/// So often the member is asked what it is.
const TICK: Duration = Duration::from_millis(50);
