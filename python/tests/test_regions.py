"""Push regions, blocking and for asyncio."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
import threading

import numpy
import pytest

import landfast
import landfast.aio


def test_a_record_is_committed_and_read_back(region):
    assert region.is_push and region.is_emulated and not region.is_broken and not region.is_recalled
    assert region.durability == "volatile" and "EMULATED" in region.state
    region.write_commit(4096, b"durable when this returns")
    region.atomic_write(0, 4096)
    region.commit(0, 8)
    assert region.read(4096, 25) == b"durable when this returns"
    assert int.from_bytes(region.read(0, 8), "little") == 4096
    assert len(region) == 1 << 20


def test_arrays_travel_without_a_copy_of_their_own(region):
    array = numpy.random.default_rng(1).integers(0, 1 << 30, 1 << 17, dtype="<u8")[: (1 << 20) // 8]
    region.write(0, array)
    region.commit()
    back = numpy.empty_like(array)
    assert region.readinto(0, back) == 1 << 20
    assert (back == array).all()
    half = memoryview(bytearray(16))
    region.readinto(8, half[8:])
    assert bytes(half) == bytes(8) + array[1].tobytes()


def test_submitted_operations_end_in_their_order(region):
    tickets = [region.submit_write_commit(i * 512, bytes([i]) * 512) for i in range(16)]
    tickets.append(region.submit_read(512, 4))
    tickets.append(region.submit_commit(0, 1 << 20))
    assert region.outstanding == 18
    ended = [region.finish() for _ in tickets]
    assert [ticket for ticket, _ in ended] == tickets
    assert [data for _, data in ended] == [None] * 16 + [b"\1\1\1\1", None]
    with pytest.raises(ValueError, match="outstanding"):
        region.finish()


def test_what_does_not_fit_is_refused_by_its_numbers(region):
    with pytest.raises(ValueError, match="do not fit a region of 1048576"):
        region.write(1 << 20, b"x")
    with pytest.raises(ValueError, match="beyond the region"):
        region.read(0, 1 << 40)
    with pytest.raises(ValueError, match="multiple of 8"):
        region.atomic_write(4, 1)
    with pytest.raises(OverflowError):
        region.read(-1, 1)


def test_a_crc_is_the_one_of_the_bytes(region):
    region.write_commit(0, b"123456789")
    assert region.verify(0, 9) == 0xE3069283


def test_threads_share_a_region(region):
    def work(number):
        for turn in range(50):
            region.write_commit(number * 4096, bytes([number, turn]) * 16)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for number in range(4):
        assert region.read(number * 4096, 2) == bytes([number, 49])


def test_another_client_recalls_a_region_which_goes_on_over_smb(server, client, region):
    region.write_commit(0, b"before")
    with landfast.connect(server.url) as other, other.open("region.dat", "r+b") as file:
        assert file.read_at(0, 6) == b"before"
        region.write_commit(0, b"during")
        assert not region.is_push and "recalled" in region.state
        assert file.read_at(0, 6) == b"during"
    region.write_commit(0, b"after!")
    assert region.read(0, 6) == b"after!"


def test_a_region_longer_than_its_file_is_refused(client):
    with client.open("short", "wb"):
        pass
    with pytest.raises(ValueError, match="lengthen it"):
        client.map("short", 0, 4096)
    client.remove("short")


def test_a_region_that_was_closed_says_so(client, region):
    again = client.map("region.dat", durability="any", accept_emulated=True)
    again.close()
    again.close()
    assert again.closed
    with pytest.raises(ValueError, match="closed"):
        again.read(0, 1)


def test_tasks_of_asyncio_commit_at_once(server):
    async def main():
        client = await landfast.aio.connect(server.url)
        file = await client.open("later.dat", "w+b")
        await file.truncate(1 << 16)
        assert await file.write_at(0, numpy.arange(4, dtype="u1")) == 4
        await file.flush()
        target = bytearray(6)
        assert await file.readinto_at(1, target) == 6
        assert bytes(target) == b"\1\2\3\0\0\0"
        await file.close()
        region = await client.map("later.dat", durability="any", accept_emulated=True)
        await asyncio.gather(*(region.write_commit(i * 64, bytes([i]) * 64) for i in range(200)))
        found = await asyncio.gather(*(region.read(i * 64, 64) for i in range(200)))
        assert found == [bytes([i]) * 64 for i in range(200)]
        await region.atomic_write(0, 77)
        await region.commit(0, 8)
        assert (await region.read(0, 8))[0] == 77
        assert "push" in await region.state()
        assert await region.lost() == []
        with pytest.raises(ValueError):
            await region.write(1 << 16, b"x")
        await region.close()
        with pytest.raises(FileNotFoundError):
            await client.open("nothing")
        assert [entry["name"] for entry in await client.list() if entry["name"] == "later.dat"] == ["later.dat"]
        await client.remove("later.dat")
        client.close()

    asyncio.run(main())


def test_a_cancelled_future_leaves_its_loop_and_the_region_alone(server):
    async def main():
        client = await landfast.aio.connect(server.url)
        file = await client.open("cancelled.dat", "w+b")
        await file.truncate(4096)
        await file.close()
        region = await client.map("cancelled.dat", durability="any", accept_emulated=True)
        future = region.write_commit(0, b"handed over")
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        # Calls are carried out in their order.
        assert await region.read(0, 11) == b"handed over"
        await region.close()
        await client.remove("cancelled.dat")

    asyncio.run(main())


ENDS_AT_ONCE = """
import asyncio, sys, landfast.aio

async def main():
    client = await landfast.aio.connect(sys.argv[1])
    file = await client.open("ends.dat", "w+b")
    await asyncio.gather(*(file.write_at(i, b"x") for i in range(50)))
    asyncio.ensure_future(file.flush())
    future = file.write_at(0, bytes(1 << 20))

asyncio.run(main())
"""


def test_a_program_that_ends_amid_its_calls_ends_well(server):
    for _ in range(8):
        ended = subprocess.run([sys.executable, "-c", ENDS_AT_ONCE, server.url], capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_a_with_block_that_ends_well_has_written_what_was_written(server, client):
    with client.open("block.dat", "w+b") as file:
        file.truncate(1 << 20)
    options = {"durability": "any", "accept_emulated": True}
    with client.map("block.dat", **options) as region:
        region.write(100, b"UNCOMMITTED")
    with client.map("block.dat", **options) as region:
        region.submit_write_commit(200, b"SUBMITTED")
    region = client.map("block.dat", **options)
    region.write(300, b"CLOSED")
    region.close()
    region.close()
    with client.open("block.dat") as file:
        assert file.read_at(100, 11) == b"UNCOMMITTED"
        assert file.read_at(200, 9) == b"SUBMITTED" and file.read_at(300, 6) == b"CLOSED"
    with pytest.raises(RuntimeError), client.map("block.dat", **options) as region:
        region.write(400, b"?")
        raise RuntimeError
    assert region.closed
    client.remove("block.dat")


def test_a_with_block_in_memory_that_keeps_nothing_has_shown_what_was_written(another_server):
    directory = tempfile.mkdtemp(dir="/dev/shm")
    server = another_server(directory)
    try:
        with landfast.connect(server.url) as client:
            with client.open("block.dat", "w+b") as file:
                file.truncate(1 << 20)
            with client.map("block.dat", durability="any") as region:
                region.write(100, b"VISIBLE")
            with client.open("block.dat") as file:
                assert file.read_at(100, 7) == b"VISIBLE"
    finally:
        server.stop()
        shutil.rmtree(directory)


@pytest.fixture
def plain(server, client):
    """A file of 4 KiB, and what it holds as another open sees it."""
    with client.open("plain.dat", "w+b") as file:
        file.truncate(4096)

    def read(offset, length):
        with client.open("plain.dat") as file:
            return file.read_at(offset, length)

    yield read
    client.remove("plain.dat")


OPTIONS = {"durability": "any", "accept_emulated": True}


def test_what_was_submitted_is_visible_after_close(client, plain):
    for number in range(8):
        region = client.map("plain.dat", **OPTIONS)
        region.submit_write_commit(0, bytes([number + 1]) * 100)
        region.submit_read(0, 16)
        region.close()
        assert plain(0, 100) == bytes([number + 1]) * 100
    with pytest.raises(RuntimeError), client.map("plain.dat", **OPTIONS) as region:
        region.submit_write_commit(0, b"before the error")
        raise RuntimeError
    assert plain(0, 16) == b"before the error"


def test_what_a_task_has_written_is_visible_after_close(server, plain):
    async def main():
        client = await landfast.aio.connect(server.url)
        for number in range(8):
            region = await client.map("plain.dat", **OPTIONS)
            written = region.write(0, bytes([number + 1]) * 100)
            if number % 2:
                await written
            await region.close()
            await region.close()
            assert plain(0, 100) == bytes([number + 1]) * 100
        client.close()

    asyncio.run(main())


def test_a_block_of_asyncio_that_ends_well_has_committed_what_was_written(server, plain):
    async def main():
        client = await landfast.aio.connect(server.url)
        async with await client.map("plain.dat", **OPTIONS) as region:
            await region.write(0, b"COMMITTED")
        assert plain(0, 9) == b"COMMITTED"
        with pytest.raises(ValueError, match="closed"):
            region.write(0, b"?")
        with pytest.raises(RuntimeError):
            async with await client.map("plain.dat", **OPTIONS) as region:
                await region.write(0, b"NOT ASKED")
                raise RuntimeError
        client.close()

    asyncio.run(main())


def test_a_block_whose_region_broke_raises_although_the_error_was_caught(another_server):
    directory = tempfile.mkdtemp(dir="/dev/shm")
    server = another_server(directory, "--emulate-persistence")
    try:
        with landfast.connect(server.url) as client:
            with client.open("broken.dat", "w+b") as file:
                file.truncate(4096)
            with pytest.raises(landfast.RegionBroken):
                with client.map("broken.dat", timeout=1.0, **OPTIONS) as region:
                    region.write(0, b"nobody commits this")
                    server.process.kill()
                    server.process.wait()
                    with pytest.raises(OSError):
                        region.commit()
                    assert region.lost == [(0, 19)]
    finally:
        server.stop()
        shutil.rmtree(directory)
