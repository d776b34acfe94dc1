"""The fsspec file system ``landfast://[USER[:PASSWORD]@]HOST[:PORT]/SHARE/PATH``.

    pandas.read_parquet("landfast://alice@127.0.0.1:4450/data/table.parquet")  # the password in LANDFAST_PASSWORD

A path is ``/SHARE/PATH``; as in other file systems of fsspec it is taken literally, without percent-encoding. One instance
has one session for each share that it was asked for, used by all its threads; a process that was forked connects anew.

A file that was written and closed without an error is durable in the class of the server's medium (``durable=False`` turns that
off, for the file system or in ``open``). Within ``fs.transaction`` files are written under temporary names and get
their own when the transaction ends, each durable before that: others see the old file or the whole new one.
"""

from __future__ import annotations

import datetime
import io
import os
import secrets
import threading
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from ._landfast import Client
from .raw import BUFFER_SIZE, RawFile

__all__ = ["LandfastFile", "LandfastFileSystem"]


class LandfastFileSystem(AbstractFileSystem):
    """Files of a server's shares."""

    protocol = "landfast"
    root_marker = "/"

    def __init__(
        self,
        host: str,
        port: int | None = None,
        username: str | None = None,
        password: str | None = None,
        durable: bool = True,
        auto_mkdir: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.host = host
        self.port = port
        self.username = username
        self.password = password
        self.durable = durable
        self.auto_mkdir = auto_mkdir
        self._lock = threading.Lock()
        self._clients: dict[str, Client] = {}
        self._process = os.getpid()

    # Addresses

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        if path.startswith("landfast://"):
            _, _, path = path[len("landfast://") :].partition("/")
        return "/" + path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        if not path.startswith("landfast://"):
            return {}
        # Only the authority: signs such as ? and # belong to the path.
        authority = urlsplit("//" + path[len("landfast://") :].partition("/")[0])
        found: dict[str, Any] = {}
        if authority.hostname:
            found["host"] = authority.hostname
        if authority.port:
            found["port"] = authority.port
        if authority.username:
            found["username"] = unquote(authority.username)
        if authority.password:
            found["password"] = unquote(authority.password)
        return found

    @property
    def _authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else host

    def unstrip_protocol(self, name: str) -> str:
        return f"landfast://{self._authority}{self._strip_protocol(name)}"

    @property
    def fsid(self) -> str:
        return f"landfast_{self._authority}"

    def _place(self, path: str) -> tuple[Client, str]:
        """The session of the share, and the path below it."""
        share, _, rest = self._strip_protocol(path)[1:].partition("/")
        if not share:
            raise ValueError("a path begins with the name of a share: the shares of a server are not listed")
        with self._lock:
            if self._process != os.getpid():
                self._clients, self._process = {}, os.getpid()
            client = self._clients.get(share)
            if client is None:
                address = f"smb://{self._authority}/{quote(share, safe='')}"
                client = self._clients[share] = Client(address, self.username, self.password)
        return client, rest

    def _make_room(self, path: str) -> None:
        """Makes the directories that a new file needs, where that is wanted."""
        parent = self._parent(path)
        if self.auto_mkdir and parent != self._parent(parent):
            self.makedirs(parent, exist_ok=True)

    # What is there

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        client, rest = self._place(path)
        return {"name": self._strip_protocol(path), **client.stat(rest)}

    def exists(self, path: str, **_: Any) -> bool:
        try:
            self.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        client, rest = self._place(path)
        name = self._strip_protocol(path)
        found = {"name": name, **client.stat(rest)}
        if found["type"] == "directory":
            entries = [{**entry, "name": f"{name}/{entry['name']}"} for entry in client.list(rest)]
        else:
            entries = [found]
        return entries if detail else sorted(entry["name"] for entry in entries)

    def created(self, path: str) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.info(path)["created"], datetime.timezone.utc)

    def modified(self, path: str) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], datetime.timezone.utc)

    # Directories

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        if self.exists(path):
            raise FileExistsError(17, "the name exists already", self._strip_protocol(path))
        if create_parents:
            self.makedirs(self._parent(path), exist_ok=True)
        client, rest = self._place(path)
        client.mkdir(rest)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        client, rest = self._place(path)
        names = rest.split("/") if rest else []
        made = False
        for count in range(1, len(names) + 1):
            try:
                client.mkdir("/".join(names[:count]))
                made = True
            except FileExistsError:
                made = False
        if not exist_ok and not made:
            raise FileExistsError(17, "the name exists already", self._strip_protocol(path))
        if not made and not self.isdir(path):
            raise FileExistsError(17, "the name is that of a file", self._strip_protocol(path))

    def rmdir(self, path: str) -> None:
        client, rest = self._place(path)
        if client.stat(rest)["type"] != "directory":
            raise NotADirectoryError(20, "it is no directory", self._strip_protocol(path))
        client.remove(rest)

    # Files

    def rm_file(self, path: str) -> None:
        client, rest = self._place(path)
        client.remove(rest)

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        self._make_room(path2)
        with self.open(path1, "rb") as source, self.open(path2, "wb") as target:
            while piece := source.read(PIECE):
                target.write(piece)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        plain = isinstance(path1, str) and isinstance(path2, str) and not any(sign in path1 for sign in "*?[")
        if not plain or maxdepth is not None:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)
            return
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if source == target:
            return
        if self.isdir(target):
            target = f"{target}/{source.rsplit('/', 1)[-1]}"
        client, old = self._place(source)
        other, new = self._place(target)
        if client is not other:
            super().mv(path1, path2, recursive=recursive, **options)
            return
        self._make_room(target)
        client.rename(old, new, replace=True)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        if not truncate and self.exists(path):
            raise NotImplementedError("the time of a file is set by what writes it: touch with truncate=True")
        with self.open(path, "wb"):
            pass

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        client, rest = self._place(path)
        with client.open(rest, "rb") as file:
            if (start is not None and start < 0) or end is None or end < 0:
                size = file.size()
                start = max(size + start, 0) if start is not None and start < 0 else start
                end = size if end is None else max(size + end, 0) if end < 0 else end
            start = start or 0
            return file.read_at(start, max(end - start, 0))

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        self._make_room(path)
        client, rest = self._place(path)
        with client.open(rest, "xb" if mode == "create" else "wb") as file:
            file.write_at(0, value)
            if self.durable:
                file.flush()

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        durable: bool | None = None,
        **_: Any,
    ) -> LandfastFile:
        del cache_options  # one buffer serves all
        if "r" not in mode:
            self._make_room(path)
        client, rest = self._place(path)
        size = block_size if block_size and block_size > 1 else BUFFER_SIZE
        is_durable = self.durable if durable is None else durable
        return LandfastFile(self, client, self._strip_protocol(path), rest, mode, size, autocommit, is_durable)


class LandfastFile(io.IOBase):
    """A buffered file of a share; with ``autocommit=False`` it gets its name by :meth:`commit`."""

    def __init__(
        self,
        fs: LandfastFileSystem,
        client: Client,
        path: str,
        rest: str,
        mode: str,
        buffer_size: int,
        autocommit: bool,
        durable: bool,
    ) -> None:
        self.fs = fs
        self.path = path
        self.mode = mode
        self.autocommit = autocommit or "r" in mode
        self._client = client
        self._final = rest
        self._rest = rest
        if not self.autocommit:
            if "a" in mode:
                raise ValueError("a transaction writes whole files: mode ab is none of it")
            if "x" in mode and fs.exists(path):
                raise FileExistsError(17, "the name exists already", path)
            directory, slash, _ = rest.rpartition("/")
            self._rest = f"{directory}{slash}.landfast-{secrets.token_hex(8)}.part"
        self.raw = RawFile(client.open(self._rest, mode if self.autocommit else "xb"), mode, durable)
        if self.raw.readable() and self.raw.writable():
            self._buffered: Any = io.BufferedRandom(self.raw, buffer_size)
        elif self.raw.writable():
            self._buffered = io.BufferedWriter(self.raw, buffer_size)
        else:
            self._buffered = io.BufferedReader(self.raw, buffer_size)
        self.size = self.raw._file.size() if "r" in mode else None
        self.blocksize = buffer_size

    def commit(self) -> None:
        """Gives the file its name; called when the transaction ends well."""
        if self.autocommit:
            return
        self.close()
        self._client.rename(self._rest, self._final, replace="x" not in self.mode)
        self.autocommit = True

    def discard(self) -> None:
        """Removes the file; called when the transaction fails."""
        if self.autocommit:
            return
        self.close()
        self._client.remove(self._rest)
        self.autocommit = True

    def readable(self) -> bool:
        return self.raw.readable()

    def writable(self) -> bool:
        return self.raw.writable()

    def seekable(self) -> bool:
        return True

    def read(self, length: int = -1) -> bytes:
        return self._buffered.read(length)

    def read1(self, length: int = -1) -> bytes:
        return self._buffered.read1(length)

    def readinto(self, buffer: Any) -> int:
        return self._buffered.readinto(buffer)

    def readline(self, size: int | None = -1) -> bytes:
        return self._buffered.readline(-1 if size is None else size)

    def write(self, data: Any) -> int:
        return self._buffered.write(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._buffered.seek(offset, whence)

    def tell(self) -> int:
        return self._buffered.tell()

    def truncate(self, size: int | None = None) -> int:
        return self._buffered.truncate(size)

    def flush(self, force: bool = False) -> None:
        """Empties the buffer; the bytes are durable when the file is closed, or after :meth:`sync`."""
        del force
        if not self._buffered.closed:
            self._buffered.flush()

    def sync(self) -> None:
        """Returns when everything written so far is durable."""
        self.flush()
        self.raw.sync()

    def close(self) -> None:
        self._buffered.close()

    @property
    def closed(self) -> bool:
        # IOBase asks before the constructor has ended.
        buffered = getattr(self, "_buffered", None)
        return buffered is None or buffered.closed

    @property
    def full_name(self) -> str:
        return self.fs.unstrip_protocol(self.path)

    def __enter__(self) -> LandfastFile:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<landfast.fs.LandfastFile {self.path} {self.mode}>"


# What a copy reads at once.
PIECE = 4 << 20
