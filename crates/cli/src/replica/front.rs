//! How a member offers its volumes: by NBD always, and as files while it is the source.
//!
//! What is offered is for one time of being the source. A client that was connected before is disconnected when that ends:
//! it may have kept blocks that another source has changed since.

use std::sync::Arc;
use std::time::Duration;

use block::BlockDevice;
use fuse::Mounted;
use nbd::{Address, Export, Exports, Handle, Server};
use replica::runtime::Member;

use super::args::Serve;
use crate::failure::Failure;
use crate::volume::NbdFailure;
use crate::{interrupt, output};

/// See the module.
pub(super) struct Front<'o> {
    options: &'o Serve,
    names: Vec<String>,
    member: Arc<Member>,
    tenure: u64,
    /// Calls of [`Front::follow`] until what could not be offered is tried again.
    pause: u32,
    served: Option<Handle>,
    mounted: Option<Mounted>,
    /// Files of earlier times that somebody still has open.
    ending: Vec<Mounted>,
}

impl<'o> Front<'o> {
    /// Offers the volumes of a member, as it is now.
    pub(super) fn new(
        options: &'o Serve,
        names: Vec<String>,
        member: Arc<Member>,
    ) -> Result<Self, Failure> {
        let tenure = member.tenure();
        let (served, mounted, ending) = (None, None, Vec::new());
        let mut front = Self { options, names, member, tenure, pause: 0, served, mounted, ending };
        front.offer()?;
        Ok(front)
    }

    /// Offers them anew if the member has become the source, or is none any more.
    pub(super) fn follow(&mut self) -> Result<(), Failure> {
        self.end_unused();
        let tenure = self.member.tenure();
        if tenure == self.tenure {
            self.pause = self.pause.saturating_sub(1);
            return if self.pause == 1 { self.try_offer() } else { Ok(()) };
        }
        self.tenure = tenure;
        self.served = None;
        self.ending.extend(self.mounted.take());
        self.end_unused();
        self.try_offer()
    }

    // The member goes on whether its volumes can be offered or not.
    fn try_offer(&mut self) -> Result<(), Failure> {
        self.pause = 0;
        match self.offer() {
            Err(Failure::Output(error)) => return Err(Failure::Output(error)),
            Err(failure) => {
                tracing::warn!(%failure, "the volumes cannot be offered; it is tried again");
                self.pause = RETRY;
            }
            Ok(()) => {}
        }
        Ok(())
    }

    fn end_unused(&mut self) {
        self.ending.retain_mut(|mounted| !matches!(mounted.try_end(), Ok(true)));
    }

    fn offer(&mut self) -> Result<(), Failure> {
        let devices: Vec<(String, Arc<dyn BlockDevice>)> =
            self.names.iter().cloned().zip(self.member.devices()).collect();
        if let Some(directory) = &self.options.fuse {
            if self.tenure == 0 {
                return Ok(());
            }
            let how = fuse::Options { loops: self.options.loops };
            let mounted = Mounted::new(devices, directory, how)?;
            let paths = mounted.paths().iter().map(|path| path.display().to_string()).collect();
            let loops = mounted.loops().map(|path| path.display().to_string());
            let shown: Vec<String> = loops.fold(paths, |mut all: Vec<_>, path| {
                all.push(path);
                all
            });
            self.mounted = Some(mounted);
            output::tell(&format!("serving {}\n", shown.join(", ")));
            return Ok(());
        }
        let unix = self.options.unix.clone().map(Address::Unix);
        let addresses: Vec<Address> =
            unix.into_iter().chain(self.options.nbd.map(Address::Tcp)).collect();
        if addresses.is_empty() {
            return Ok(());
        }
        let exports = devices
            .into_iter()
            .map(|(name, device)| Export::new(&name, "landfast replicated volume", device))
            .collect::<Result<Vec<_>, _>>()
            .map_err(NbdFailure::from)?;
        let exports = Exports::new(exports).map_err(NbdFailure::from)?;
        let server = Server::new(exports, None).map_err(NbdFailure::from)?;
        self.served = Some(server.listen(&addresses).map_err(NbdFailure::from)?);
        let role = if self.tenure == 0 { "refusing on" } else { "serving on" };
        let shown: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        output::tell(&format!("{role} {}\n", shown.join(", ")));
        Ok(())
    }

    /// Ends all of it, once nobody has a file open any more. What waits for other members is failed after [`GRACE`]; a second
    /// signal ends the process, or the waiting for files.
    pub(super) async fn end(mut self, stops: &mut interrupt::Stops) -> Result<(), Failure> {
        let served = self.served.take();
        // It waits for the requests that are under way.
        let mut ending = tokio::task::spawn_blocking(move || drop(served));
        let mut grace = std::pin::pin!(tokio::time::sleep(GRACE));
        let mut has_failed = false;
        loop {
            tokio::select! {
                _ = &mut ending => break,
                () = &mut grace, if !has_failed => {
                    has_failed = true;
                    self.member.fail_requests();
                }
                stop = stops.received() => interrupt::end(stop),
            }
        }
        self.ending.extend(self.mounted.take());
        let mut said = false;
        loop {
            self.end_unused();
            if self.ending.is_empty() {
                return Ok(());
            }
            if !std::mem::replace(&mut said, true) {
                output::tell(
                    "a file is in use; waiting until it is not (unmount what is mounted on its loop device)\n",
                );
            }
            tokio::select! {
                _ = stops.received() => return Ok(()),
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }
}

/// Calls of [`Front::follow`] after which what failed is tried again.
const RETRY: u32 = 100;
/// How often files that are in use are asked for.
const PAUSE: Duration = Duration::from_millis(200);
/// How long requests under way have once a signal has come, before those that wait for other members fail.
const GRACE: Duration = Duration::from_secs(2);
