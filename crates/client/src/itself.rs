//! What a path itself names, and not what a symbolic link of that name leads to.
//!
//! A link has `FileAttributes::REPARSE_POINT`. It is seen where the server and the client agreed on the rules of POSIX
//! ([`ConnectOptions::posix`](crate::ConnectOptions::posix)); such a path is taken as it is spelled, case included, and none of
//! its directories may be a link. A server of Windows shows its links without that; others follow links and do not say so.

use smb::create::CreateOptions;
use smb::info::{self, DirectoryEntry, FileInfoClass, FileName};

use crate::client::{Client, for_delete};
use crate::directory;
use crate::error::ClientError;
use crate::file::{FileStat, OpenOptions};

impl Client {
    /// As [`Client::stat`], of a link itself.
    ///
    /// # Errors
    /// The server's status.
    pub async fn stat_itself(&self, path: &str) -> Result<FileStat, ClientError> {
        let file = self.open(path, &self.itself(OpenOptions::attributes())).await?;
        let stat = file.opened_as();
        file.close().await?;
        Ok(stat)
    }

    /// As [`Client::list`], with links as links.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn list_itself(&self, path: &str) -> Result<Vec<DirectoryEntry>, ClientError> {
        let file = self.open(path, &self.itself(OpenOptions::directory())).await?;
        let entries = directory::list(file.tree(), file.id(), self.listing_bytes_max).await?;
        file.close().await?;
        Ok(entries)
    }

    /// As [`Client::delete`], of a link itself.
    ///
    /// # Errors
    /// The server's status.
    pub async fn delete_itself(&self, path: &str) -> Result<(), ClientError> {
        let file = self.open(path, &self.itself(for_delete())).await?;
        file.delete_on_close(true).await?;
        file.close().await
    }

    fn itself(&self, options: OpenOptions) -> OpenOptions {
        let of_links = options.options | CreateOptions::OPEN_REPARSE_POINT;
        OpenOptions { options: of_links, posix: self.negotiated().posix, ..options }
    }

    /// A path as its names are spelled on the server, where the server says it (dialect 3.1.1).
    ///
    /// # Errors
    /// The server's status.
    pub async fn spelling(&self, path: &str) -> Result<String, ClientError> {
        let file = self.open(path, &OpenOptions::attributes()).await?;
        let said = file.query_info(FileInfoClass::NORMALIZED_NAME, NAME_LEN_MAX).await;
        file.close().await?;
        let said = match said {
            Err(error) if error.status().is_some() => return Ok(path.to_owned()),
            said => said?,
        };
        let Ok(spelled) = FileName::parse(&said) else { return Ok(path.to_owned()) };
        Ok(spelled.name.replace('\\', "/"))
    }

    /// Which file a path leads to, among all files of the server; none where the server does not say. Two names, of one share or
    /// of two, that lead to one file have one identity.
    ///
    /// # Errors
    /// The server's status.
    pub async fn identity(&self, path: &str) -> Result<Option<(u64, [u8; 16])>, ClientError> {
        let file = self.open(path, &OpenOptions::attributes()).await?;
        let said = file.query_info(FileInfoClass::ID, IDENTITY_LEN).await;
        file.close().await?;
        match said {
            Err(error) if error.status().is_some() => Ok(None),
            said => Ok(info::Id::parse(&said?).ok().map(|id| (id.volume_id, id.file_id))),
        }
    }
}

/// The longest path of a share in UTF-16, with its length.
const NAME_LEN_MAX: u32 = 4 + 2 * 32_767;
const IDENTITY_LEN: u32 = 24;
