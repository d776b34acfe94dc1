//! CREATE from the client's side.
//!
//! Spec: MS-SMB2 §3.2.4.3, §3.2.5.7.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext,
    CreateResponse, CreateResponseContext, DurableReconnectV2, DurableRequestV2,
    ImpersonationLevel, Lease as WireLease, LeaseKey, LeaseState, LeaseVersion, OplockLevel,
    ShareAccess,
};
use smb::info::FileAttributes;
use smb::negotiate::Dialect;
use smb::push::PushRequest;
use smb::{FileId, FileTime, Guid};

use super::{File, Lease, lease};
use crate::error::ClientError;
use crate::path::{posix_path, share_path};
use crate::tree::Tree;

/// How to open a file.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Rights.
    pub access: AccessMask,
    /// What others may do while the file is open.
    pub share: ShareAccess,
    /// What to do if the file exists, and if not.
    pub disposition: CreateDisposition,
    /// Further options.
    pub options: CreateOptions,
    /// Caching rights to ask for.
    pub lease: Option<LeaseState>,
    /// The key of another open of this client whose lease this open shares; `None` draws a new key.
    /// The [`Lease`] of the other open reports breaks.
    pub lease_key: Option<LeaseKey>,
    /// Push mode to ask for; it needs a lease.
    pub push: Option<PushRequest>,
    /// Security descriptor of the file if this open creates it, self-relative (MS-DTYP §2.4.6).
    pub security: Option<Vec<u8>>,
    /// Asks for a handle that outlives its connection, or for such a handle back.
    pub lasting: Option<Lasting>,
    /// By the rules of POSIX: the path is taken literally, and symbolic links are visible. If the connection has
    /// not agreed on these rules ([`crate::ConnectOptions::posix`]) the server decides what that means.
    pub posix: bool,
    /// Which application opens: it takes the file with it when it comes up elsewhere.
    pub instance: Option<Instance>,
}

impl OpenOptions {
    /// Options to read a file that exists.
    pub fn read() -> Self {
        Self {
            access: AccessMask::FILE_GENERIC_READ,
            share: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            disposition: CreateDisposition::OPEN,
            options: CreateOptions::NON_DIRECTORY_FILE,
            lease: None,
            lease_key: None,
            push: None,
            security: None,
            lasting: None,
            posix: false,
            instance: None,
        }
    }

    /// Options to read and write a file, which is created if it does not exist.
    pub fn read_write() -> Self {
        Self {
            access: AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE,
            disposition: CreateDisposition::OPEN_IF,
            ..Self::read()
        }
    }

    /// Options to write a new file: an existing file is emptied.
    pub fn create() -> Self {
        Self { disposition: CreateDisposition::OVERWRITE_IF, ..Self::read_write() }
    }

    /// Options to read metadata without access to the data.
    pub fn attributes() -> Self {
        Self {
            access: AccessMask::READ_ATTRIBUTES,
            options: CreateOptions::empty(),
            ..Self::read()
        }
    }

    /// Options to list a directory.
    pub fn directory() -> Self {
        Self {
            access: AccessMask::READ_DATA | AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE,
            options: CreateOptions::DIRECTORY_FILE,
            ..Self::read()
        }
    }

    /// The same options, with a lease that allows caching of reads, writes and the handle itself.
    #[must_use]
    pub fn with_full_lease(self) -> Self {
        Self { lease: Some(LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE), ..self }
    }

    /// The same options, asking for push mode, with the lease that push mode needs.
    #[must_use]
    pub fn with_push(self, push: PushRequest) -> Self {
        Self { push: Some(push), ..self.with_full_lease() }
    }

    /// The same options, for an application that takes the file from where it ran before: the server closes the open of
    /// the same application and user on another client, and ends its regions, before this one is there. `create_guid` is
    /// drawn at random for each open.
    #[must_use]
    pub fn with_instance(self, instance: Instance, create_guid: Guid) -> Self {
        let lasting = Some(Lasting::new(create_guid));
        Self { instance: Some(instance), lasting, ..self }
    }
}

/// An application that opens files on one client at a time. Of two opens the later version keeps the file: an open with
/// the same version as the one that is there, or an earlier one, is refused.
///
/// Spec: MS-SMB2 §2.2.13.2.13, §2.2.13.2.15, §3.3.5.9.13, §3.3.5.9.15.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Instance {
    /// Names the application.
    pub id: Guid,
    /// Grows each time the application comes up anew.
    pub version: u64,
}

impl Instance {
    fn contexts<'a>(self) -> [CreateRequestContext<'a>; 2] {
        let version = CreateRequestContext::AppInstanceVersion { high: 0, low: self.version };
        [CreateRequestContext::AppInstanceId(self.id), version]
    }
}

/// A handle that outlives its connection and, where the share keeps a log of such opens, its server.
///
/// Spec: MS-SMB2 §3.2.4.3.5, §3.2.4.4.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lasting {
    /// Recognises the handle; the client draws it.
    pub create_guid: Guid,
    /// The handle that is wanted back; `None` for a new one.
    pub back: Option<FileId>,
    /// Known epoch and state of the lease of the handle that is wanted back.
    pub(crate) lease: Option<(u16, LeaseState)>,
    /// Of a new handle: the key of its lease, by which the server knows a copy of the request.
    pub(crate) key: Option<LeaseKey>,
    /// The request has been sent before, and its answer was lost.
    pub(crate) replays: bool,
}

impl Lasting {
    /// A new handle.
    pub fn new(create_guid: Guid) -> Self {
        Self { create_guid, back: None, lease: None, key: None, replays: false }
    }

    fn context(self) -> CreateRequestContext<'static> {
        let (persistent, create_guid) = (true, self.create_guid);
        match self.back {
            None => CreateRequestContext::DurableV2(DurableRequestV2 {
                timeout_ms: 0,
                persistent,
                create_guid,
            }),
            Some(file_id) => CreateRequestContext::DurableReconnectV2(DurableReconnectV2 {
                file_id,
                create_guid,
                persistent,
            }),
        }
    }
}

/// Sizes, times and attributes of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileStat {
    /// Length in bytes.
    pub len: u64,
    /// Bytes reserved on the medium.
    pub allocation_size: u64,
    /// Attributes.
    pub attributes: FileAttributes,
    /// Time of creation.
    pub creation_time: FileTime,
    /// Last change of data.
    pub last_write_time: FileTime,
    /// Last change of data or metadata.
    pub change_time: FileTime,
}

impl FileStat {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.attributes.contains(FileAttributes::DIRECTORY)
    }
}

/// The lease to ask for, if one is wanted, and whose breaks are this open's.
fn wanted_lease(
    tree: &Arc<Tree>,
    options: &OpenOptions,
    dialect: Dialect,
) -> Result<Option<(WireLease, Option<Lease>)>, ClientError> {
    let Some(state) = options.lease.filter(|_| dialect >= Dialect::SMB_2_1) else {
        return Ok(None);
    };
    let back = options.lasting.filter(|lasting| lasting.back.is_some());
    let (key, ours) = match options.lease_key {
        // The breaks of a lease that comes back are this open's again.
        Some(key) if back.is_some() => (key, Some(Lease::again(tree, key))),
        Some(key) => (key, None),
        None => {
            let lease = match options.lasting.and_then(|lasting| lasting.key) {
                Some(key) => Lease::again(tree, key),
                None => Lease::new(tree)?,
            };
            (lease.key(), Some(lease))
        }
    };
    let (epoch, state) = back.and_then(|back| back.lease).unwrap_or((0, state));
    let version = match dialect {
        Dialect::SMB_2_1 => LeaseVersion::V1,
        _ => LeaseVersion::V2 { parent: None, epoch },
    };
    Ok(Some((WireLease { key, state, break_in_progress: false, version }, ours)))
}

impl File {
    pub(crate) async fn open(
        tree: Arc<Tree>,
        path: &str,
        options: &OpenOptions,
    ) -> Result<Self, ClientError> {
        let name = if options.posix { posix_path(path)? } else { share_path(path)? };
        tree.check_len(options.security.as_ref().map_or(0, Vec::len))?;
        let dialect = tree.connection().negotiated().dialect;
        let mut contexts = Vec::new();
        let mut lease: Option<Lease> = None;
        let mut oplock_level = OplockLevel::NONE;
        if let Some((wanted, ours)) = wanted_lease(&tree, options, dialect)? {
            lease = ours;
            contexts.push(CreateRequestContext::Lease(wanted));
            oplock_level = OplockLevel::LEASE;
        }
        contexts.extend(options.push.map(CreateRequestContext::Push));
        contexts.extend(options.lasting.map(Lasting::context));
        contexts.extend(options.instance.into_iter().flat_map(Instance::contexts));
        contexts.extend(options.posix.then_some(CreateRequestContext::Posix { mode: 0 }));
        let security = options.security.as_deref();
        contexts.extend(security.map(CreateRequestContext::SecurityDescriptor));
        let request = CreateRequest {
            oplock_level,
            impersonation: ImpersonationLevel::IMPERSONATION,
            desired_access: options.access,
            attributes: FileAttributes::empty(),
            share_access: options.share,
            disposition: options.disposition,
            options: options.options,
            name,
            contexts,
        };
        let replays = options.lasting.is_some_and(|lasting| lasting.replays);
        let pending = tree.submit_create(replays, |out| request.emit(out)).await?;
        let pending = match options.lasting.and_then(|lasting| lasting.back) {
            // It was there before, outlives whoever asked for it back, and can be asked for again.
            Some(_) => pending,
            None => pending.leaving(tree.unwanted_file()),
        };
        let response = pending.await?.success()?;
        let answer = response.parse(CreateResponse::parse)?;
        let mut file = Self {
            id: answer.file_id,
            opened_as: stat(&answer),
            lease: None,
            joined: None,
            push: None,
            // Who gets such a handle back had a persistent one.
            is_persistent: options.lasting.is_some_and(|lasting| lasting.back.is_some()),
            end: AtomicU8::new(super::OPEN),
            tree,
        };
        for context in answer.contexts {
            match context {
                CreateResponseContext::Lease(granted) => {
                    file.joined = Some((lease::epoch_of(&granted), granted.state));
                    file.lease = lease.take().map(|lease| lease.granted(&granted));
                }
                CreateResponseContext::Push(push) => file.push = Some(push),
                CreateResponseContext::DurableV2 { persistent, .. } => {
                    file.is_persistent = persistent;
                }
                _ => {}
            }
        }
        Ok(file)
    }

    /// Makes a file that is deleted with the last open of it until it is [kept](File::keep_as).
    ///
    /// ```text
    ///  guard: CREATE, FILE_DELETE_ON_CLOSE            CLOSE: the wish passes to the file
    ///  file:                               CREATE                                        SET_INFO may take it back
    /// ```
    ///
    /// However the connection ends meanwhile, the server has the request to delete. The request of
    /// FILE_DELETE_ON_CLOSE stays with its own open (MS-FSA §2.1.5.4), so the data is written through another
    /// open.
    pub(crate) async fn create_temporary(
        tree: Arc<Tree>,
        path: &str,
        options: &OpenOptions,
    ) -> Result<Self, ClientError> {
        let guard = OpenOptions {
            access: AccessMask::DELETE,
            disposition: CreateDisposition::CREATE,
            options: options.options | CreateOptions::DELETE_ON_CLOSE,
            security: options.security.clone(),
            ..OpenOptions::read()
        };
        let guard = Self::open(Arc::clone(&tree), path, &guard).await?;
        let again = OpenOptions {
            share: options.share | ShareAccess::DELETE,
            disposition: CreateDisposition::OPEN,
            security: None,
            ..options.clone()
        };
        let file = Self::open(tree, path, &again).await;
        // Closed also if the file could not be opened: then the guard is gone, and the path is free.
        guard.close().await?;
        file
    }
}

fn stat(answer: &CreateResponse<'_>) -> FileStat {
    FileStat {
        len: answer.end_of_file,
        allocation_size: answer.allocation_size,
        attributes: answer.attributes,
        creation_time: answer.creation_time,
        last_write_time: answer.last_write_time,
        change_time: answer.change_time,
    }
}
