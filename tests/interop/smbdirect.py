"""SMB Direct (MS-SMBD) from the specification alone, as a transport smbprotocol can use.

Small buffers on purpose, so that ordinary SMB2 messages are fragmented and credits run out. It
checks whatever the server sends; anything amiss is a ProtocolError.
"""

import struct
import threading

import iwarp
from iwarp import require

RECEIVES = 10  # posted receive buffers: the most credits the server may hold
RECEIVE_SIZE = 1024
FRAGMENTED_MAX = 256 * 1024
NEGOTIATE_REQUEST = struct.Struct("<HHHHIII")
NEGOTIATE_RESPONSE = struct.Struct("<HHHHHHIIIII")
DATA_TRANSFER = struct.Struct("<HHHHIII")
RESPONSE_REQUESTED = 1


class SmbDirect:
    """The interface of smbprotocol.transport.Tcp over SMB Direct."""

    opened = []  # every transport made, newest last

    def __init__(self, server, port, timeout=None):
        self.server, self.port, self.timeout = server, port, timeout
        self.connected = False
        self.fragments_received = 0
        self.read_write_max = 0
        self._credits = 0  # messages we may send
        self._granted = 0  # messages the server may send
        self._more = threading.Condition()
        SmbDirect.opened.append(self)

    def connect(self):
        self.stream = iwarp.Stream(self.server, self.port, self.timeout)
        # §2.2.1: versions, reserved, credits requested, preferred send, max receive, fragmented.
        request = (0x0100, 0x0100, 0, RECEIVES, 1364, RECEIVE_SIZE, FRAGMENTED_MAX)
        self.stream.send(NEGOTIATE_REQUEST.pack(*request))
        response = self.stream.receive(self.timeout or 30)
        require(response is not None, "the server hung up instead of negotiating")
        require(len(response) == 32, f"negotiate response of {len(response)} bytes")
        fields = NEGOTIATE_RESPONSE.unpack(response)
        (low, high, version, reserved, wanted, granted) = fields[:6]
        (status, self.read_write_max, preferred_send, receive_max, fragmented_max) = fields[6:]
        require((low, high, version, reserved) == (0x100, 0x100, 0x100, 0), f"versions {fields}")
        require(status == 0, f"negotiate status {status:#x}")
        require(wanted >= 1 and granted >= 1, f"credits {wanted}, {granted}")
        require(preferred_send <= RECEIVE_SIZE, f"would send {preferred_send} bytes")
        require(receive_max >= 128 and fragmented_max >= 131072, f"limits {fields}")
        require(self.read_write_max >= 1 << 20, f"read/write size {self.read_write_max}")
        self._credits = granted
        self._room = min(1364, receive_max) - 24
        self._fragmented_max = fragmented_max
        self.connected = True

    def close(self):
        if self.connected:
            self.connected = False
            self.stream.close()
            with self._more:
                self._more.notify_all()

    def send(self, header):
        # Sealed messages come as a structure, others as bytes.
        message = header.pack() if hasattr(header, "pack") else bytes(header)
        require(len(message) <= self._fragmented_max, f"{len(message)} bytes are too many")
        for offset in range(0, len(message), self._room):
            piece = message[offset : offset + self._room]
            self._send_one(piece, len(message) - offset - len(piece))

    def _send_one(self, piece, remaining):
        with self._more:
            # §3.1.5.1: the last credit is for a message that grants some.
            ready = lambda: not self.connected or self._credits > 1 or (
                self._credits == 1 and self._granted < RECEIVES
            )
            if not self._more.wait_for(ready, timeout=30):
                raise iwarp.ProtocolError("no send credit within 30 s")
            self._transmit(piece, remaining)

    def _transmit(self, piece, remaining, flags=0):
        """Called with the lock held."""
        grant = RECEIVES - self._granted
        self._granted += grant
        self._credits -= 1
        place = 24 if piece else 0
        head = DATA_TRANSFER.pack(RECEIVES, grant, flags, 0, remaining, place, len(piece))
        self.stream.send(head + bytes(4) + piece if piece else head)

    def recv(self, timeout):
        message, remaining = b"", None
        while True:
            packet = self.stream.receive(max(timeout, 1))
            if packet is None:
                self.close()
                return b""
            piece, left = self._take(packet)
            if not piece:
                continue
            self.fragments_received += 1
            require(remaining is None or len(piece) + left == remaining, "RemainingDataLength")
            require(len(piece) + left + len(message) <= FRAGMENTED_MAX, "too long a message")
            message, remaining = message + piece, left
            if left == 0:
                return message

    def _take(self, packet):
        require(20 <= len(packet) <= RECEIVE_SIZE, f"a data transfer of {len(packet)} bytes")
        fields = DATA_TRANSFER.unpack(packet[:20])
        (wanted, granted, flags, reserved, left, place, length) = fields
        require(wanted >= 1 and reserved == 0 and not flags & ~1, f"header {fields}")
        require(length == 0 or (place >= 20 and place % 8 == 0), f"data at {place}")
        require(place + length <= len(packet), f"data of {length} at {place}")
        with self._more:
            self._granted -= 1
            require(self._granted >= 0, "the server sent without a credit")
            self._credits += granted
            self._more.notify_all()
            # Give the buffers back before the server runs dry, or when it asks for an answer.
            starved = self._granted <= RECEIVES // 2
            if (flags & RESPONSE_REQUESTED or starved) and self._credits >= 1:
                self._transmit(b"", 0)
        return packet[place : place + length], left

    def idle_answer(self):
        """Asks for an answer, as a keepalive does."""
        with self._more:
            self._transmit(b"", 0, RESPONSE_REQUESTED)
