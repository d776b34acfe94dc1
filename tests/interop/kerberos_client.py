#!/usr/bin/env python3
"""Logons by Kerberos ticket: smbprotocol with MIT's libgssapi, and impacket.

Beside what works: replayed tokens, owners that are no users, tickets for other keys, and what becomes of a
session when its ticket ends. `cargo xtask interop kerberos` makes the realm and the tickets and names them
in the environment:

    LANDFAST_TICKETS          the user's
    LANDFAST_STRANGER         somebody else's of the same realm
    LANDFAST_OTHER_KEY        the user's, for a key of the service that the server does not have
    LANDFAST_KEYTAB           with the user's key, to get more of them
"""

import os
import subprocess
import tempfile
import time

import smbprotocol.session
from impacket import nt_errors
from impacket.smb3structs import SMB2_DIALECT_21, SMB2_DIALECT_30, SMB2_DIALECT_311
from impacket.smbconnection import SessionError, SMBConnection
from smbprotocol.exceptions import LogonFailure, SMBResponseException
from smbprotocol.header import NtStatus
from smbprotocol.open import CreateDisposition
from smbprotocol.session import SMB2SessionSetupRequest, SMB2SessionSetupResponse

import impacket_client
import mit_gss
from report import Report, arguments, expect
from smbprotocol_client import CIPHERS, DIALECTS, Client, life_of_a_file

NETWORK_SESSION_EXPIRED = 0xC000035C


def use(variable):
    """Tickets from now on come from the file that the environment variable names."""
    os.environ["KRB5CCNAME"] = os.environ[variable]


class Once:
    """A context that gives one recorded token, whatever the server says."""

    complete = False
    session_key = bytes(32)

    def __init__(self, token):
        self.token = token

    def step(self, *_):
        self.complete = True
        return self.token


def with_contexts(make):
    """smbprotocol asks for its contexts here instead of from pyspnego."""
    smbprotocol.session.spnego.client = lambda *_, **__: make()


def refused(options, make):
    with_contexts(make)
    try:
        Client(options).connection.disconnect()
    except LogonFailure:
        return
    raise AssertionError("logged on")


def authenticate_again(client, context):
    """Shows a new ticket in a session that keeps its keys."""
    token, status = context.step(), None
    while token:
        request = SMB2SessionSetupRequest()
        request["security_mode"] = client.connection.client_security_mode
        request["buffer"] = token
        sent = client.connection.send(request, sid=client.session.session_id)
        response = client.connection.receive(sent)
        status = response["status"].get_value()
        answer = SMB2SessionSetupResponse()
        answer.unpack(response["data"].get_value())
        token = context.step(answer["buffer"].get_value())
    expect((status, context.complete), (NtStatus.STATUS_SUCCESS, True), "the second logon")


def use_tickets_that_end(options, directory, seconds):
    cache = os.path.join(directory, f"{seconds}-seconds")
    keytab = os.environ["LANDFAST_KEYTAB"]
    kinit = ["kinit", "-c", cache, "-k", "-t", keytab, "-l", f"{seconds}s", options.user]
    subprocess.run(kinit, check=True)
    os.environ["KRB5CCNAME"] = cache
    with_contexts(lambda: mit_gss.Client(options.host))


def session_ends_with_its_ticket(options, seconds):
    with tempfile.TemporaryDirectory() as directory:
        use_tickets_that_end(options, directory, seconds)
        client = Client(options)
    with client:
        name = "kerberos-expiry"
        handle = client.file(name, CreateDisposition.FILE_OVERWRITE_IF)
        handle.write(b"before", 0)
        while True:
            try:
                handle.read(0, 6)
            except SMBResponseException as error:
                expect(error.status, NETWORK_SESSION_EXPIRED, "status")
                break
            time.sleep(0.1)
        try:
            client.file(name, CreateDisposition.FILE_OPEN)
        except SMBResponseException as error:
            expect(error.status, NETWORK_SESSION_EXPIRED, "status of an open")
        else:
            raise AssertionError("an expired session opens files")
        use("LANDFAST_TICKETS")
        authenticate_again(client, mit_gss.Client(options.host))
        expect(handle.read(0, 6), b"before", "bytes read with the handle from before")
        client.delete(handle)
        handle.close()


def impacket_life(options, dialect, name):
    client = SMBConnection(
        options.host, options.host, sess_port=options.port, timeout=30, preferredDialect=dialect
    )
    try:
        # The ticket for the service is in the cache, so no KDC is asked.
        client.kerberosLogin(options.user, "", os.environ["LANDFAST_REALM"], useCache=True)
        impacket_client.life_of_a_file(client, options.share, f"kerberos-impacket-{name}")
        client.logoff()
    finally:
        client.close()


def main():
    options = arguments(__doc__)
    report = Report()

    def life(name, make, **connect):
        with report.check(f"kerberos {name}"):
            use("LANDFAST_TICKETS")
            with_contexts(make)
            with Client(options, **connect) as client:
                if connect.get("encrypt"):
                    expect(client.session.encrypt_data, True, "session encrypted")
                life_of_a_file(client, "kerberos " + name.replace(",", ""))

    def spnego():
        return mit_gss.Client(options.host)

    for name, dialect in DIALECTS.items():
        life(f"{name} signed", spnego, dialect=dialect)
    for name, cipher in CIPHERS.items():
        life(f"3.1.1 {name}", spnego, encrypt=True, preferred_encryption_algos=[cipher])
    life("without SPNEGO", lambda: mit_gss.Client(options.host, mit_gss.KERBEROS))
    life("without an answer", lambda: mit_gss.Client(options.host, mit_gss.KERBEROS, mutual=False))

    with report.check("kerberos a token comes a second time"):
        use("LANDFAST_TICKETS")
        token = mit_gss.Client(options.host, mit_gss.KERBEROS).step()
        with_contexts(lambda: Once(token))
        try:
            Client(options)
        except LogonFailure as error:
            raise AssertionError("the first one is refused") from error
        except Exception:  # it has no key: whatever it asks for is signed wrongly
            pass
        refused(options, lambda: Once(token))
    for name, variable in [
        ("an owner who is no user here", "LANDFAST_STRANGER"),
        ("a ticket for another key", "LANDFAST_OTHER_KEY"),
    ]:
        with report.check(f"kerberos {name}"):
            use(variable)
            refused(options, spnego)
    with report.check("kerberos a session ends with its ticket"):
        for seconds in (5, 30):
            try:
                session_ends_with_its_ticket(options, seconds)
                break
            except (SMBResponseException, mit_gss.GssError):
                # A machine so busy that the first one ends before its session has begun.
                if seconds == 30:
                    raise

    use("LANDFAST_TICKETS")
    for name, dialect in [
        ("2.1", SMB2_DIALECT_21),
        ("3.0", SMB2_DIALECT_30),
        ("3.1.1", SMB2_DIALECT_311),
    ]:
        with report.check(f"kerberos impacket {name}"):
            impacket_life(options, dialect, name)
    with report.check("kerberos impacket, an owner who is no user here"):
        use("LANDFAST_STRANGER")
        try:
            impacket_life(options, SMB2_DIALECT_311, "stranger")
        except SessionError as error:
            expect(error.getErrorCode(), nt_errors.STATUS_LOGON_FAILURE, "status")
        else:
            raise AssertionError("logged on")
    report.conclude()


if __name__ == "__main__":
    main()
