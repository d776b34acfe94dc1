//! READ, WRITE, FLUSH, LOCK, and what else is asked of an open without saying what of.

use smb::create::AccessMask as A;
use smb::{CloseRequest, Command, FlushRequest, LockElement, LockFlags, LockRequest, OplockBreak};

use super::{READS, put, row};
use crate::disk::{Change, STREAMS};
use crate::row::{Needs, On, Row};
use crate::support;

#[expect(clippy::too_many_lines, reason = "rows of a table")]
pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for on in [On::File, On::Stream, On::ReadOnly, On::Posix] {
        let what = match on {
            On::Stream => Change::Contents(STREAMS),
            other => Change::Contents(other.path()),
        };
        // MS-SMB2 §3.3.5.12. Windows and smbd let those read who execute: that is how programs are run.
        rows.push(
            row(format!("READ {on:?}"), on, READS, Command::READ, |asked, out| {
                support::read(asked.id, 0, 8).emit(out);
            })
            .lax(A::EXECUTE),
        );
        for (place, offset) in [("inside", 0), ("behind", 4096)] {
            // MS-SMB2 §3.3.5.13: inside takes FILE_WRITE_DATA, behind the end FILE_APPEND_DATA, and the server
            // SHOULD refuse otherwise. Windows and smbd ask for one of them wherever it goes.
            let (needs, lax) = match offset {
                0 => (A::WRITE_DATA, A::APPEND_DATA),
                _ => (A::WRITE_DATA | A::APPEND_DATA, A::empty()),
            };
            let write = row(
                format!("WRITE {place} {on:?}"),
                on,
                Needs::Any(needs),
                Command::WRITE,
                move |asked, out| support::write(asked.id, offset, b"by WRITE").emit(out),
            );
            rows.push(write.lax(lax).changes(&[what]));
        }
        // MS-SMB2 §3.3.5.11.
        let needs = Needs::Any(A::WRITE_DATA | A::APPEND_DATA);
        rows.push(row(format!("FLUSH {on:?}"), on, needs, Command::FLUSH, |asked, out| {
            FlushRequest { file_id: asked.id }.emit(out);
        }));
        for (kind, flags) in [("shared", LockFlags::SHARED), ("exclusive", LockFlags::EXCLUSIVE)] {
            // Who locks reads or writes: what NtLockFile asks of a handle.
            let needs = Needs::Any(A::READ_DATA | A::WRITE_DATA);
            let lock =
                row(format!("LOCK {kind} {on:?}"), on, needs, Command::LOCK, move |asked, out| {
                    let flags = flags | LockFlags::FAIL_IMMEDIATELY;
                    let locks = vec![LockElement { offset: 0, length: 8, flags }];
                    LockRequest { lock_sequence: 0, file_id: asked.id, locks }.emit(out);
                });
            // Of those who append or execute neither says anything.
            rows.push(lock.lax(A::APPEND_DATA | A::EXECUTE));
        }
        // MS-SMB2 §3.3.5.14.1: nobody else's lock, and none that is not there.
        rows.push(row(format!("UNLOCK {on:?}"), on, Needs::Never, Command::LOCK, |asked, out| {
            let locks = vec![LockElement { offset: 0, length: 8, flags: LockFlags::UNLOCK }];
            LockRequest { lock_sequence: 0, file_id: asked.id, locks }.emit(out);
        }));
    }
    // MS-SMB2 §3.3.5.22.1: an open without an oplock has none to give back.
    for level in [smb::create::OplockLevel::NONE, smb::create::OplockLevel::II] {
        let ack = row(
            format!("OPLOCK_BREAK {level:?}"),
            On::File,
            Needs::Never,
            Command::OPLOCK_BREAK,
            move |asked, out| OplockBreak { level, file_id: asked.id }.emit(out),
        );
        rows.push(ack);
    }
    // MS-SMB2 §3.3.5.10. The open is closed a second time behind it, which is in vain.
    rows.push(row("CLOSE", On::File, Needs::Nothing, Command::CLOSE, |asked, out| {
        CloseRequest { query_attributes: true, file_id: asked.id }.emit(out);
    }));
    // No command that there is: MS-SMB2 §2.2.1.2.
    for code in [0x13, 0x14, 0x7f] {
        let unknown = row(
            format!("command {code:#x}"),
            On::File,
            Needs::Never,
            Command(code),
            |asked, out| {
                let id = asked.id;
                let (persistent, volatile) =
                    (id.persistent.to_le_bytes(), id.volatile.to_le_bytes());
                put(out, &[&[4, 0, 0, 0, 0, 0, 0, 0], &persistent, &volatile]);
            },
        );
        rows.push(unknown);
    }
    rows
}
