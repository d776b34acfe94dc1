//! The directory operations of a client: it makes directories, renames them with their content, removes
//! and lists them.

use smb::create::{AccessMask, CreateDisposition, CreateOptions, CreateRequest};
use smb::info::{
    DirectoryEntry, FileAttributes, FileInfoClass, InfoType, Rename, RenameFlags,
    SecurityInformation, Stream,
};
use smb::{
    Command, FileId, HeaderFlags, Name, NtStatus, OutputResponse, QueryDirectoryFlags,
    QueryDirectoryRequest, QueryInfoRequest,
};

use crate::ask::{self, Body, SHARES_ALL};
use crate::client::Client;
use crate::link::Lost;
use crate::names;
use crate::worlds::Change;

/// Paths and lengths; the length of a directory is 0.
pub(crate) type Listing = Vec<(String, u64)>;

impl Client<'_> {
    /// Makes, renames or removes a directory.
    pub(crate) fn work_on_directories(&mut self) -> Result<(), Lost> {
        let [first, second] = names::directories(self.number);
        let (path, other) = if self.random.one_in(2) { (first, second) } else { (second, first) };
        if !self.worlds.tree().contains_key(&path) {
            return self.make_directory(path);
        }
        match self.random.below(3) {
            0 => self.remove_directory(path),
            _ => self.rename_directory(path, other),
        }
    }

    fn make_directory(&mut self, path: String) -> Result<(), Lost> {
        let mut request = directory(&path, AccessMask::FILE_GENERIC_READ);
        request.disposition =
            self.random.pick(&[CreateDisposition::CREATE, CreateDisposition::OPEN_IF]);
        let made = Change::MakeDirectory { path: path.clone() };
        let opened = match self.create(&request) {
            Ok(opened) => opened,
            Err(lost) => {
                self.worlds.may_have(&made);
                return Err(lost);
            }
        };
        match opened {
            Ok(id) => {
                self.counts.changes += 1;
                self.worlds.apply(&made);
                self.close_id(id).map(drop)
            }
            Err(status) => {
                self.refused(status, format!("{path} cannot be made: {status:?}"));
                Ok(())
            }
        }
    }

    fn remove_directory(&mut self, path: String) -> Result<(), Lost> {
        let Some(id) = self.open_directory(&path)? else { return Ok(()) };
        let is_empty = !self.worlds.tree().keys().any(|other| is_in(&path, other));
        let gone = Change::Remove { path: path.clone() };
        let may_be_gone = |client: &mut Self, lost| {
            if is_empty {
                client.worlds.may_have(&gone);
            }
            lost
        };
        let request = ask::set(id, FileInfoClass::DISPOSITION, &[1]);
        let asked = self.ask(Command::SET_INFO, HeaderFlags::empty(), |out| request.emit(out));
        let (header, _) = asked.map_err(|lost| may_be_gone(self, lost))?;
        self.close_id(id).map_err(|lost| may_be_gone(self, lost))?;
        match header.status {
            NtStatus::SUCCESS if is_empty => {
                self.counts.changes += 1;
                self.worlds.apply(&gone);
            }
            NtStatus::DIRECTORY_NOT_EMPTY if !is_empty => {}
            status => {
                let holds = if is_empty { "nothing" } else { "something" };
                self.fault(format!("{path}, with {holds} in it, is to be removed: {status:?}"));
            }
        }
        Ok(())
    }

    // A client with an open file in the directory keeps the directory where it is.
    fn rename_directory(&mut self, from: String, to: String) -> Result<(), Lost> {
        if self.random.one_in(2) {
            let inside: Vec<_> =
                self.handles.keys().filter(|path| is_in(&from, path)).cloned().collect();
            for path in inside {
                self.close(&path)?;
            }
        }
        let Some(id) = self.open_directory(&from)? else { return Ok(()) };
        let is_kept = self.handles.keys().any(|path| is_in(&from, path));
        let is_taken = self.worlds.tree().contains_key(&to);
        let mut buffer = Vec::new();
        let name = Name::new(ask::on_the_wire(&to)).unwrap_or_default();
        let replaces = self.random.one_in(2);
        let flags = if replaces { RenameFlags::REPLACE_IF_EXISTS } else { RenameFlags::empty() };
        Rename { flags, name }.emit(&mut buffer);
        let request = ask::set(id, FileInfoClass::RENAME, &buffer);
        let status = if is_kept || is_taken {
            // The server must refuse this rename, whether or not the client gets the answer.
            self.ask(Command::SET_INFO, HeaderFlags::empty(), |out| request.emit(out))?.0.status
        } else {
            let change = Change::Rename { from: from.clone(), to: to.clone() };
            self.change(&change, Command::SET_INFO, &Body::of(|out| request.emit(out)))?
        };
        match status {
            NtStatus::SUCCESS if is_kept || is_taken => {
                let why = if is_kept { "files open in it" } else { "the other there" };
                self.fault(format!("{from} was renamed to {to} with {why}"));
            }
            NtStatus::SUCCESS => self.counts.moved_directories += 1,
            NtStatus::OBJECT_NAME_COLLISION if is_taken && !replaces => {}
            // Visitors may cause these statuses as well.
            NtStatus::ACCESS_DENIED | NtStatus::SHARING_VIOLATION => {}
            status => self.refused(status, format!("{from} to {to}: {status:?}")),
        }
        self.close_id(id).map(drop)
    }

    // Opens a directory that exists, to rename or remove it.
    fn open_directory(&mut self, path: &str) -> Result<Option<FileId>, Lost> {
        let access = AccessMask::DELETE | AccessMask::READ_ATTRIBUTES;
        match self.create(&directory(path, access))? {
            Ok(id) => Ok(Some(id)),
            Err(status) => {
                self.fault(format!("{path} cannot be opened: {status:?}"));
                Ok(None)
            }
        }
    }

    /// Lists the whole directory tree of the client, and compares.
    pub(crate) fn list(&mut self) -> Result<(), Lost> {
        let Some(seen) = self.listing()? else { return Ok(()) };
        let listed = self.worlds.tree().iter().filter(|(path, _)| !names::is_stream(path));
        let expected: Listing =
            listed.map(|(path, content)| (path.clone(), ask::wide(content.len()))).collect();
        self.counts.compared += 1;
        if seen != expected {
            self.fault(format!("listed: {seen:?}, {expected:?} expected"));
        }
        Ok(())
    }

    /// Paths and lengths in the client's directory and those below it.
    pub(crate) fn listing(&mut self) -> Result<Option<Listing>, Lost> {
        let home = format!("{}/", names::home(self.number));
        let Some(mut seen) = self.list_one(&home)? else { return Ok(None) };
        let below: Vec<_> =
            seen.iter().map(|(path, _)| path).filter(|path| names::is_directory(path)).collect();
        for path in below.into_iter().cloned().collect::<Vec<_>>() {
            let Some(inside) = self.list_one(&path)? else { return Ok(None) };
            seen.extend(inside);
        }
        seen.sort();
        Ok(Some(seen))
    }

    fn list_one(&mut self, path: &str) -> Result<Option<Listing>, Lost> {
        let mut request = directory(path, AccessMask::FILE_GENERIC_READ);
        request.disposition = CreateDisposition::OPEN_IF;
        let id = match self.create(&request)? {
            Ok(id) => id,
            Err(status) => {
                self.fault(format!("{path} cannot be listed: {status:?}"));
                return Ok(None);
            }
        };
        let mut seen = Vec::new();
        loop {
            let class = FileInfoClass::ID_BOTH_DIRECTORY;
            let request = QueryDirectoryRequest {
                class,
                flags: QueryDirectoryFlags::empty(),
                file_index: 0,
                file_id: id,
                pattern: Name::new("*").unwrap_or_default(),
                output_length_max: 8_192,
            };
            let (header, pdu) =
                self.ask(Command::QUERY_DIRECTORY, HeaderFlags::empty(), |out| request.emit(out))?;
            if header.status != NtStatus::SUCCESS {
                break;
            }
            let Ok(response) = OutputResponse::parse(&pdu) else { break };
            let Ok(entries) = DirectoryEntry::parse_list(class, response.output) else { break };
            let is_named = |entry: &DirectoryEntry| !entry.name.starts_with('.');
            seen.extend(entries.into_iter().filter(is_named).map(|entry| {
                match entry.attributes.contains(FileAttributes::DIRECTORY) {
                    true => (format!("{path}{}/", &*entry.name), 0),
                    false => (format!("{path}{}", &*entry.name), entry.end_of_file),
                }
            }));
        }
        self.close_id(id)?;
        Ok(Some(seen))
    }

    /// Lists the streams of a file that is open, and compares.
    pub(crate) fn compare_streams(&mut self) -> Result<(), Lost> {
        let Some((path, handle)) = self.some_handle() else { return Ok(()) };
        if names::is_stream(&path) {
            return Ok(());
        }
        let seen = self.streams(handle.id, &path)?;
        let tree = self.worlds.tree();
        let name = names::stream(&path);
        let expected: Listing = tree
            .get_key_value(&name)
            .map(|(path, content)| (path.clone(), ask::wide(content.len())))
            .into_iter()
            .collect();
        self.counts.compared += 1;
        if seen != expected {
            self.fault(format!("streams of {path}: {seen:?}, {expected:?} expected"));
        }
        Ok(())
    }

    /// The named streams of an open file.
    pub(crate) fn streams(&mut self, file_id: FileId, path: &str) -> Result<Listing, Lost> {
        let request = QueryInfoRequest {
            info_type: InfoType::FILE,
            class: FileInfoClass::STREAM.0,
            output_length_max: 4_096,
            additional: SecurityInformation::empty(),
            flags: 0,
            file_id,
            input: &[],
        };
        let (header, pdu) =
            self.ask(Command::QUERY_INFO, HeaderFlags::empty(), |out| request.emit(out))?;
        let listed = OutputResponse::parse(&pdu).map(|answer| Stream::parse_list(answer.output));
        let (NtStatus::SUCCESS, Ok(Ok(listed))) = (header.status, listed) else {
            self.fault(format!("streams of {path}: {:?}", header.status));
            return Ok(Vec::new());
        };
        let named = listed.into_iter().filter_map(|stream| {
            let name = stream.name.strip_suffix(":$DATA").filter(|name| name.len() > 1)?.to_owned();
            Some((format!("{path}{name}"), stream.size))
        });
        Ok(named.collect())
    }
}

fn is_in(directory: &str, path: &str) -> bool {
    path != directory && names::goes_with(directory, path)
}

fn directory(path: &str, access: AccessMask) -> CreateRequest<'static> {
    let mut request = ask::create(path, access, SHARES_ALL, CreateDisposition::OPEN);
    request.options |= CreateOptions::DIRECTORY_FILE;
    request
}
