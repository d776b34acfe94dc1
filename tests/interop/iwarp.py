"""A second implementation of iWARP, small and written from the RFCs alone, to hold ours against.

The initiator's side of MPA revision 2 (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040):
Send and Send with Invalidate both ways, and as target RDMA Write and RDMA Read. CRC always on, no
markers. It checks whatever the responder sends, and anything amiss is a ProtocolError.
"""

import select
import socket
import struct
import threading

SEND, SEND_INVALIDATE, SEND_SE, SEND_SE_INVALIDATE = 3, 4, 5, 6
WRITE, READ_REQUEST, READ_RESPONSE, TERMINATE = 0, 1, 2, 7

# The largest ULPDU we send: that of an Ethernet with MTU 1500, so that messages are cut.
ULPDU_MAX = 1442


class ProtocolError(Exception):
    """The other side broke a rule."""


def _crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


def crc32c(data, _table=_crc_table()):
    """RFC 3385's polynomial, bit by reflected bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def require(condition, rule):
    if not condition:
        raise ProtocolError(rule)


class Stream:
    """One RDMAP stream. `receive` hands out Sends and serves RDMA on the way."""

    def __init__(self, host, port, timeout):
        self.regions = {}  # STag -> bytearray; tagged offset 0 is its first byte
        self.invalidated = set()
        self.placed = 0  # bytes the peer wrote into our regions
        self._read_segment = struct.Struct(">IQIIQ")
        self._sent_messages = {0: 0, 1: 0}
        self._received_messages = {0: 0, 1: 0, 2: 0}
        self._lock = threading.Lock()
        self._partial = b""
        self._socket = socket.create_connection((host, port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._shake_hands()

    def _shake_hands(self, ird=16, ord_=16):
        # RFC 6581 §9: S flag, then IRD and ORD; no peer-to-peer bits, so we speak first.
        private = struct.pack(">HH", ird, ord_)
        head = struct.pack(">16sBBH", b"MPA ID Req Frame", 0x40 | 0x10, 2, len(private))
        self._socket.sendall(head + private)
        key, flags, revision, length = struct.unpack(">16sBBH", self._exactly(20))
        private = self._exactly(length)
        require(key == b"MPA ID Rep Frame", f"MPA reply key {key!r}")
        require(not flags & 0x20, f"MPA rejected, private data {private.hex()}")
        require(flags & 0x40, "the CRC we asked for is on")
        require(not flags & 0x80, "no markers: we cannot send them")
        require(revision == 2 and flags & 0x10, "an S request gets an S reply of revision 2")
        require(length >= 4, "an S reply carries IRD and ORD")
        their_ird, their_ord = struct.unpack(">HH", private[:4])
        require(not (their_ird | their_ord) & 0xC000, "no peer-to-peer bits where we set none")
        require(their_ird >= 1 and their_ord <= ird, f"IRD {their_ird}, ORD {their_ord}")

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            require(piece, "the stream ended in the middle of a frame")
            data += piece
        return data

    def close(self):
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()

    def _send_fpdu(self, ulpdu):
        framed = struct.pack(">H", len(ulpdu)) + ulpdu
        framed += bytes(-len(framed) % 4)
        self._socket.sendall(framed + struct.pack("<I", crc32c(framed)))

    def _send_untagged(self, opcode, queue, message):
        room = ULPDU_MAX - 18
        with self._lock:
            self._sent_messages[queue] += 1
            number = self._sent_messages[queue]
            for offset in range(0, max(len(message), 1), room):
                piece = message[offset : offset + room]
                last = 0x40 if offset + room >= len(message) else 0
                head = struct.pack(">BBIIII", last | 1, 0x40 | opcode, 0, queue, number, offset)
                self._send_fpdu(head + piece)

    def send(self, message):
        self._send_untagged(SEND, 0, message)

    def _send_read_response(self, stag, tagged_offset, data):
        room = ULPDU_MAX - 14
        with self._lock:
            for offset in range(0, max(len(data), 1), room):
                piece = data[offset : offset + room]
                last = 0x40 if offset + room >= len(data) else 0
                control = struct.pack(">BB", 0x80 | last | 1, 0x40 | READ_RESPONSE)
                place = struct.pack(">IQ", stag, tagged_offset + offset)
                self._send_fpdu(control + place + piece)

    def receive(self, timeout):
        """The next whole Send, or None at the end of the stream."""
        message = b""
        while True:
            ulpdu = self._receive_fpdu(timeout)
            if ulpdu is None:
                return None
            control, rdmap = ulpdu[0], ulpdu[1]
            require(control & 3 == 1, "DDP version 1")
            require(rdmap & 0xC0 == 0x40, "RDMAP version 1")
            last, opcode = bool(control & 0x40), rdmap & 0x3F
            if control & 0x80:
                self._place(opcode, ulpdu)
                continue
            invalidate, queue, number, offset = struct.unpack(">IIII", ulpdu[2:18])
            payload = ulpdu[18:]
            wanted = {READ_REQUEST: 1, TERMINATE: 2}.get(opcode, 0)
            require(queue == wanted, f"opcode {opcode} on queue {queue}")
            require(number == self._received_messages[queue] + 1, f"MSN {number}")
            if last:
                self._received_messages[queue] += 1
            if opcode == TERMINATE:
                raise ProtocolError(f"terminated by the peer: {payload.hex()}")
            if opcode == READ_REQUEST:
                require(last and offset == 0, "a Read Request is one segment")
                self._serve_read(payload)
                continue
            require(opcode in (SEND, SEND_INVALIDATE, SEND_SE, SEND_SE_INVALIDATE), opcode)
            require(offset == len(message), f"MO {offset} after {len(message)} bytes")
            message += payload
            if not last:
                continue
            if opcode in (SEND_INVALIDATE, SEND_SE_INVALIDATE):
                require(invalidate in self.regions, f"invalidates foreign STag {invalidate:#x}")
                del self.regions[invalidate]
                self.invalidated.add(invalidate)
            return message

    def _receive_fpdu(self, timeout):
        try:
            ready, _, _ = select.select([self._socket], [], [], timeout)
            first = self._socket.recv(1) if ready else None
        except (OSError, ValueError):
            return None  # closed by another thread of ours
        if first is None:
            raise TimeoutError("nothing received")
        if not first:
            return None
        head = first + self._exactly(1)
        (length,) = struct.unpack(">H", head)
        rest = self._exactly(length + (-(length + 2) % 4) + 4)
        framed, crc = head + rest[:-4], struct.unpack("<I", rest[-4:])[0]
        require(crc32c(framed) == crc, f"CRC {crc:#010x} of a {length}-byte ULPDU")
        require(not any(framed[2 + length :]), "padding is zero")
        return framed[2 : 2 + length]

    def _place(self, opcode, ulpdu):
        require(opcode == WRITE, f"tagged opcode {opcode} where we asked for no read")
        stag, offset = struct.unpack(">IQ", ulpdu[2:14])
        payload = ulpdu[14:]
        require(stag in self.regions, f"write to STag {stag:#x}, which is not ours")
        region = self.regions[stag]
        require(offset + len(payload) <= len(region), f"write past the end of {stag:#x}")
        region[offset : offset + len(payload)] = payload
        self.placed += len(payload)

    def _serve_read(self, payload):
        require(len(payload) == 28, f"Read Request of {len(payload)} bytes")
        sink, sink_offset, size, source, offset = self._read_segment.unpack(payload)
        require(source in self.regions, f"read of STag {source:#x}, which is not ours")
        region = self.regions[source]
        require(offset + size <= len(region), f"read past the end of {source:#x}")
        self._send_read_response(sink, sink_offset, bytes(region[offset : offset + size]))
