"""Remote persistent memory as a file service.

    import landfast

    client = landfast.connect("smb://alice@127.0.0.1:4450/data")  # the password in LANDFAST_PASSWORD
    with client.map("log.dat") as region:
        region.write_commit(0, b"durable when this returns")

- :func:`connect` gives a :class:`Client`: files, directories, :meth:`Client.map`.
- :class:`Region` is a range of a file that is written and read by one-sided RDMA, with a commit.
- :func:`open` has the forms of Python's own files.
- :class:`Store` is a client of a striped store: memory of many servers, as regions that many clients use at once.
- :mod:`landfast.aio` has the forms for asyncio; :mod:`landfast.fs` is the fsspec file system ``landfast://``.

The guide is docs/python.md of the project.
"""

from ._landfast import (
    Client,
    File,
    LandfastError,
    Region,
    RegionBroken,
    Store,
    StoreRegion,
    __version__,
)
from .raw import RawFile, open
from .shuffle import ShufflePlan

__all__ = [
    "Client",
    "File",
    "LandfastError",
    "RawFile",
    "Region",
    "RegionBroken",
    "ShufflePlan",
    "Store",
    "StoreRegion",
    "__version__",
    "connect",
    "open",
]


def connect(url: str, user: str | None = None, password: str | None = None) -> Client:
    """A session on the share of ``smb://[USER[:PASSWORD]@]HOST[:PORT]/SHARE``.

    ``user`` and ``password`` take the place of those in the address; a user without a password gets that of the
    environment variable LANDFAST_PASSWORD. Without a user the session is a guest's.
    """
    return Client(url, user, password)
