//! Information classes and security descriptors: parse, emit, parse again.

use smb::info::security::{Control, SecurityDescriptor, Sid};
use smb::info::{
    Access, Alignment, All, Allocation, AttributeTag, Basic, Compression, DirectoryEntry,
    DirectoryWriter, Disposition, DispositionEx, Ea, EaNames, EndOfFile, FileInfoClass, FileName,
    FsAttribute, FsControl, FsDevice, FsFullSize, FsObjectId, FsPosix, FsSectorSize, FsSize,
    FsVolume, FullEa, Id, Internal, Mode, NetworkOpen, Pipe, PipeLocal, Position, PosixEntry,
    Rename, Standard, Stream, ValidDataLength,
};

use super::stable_bytes;
use crate::Input;

/// The first byte chooses the class.
pub(crate) fn fixed(data: &[u8]) {
    let mut input = Input::new(data);
    let which = input.byte();
    let bytes = input.rest();
    match which % 32 {
        0 => stable_bytes!(Access, bytes),
        1 => stable_bytes!(Alignment, bytes),
        2 => stable_bytes!(All, bytes),
        3 => stable_bytes!(Allocation, bytes),
        4 => stable_bytes!(AttributeTag, bytes),
        5 => stable_bytes!(Basic, bytes),
        6 => stable_bytes!(Compression, bytes),
        7 => stable_bytes!(Disposition, bytes),
        8 => stable_bytes!(DispositionEx, bytes),
        9 => stable_bytes!(Ea, bytes),
        10 => stable_bytes!(EndOfFile, bytes),
        11 => stable_bytes!(FileName, bytes),
        12 => stable_bytes!(FsAttribute, bytes),
        13 => stable_bytes!(FsControl, bytes),
        14 => stable_bytes!(FsDevice, bytes),
        15 => stable_bytes!(FsFullSize, bytes),
        16 => stable_bytes!(FsObjectId, bytes),
        17 => stable_bytes!(FsPosix, bytes),
        18 => stable_bytes!(FsSectorSize, bytes),
        19 => stable_bytes!(FsSize, bytes),
        20 => stable_bytes!(FsVolume, bytes),
        21 => stable_bytes!(Id, bytes),
        22 => stable_bytes!(Internal, bytes),
        23 => stable_bytes!(Mode, bytes),
        24 => stable_bytes!(NetworkOpen, bytes),
        25 => stable_bytes!(Pipe, bytes),
        26 => stable_bytes!(PipeLocal, bytes),
        27 => stable_bytes!(Position, bytes),
        28 => stable_bytes!(Rename, bytes),
        29 => rename_ex(bytes),
        30 => stable_bytes!(Standard, bytes),
        _ => stable_bytes!(ValidDataLength, bytes),
    }
}

fn rename_ex(bytes: &[u8]) {
    let Ok(rename) = Rename::parse_ex(bytes) else { return };
    let mut again = Vec::new();
    rename.emit_ex(&mut again);
    assert_eq!(Rename::parse_ex(&again), Ok(rename));
}

/// The first byte chooses the list, for a directory the second chooses its class.
pub(crate) fn lists(data: &[u8]) {
    let mut input = Input::new(data);
    match input.byte() % 4 {
        0 => match FileInfoClass(input.byte()) {
            FileInfoClass::POSIX => posix(input.rest()),
            class => directory(class, input.rest()),
        },
        1 => streams(input.rest()),
        2 => drop(EaNames::parse(input.rest())),
        _ => attributes(input.rest()),
    }
}

fn directory(class: FileInfoClass, bytes: &[u8]) {
    let Ok(list) = DirectoryEntry::parse_list(class, bytes) else { return };
    let names: usize = list.iter().map(|entry| entry.name.wire_len()).sum();
    assert!(names <= bytes.len(), "each byte belongs to one name at most");
    let mut again = Vec::new();
    let Some(mut writer) = DirectoryWriter::new(class, &again, usize::MAX) else { return };
    for entry in &list {
        assert!(writer.push(&mut again, entry), "there is room");
    }
    assert_eq!(DirectoryEntry::parse_list(class, &again), Ok(list));
}

fn posix(bytes: &[u8]) {
    let Ok(list) = PosixEntry::parse_list(bytes) else { return };
    let names: usize = list.iter().map(|entry| entry.name.wire_len()).sum();
    assert!(names <= bytes.len(), "each byte belongs to one name at most");
    let mut again = Vec::new();
    let writer = DirectoryWriter::new(FileInfoClass::POSIX, &again, usize::MAX);
    let mut writer = writer.expect("it is a directory class");
    for entry in &list {
        assert!(writer.push_posix(&mut again, entry), "there is room");
    }
    assert_eq!(PosixEntry::parse_list(&again), Ok(list));
}

fn streams(bytes: &[u8]) {
    let Ok(list) = Stream::parse_list(bytes) else { return };
    let names: usize = list.iter().map(|stream| stream.name.wire_len()).sum();
    assert!(names <= bytes.len(), "each byte belongs to one name at most");
    let mut again = Vec::new();
    Stream::emit_list(&list, &mut again);
    assert_eq!(Stream::parse_list(&again), Ok(list));
}

fn attributes(bytes: &[u8]) {
    let Ok(list) = FullEa::parse_list(bytes) else { return };
    let mut again = Vec::new();
    FullEa::emit_list(&list, &mut again);
    assert_eq!(FullEa::parse_list(&again), Ok(list));
}

pub(crate) fn security(bytes: &[u8]) {
    if let Ok(mut descriptor) = SecurityDescriptor::parse(bytes) {
        let mut again = Vec::new();
        descriptor.emit(&mut again);
        // Audit lists are read over and never written, so their flag does not survive.
        descriptor.control.remove(Control::SACL_PRESENT);
        assert_eq!(SecurityDescriptor::parse(&again), Ok(descriptor));
    }
    if let Ok((sid, rest)) = Sid::parse(bytes) {
        let mut again = Vec::new();
        sid.emit(&mut again);
        assert_eq!(again.len(), sid.wire_len());
        again.extend_from_slice(rest);
        assert_eq!(Sid::parse(&again), Ok((sid, rest)));
    }
}
