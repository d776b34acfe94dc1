"""The forms for asyncio: what a task asks for is carried out in its order."""

import asyncio

import landfast.aio


def test_calls_of_one_task_are_carried_out_in_the_order_in_which_they_were_made(server, client):
    with client.open("order.dat", "w+b") as file:
        file.truncate(3 << 20)

    async def main():
        aio = await landfast.aio.connect(server.url)
        region = await aio.map("order.dat", durability="any", accept_emulated=True)
        reads, calls = [], []
        for number in range(3000):
            calls.append(region.atomic_write(0, number))
            reads.append((number, region.read(0, 8)))
        seen = [(number, int.from_bytes(await read, "little")) for number, read in reads]
        await asyncio.gather(*calls)
        # Those before it; it may see some behind it as well.
        assert [pair for pair in seen if pair[0] > pair[1]] == [] and seen[-1] == (2999, 2999)
        # A commit covers the writes before it, and a read of several requests sees them.
        region.write((3 << 20) - 8, b"written!")
        committed, whole = region.commit(), region.read(0, 3 << 20)
        await committed
        with client.open("order.dat") as file:
            assert file.read_at((3 << 20) - 8, 8) == b"written!"
        assert (await whole)[-8:] == b"written!"
        # Not awaited: the close comes behind them.
        for number in range(400):
            region.write(number * 8, number.to_bytes(8, "little"))
        await region.close()
        aio.close()

    asyncio.run(main())
    with client.open("order.dat") as file:
        written = file.read_at(0, 3200)
    assert [int.from_bytes(written[at : at + 8], "little") for at in range(0, 3200, 8)] == list(range(400))
    client.remove("order.dat")


def test_the_close_of_a_file_comes_behind_the_calls_that_were_made(server, client):
    async def main():
        aio = await landfast.aio.connect(server.url)
        file = await aio.open("closed.dat", "w+b")
        written = [file.write_at(at << 20, b"x" * (1 << 20)) for at in range(4)]
        await file.close()
        assert client.stat("closed.dat")["size"] == 4 << 20
        assert await asyncio.gather(*written) == [1 << 20] * 4
        await file.close()
        aio.close()

    asyncio.run(main())
    client.remove("closed.dat")
