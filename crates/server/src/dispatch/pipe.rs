//! Requests on named pipes: the server's own services, for clients that browse.
//!
//! ```text
//!  CREATE "srvsvc"    -> a pipe with an association of its own
//!  WRITE, READ        -> bytes in; answers out, one fragment at a time
//!  FSCTL_PIPE_TRANSCEIVE: both at once, what clients use for short calls
//! ```
//!
//! A service answers while it is written to, so a READ finds its answer or there is none.
//!
//! Spec: MS-SMB2 §3.3.5.9 (pipes in CREATE), §3.3.5.12, §3.3.5.13, §3.3.5.15.

use std::sync::Arc;

use smb::create::{CreateAction, CreateRequest, CreateResponse, OplockLevel};
use smb::info::{self, FileAttributes, FileInfoClass, InfoType};
use smb::rpc::Interface;
use smb::{
    CloseRequest, CloseResponse, Command, FileId, FileTime, NtStatus, OutputResponse,
    QueryInfoRequest, ReadRequest, ReadResponse, WriteRequest, WriteResponse,
};
use tracing::debug;
use tree::InlineIo;

use super::call::Call;
use super::frame::{Outcome, malformed};
use crate::access::Identity;
use crate::connections::Pipe;
use crate::limits::TRANSACT_SIZE_MAX;
use crate::state::Resource;

/// Whether a request is for a pipe rather than a file. IOCTL is told apart by its code.
pub(super) fn is_meant(call: &Call) -> bool {
    let served = [
        Command::CREATE,
        Command::CLOSE,
        Command::READ,
        Command::WRITE,
        Command::FLUSH,
        Command::QUERY_INFO,
        Command::SET_INFO,
    ];
    served.contains(&call.header.command) && call.asker().is_on_pipes()
}

/// Carries out a request on a pipe.
pub(super) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    match call.header.command {
        Command::CREATE => create(call, out),
        Command::CLOSE => close(call, out),
        Command::READ => read(call, out).await,
        Command::WRITE => write(call, out).await,
        Command::QUERY_INFO => query_info(call, out),
        // MS-FSA §2.1.5: a pipe of ours has nothing to flush and nothing to set.
        _ => Err(NtStatus::NOT_SUPPORTED),
    }
}

/// FSCTL_PIPE_TRANSCEIVE: writes, and takes the answer at once. The status says whether the
/// answer goes on.
pub(super) async fn transceive(
    call: &mut Call,
    file_id: FileId,
    input: &[u8],
    len_max: u32,
) -> Result<(Vec<u8>, NtStatus), NtStatus> {
    let pipe = find(call, file_id)?;
    put(call, &pipe, file_id, input.to_vec()).await?;
    take(call, &pipe, len_max).await
}

/// FSCTL_PIPE_WAIT: a service always has room for one more client.
pub(super) fn wait(call: &Call, input: &[u8]) -> Result<Vec<u8>, NtStatus> {
    if call.asker().tree()?.share().is_some() {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    // MS-FSCC §2.3.49: timeout u64, name length u32, specified u8, 0, name.
    let name = input.get(14..).ok_or(NtStatus::INVALID_PARAMETER)?;
    let name = smb::Name::parse(name).map_err(malformed)?;
    Interface::of_pipe(&name).map(|_| Vec::new()).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)
}

fn create(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let request = CreateRequest::parse(call.pdu()).map_err(malformed)?;
    let tree = call.asker().tree()?;
    let name = request.name.as_str().trim_start_matches('\\');
    let interface = Interface::of_pipe(name).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let session = call.session();
    let place = session.account.try_take(Resource::Pipes, 1);
    let place = place.ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
    let serial = call.core.files.next_serial();
    let pipe = Arc::new(Pipe::new(serial, Arc::clone(&tree), interface, place));
    let added = session.add_pipe(pipe).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
    let file_id = FileId { persistent: serial.0, volatile: added.to_bits() };
    // A session or tree that ended meanwhile has dropped its pipes, but not this one.
    if session.is_closed() || session.tree(tree.id).is_none() {
        session.remove_pipe(file_id.persistent, file_id.volatile);
        return Err(NtStatus::USER_SESSION_DELETED);
    }
    call.chain_file = Some(file_id);
    debug!(pipe = interface.pipe(), "opened");
    let response = CreateResponse {
        oplock_level: OplockLevel::NONE,
        reparse_point: false,
        action: CreateAction::OPENED,
        creation_time: FileTime::ZERO,
        last_access_time: FileTime::ZERO,
        last_write_time: FileTime::ZERO,
        change_time: FileTime::ZERO,
        allocation_size: ALLOCATION,
        end_of_file: 0,
        attributes: FileAttributes::NORMAL,
        file_id,
        contexts: Vec::new(),
    };
    response.emit(out);
    Ok(NtStatus::SUCCESS)
}

fn close(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let request = CloseRequest::parse(call.pdu()).map_err(malformed)?;
    let (id, wants) = (call.resolve(request.file_id)?, request.query_attributes);
    find(call, id)?;
    call.session().remove_pipe(id.persistent, id.volatile).ok_or(NtStatus::FILE_CLOSED)?;
    let nothing = smb::CloseAttributes {
        creation_time: FileTime::ZERO,
        last_access_time: FileTime::ZERO,
        last_write_time: FileTime::ZERO,
        change_time: FileTime::ZERO,
        allocation_size: ALLOCATION,
        end_of_file: 0,
        attributes: FileAttributes::NORMAL,
    };
    CloseResponse { attributes: wants.then_some(nothing) }.emit(out);
    Ok(NtStatus::SUCCESS)
}

async fn read(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let request = ReadRequest::parse(call.pdu()).map_err(malformed)?;
    let (file_id, len) = (request.file_id, request.length);
    call.asker().check_channel(request.channel)?;
    if len > call.core.connections.limits.io_size_max || request.channel != smb::Channel::NONE {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    call.asker().check_charge(len)?;
    let pipe = find(call, file_id)?;
    let (bytes, status) = take(call, &pipe, len).await?;
    ReadResponse { data: &bytes, data_remaining: 0 }.emit(out);
    Ok(status)
}

async fn write(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let request = WriteRequest::parse(call.pdu()).map_err(malformed)?;
    if request.channel != smb::Channel::NONE {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let (file_id, data) = (request.file_id, request.data.to_vec());
    let count = u32::try_from(data.len()).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    call.asker().check_charge(count)?;
    let pipe = find(call, file_id)?;
    put(call, &pipe, file_id, data).await?;
    WriteResponse { count }.emit(out);
    Ok(NtStatus::SUCCESS)
}

// Windows asks for this one before it writes; Samba's clients never do.
fn query_info(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let request = QueryInfoRequest::parse(call.pdu()).map_err(malformed)?;
    let (file_id, len_max) = (request.file_id, request.output_length_max);
    let asked = (request.info_type, FileInfoClass(request.class));
    find(call, file_id)?;
    if asked != (InfoType::FILE, FileInfoClass::STANDARD) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let standard = info::Standard {
        allocation_size: ALLOCATION,
        end_of_file: 0,
        links: 1,
        delete_pending: true,
        directory: false,
    };
    let mut bytes = Vec::new();
    standard.emit(&mut bytes);
    if usize::try_from(len_max).is_ok_and(|max| max < bytes.len()) {
        return Err(NtStatus::INFO_LENGTH_MISMATCH);
    }
    OutputResponse { output: &bytes }.emit(out);
    Ok(NtStatus::SUCCESS)
}

/// The pipe a request names, if it belongs to the session and the tree it names.
fn find(call: &mut Call, id: FileId) -> Result<Arc<Pipe>, NtStatus> {
    let id = call.resolve(id)?;
    let pipe = call.session().pipe(id.persistent, id.volatile).ok_or(NtStatus::FILE_CLOSED)?;
    if call.header.tree_id().map(|tree| tree.0) != Some(pipe.tree.id) {
        return Err(NtStatus::NETWORK_NAME_DELETED);
    }
    call.chain_file = Some(id);
    Ok(pipe)
}

async fn put(call: &Call, pipe: &Pipe, id: FileId, bytes: Vec<u8>) -> Result<(), NtStatus> {
    let caller = match &call.session().identity {
        Identity::User(user) if !call.session().is_unnamed() => Some(&**user),
        Identity::User(_) | Identity::Guest { .. } => None,
    };
    let host = call.core.host(caller);
    let mut association = call.wait_for_work(pipe.turn()).await?;
    let inline = InlineIo::Everything.unless(pipe.is_much(bytes.len()));
    let written = call.blocking(inline, move || association.write(&bytes, &host)).await?;
    written.map_err(|error| {
        debug!(peer = %call.link.peer, %error, "pipe closed");
        call.session().remove_pipe(id.persistent, id.volatile);
        NtStatus::PIPE_DISCONNECTED
    })
}

async fn take(call: &Call, pipe: &Pipe, len: u32) -> Result<(Vec<u8>, NtStatus), NtStatus> {
    let len = usize::try_from(len.min(TRANSACT_SIZE_MAX)).expect("32 bits fit usize");
    let mut association = call.wait_for_work(pipe.turn()).await?;
    match association.read(len) {
        None => Err(NtStatus::PIPE_EMPTY),
        // MS-SMB2 §3.3.5.12, §3.3.5.15.3: the rest of the message comes with the next READ.
        Some((bytes, true)) => Ok((bytes, NtStatus::BUFFER_OVERFLOW)),
        Some((bytes, false)) => Ok((bytes, NtStatus::SUCCESS)),
    }
}

// What Windows and Samba say a pipe takes.
const ALLOCATION: u64 = 4096;
