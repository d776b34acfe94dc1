#!/usr/bin/env python3
"""Guests, by impacket and smbprotocol, in every dialect they speak: they read the share that is for
guests, change nothing there, and enter no other.

Run it by hand with the interpreter of target/interop-venv.
"""

import argparse

from impacket import nt_errors
from impacket.smbconnection import SessionError
from smbprotocol.exceptions import AccessDenied
from smbprotocol.open import CreateDisposition

import impacket_client
import smbprotocol_client
from report import Report, arguments, expect


def by_impacket(options, dialect, user):
    guest = argparse.Namespace(**{**vars(options), "user": user})
    client = impacket_client.connect(guest, dialect, password="x" if user else "")
    impacket_client.names(client, options.guests, "*")
    for act in [
        lambda: client.createDirectory(options.guests, "by a guest"),
        lambda: client.connectTree(options.share),
    ]:
        try:
            act()
        except SessionError as error:
            expect(error.getErrorCode(), nt_errors.STATUS_ACCESS_DENIED, "status")
        else:
            raise AssertionError("not refused")
    client.close()


def by_smbprotocol(options, dialect, share):
    guest = argparse.Namespace(**{**vars(options), "user": "mallory", "share": share})
    with smbprotocol_client.Client(guest, sign=False, proven=False, dialect=dialect) as client:
        client.names(client.directory("", CreateDisposition.FILE_OPEN))
        try:
            client.directory("by a guest", CreateDisposition.FILE_CREATE)
        except AccessDenied:
            return
        raise AssertionError("a guest made a directory")


def main():
    options = arguments(__doc__)
    report = Report()
    for name, dialect in impacket_client.DIALECTS.items():
        for user in ["mallory", ""]:
            with report.check(f"impacket {name}, {user or 'no name'}"):
                by_impacket(options, dialect, user)
    for name, dialect in smbprotocol_client.DIALECTS.items():
        with report.check(f"smbprotocol {name}"):
            by_smbprotocol(options, dialect, options.guests)
        with report.check(f"smbprotocol {name}, a share for users"):
            try:
                by_smbprotocol(options, dialect, options.share)
            except AccessDenied:
                pass
            else:
                raise AssertionError("entered")
    report.conclude()


if __name__ == "__main__":
    main()
