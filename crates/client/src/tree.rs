//! TREE_CONNECT from the client's side, and the check that the negotiation was not changed.
//!
//! Spec: MS-SMB2 §3.2.4.2.4, §3.2.5.5.

use std::net::IpAddr;
use std::sync::Arc;

use smb::fsctl::NetworkInterface;
use smb::negotiate::Dialect;
use smb::{
    Command, ControlCode, FileId, IoctlRequest, IoctlResponse, Name, NtStatus, ShareFlags,
    TreeConnectRequest, TreeConnectResponse, TreeId,
};

use crate::connection::validate_input;
use crate::connection::{
    Connection, Half, Leftover, PendingResponse, Request, Response, SessionSecurity,
};
use crate::error::{ClientError, ConnectionError};

/// A share that the client has entered. The client leaves it when the last clone is dropped.
#[derive(Debug)]
pub(crate) struct Tree {
    connection: Connection,
    session: Arc<SessionSecurity>,
    id: TreeId,
    encrypt: bool,
}

impl Tree {
    /// Enters a share.
    pub(crate) async fn enter(
        connection: Connection,
        session: Arc<SessionSecurity>,
        host: &str,
        share: &str,
        require_encryption: bool,
    ) -> Result<Self, ClientError> {
        let path = Name::new(format!("\\\\{host}\\{share}"))?;
        let mut tree = Self { connection, session, id: TreeId(0), encrypt: false };
        let request = TreeConnectRequest { flags: 0, path };
        let response = tree.call(Command::TREE_CONNECT, 0, |out| request.emit(out)).await?;
        let answer = response.parse(TreeConnectResponse::parse)?;
        tree.id = response.header().tree_id().unwrap_or(TreeId(0));
        tree.encrypt = require_encryption || answer.flags.contains(ShareFlags::ENCRYPT_DATA);
        if tree.encrypt && !tree.session.can_seal() {
            return Err(ClientError::ConfigEncryption);
        }
        tree.validate().await?;
        Ok(tree)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn session(&self) -> &SessionSecurity {
        &self.session
    }

    /// Whether messages of this tree are signed or encrypted.
    pub(crate) fn is_protected(&self) -> bool {
        self.session.signs() || self.encrypt || self.session.encrypts()
    }

    /// Whether messages of this tree are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.encrypt || self.session.encrypts()
    }

    fn request(&self, command: Command, payload: usize) -> Request<'_> {
        let request = Request::new(command).session(&self.session);
        Request { tree: self.id, encrypt: self.encrypt, payload, ..request }
    }

    /// Sends a request on this tree. `payload`: bytes of the larger of request and answer.
    pub(crate) async fn submit(
        &self,
        command: Command,
        payload: usize,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<PendingResponse, ConnectionError> {
        self.connection.submit(self.request(command, payload), body).await
    }

    /// Sends a CREATE, or a copy of one whose answer was lost.
    pub(crate) async fn submit_create(
        &self,
        replays: bool,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<PendingResponse, ConnectionError> {
        let request = Request { replays, ..self.request(Command::CREATE, 0) };
        self.connection.submit(request, body).await
    }

    /// Most bytes of the answer to a query or control.
    pub(crate) fn answer_max(&self) -> u32 {
        let negotiated = self.connection.negotiated().transact_size_max();
        negotiated.min(self.connection.receives_max())
    }

    /// Most bytes that a change or control can carry.
    pub(crate) fn request_max(&self) -> u32 {
        let negotiated = self.connection.negotiated().transact_size_max();
        negotiated.min(self.connection.sends_max())
    }

    /// Checks that a request can carry so many bytes.
    pub(crate) fn check_len(&self, len: usize) -> Result<(), ClientError> {
        let max = self.request_max();
        match u32::try_from(len).is_ok_and(|len| len <= max) {
            true => Ok(()),
            false => Err(ClientError::ConfigTooLong { len, max }),
        }
    }

    /// The addresses that the server announces, in canonical form.
    ///
    /// # Errors
    /// The server's status.
    pub(crate) async fn announced(&self) -> Result<Vec<IpAddr>, ClientError> {
        let request = IoctlRequest {
            code: ControlCode::QUERY_NETWORK_INTERFACE_INFO,
            file_id: NO_FILE,
            input: &[],
            input_response_max: 0,
            output_response_max: INTERFACES_LEN_MAX.min(self.answer_max()),
            is_fsctl: true,
        };
        let payload = usize::try_from(request.output_response_max).expect("u32 fits usize");
        let response = self.call(Command::IOCTL, payload, |out| request.emit(out)).await?;
        let output = response.parse(IoctlResponse::parse)?.output;
        let list = response.parse(|_| NetworkInterface::parse_list(output))?;
        Ok(list.into_iter().map(|interface| interface.address.to_canonical()).collect())
    }

    /// Closes a file as soon as there is a credit for it, without waiting.
    pub(crate) fn close_file(&self, file_id: FileId) {
        self.connection.close_file(self.session.id(), self.id, self.encrypt, file_id);
    }

    /// What is left to do when the caller of a CREATE has stopped waiting.
    pub(crate) fn unwanted_file(&self) -> Leftover {
        Leftover::File { tree: self.id, encrypt: self.encrypt }
    }

    /// Sends a control whose answer may take for ever.
    pub(crate) async fn submit_for_ever(
        &self,
        payload: usize,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<PendingResponse, ConnectionError> {
        let request = Request { for_ever: true, ..self.request(Command::IOCTL, payload) };
        self.connection.submit(request, body).await
    }

    /// Sends a request and waits for its answer, which must report success.
    pub(crate) async fn call(
        &self,
        command: Command,
        payload: usize,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Response, ClientError> {
        self.connection.call(self.request(command, payload), body).await
    }

    /// Sends two requests in one frame, the second of which uses the file of the first, and waits for both
    /// answers, of whatever status.
    pub(crate) async fn call_pair(
        &self,
        halves: [Half<'_>; 2],
    ) -> Result<[Response; 2], ClientError> {
        let request = self.request(halves[0].command, 0);
        let [first, second] = self.connection.submit_pair(request, halves).await?;
        Ok([first.await?, second.await?])
    }

    /// Sends a request and waits for its answer; the given statuses are no errors.
    pub(crate) async fn call_accepting(
        &self,
        command: Command,
        payload: usize,
        also: &[NtStatus],
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Response, ClientError> {
        self.connection.exchange(self.request(command, payload), body).await?.accept(also)
    }

    /// MS-SMB2 §3.2.5.5: below 3.1.1 a signed request checks whether the server received the
    /// client's NEGOTIATE unchanged, even if nothing else is signed. The answer needs a key.
    async fn validate(&self) -> Result<(), ClientError> {
        let negotiated = self.connection.negotiated();
        if negotiated.is_3_1_1() || !self.session.can_sign() {
            return Ok(());
        }
        let (input, expected) = validate_input(negotiated);
        let request = IoctlRequest {
            code: ControlCode::VALIDATE_NEGOTIATE_INFO,
            file_id: NO_FILE,
            input: &input,
            input_response_max: 0,
            output_response_max: 24,
            is_fsctl: true,
        };
        // MS-SMB2 §3.2.5.14.12 accepts every signed error but one. Servers of 2.x do not know the request
        // and answer with one of these errors; all servers of 3.x know it (§3.3.5.15.12), so from them only
        // the right answer is accepted.
        let unknown: &[_] = match negotiated.dialect < Dialect::SMB_3_0 {
            true => {
                &[NtStatus::INVALID_DEVICE_REQUEST, NtStatus::NOT_SUPPORTED, NtStatus::FILE_CLOSED]
            }
            false => &[],
        };
        let question = Request { sign: true, ..self.request(Command::IOCTL, 0) };
        let response =
            self.connection.exchange(question, |out| request.emit(out)).await?.accept(unknown)?;
        if !response.header().status.is_success() {
            return Ok(());
        }
        match response.parse(IoctlResponse::parse)?.output == expected {
            true => Ok(()),
            false => Err(ClientError::PeerNegotiation),
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Best effort: the connection mostly ends right after, and the tree with it.
        self.connection.leave_tree(self.session.id(), self.id, self.encrypt);
    }
}

/// As many interfaces as a list may have.
const INTERFACES_LEN_MAX: u32 = 64 * 1024;
const NO_FILE: FileId = FileId { persistent: u64::MAX, volatile: u64::MAX };
