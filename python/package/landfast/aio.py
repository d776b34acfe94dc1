"""The forms for asyncio.

    client = await landfast.aio.connect("smb://alice@127.0.0.1:4450/data")
    region = await client.map("log.dat")
    await asyncio.gather(*(region.write_commit(i * 64, record) for i, record in enumerate(records)))

Each call hands over its request and gives a future. A future that is cancelled cancels nothing that was handed over. The
commits of several tasks travel together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ._landfast import AsyncClient as Client
from ._landfast import AsyncFile as File
from ._landfast import AsyncRegion as Region
from ._landfast import Store as _Store
from ._landfast import StoreRegion as _StoreRegion

if TYPE_CHECKING:
    from ._landfast import Buffer

__all__ = ["Client", "File", "Region", "StoreRegion", "connect", "map_store"]


async def connect(url: str, user: str | None = None, password: str | None = None) -> Client:
    """See :func:`landfast.connect`."""
    return await Client.connect(url, user, password)


class StoreRegion:
    """A mapped region of a striped store whose calls are awaited: each runs on a thread of the event loop's executor.

    Calls that are under way at a time have no order. The bytes of a call must not be changed before it is done. A call that is cancelled goes on to its end.
    """

    def __init__(self, region: _StoreRegion) -> None:
        self._region = region

    async def read(self, offset: int, length: int) -> bytes:
        return await asyncio.to_thread(self._region.read, offset, length)

    async def readinto(self, offset: int, buffer: Buffer) -> int:
        return await asyncio.to_thread(self._region.readinto, offset, buffer)

    async def write(self, offset: int, data: Buffer) -> None:
        await asyncio.to_thread(self._region.write, offset, data)

    async def write_durable(self, offset: int, data: Buffer) -> None:
        await asyncio.to_thread(self._region.write_durable, offset, data)

    async def commit(self, offset: int = 0, length: int | None = None) -> None:
        await asyncio.to_thread(self._region.commit, offset, length)

    async def read_many(self, reads: Sequence[tuple[int, Buffer]]) -> None:
        await asyncio.to_thread(self._region.read_many, reads)

    async def write_many(self, writes: Sequence[tuple[int, Buffer]]) -> None:
        await asyncio.to_thread(self._region.write_many, writes)

    async def fetch_add(self, offset: int, add: int) -> int:
        return await asyncio.to_thread(self._region.fetch_add, offset, add)

    async def compare_swap(self, offset: int, compare: int, swap: int) -> int:
        return await asyncio.to_thread(self._region.compare_swap, offset, compare, swap)

    async def wait_above(self, channel: int, seen: int, timeout: float) -> int:
        return await asyncio.to_thread(self._region.wait_above, channel, seen, timeout)

    def close(self) -> None:
        self._region.close()


async def map_store(store: _Store, name: str, *, write: bool = True, token: str | None = None) -> StoreRegion:
    """See :meth:`landfast.Store.map`."""
    return StoreRegion(await asyncio.to_thread(lambda: store.map(name, write=write, token=token)))
