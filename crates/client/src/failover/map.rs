//! A region that comes back with its handle.

use std::ops::Range;

use remote::{RegionConfigError, RegionSettings, Ways};
use tokio::runtime::Handle;

use super::coming_back::ComingBack;
use super::session::FailoverClient;
use crate::error::ClientError;
use crate::file::OpenOptions;
use crate::region::{AsyncRegion, FileControl};

impl FailoverClient {
    /// Opens a file by a persistent handle and maps `range` of it. Where the server is lost the region comes back with the
    /// handle: what was not confirmed is written again, and the region is mapped at the next server.
    ///
    /// # Errors
    /// As [`Client::map`] and [`FailoverClient::open`].
    pub async fn map(
        &self,
        path: &str,
        options: &OpenOptions,
        range: Range<u64>,
        settings: RegionSettings,
    ) -> Result<AsyncRegion, ClientError> {
        let control = Box::new(self.control(path, options, &range, &settings).await?);
        let (ways, environment) = (Ways::of(&settings), self.environment());
        let opened = AsyncRegion::open(control, ways, settings, environment, range).await;
        opened.map_err(|_| ClientError::HostThread)
    }

    pub(crate) async fn control(
        &self,
        path: &str,
        options: &OpenOptions,
        range: &Range<u64>,
        settings: &RegionSettings,
    ) -> Result<FileControl, ClientError> {
        settings.check()?;
        if range.is_empty() {
            return Err(RegionConfigError::EmptyRange(range.clone()).into());
        }
        let create_guid = self.draw_guid()?;
        let (number, file) = self.open_new(path, options, create_guid).await?;
        let len = file.opened_as().len;
        if len < range.end {
            file.close().await?;
            return Err(RegionConfigError::FileTooShort { len, end: range.end }.into());
        }
        let client = self.session().await.client;
        let control =
            FileControl::new(Handle::current(), client, path, options, file, range.clone());
        let back = ComingBack { client: self.clone(), session: number, create_guid };
        Ok(control.coming_back(Box::new(back)))
    }
}
