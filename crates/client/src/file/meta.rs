//! Metadata and controls of an open file.
//!
//! Spec: MS-SMB2 §3.2.4.8, §3.2.4.9, §3.2.4.20.

use smb::info::{
    Disposition, EndOfFile, FileInfoClass, InfoType, NetworkOpen, Rename, RenameFlags,
    SecurityInformation,
};
use smb::{
    Command, ControlCode, FileId, IoctlRequest, IoctlResponse, OutputResponse, QueryInfoRequest,
    SetInfoRequest, SetInfoResponse,
};

use super::{File, FileStat};
use crate::connection::Half;
use crate::error::ClientError;
use crate::path::share_path;

impl File {
    /// Sizes, times and attributes now.
    ///
    /// # Errors
    /// The server's status.
    pub async fn stat(&self) -> Result<FileStat, ClientError> {
        let bytes = self.query_info(FileInfoClass::NETWORK_OPEN, NETWORK_OPEN_LEN).await?;
        let info = NetworkOpen::parse(&bytes)
            .map_err(|error| ClientError::PeerMalformed { command: Command::QUERY_INFO, error })?;
        Ok(FileStat {
            len: info.end_of_file,
            allocation_size: info.allocation_size,
            attributes: info.attributes,
            creation_time: info.creation_time,
            last_write_time: info.last_write_time,
            change_time: info.change_time,
        })
    }

    /// Truncates the file or extends it with zeros.
    ///
    /// # Errors
    /// The server's status.
    pub async fn set_len(&self, len: u64) -> Result<(), ClientError> {
        let mut buffer = Vec::new();
        EndOfFile { end_of_file: len }.emit(&mut buffer);
        self.set_info(FileInfoClass::END_OF_FILE, &buffer).await
    }

    /// Sets whether the file is deleted when its last open ends, also if that open ends with its
    /// connection. The last setting counts. The open needs the right to delete.
    ///
    /// # Errors
    /// The server's status.
    pub async fn delete_on_close(&self, delete: bool) -> Result<(), ClientError> {
        let dispose = |out: &mut Vec<u8>| dispose(self.id, delete, out);
        self.tree.call(Command::SET_INFO, 0, dispose).await.map(drop)
    }

    /// Gives the file another path on its share. The open needs the right to delete.
    ///
    /// # Errors
    /// The server's status; `OBJECT_NAME_COLLISION` if `to` exists and `replace` is not set.
    pub async fn rename(&self, to: &str, replace: bool) -> Result<(), ClientError> {
        let new = new_name(to, replace)?;
        let rename = |out: &mut Vec<u8>| name_anew(self.id, &new, out);
        self.tree.call(Command::SET_INFO, 0, rename).await.map(drop)
    }

    /// Keeps a file that was to be deleted with this open, under another path on its share: the server gets both
    /// requests in one frame.
    ///
    /// # Errors
    /// As [`File::rename`]. After an error it is unknown whether the file is deleted with its open, so a caller
    /// that wants it deleted must ask again; the file may even have its new name, if the server failed after
    /// the rename.
    pub async fn keep_as(&self, to: &str, replace: bool) -> Result<(), ClientError> {
        let new = new_name(to, replace)?;
        let keep = |out: &mut Vec<u8>| dispose(self.id, false, out);
        let rename = |out: &mut Vec<u8>| name_anew(FileId::RELATED, &new, out);
        let command = Command::SET_INFO;
        let halves = [Half { command, body: &keep }, Half { command, body: &rename }];
        let [kept, renamed] = self.tree.call_pair(halves).await?;
        // A server that renames a file without keeping it would delete the file under its new name.
        if kept.success().is_err() && renamed.header().status.is_success() {
            self.delete_on_close(false).await?;
        }
        renamed.success().map(drop)
    }

    /// Reads parts of the security descriptor in wire form.
    ///
    /// # Errors
    /// The server's status.
    pub async fn security(&self, parts: SecurityInformation) -> Result<Vec<u8>, ClientError> {
        self.query(InfoType::SECURITY, 0, parts, SECURITY_LEN_MAX).await
    }

    /// Sets parts of the security descriptor.
    ///
    /// # Errors
    /// The server's status; `NOT_SUPPORTED` if it stores no descriptor.
    pub async fn set_security(
        &self,
        parts: SecurityInformation,
        descriptor: &[u8],
    ) -> Result<(), ClientError> {
        self.set(InfoType::SECURITY, 0, parts, descriptor).await
    }

    /// Reads a class of file information in wire form.
    ///
    /// # Errors
    /// The server's status.
    pub async fn query_info(
        &self,
        class: FileInfoClass,
        len_max: u32,
    ) -> Result<Vec<u8>, ClientError> {
        self.query(InfoType::FILE, class.0, SecurityInformation::empty(), len_max).await
    }

    async fn query(
        &self,
        info_type: InfoType,
        class: u8,
        additional: SecurityInformation,
        len_max: u32,
    ) -> Result<Vec<u8>, ClientError> {
        let len_max = len_max.min(self.tree.answer_max());
        let request = QueryInfoRequest {
            info_type,
            class,
            output_length_max: len_max,
            additional,
            flags: 0,
            file_id: self.id,
            input: &[],
        };
        let payload = usize::try_from(len_max).expect("u32 fits usize");
        let response =
            self.tree.call(Command::QUERY_INFO, payload, |out| request.emit(out)).await?;
        Ok(response.parse(OutputResponse::parse)?.output.to_vec())
    }

    /// Changes a class of file information.
    ///
    /// # Errors
    /// The server's status.
    pub async fn set_info(&self, class: FileInfoClass, buffer: &[u8]) -> Result<(), ClientError> {
        self.set(InfoType::FILE, class.0, SecurityInformation::empty(), buffer).await
    }

    async fn set(
        &self,
        info_type: InfoType,
        class: u8,
        additional: SecurityInformation,
        buffer: &[u8],
    ) -> Result<(), ClientError> {
        self.tree.check_len(buffer.len())?;
        let request = SetInfoRequest { info_type, class, additional, file_id: self.id, buffer };
        let response =
            self.tree.call(Command::SET_INFO, buffer.len(), |out| request.emit(out)).await?;
        response.parse(SetInfoResponse::parse).map(drop)
    }

    /// Sends a file-system control and returns its output, of which the server sends as much as one answer
    /// holds. A caller that stops waiting cancels it.
    ///
    /// # Errors
    /// The server's status; [`ClientError::ConfigTooLong`] for an input that no message holds.
    pub async fn ioctl(
        &self,
        code: ControlCode,
        input: &[u8],
        output_len_max: u32,
    ) -> Result<Vec<u8>, ClientError> {
        self.control(code, input, output_len_max, false).await
    }

    /// As [`File::ioctl`], of a control whose answer may take for ever.
    pub(crate) async fn ioctl_for_ever(
        &self,
        code: ControlCode,
        input: &[u8],
        output_len_max: u32,
    ) -> Result<Vec<u8>, ClientError> {
        self.control(code, input, output_len_max, true).await
    }

    async fn control(
        &self,
        code: ControlCode,
        input: &[u8],
        output_len_max: u32,
        for_ever: bool,
    ) -> Result<Vec<u8>, ClientError> {
        self.tree.check_len(input.len())?;
        let output_len_max = output_len_max.min(self.tree.answer_max());
        let request = IoctlRequest {
            code,
            file_id: self.id,
            input,
            input_response_max: 0,
            output_response_max: output_len_max,
            is_fsctl: true,
        };
        let output = usize::try_from(output_len_max).expect("u32 fits usize");
        let payload = input.len().max(output);
        let pending = match for_ever {
            true => self.tree.submit_for_ever(payload, |out| request.emit(out)).await?,
            false => self.tree.submit(Command::IOCTL, payload, |out| request.emit(out)).await?,
        };
        let response = pending.await?.success()?;
        Ok(response.parse(IoctlResponse::parse)?.output.to_vec())
    }
}

// SET_INFO: whether the file is deleted with its last open.
fn dispose(file_id: FileId, delete: bool, out: &mut Vec<u8>) {
    let mut buffer = Vec::new();
    Disposition { delete }.emit(&mut buffer);
    set_file(file_id, FileInfoClass::DISPOSITION, &buffer, out);
}

fn new_name(to: &str, replace: bool) -> Result<Rename, ClientError> {
    let flags = if replace { RenameFlags::REPLACE_IF_EXISTS } else { RenameFlags::empty() };
    Ok(Rename { flags, name: share_path(to)? })
}

// SET_INFO: the new path.
fn name_anew(file_id: FileId, new: &Rename, out: &mut Vec<u8>) {
    let mut buffer = Vec::new();
    new.emit(&mut buffer);
    set_file(file_id, FileInfoClass::RENAME, &buffer, out);
}

fn set_file(file_id: FileId, class: FileInfoClass, buffer: &[u8], out: &mut Vec<u8>) {
    let (info_type, additional) = (InfoType::FILE, SecurityInformation::empty());
    SetInfoRequest { info_type, class: class.0, additional, file_id, buffer }.emit(out);
}

const NETWORK_OPEN_LEN: u32 = 56;
// An access list has at most 64 KiB; owner and group are short.
const SECURITY_LEN_MAX: u32 = 65_536;
