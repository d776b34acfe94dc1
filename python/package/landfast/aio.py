"""The forms for asyncio.

    client = await landfast.aio.connect("smb://alice@127.0.0.1:4450/data")
    region = await client.map("log.dat")
    await asyncio.gather(*(region.write_commit(i * 64, record) for i, record in enumerate(records)))

Each call hands over its request and gives a future. A future that is cancelled cancels nothing that was handed over. The
commits of several tasks travel together.
"""

from __future__ import annotations

from ._landfast import AsyncClient as Client
from ._landfast import AsyncFile as File
from ._landfast import AsyncRegion as Region

__all__ = ["Client", "File", "Region", "connect"]


async def connect(url: str, user: str | None = None, password: str | None = None) -> Client:
    """See :func:`landfast.connect`."""
    return await Client.connect(url, user, password)
