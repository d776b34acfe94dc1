"""Appends: of several programs, and with signals in the middle."""

import os
import signal
import socket
import subprocess
import sys
import threading

import numpy
import pytest

import landfast
from landfast.fs import LandfastFileSystem


class Holding:
    """A relay to a server that holds answers back while it is told to: all, or those to one command."""

    def __init__(self, address):
        host, port = address.split(":")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.goes_on, self.held = threading.Event(), threading.Event()
        self.goes_on.set()
        self.command = None
        self.sockets = []
        self.target = (host, int(port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.target)
            self.sockets += [client, server]
            threading.Thread(target=self.relay, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self.relay, args=(server, client, True), daemon=True).start()

    def relay(self, source, target, is_answer):
        stream = source.makefile("rb")
        try:
            while len(head := stream.read(4)) == 4:
                frame = stream.read(int.from_bytes(head, "big"))
                # MS-SMB2 2.2.1.1: the command.
                command = int.from_bytes(frame[12:14], "little")
                if is_answer and not self.goes_on.is_set() and self.command in (None, command):
                    self.held.set()
                    self.goes_on.wait()
                target.sendall(head + frame)
        except OSError:
            pass
        finally:
            target.close()

    def hold(self, command=None):
        self.command = command
        self.held.clear()
        self.goes_on.clear()

    def cut(self):
        for one in self.sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


@pytest.fixture
def relay(server):
    relay = Holding(server.address)
    yield relay
    relay.goes_on.set()
    relay.listener.close()


@pytest.fixture
def slow(server, relay):
    with landfast.connect(server.url.replace(server.address, relay.address)) as slow:
        yield slow


WRITE = 9


def raised_during_a_write(relay, number, error, act, release=None):
    """What `act` raises while a signal comes during its first WRITE, whose handler raises `error`."""
    handled = threading.Event()

    def handle(*_):
        handled.set()
        raise error

    def interrupt():
        relay.held.wait()
        signal.raise_signal(number)
        handled.wait()
        (release or relay.goes_on.set)()

    before = signal.signal(number, handle)
    relay.hold(WRITE)
    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    try:
        act()
        raised = None
    except BaseException as caught:
        raised = caught
    finally:
        thread.join(30)
        signal.signal(number, before)
    return raised


def test_lines_appended_by_two_programs_are_all_there(server, client):
    program = (
        "import sys, landfast\n"
        "with landfast.connect(sys.argv[1]) as client:\n"
        "    with landfast.open(client, 'lines.txt', 'ab', buffering=0) as file:\n"
        "        for number in range(100):\n"
        "            file.write(f'{sys.argv[2]} {number}\\n'.encode())\n"
    )
    names = ("one", "two")
    programs = [subprocess.Popen([sys.executable, "-c", program, server.url, name]) for name in names]
    assert [one.wait(timeout=120) for one in programs] == [0, 0]
    with landfast.open(client, "lines.txt") as file:
        lines = file.read().decode().splitlines()
    assert sorted(lines) == sorted(f"{name} {number}" for name in names for number in range(100))
    with landfast.open(client, "lines.txt", "ab", buffering=0) as file:
        before = file.tell()
        assert file.write(numpy.zeros(3, dtype="<u4")) == 12 and file.tell() == before + 12
    client.remove("lines.txt")


def test_an_append_that_is_interrupted_while_it_locks_holds_no_lock(slow, relay, client):
    file = slow.open("interrupted.log", "ab")
    file.append(b"one\n")
    relay.hold()

    def interrupt():
        # The server has granted the lock, and nobody knows.
        relay.held.wait()
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        file.append(b"two\n")
    relay.goes_on.set()
    ended = []

    def append():
        with client.open("interrupted.log", "ab") as other:
            other.append(b"three\n")
        file.append(b"four\n")
        ended.append(True)

    # A thread, so that a lock that is left ends the test.
    thread = threading.Thread(target=append, daemon=True)
    thread.start()
    thread.join(30)
    assert ended
    file.close()
    with client.open("interrupted.log") as file:
        assert file.read_at(0, 100) == b"one\nthree\nfour\n"
    client.remove("interrupted.log")


@pytest.mark.parametrize("form", ["text", "large", "unbuffered", "fsspec"])
def test_a_record_that_ctrl_c_interrupts_is_in_the_file_once(form, slow, relay, client, server):
    record = b"x" * (900 << 10 if form == "large" else 9) + b"\n"
    if form == "text":
        file = landfast.open(slow, "once.log", "a")
    elif form == "fsspec":
        host, port = relay.address.split(":")
        fs = LandfastFileSystem(host=host, port=int(port), username="tester", skip_instance_cache=True)
        file = fs.open("/data/once.log", "ab")
    else:
        file = landfast.open(slow, "once.log", "ab", buffering=0 if form == "unbuffered" else -1)

    def append():
        file.write(record.decode() if form == "text" else record)
        file.flush()

    assert isinstance(raised_during_a_write(relay, signal.SIGINT, KeyboardInterrupt(), append), KeyboardInterrupt)
    file.write("end" if form == "text" else b"end")
    file.close()
    with client.open("once.log") as file:
        assert file.read_at(0, 1 << 21) == record + b"end"
    client.remove("once.log")


def test_what_a_handler_raises_during_an_append_comes_behind_it(slow, relay, client):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    file = slow.open("handled.log", "ab")
    try:
        for number, error in ((signal.SIGALRM, TimeoutError("late")), (signal.SIGTERM, SystemExit(3))):
            assert raised_during_a_write(relay, number, error, lambda: file.append(b"once\n")) is error
    finally:
        signal.signal(signal.SIGINT, before)
    with client.open("handled.log") as other:
        assert other.read_at(0, 100) == b"once\nonce\n"
    # One that fails as well says both.
    stopped = KeyboardInterrupt()
    release = lambda: (relay.cut(), relay.goes_on.set())  # noqa: E731
    raised = raised_during_a_write(relay, signal.SIGINT, stopped, lambda: file.append(b"?"), release)
    assert raised is stopped and isinstance(raised.__context__, OSError)
    client.remove("handled.log")


def test_a_raw_file_refuses_as_files_of_python_do(client):
    with landfast.open(client, "raw.bin", "wb", buffering=0) as file:
        assert file.write(b"abc") == 3 and file.tell() == 3
        with pytest.raises(OSError) as caught:
            file.seek(-1)
        assert caught.value.errno == 22 and file.tell() == 3
    with pytest.raises(ValueError, match="closed"):
        file.write(b"d")
    file = landfast.open(client, "raw.bin", "rb", buffering=0)
    for change in (lambda: file.write(b"d"), file.truncate):
        with pytest.raises(OSError, match="not writable"):
            change()
    file.close()
    assert file.closed and client.stat("raw.bin")["size"] == 3
    client.remove("raw.bin")
