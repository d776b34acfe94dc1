"""The fsspec file system ``landfast://[USER[:PASSWORD]@]HOST[:PORT]/SHARE/PATH``.

    pandas.read_parquet("landfast://alice@127.0.0.1:4450/data/table.parquet")  # the password in LANDFAST_PASSWORD

A path is ``/SHARE/PATH``; as in other file systems of fsspec it is taken literally, without percent-encoding. A path with a
``[`` is a pattern only where no file has that very name. What removes or moves files takes a symbolic link for itself; what
reads and copies follows it. One instance
has one session for each share that it was asked for, used by all its threads; a process that was forked connects anew.

A file that was written and closed without an error is durable in the class of the server's medium (``durable=False`` turns that
off, for the file system or in ``open``). Within ``fs.transaction`` files are written under temporary names and get
their own when the transaction ends, each durable before that: others see the old file or the whole new one; ``rm`` and
``mkdir`` act at once, and ``mv`` is refused.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import shutil
import threading
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from fsspec.callbacks import DEFAULT_CALLBACK as NO_CALLBACK
from fsspec.compression import compr
from fsspec.core import get_compression, has_magic
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from ._landfast import Client
from .file import LandfastFile
from .moves import Move
from .names import Names, Plan, fold, refuse_ambiguous, refuse_equal
from .outer import Packed, Text, Unpacked
from .raw import BUFFER_SIZE
from .transaction import WholeFiles

__all__ = ["LandfastFile", "LandfastFileSystem"]


class LandfastFileSystem(AbstractFileSystem):
    """Files of a server's shares."""

    protocol = "landfast"
    root_marker = "/"
    transaction_type = WholeFiles

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
        if ":" in rest or "\\" in rest:
            # What follows a colon would be a stream of another file, which no listing shows.
            raise ValueError(f"{path}: a colon or backslash is no part of a name for the server: rename it, or use another sign")
        with self._lock:
            if self._process != os.getpid():
                self._clients, self._process = {}, os.getpid()
            client = self._clients.get(share)
            if client is None or client.has_ended:
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

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: Any = "omit",
        _above: tuple[Any, ...] = (),
        **options: Any,
    ) -> Any:
        """As in other file systems of fsspec; a link to a directory above it is listed, and not gone into."""
        here = None
        with contextlib.suppress(OSError):
            client, rest = self._place(path)
            here = client.identity(rest)
        if here is None or here not in _above:
            above = (*_above, here)
            yield from super().walk(path, maxdepth, topdown, on_error, _above=above, **options)

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
        refuse_ambiguous(client, rest, self._strip_protocol(path))
        if client.stat(rest)["type"] != "directory":
            raise NotADirectoryError(20, "it is no directory", self._strip_protocol(path))
        client.remove(rest)

    # Files

    def rm_file(self, path: str) -> None:
        client, rest = self._place(path)
        try:
            refuse_ambiguous(client, rest, self._strip_protocol(path))
            # A link to a directory is none.
            is_directory = client.stat(rest)["type"] == "directory" and not self._is_link(client, rest)
        except OSError:
            if self._is_link_to_nowhere(client, rest):
                client.remove(rest, follow=False)
                return
            raise
        if is_directory:
            raise IsADirectoryError(21, "it is a directory: rmdir, or rm with recursive=True", self._strip_protocol(path))
        client.remove(rest)

    @staticmethod
    def _is_link(client: Client, rest: str) -> bool:
        return client.stat(client.spelling(rest), follow=False)["type"] == "link"

    @staticmethod
    def _is_link_to_nowhere(client: Client, rest: str) -> bool:
        # Of such a link the server does not say how it is spelled.
        try:
            return client.stat(rest, follow=False)["type"] == "link"
        except OSError:
            return False

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes files, and with ``recursive`` directories. A symbolic link goes, and what it points to stays."""
        # What lies in a directory goes before the directory.
        for name in reversed(self.expand_path(path)):
            if recursive:
                self._rm_tree(name, maxdepth)
            else:
                self.rm_file(name)

    def _rm_tree(self, name: str, maxdepth: int | None) -> None:
        client, rest = self._place(name)
        refuse_ambiguous(client, rest, name)
        try:
            top = client.spelling(rest)
        except (FileNotFoundError, PermissionError):
            top = rest  # or a link that leads nowhere
        found = []
        left = [(top, 0, client.stat(top, follow=False)["type"] == "directory")]
        while left:
            path, depth, is_directory = left.pop()
            found.append(path)
            if not is_directory or (maxdepth is not None and depth >= maxdepth):
                continue
            shown = {entry["name"] for entry in client.list(path)}
            for entry in client.list(path, follow=False):
                below = f"{path}/{entry['name']}" if path else entry["name"]
                # A copy would have left it out.
                if entry["type"] != "link" and entry["name"] not in shown:
                    why = f"it holds {entry['name']!r}, a name that Linux programs alone can use: nothing is removed"
                    raise OSError(39, why, f"{name}{path[len(top) :]}")
                left.append((below, depth + 1, entry["type"] == "directory"))
        # Each directory stands before what lies in it.
        for path in reversed(found):
            client.remove(path, follow=False)

    def expand_path(
        self,
        path: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        assume_literal: bool = False,
        **options: Any,
    ) -> list[str]:
        """The paths that a pattern or the root of a tree stands for; what is there as it is written is no pattern."""
        if assume_literal:
            return super().expand_path(path, recursive, maxdepth, assume_literal=True, **options)
        paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
        literal = [self._strip_protocol(one) for one in paths if self._is_literal(one)]
        found = set(literal)
        if literal and maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        if recursive:
            for one in literal:
                found.update(self.find(one, maxdepth=maxdepth, withdirs=True, detail=False))
        others = [one for one in paths if not self._is_literal(one)]
        if others or not literal:
            try:
                found.update(super().expand_path(others, recursive, maxdepth, **options))
            except FileNotFoundError:
                if not found:
                    raise
        return sorted(found)

    def _is_literal(self, path: Any) -> bool:
        """Whether a text that looks like a pattern names something that is there."""
        path = stringify_path(path)
        # No file has a name with * or ?, and a server refuses to look for one.
        return isinstance(path, str) and has_magic(path) and not any(sign in path for sign in "*?") and self.exists(path)

    def _named_targets(self, path: str, target: str, recursive: bool, maxdepth: int | None, is_there: bool) -> Any:
        """The paths of a literal source, and where each goes, as fsspec places those of a name without signs."""
        source = self._strip_protocol(path)
        names = self.expand_path(path, recursive, maxdepth)
        if not recursive or maxdepth is not None:
            names = [name for name in names if not self.isdir(name)]
        into = is_there and not path.endswith("/")
        base = f"{target.rstrip('/')}/{source.rsplit('/', 1)[-1]}" if into else target.rstrip("/")
        return names, [base + name[len(source) :] for name in names]

    def copy(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        on_error: str | None = None,
        **options: Any,
    ) -> None:
        if isinstance(path1, str) and isinstance(path2, str) and self._is_literal(path1):
            is_there = path2.endswith("/") or self.isdir(path2)
            path1, path2 = self._named_targets(path1, path2, recursive, maxdepth, is_there)
            recursive, maxdepth = False, None
        plan = Plan(self)
        AbstractFileSystem.copy(plan, path1, path2, recursive=recursive, maxdepth=maxdepth, **options)
        Names(self).refuse_meetings(plan.pairs, self.isdir)
        sources, targets = _apart(plan.pairs)
        on_error = on_error or ("ignore" if recursive else "raise")
        super().copy(sources, targets, on_error=on_error, **options)

    def get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = NO_CALLBACK,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        if isinstance(rpath, str) and isinstance(lpath, str) and self._is_literal(rpath):
            is_there = lpath.endswith("/") or os.path.isdir(lpath)
            rpath, lpath = self._named_targets(rpath, lpath, recursive, maxdepth, is_there)
            recursive, maxdepth = False, None
        plan = Plan(self)
        AbstractFileSystem.get(plan, rpath, lpath, recursive=recursive, maxdepth=maxdepth, **options)
        refuse_equal(plan.pairs, self.isdir)
        sources, targets = _apart(plan.pairs)
        super().get(sources, targets, callback=callback, **options)

    def _refuse_same(self, path1: str, path2: str) -> None:
        """Emptying the target of a copy would empty the source, by whatever name or share both are reached."""
        client, source = self._place(path1)
        other, target = self._place(path2)
        try:
            there = other.identity(target)
        except (FileNotFoundError, NotADirectoryError):
            return
        here = client.identity(source)
        if (source == target and client is other) or (here is not None and here == there):
            raise shutil.SameFileError(f"{self._strip_protocol(path1)} and {self._strip_protocol(path2)} are the same file")

    def _refuse_other_spelling(self, path: str) -> None:
        """Two paths may differ by case alone, and a server ignores it: one file would replace the other."""
        client, rest = self._place(path)
        try:
            there = client.spelling(rest)
        except (FileNotFoundError, NotADirectoryError):
            return
        # A directory that is a link has another name there.
        is_other = there != rest and fold(there) == fold(rest)
        if is_other or there.rsplit("/", 1)[-1] != rest.rsplit("/", 1)[-1]:
            raise FileExistsError(17, f"the server has it as {there!r}, and ignores case", self._strip_protocol(path))

    def put(
        self,
        lpath: Any,
        rpath: Any,
        recursive: bool = False,
        callback: Any = NO_CALLBACK,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        # A local path that is there as it is written is no pattern either.
        if isinstance(lpath, str) and isinstance(rpath, str) and has_magic(lpath) and os.path.lexists(lpath):
            source = LocalFileSystem._strip_protocol(lpath)
            into = rpath.endswith("/") or self.isdir(rpath)
            base = rpath.rstrip("/")
            if into and not lpath.endswith("/"):
                base = f"{base}/{os.path.basename(source)}"
            local = LocalFileSystem()
            names = [source]
            if recursive:
                names += local.find(source, maxdepth=maxdepth, withdirs=maxdepth is None, detail=False)
            if not recursive or maxdepth is not None:
                names = [name for name in names if not os.path.isdir(name)]
            names = sorted(set(names))
            lpath, rpath = names, [base + name[len(source) :] for name in names]
            recursive, maxdepth = False, None
        plan = Plan(self)
        AbstractFileSystem.put(plan, lpath, rpath, recursive=recursive, maxdepth=maxdepth, **options)
        Names(self).refuse_meetings(plan.pairs, os.path.isdir)
        sources, targets = _apart(plan.pairs)
        super().put(sources, targets, callback=callback, **options)

    def put_file(self, lpath: str, rpath: str, *arguments: Any, **options: Any) -> None:
        self._refuse_other_spelling(rpath)
        super().put_file(lpath, rpath, *arguments, **options)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        self._refuse_same(path1, path2)
        self._refuse_other_spelling(path2)
        self._make_room(path2)
        with self.open(path1, "rb") as source, self.open(path2, "wb") as target:
            while piece := source.read(PIECE):
                target.write(piece)

    def _copy_whole(self, path1: str, path2: str) -> None:
        """Copies a file that is going to be removed: others see the old target or the whole new one, which is durable."""
        self._make_room(path2)
        # Whether or not a transaction is under way: it ends with this.
        target = self._open(path2, "wb", autocommit=False, durable=True)
        try:
            with self._open(path1, "rb") as source:
                while piece := source.read(PIECE):
                    target.write(piece)
            target.commit()
        except BaseException:
            with contextlib.suppress(OSError):
                target.discard()
            raise

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **_: Any) -> None:
        """Moves files and trees, not within a transaction. See :mod:`landfast.moves`."""
        if self._intrans:
            raise NotImplementedError(
                "a transaction gives files that it writes their names at its end: move before it begins, or behind it"
            )
        if maxdepth is not None:
            raise ValueError("a move takes a tree as a whole: maxdepth would leave a part of it nowhere")
        Move(self, path1, path2, recursive).carry_out()

    def start_transaction(self) -> WholeFiles:
        if self._intrans or self.transaction.has_begun:
            raise RuntimeError("a transaction is under way: end it first")
        self._transaction = self.transaction_type(self)
        self._transaction.start()
        return self._transaction

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

    def pipe(self, path: Any, value: Any = None, **options: Any) -> None:
        if isinstance(path, dict):
            Names(self).refuse_meetings(((one, one) for one in path), lambda _: False)
        super().pipe(path, value, **options)

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        if self._intrans:
            with self.open(path, "xb" if mode == "create" else "wb") as target:
                target.write(value)
            return
        self._make_room(path)
        client, rest = self._place(path)
        with client.open(rest, "xb" if mode == "create" else "wb") as file:
            file.write_at(0, value)
            if self.durable:
                file.flush()

    def open(
        self,
        path: Any,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **options: Any,
    ) -> Any:
        binary = mode if "b" in mode else mode.replace("t", "") + "b"
        text: dict[str, Any] = {}
        if "b" not in mode:
            text = {name: options.pop(name) for name in ("encoding", "errors", "newline") if name in options}
            io.TextIOWrapper(io.BytesIO(), **text)
        codec = None if compression is None else get_compression(path, compression)
        # What can be refused was, before a file is emptied.
        if self._intrans or options.get("autocommit", True):
            file = super().open(path, binary, block_size, cache_options, **options)
        else:
            # Outside a transaction the caller gives it its name.
            file = self._open(self._strip_protocol(path), binary, block_size, cache_options=cache_options, **options)
        around: Any = file
        try:
            if codec is not None:
                # Around the file that a transaction has: fsspec of 2024 gives it the compressor, which it cannot commit.
                packer = compr[codec](file, mode=binary[0])
                around = (Unpacked if "r" in binary else Packed)(packer, file)
            if "b" not in mode:
                around = io.TextIOWrapper(around, **text) if binary == "rb" else Text(around, file, **text)
        except BaseException:
            # Nobody gets it, so nobody else can close it.
            with contextlib.suppress(OSError):
                file.discard()
            with contextlib.suppress(OSError):
                file.close()
            raise
        file.hold(around)
        return around

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


# What a copy reads at once.
PIECE = 4 << 20


def _apart(pairs: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [source for source, _ in pairs], [target for _, target in pairs]
