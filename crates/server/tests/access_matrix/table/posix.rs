//! What the SMB3 POSIX extensions add: modes, owners, symbolic links.
//!
//! Spec: SMB3 POSIX extensions; MS-FSA §2.1.5.10.37 (reparse points); MS-SMB2 §3.3.5.21.3 (security).

use smb::create::AccessMask as A;
use smb::info::security::{Ace, Control, Dacl, SecurityDescriptor, Sid};
use smb::info::{FileInfoClass, InfoType, SecurityInformation};
use smb::{Command, Name};

use super::control::control;
use super::row;
use crate::disk::Change;
use crate::row::{Needs, On, Row};
use crate::support;

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mode = SecurityDescriptor {
        control: Control::empty(),
        owner: None,
        group: None,
        dacl: Dacl::Aces(vec![Ace::allow(A::empty(), Sid::unix_mode(0o640))]),
    };
    let part = SecurityInformation::DACL;
    let chmod = security("chmod", On::Posix, Needs::Any(A::WRITE_DAC), part, &mode);
    rows.push(chmod.changes(&[Change::Facts("f")]));
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let owner = SecurityDescriptor {
        control: Control::empty(),
        owner: Some(Sid::unix_user(uid)),
        group: Some(Sid::unix_group(gid)),
        dacl: Dacl::Absent,
    };
    for (name, part) in
        [("chown", SecurityInformation::OWNER), ("chgrp", SecurityInformation::GROUP)]
    {
        let row = security(name, On::Posix, Needs::Any(A::WRITE_OWNER), part, &owner);
        rows.push(row.may_change(&[Change::Facts("f")]));
    }
    let links = Needs::Any(A::WRITE_DATA | A::WRITE_ATTRIBUTES);
    for (target, is_inside) in [("f", true), ("../outside", false), ("/etc/passwd", false)] {
        let needs = if is_inside { links } else { Needs::Never };
        let input = symlink(target);
        let name = format!("SET_REPARSE_POINT to {target}");
        let row = control(&name, On::PosixEmpty, needs, 0x0009_00a4, move |_| input.clone());
        rows.push(if is_inside { row.changes(&[Change::Contents("p")]) } else { row });
    }
    // What holds something is no link yet, and does not become one.
    let input = symlink("v");
    let name = "SET_REPARSE_POINT of a file";
    rows.push(control(name, On::Posix, Needs::Never, 0x0009_00a4, move |_| input.clone()));
    rows
}

fn security(
    name: &str,
    on: On,
    needs: Needs,
    part: SecurityInformation,
    descriptor: &SecurityDescriptor,
) -> Row {
    let mut buffer = Vec::new();
    descriptor.emit(&mut buffer);
    row(format!("SET_INFO {name} {on:?}"), on, needs, Command::SET_INFO, move |asked, out| {
        let mut request = support::set(asked.id, FileInfoClass(0), &buffer);
        request.info_type = InfoType::SECURITY;
        request.additional = part;
        request.emit(out);
    })
}

fn symlink(target: &str) -> Vec<u8> {
    let name = Name::new(target).unwrap();
    let mut input = Vec::new();
    smb::fsctl::SymlinkReparse { relative: true, substitute: name.clone(), print: name }
        .emit(&mut input);
    input
}
