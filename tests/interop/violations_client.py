#!/usr/bin/env python3
"""What no honest peer sends, in each layer below SMB, and what has to come of it.

Every check is a connection of its own: good up to the bad part, then a Terminate with the code of the
specification, or the end of the connection where there is none (RFC 5044 §7.1.2 during the start-up,
MS-SMBD §3.1.5 above RDMA). After each the server answers an honest peer. --port is the RDMA port.
"""

import contextlib
import socket
import struct

import iwarp
from report import Report, arguments, expect
from smbdirect import DATA_TRANSFER, NEGOTIATE_REQUEST, NEGOTIATE_RESPONSE

REQUEST, REPLY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
MARKERS, CRC, REJECTED, ENHANCED = 0x80, 0x40, 0x20, 0x10
GOOD_NEGOTIATE = (0x0100, 0x0100, 0, 10, 1364, 8192, 1 << 20)
TIMEOUT = 10


class Peer:
    """An initiator that may do everything wrong."""

    def __init__(self, options):
        self._socket = socket.create_connection((options.host, options.port), TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._markers = False
        self._position = 0
        self._numbers = {0: 0, 1: 0, 2: 0}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def send(self, data):
        self._socket.sendall(data)

    def ask(self, flags=CRC | ENHANCED, revision=2, private=b"\0\x10\0\x10", key=REQUEST):
        self.send(struct.pack(">16sBBH", key, flags, revision, len(private)) + private)

    def start(self, **request):
        """The whole start-up; the reply's flags, revision and private data."""
        self.ask(**request)
        key, flags, revision, length = struct.unpack(">16sBBH", self._raw(20))
        expect(key, REPLY, "key of the reply")
        self._markers = bool(request.get("flags", 0) & MARKERS)
        return flags, revision, self._raw(length)

    def frame(self, ulpdu, crc_error=0):
        framed = struct.pack(">H", len(ulpdu)) + ulpdu
        framed += bytes(-len(framed) % 4)
        self.send(framed + struct.pack("<I", iwarp.crc32c(framed) ^ crc_error))

    def untagged(self, payload, control=0x41, rdmap=0x43, queue=0, number=None, offset=0, word=0):
        if number is None:
            self._numbers[queue] += 1
            number = self._numbers[queue]
        self.frame(struct.pack(">BBIIII", control, rdmap, word, queue, number, offset) + payload)

    def tagged(self, payload, control=0xC1, rdmap=0x40, stag=0x1234, offset=0):
        self.frame(struct.pack(">BBIQ", control, rdmap, stag, offset) + payload)

    def negotiate(self, fields=GOOD_NEGOTIATE):
        self.untagged(NEGOTIATE_REQUEST.pack(*fields))

    def up(self):
        """Honest up to where SMB2 would begin."""
        self.start()
        self.negotiate()
        answer = NEGOTIATE_RESPONSE.unpack(self.message())
        expect(answer[6], 0, "status of SMB Direct")
        return answer

    def transfer(self, wanted=10, granted=0, flags=0, left=0, place=24, piece=b"", length=None):
        length = len(piece) if length is None else length
        head = DATA_TRANSFER.pack(wanted, granted, flags, 0, left, place, length)
        self.untagged(head + (bytes(4) + piece if piece else b""))

    def _raw(self, count):
        while len(self._received) < count:
            piece = self._socket.recv(65536)
            if not piece:
                raise EOFError(f"closed {count - len(self._received)} bytes short")
            self._received += piece
        taken, self._received = self._received[:count], self._received[count:]
        return taken

    def _stream(self, count):
        """Bytes of frames, markers taken out: they are every 512 bytes from the first on."""
        out = b""
        while len(out) < count:
            if self._markers and self._position % 512 == 0:
                reserved, back = struct.unpack(">HH", self._raw(4))
                expect(reserved, 0, "reserved half of a marker")
                expect(back, len(out) + self._frame_so_far, "a marker's way back to its frame")
                self._crc_input += struct.pack(">HH", reserved, back)
                self._position += 4
                self._frame_so_far += 4
            room = 512 - self._position % 512 if self._markers else count
            piece = self._raw(min(room, count - len(out)))
            self._position += len(piece)
            out += piece
            self._crc_input += piece
        self._frame_so_far += len(out)
        return out

    def ulpdu(self):
        self._frame_so_far, self._crc_input = 0, b""
        (length,) = struct.unpack(">H", self._stream(2))
        rest = self._stream(length + (-(length + 2) % 4))
        covered = self._crc_input
        (crc,) = struct.unpack("<I", self._stream(4))
        expect(crc, iwarp.crc32c(covered), "CRC")
        return rest[:length]

    def message(self):
        ulpdu = self.ulpdu()
        if ulpdu[1] & 0xF == iwarp.TERMINATE:
            raise AssertionError(f"terminated: {ulpdu[18:].hex()}")
        expect((ulpdu[0] & 0xC3, ulpdu[1]), (0x41, 0x43), "a Send of one segment")
        return ulpdu[18:]

    def terminated(self):
        """Layer, type and code of the Terminate that has to come, and then the end."""
        while True:
            ulpdu = self.ulpdu()
            if ulpdu[1] & 0xF == iwarp.TERMINATE:
                break
        expect(struct.unpack(">III", ulpdu[6:18]), (2, 1, 0), "queue, number, offset")
        self.closed()
        return ulpdu[18] >> 4, ulpdu[18] & 0xF, ulpdu[19]

    def closed(self):
        """Nothing more comes, and the connection ends."""
        try:
            self._socket.settimeout(TIMEOUT)
            data = self._received + self._socket.recv(65536)
        except ConnectionResetError:
            return
        expect(data, b"", "bytes behind the last")

    def drops(self):
        """The connection ends; what was under way may come before."""
        try:
            while self._socket.recv(65536):
                pass
        except ConnectionResetError:
            pass


def startup(report, options):
    honest = {"flags": CRC | ENHANCED, "private": b"\0\x10\0\x10"}
    silently = {
        "a foreign key": {"key": b"MPA ID Rew Frame"},
        "the key of a reply": {"key": REPLY},
        "revision 0": {"revision": 0, "flags": 0, "private": b""},
        "revision 3": {"revision": 3},
        "513 bytes of private data": {"private": bytes(513)},
        "depths of three bytes": {"private": b"\0\x10\0"},
    }
    for name, wrong in silently.items():
        with report.check(f"MPA: {name}"), Peer(options) as peer:
            peer.ask(**{**honest, **wrong})
            peer.closed()
    with report.check("MPA: a frame before the reply"), Peer(options) as peer:
        peer.send(struct.pack(">16sBBH", REQUEST, CRC, 1, 0) + bytes(32))
        peer.closed()
    with report.check("MPA: half a request and no more"), Peer(options) as peer:
        peer.send(REQUEST[:9])
        peer.closed()
    with report.check("MPA: revision 1 is answered in kind"), Peer(options) as peer:
        flags, revision, _ = peer.start(flags=CRC, revision=1, private=b"")
        expect((flags & ~0xF, revision), (CRC, 1), "flags and revision")
        peer.negotiate()
        expect(len(peer.message()), 32, "negotiate response")
    with report.check("MPA: CRC stays on for who wants none"), Peer(options) as peer:
        flags, _, _ = peer.start(flags=ENHANCED)
        expect(flags & CRC, CRC, "flag C")
    with report.check("MPA: markers for who wants them"), Peer(options) as peer:
        flags, _, _ = peer.start(flags=MARKERS | CRC | ENHANCED)
        expect(flags & (MARKERS | REJECTED), 0, "flags M and R")
        peer.negotiate()
        expect(len(peer.message()), 32, "negotiate response")
    ready = {"an empty Write": 0x8010, "an empty Read": 0x4010}
    for name, word in ready.items():
        with report.check(f"MPA: peer to peer, {name}"), Peer(options) as peer:
            _, _, private = peer.start(private=struct.pack(">HH", 0x8010, word))
            ird, ord_ = struct.unpack(">HH", private[:4])
            expect((ird & 0xC000, ord_ & 0xC000), (0x8000, word & 0xC000), "flags A to D")
            if word & 0x8000:
                peer.tagged(b"")
            else:
                peer.untagged(struct.pack(">IQIIQ", 1, 0, 0, 1, 0), rdmap=0x41, queue=1)
                expect(peer.ulpdu()[:14], struct.pack(">BBIQ", 0xC1, 0x42, 1, 0), "the answer")
            peer.negotiate()
            expect(len(peer.message()), 32, "negotiate response")


def frames(report, options):
    """Behind a good first frame: before that a responder may only close."""
    read = struct.pack(">IQIIQ", 1, 0, 64, 0x1234, 0)
    wrap = (1 << 64) - 8
    cases = {
        "MPA: a wrong CRC": ((2, 0, 2), lambda p: p.frame(bytes(32), crc_error=1)),
        "DDP: shorter than its header": ((2, 0, 3), lambda p: p.frame(b"\x41\x43\0\0")),
        "DDP: tagged, version 0": ((1, 1, 4), lambda p: p.tagged(b"x", control=0xC0)),
        "DDP: untagged, version 2": ((1, 2, 6), lambda p: p.untagged(b"x", control=0x42)),
        "DDP: queue 5": ((1, 2, 1), lambda p: p.untagged(b"x", queue=5, number=1)),
        "DDP: a number left out": ((1, 2, 3), lambda p: p.untagged(b"x", number=9)),
        "DDP: the middle first": ((1, 2, 4), lambda p: p.untagged(b"x", offset=4)),
        "DDP: longer than the receive": ((1, 2, 5), lambda p: p.untagged(bytes(20_000))),
        "DDP: no such STag": ((1, 1, 0), lambda p: p.tagged(b"x")),
        "DDP: offset and length wrap": ((1, 1, 3), lambda p: p.tagged(bytes(64), offset=wrap)),
        "RDMAP: version 0": ((0, 2, 5), lambda p: p.untagged(b"x", rdmap=0x03)),
        "RDMAP: an opcode nobody knows": ((0, 2, 6), lambda p: p.untagged(b"x", rdmap=0x4F)),
        "RDMAP: a Send that is tagged": ((0, 2, 6), lambda p: p.tagged(b"x", rdmap=0x43)),
        "RDMAP: a Flush nobody agreed on": (
            (0, 2, 6),
            lambda p: p.untagged(bytes(20), rdmap=0x4C, queue=1),
        ),
        "RDMAP: an answer nobody asked for": ((0, 2, 6), lambda p: p.tagged(b"x", rdmap=0x42)),
        "RDMAP: a Read of no such STag": (
            (0, 1, 0),
            lambda p: p.untagged(read, rdmap=0x41, queue=1),
        ),
    }
    for name, (code, bad) in cases.items():
        with report.check(name), Peer(options) as peer:
            peer.up()
            bad(peer)
            expect(peer.terminated(), code, "layer, type, code")
    with report.check("RDMAP: a Terminate is the end, and is not answered"), Peer(options) as peer:
        peer.up()
        peer.untagged(b"\0\0\0\0", rdmap=0x47, queue=2)
        peer.closed()
    with report.check("MPA: a wrong CRC in the first frame"), Peer(options) as peer:
        peer.start()
        peer.frame(bytes(32), crc_error=1)
        peer.closed()


def smb_direct(report, options):
    def good(**wrong):
        names = ("low", "high", "reserved", "credits", "send", "receive", "fragmented")
        return [wrong.get(name, value) for name, value in zip(names, GOOD_NEGOTIATE)]

    negotiations = {
        "no credits": good(credits=0),
        "receives of 127 bytes": good(receive=127),
        "fragments of 131,071 bytes": good(fragmented=131_071),
    }
    for name, fields in negotiations.items():
        with report.check(f"SMB Direct: {name}"), Peer(options) as peer:
            peer.start()
            peer.negotiate(fields)
            peer.drops()
    with report.check("SMB Direct: versions we do not speak"), Peer(options) as peer:
        peer.start()
        peer.negotiate(good(low=0x200, high=0x300))
        answer = NEGOTIATE_RESPONSE.unpack(peer.message())
        expect(answer[6], 0xC00000BB, "STATUS_NOT_SUPPORTED")
        peer.drops()
    with report.check("SMB Direct: a negotiation cut short"), Peer(options) as peer:
        peer.start()
        peer.untagged(NEGOTIATE_REQUEST.pack(*GOOD_NEGOTIATE)[:19])
        peer.drops()
    with report.check("SMB Direct: data before the negotiation"), Peer(options) as peer:
        peer.start()
        peer.transfer(piece=b"\xfeSMB" + bytes(60))
        peer.drops()
    junk = bytes(64)
    transfers = {
        "shorter than its header": lambda p: p.untagged(bytes(19)),
        "wants no credits": lambda p: p.transfer(wanted=0),
        "data at an odd place": lambda p: p.transfer(place=25, piece=junk),
        "data inside the header": lambda p: p.transfer(place=8, piece=junk),
        "data beyond the message": lambda p: p.transfer(piece=junk, length=65),
        "fragments that do not add up": lambda p: (
            p.transfer(piece=junk, left=100),
            p.transfer(piece=junk, left=37),
        ),
        "a message without end": lambda p: p.transfer(piece=junk, left=0xFFFF_FFF0),
        "what is not SMB2": lambda p: p.transfer(piece=b"GET / HTTP/1.1\r\n\r\n".ljust(64)),
    }
    for name, bad in transfers.items():
        with report.check(f"SMB Direct: {name}"), Peer(options) as peer:
            peer.up()
            bad(peer)
            peer.drops()
    with report.check("SMB Direct: more messages than credits"), Peer(options) as peer:
        granted = peer.up()[5]
        # Empty ones, none of which asks for an answer. The end may come in the middle of them.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(granted + 300):
                peer.transfer(wanted=1)
        peer.drops()


def main():
    options = arguments(__doc__)
    report = Report()
    for layer in (startup, frames, smb_direct):
        layer(report, options)
        with report.check(f"an honest peer after {layer.__name__}"), Peer(options) as peer:
            expect(len(peer.up()), 11, "fields of the response")
    report.conclude()


if __name__ == "__main__":
    main()
