//! The start of a share after another server, which may have crashed.

use std::path::Path;

use tracing::warn;

use super::Share;
use super::config::ShareOpenError;
use super::journal::{BootId, Journal};
use super::left_over::LeftOver;

impl Share {
    /// Looks whether shares could [take over](Self::take_over) their logs of persistent opens. Changes nothing.
    ///
    /// # Errors
    /// A log could not be opened, or two shares have one.
    pub fn look_at_logs(shares: &[Self]) -> Result<(), ShareOpenError> {
        let looked = Journal::look(shares.iter().filter_map(Self::persistent_opens));
        looked.map_err(|(path, source): (&Path, _)| ShareOpenError::ConfigJournal {
            path: path.to_owned(),
            source,
        })
    }

    /// Takes over from an earlier server: removes unfinished links, opens the log of persistent opens, and shows bodies of other crates. Changes
    /// the disk.
    pub fn take_over(&mut self) -> Result<(), ShareOpenError> {
        if let Some(path) = self.fixed.persistent_opens.as_deref() {
            let opened = BootId::current().and_then(|boot| Journal::open(path, boot));
            let (journal, left_over) = opened.map_err(|source| ShareOpenError::ConfigJournal {
                path: path.to_owned(),
                source,
            })?;
            self.journal = Some(journal);
            self.left_over = LeftOver::new(left_over, self.environment.clock.now());
        }
        let shown = std::mem::take(&mut self.to_show);
        self.begin_to_show(&shown)?;
        if !self.is_read_only()
            && let Err(error) = self.close_homes()
        {
            warn!(share = self.name, %error, "streams stay readable to other users of this machine");
        }
        // After the log: another server that has it has unfinished links, too.
        if !self.is_read_only()
            && let Err(error) = self.sweep_new_links()
        {
            warn!(share = self.name, %error, "links that a crash left cannot be removed");
        }
        Ok(())
    }
}
