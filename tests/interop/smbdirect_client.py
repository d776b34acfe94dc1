#!/usr/bin/env python3
"""smbprotocol over an SMB Direct of our own writing: an independent peer for ours.

Inline transfers exercise credits and fragments; then READ and WRITE with buffer descriptors, by
which the server moves the payload with RDMA. --port is the server's RDMA port.
"""

import secrets
import struct

import smbprotocol.connection
from smbprotocol.open import (
    CreateDisposition,
    SMB2ReadRequest,
    SMB2ReadResponse,
    SMB2WriteRequest,
    SMB2WriteResponse,
)

import smbdirect
from report import Report, arguments, expect, pattern
from smbprotocol_client import Client, life_of_a_file

V1, V1_INVALIDATE = 1, 2
# Below the least MaxFragmentedSize there may be (MS-SMBD §3.1.5.6: 131,072), headers left out.
INLINE_MAX = 130_000
CHANNELS = {"V1": V1, "V1_INVALIDATE": V1_INVALIDATE}


class Regions:
    """Memory of ours that the server may reach, as the buffer descriptors that name it."""

    def __init__(self, stream, lengths, data=b""):
        self.stream = stream
        self.stags = []
        self.buffers = []
        at = 0
        for length in lengths:
            stag = secrets.randbits(32)
            buffer = bytearray(data[at : at + length].ljust(length, b"\xee"))
            stream.regions[stag] = buffer
            self.stags.append(stag)
            self.buffers.append(buffer)
            at += length

    def descriptors(self):
        """MS-SMBD §2.2.3.1: offset, token, length."""
        pairs = zip(self.stags, self.buffers)
        return b"".join(struct.pack("<QII", 0, stag, len(buffer)) for stag, buffer in pairs)

    def contents(self):
        return b"".join(bytes(buffer) for buffer in self.buffers)

    def release(self, channel):
        if channel == V1_INVALIDATE:
            expect(self.stags[0] in self.stream.invalidated, True, "first token invalidated")
        for stag in self.stags:
            self.stream.regions.pop(stag, None)


def exchange(client, request, length):
    session, tree = client.session.session_id, client.tree.tree_connect_id
    # MS-SMB2 §3.2.4.1.5: each credit pays for 64 KiB, by whatever way they travel; smbprotocol
    # counts what is in the message.
    client.connection._calculate_credit_charge = lambda message: max(1, -(-length // 65536))
    try:
        sent = client.connection.send(request, session, tree)
    finally:
        del client.connection._calculate_credit_charge
    return client.connection.receive(sent)["data"].get_value()


def write_by_rdma(client, handle, data, lengths, channel):
    stream = smbdirect.SmbDirect.opened[-1].stream
    regions = Regions(stream, lengths, data)
    request = SMB2WriteRequest()
    request["data_offset"] = 0
    request["length"] = 0
    request["remaining_bytes"] = len(data)
    request["file_id"] = handle.file_id
    request["channel"] = channel
    request["buffer_channel_info"] = regions.descriptors()
    response = SMB2WriteResponse()
    response.unpack(exchange(client, request, len(data)))
    expect(response["count"].get_value(), len(data), "bytes written")
    regions.release(channel)


def read_by_rdma(client, handle, length, lengths, channel):
    stream = smbdirect.SmbDirect.opened[-1].stream
    regions = Regions(stream, lengths)
    placed = stream.placed
    request = SMB2ReadRequest()
    request["length"] = length
    request["file_id"] = handle.file_id
    request["channel"] = channel
    request["buffer"] = regions.descriptors()
    response = SMB2ReadResponse()
    response.unpack(exchange(client, request, length))
    expect(response["data_length"].get_value(), 0, "DataLength")
    expect(response["data_remaining"].get_value(), length, "DataRemaining")
    expect(stream.placed - placed, length, "bytes placed by RDMA Write")
    data = regions.contents()
    regions.release(channel)
    return data


def transfers(client, name, channel):
    """Sizes around the limits, in one descriptor and in several."""
    handle = client.file(name, CreateDisposition.FILE_OVERWRITE_IF)
    for lengths in ([1], [4096], [65536], [4096, 1, 61439], [262144]):
        length = sum(lengths)
        data = pattern(length, length)
        write_by_rdma(client, handle, data, lengths, channel)
        expect(handle.read(0, min(length, 4096)), data[:4096], "read back inline")
        found = read_by_rdma(client, handle, length, lengths, channel)
        expect(found == data, True, f"{lengths} bytes read back by RDMA are those written")
    # A buffer longer than what is asked for keeps its end.
    found = read_by_rdma(client, handle, 100, [200], channel)
    expect(found[100:], b"\xee" * 100, "bytes behind the read")
    client.delete(handle)
    handle.close()


def main():
    options = arguments(__doc__)
    smbprotocol.connection.Tcp = smbdirect.SmbDirect
    report = Report()

    for name, encrypt in (("signed", False), ("encrypted", True)):
        with report.check(f"SMB Direct inline {name}"):
            with Client(options, encrypt=encrypt) as client:
                # What does not go by RDMA has to fit what either side puts together.
                client.connection.max_read_size = INLINE_MAX
                client.connection.max_write_size = INLINE_MAX
                life_of_a_file(client, f"smbdirect-{name}")
                transport = smbdirect.SmbDirect.opened[-1]
                expect(transport.fragments_received > 100, True, "fragments received")
    for name, channel in CHANNELS.items():
        with report.check(f"SMB Direct {name}"):
            with Client(options, sign=False) as client:
                transfers(client, f"smbdirect-{name}.bin", channel)
    with report.check("SMB Direct keepalive"):
        with Client(options) as client:
            transport = smbdirect.SmbDirect.opened[-1]
            for _ in range(3 * smbdirect.RECEIVES):
                transport.idle_answer()
                client.connection.echo(sid=client.session.session_id)
    report.conclude()


if __name__ == "__main__":
    main()
