#!/usr/bin/env python3
"""impacket against a server: log in, list shares, list, write, read, rename, delete, by dialect.

Run it by hand with the interpreter of target/interop-venv.
"""

import io

from impacket import nt_errors
from impacket.smb3structs import (
    FILE_SHARE_DELETE,
    FILE_SHARE_READ,
    FILE_SHARE_WRITE,
    SMB2_DIALECT_002,
    SMB2_DIALECT_21,
    SMB2_DIALECT_30,
    SMB2_DIALECT_311,
)
from impacket.smbconnection import SessionError, SMBConnection

from report import Report, arguments, expect, pattern

DIALECTS = {
    "2.0.2": SMB2_DIALECT_002,
    "2.1": SMB2_DIALECT_21,
    "3.0": SMB2_DIALECT_30,
    "3.1.1": SMB2_DIALECT_311,
    "multi-protocol": None,
}


def connect(options, dialect, password=None):
    client = SMBConnection(
        options.host,
        options.host,
        sess_port=options.port,
        timeout=30,
        preferredDialect=dialect,
    )
    try:
        client.login(options.user, options.password if password is None else password)
    except Exception:
        client.close()
        raise
    return client


def list_shares(client, share):
    shares = client.listShares()
    names = {entry["shi1_netname"].rstrip("\0") for entry in shares}
    if share not in names:
        raise AssertionError(f"{share} is not among {names}")


def names(client, share, path):
    return {entry.get_longname() for entry in client.listPath(share, path)} - {".", ".."}


def life_of_a_file(client, share, directory):
    client.createDirectory(share, directory)
    data = pattern(300_001, 11)
    client.putFile(share, rf"{directory}\a.bin", io.BytesIO(data).read)
    expect(names(client, share, rf"{directory}\*"), {"a.bin"}, "names listed")
    entry = client.listPath(share, rf"{directory}\a.bin")[0]
    expect(entry.get_filesize(), len(data), "size listed")

    back = io.BytesIO()
    shared = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE
    client.getFile(share, rf"{directory}\a.bin", back.write, shareAccessMode=shared)
    expect(back.getvalue() == data, True, "bytes read back are those written")

    client.rename(share, rf"{directory}\a.bin", rf"{directory}\b.bin")
    expect(names(client, share, rf"{directory}\*"), {"b.bin"}, "names after the rename")
    client.deleteFile(share, rf"{directory}\b.bin")
    expect(names(client, share, rf"{directory}\*"), set(), "names after the delete")
    client.deleteDirectory(share, directory)
    expect(directory in names(client, share, "*"), False, "the directory is still there")


def main():
    options = arguments(__doc__)
    report = Report()
    for name, dialect in DIALECTS.items():
        with report.check(f"impacket {name}"):
            client = connect(options, dialect)
            if dialect is not None:
                expect(client.getDialect(), dialect, "dialect")
            list_shares(client, options.share)
            life_of_a_file(client, options.share, f"impacket-{name}")
            client.logoff()
            client.close()
        with report.check(f"impacket {name} wrong password"):
            try:
                connect(options, dialect, password="not the password")
            except SessionError as error:
                expect(error.getErrorCode(), nt_errors.STATUS_LOGON_FAILURE, "status")
            else:
                raise AssertionError("logged in")
        with report.check(f"impacket {name} unknown share"):
            client = connect(options, dialect)
            try:
                client.connectTree(r"no such share")
            except SessionError as error:
                expect(error.getErrorCode(), nt_errors.STATUS_BAD_NETWORK_NAME, "status")
            else:
                raise AssertionError("connected")
            finally:
                client.close()
    report.conclude()


if __name__ == "__main__":
    main()
