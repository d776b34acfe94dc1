#!/usr/bin/env python3
"""smbprotocol against a server: every dialect, every signing and encryption algorithm it knows.

Each combination logs in on a connection of its own, then creates, writes, reads, flushes, lists,
renames, locks and deletes. Run it by hand with the interpreter of target/interop-venv.
"""

import uuid

from smbprotocol.connection import Ciphers, Connection, Dialects, SigningAlgorithms
from smbprotocol.exceptions import LogonFailure, ObjectNameNotFound, SMBResponseException
from smbprotocol.file_info import (
    FileDispositionInformation,
    FileInformationClass,
    FileRenameInformation,
)
from smbprotocol.open import (
    CreateDisposition,
    CreateOptions,
    DirectoryAccessMask,
    FileAttributes,
    FilePipePrinterAccessMask,
    ImpersonationLevel,
    LockFlags,
    Open,
    ShareAccess,
    SMB2LockElement,
    SMB2SetInfoRequest,
)
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

from report import Report, arguments, expect, pattern

DIALECTS = {
    "2.0.2": Dialects.SMB_2_0_2,
    "2.1": Dialects.SMB_2_1_0,
    "3.0": Dialects.SMB_3_0_0,
    "3.0.2": Dialects.SMB_3_0_2,
    "3.1.1": Dialects.SMB_3_1_1,
}
CIPHERS = {
    "AES-128-CCM": Ciphers.AES_128_CCM,
    "AES-128-GCM": Ciphers.AES_128_GCM,
    "AES-256-CCM": Ciphers.AES_256_CCM,
    "AES-256-GCM": Ciphers.AES_256_GCM,
}
SIGNERS = {
    "HMAC-SHA256": SigningAlgorithms.HMAC_SHA256,
    "AES-CMAC": SigningAlgorithms.AES_CMAC,
    "AES-GMAC": SigningAlgorithms.AES_GMAC,
}
FILE_ACCESS = (
    FilePipePrinterAccessMask.FILE_READ_DATA
    | FilePipePrinterAccessMask.FILE_WRITE_DATA
    | FilePipePrinterAccessMask.FILE_READ_ATTRIBUTES
    | FilePipePrinterAccessMask.DELETE
)
FILE_LOCK_CONFLICT = 0xC0000054
LOCK_NOT_GRANTED = 0xC0000055
SHARE_ALL = (
    ShareAccess.FILE_SHARE_READ | ShareAccess.FILE_SHARE_WRITE | ShareAccess.FILE_SHARE_DELETE
)


class Client:
    """One connection with one session and one tree."""

    def __init__(
        self, options, encrypt=False, sign=True, proven=True, password=None, **connect
    ):
        self.connection = Connection(uuid.uuid4(), options.host, options.port, require_signing=sign)
        self.connection.connect(timeout=30, **connect)
        try:
            password = password or options.password
            self.session = Session(
                self.connection, options.user, password, require_encryption=encrypt
            )
            self.session.connect()
            self.tree = TreeConnect(self.session, rf"\\{options.host}\{options.share}")
            # Guests have no key by which the server could prove what was negotiated.
            self.tree.connect(require_secure_negotiate=proven)
            # smbprotocol never asks for more credits than it spends: 1 MiB takes 16.
            self.connection.echo(sid=self.session.session_id, credit_request=64)
        except Exception:
            self.connection.disconnect(close=False)
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.disconnect()

    def open(self, name, access, disposition, create_options):
        handle = Open(self.tree, name)
        handle.create(
            ImpersonationLevel.Impersonation,
            access,
            FileAttributes.FILE_ATTRIBUTE_NORMAL,
            SHARE_ALL,
            disposition,
            create_options,
        )
        return handle

    def file(self, name, disposition):
        return self.open(name, FILE_ACCESS, disposition, CreateOptions.FILE_NON_DIRECTORY_FILE)

    def directory(self, name, disposition, delete=False):
        # DELETE only where it is meant: while a directory is open with it, Windows and Samba
        # refuse to rename what is inside.
        access = DirectoryAccessMask.FILE_LIST_DIRECTORY | DirectoryAccessMask.FILE_READ_ATTRIBUTES
        if delete:
            access |= DirectoryAccessMask.DELETE
        return self.open(name, access, disposition, CreateOptions.FILE_DIRECTORY_FILE)

    def names(self, handle):
        entries = handle.query_directory("*", FileInformationClass.FILE_NAMES_INFORMATION)
        return {entry["file_name"].get_value().decode("utf-16-le") for entry in entries}

    def set_info(self, handle, info):
        request = SMB2SetInfoRequest()
        request["info_type"] = 1  # SMB2_0_INFO_FILE
        request["file_info_class"] = info.INFO_CLASS
        request["file_id"] = handle.file_id
        request["buffer"] = info
        sent = self.connection.send(
            request, sid=self.session.session_id, tid=self.tree.tree_connect_id
        )
        self.connection.receive(sent)

    def rename(self, handle, name):
        info = FileRenameInformation()
        info["replace_if_exists"] = False
        info["file_name"] = name.encode("utf-16-le")
        self.set_info(handle, info)

    def delete(self, handle):
        info = FileDispositionInformation()
        info["delete_pending"] = True
        self.set_info(handle, info)


def life_of_a_file(client, directory):
    """Creates, writes, reads back, lists, renames, locks, deletes; the directory goes too."""
    folder = client.directory(directory, CreateDisposition.FILE_CREATE)
    name = rf"{directory}\grüße ☂.bin"
    handle = client.file(name, CreateDisposition.FILE_CREATE)

    # One request below and one above the 64 KiB a single credit pays for, where allowed.
    most = min(client.connection.max_write_size, client.connection.max_read_size, 1 << 20)
    for length in (1, 4096, 65536, most):
        data = pattern(length, length)
        expect(handle.write(data, offset=7), length, "bytes written")
        expect(handle.read(7, length), data, f"{length} bytes read back")
    handle.flush()
    handle.close(get_attributes=True)
    expect(handle.end_of_file, 7 + max(65536, most), "size after close")

    expect(client.names(folder), {".", "..", "grüße ☂.bin"}, "names listed")
    handle = client.file(name, CreateDisposition.FILE_OPEN)
    client.rename(handle, rf"{directory}\renamed")
    handle.close()
    folder.close()
    folder = client.directory(directory, CreateDisposition.FILE_OPEN)
    expect(client.names(folder), {".", "..", "renamed"}, "names after the rename")

    locks(client, rf"{directory}\renamed")
    handle = client.file(rf"{directory}\renamed", CreateDisposition.FILE_OPEN)
    client.delete(handle)
    handle.close()
    try:
        client.file(rf"{directory}\renamed", CreateDisposition.FILE_OPEN)
    except ObjectNameNotFound:
        pass
    else:
        raise AssertionError("the deleted file can still be opened")
    folder.close()
    folder = client.directory(directory, CreateDisposition.FILE_OPEN, delete=True)
    client.delete(folder)
    folder.close()


def locks(client, name):
    """One of two handles locks a range; the other one is refused, and then waits for its turn."""
    first, second = (client.file(name, CreateDisposition.FILE_OPEN) for _ in range(2))

    def element(flags):
        lock = SMB2LockElement()
        lock["offset"], lock["length"], lock["flags"] = 3, 100, flags
        return [lock]

    now = LockFlags.SMB2_LOCKFLAG_FAIL_IMMEDIATELY
    exclusive = LockFlags.SMB2_LOCKFLAG_EXCLUSIVE_LOCK
    first.lock(element(exclusive | now))
    refused(lambda: second.lock(element(exclusive | now)), LOCK_NOT_GRANTED)
    refused(lambda: second.read(0, 10), FILE_LOCK_CONFLICT)
    expect(len(second.read(103, 10)), 10, "bytes read behind the locked ones")

    request, answer = second.lock(element(exclusive), send=False)
    waiting = client.connection.send(
        request, client.session.session_id, client.tree.tree_connect_id
    )
    first.lock(element(LockFlags.SMB2_LOCKFLAG_UNLOCK))
    answer(waiting)
    refused(lambda: first.write(b"x", offset=3), FILE_LOCK_CONFLICT)
    second.lock(element(LockFlags.SMB2_LOCKFLAG_UNLOCK))
    expect(first.write(b"x", offset=3), 1, "bytes written once it is unlocked")
    first.close()
    second.close()


def refused(act, status):
    try:
        act()
    except SMBResponseException as error:
        expect(error.status, status, "status")
    else:
        raise AssertionError(f"not refused with {status:#x}")


def main():
    options = arguments(__doc__)
    report = Report()

    def life(name, **connect):
        with report.check(f"smbprotocol {name}"):
            with Client(options, **connect) as client:
                if "dialect" in connect:
                    expect(client.connection.dialect, connect["dialect"], "dialect")
                if connect.get("encrypt"):
                    expect(client.session.encrypt_data, True, "session encrypted")
                directory = "smbprotocol " + name.replace(" ", "-").replace(",", "")
                life_of_a_file(client, directory)

    for name, dialect in DIALECTS.items():
        life(f"{name} signed", dialect=dialect)
        if dialect >= Dialects.SMB_3_0_0:
            life(f"{name} encrypted", dialect=dialect, encrypt=True)
    for name, cipher in CIPHERS.items():
        life(f"3.1.1 {name}", encrypt=True, preferred_encryption_algos=[cipher])
    for name, signer in SIGNERS.items():
        life(f"3.1.1 {name}", preferred_signing_algos=[signer])

    for name, dialect in DIALECTS.items():
        with report.check(f"smbprotocol {name} wrong password"):
            try:
                Client(options, password="not the password", dialect=dialect)
            except LogonFailure:
                pass
            else:
                raise AssertionError("logged in")
    report.conclude()


if __name__ == "__main__":
    main()
