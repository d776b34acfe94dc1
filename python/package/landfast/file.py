"""A file of the fsspec file system, which may get its name only when all of it is there."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .names import refuse_ambiguous_target
from .raw import RawFile

if TYPE_CHECKING:
    from ._landfast import Client
    from .fs import LandfastFileSystem

__all__ = ["LandfastFile"]


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
        self.autocommit = autocommit or mode in ("r", "rb")
        self._client = client
        self._durable = durable
        self._final = rest
        self._rest = rest
        self._failure: BaseException | None = None
        self._is_checked = False
        if not self.autocommit:
            if "a" in mode or "r" in mode:
                raise ValueError(f"a transaction writes whole files: mode {mode} is none of it")
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

    def check(self) -> None:
        """Raises what :meth:`commit` would, as far as it can be known."""
        if self.autocommit:
            return
        self._refuse_unfit()
        if "x" in self.mode and self.fs.exists(self.path):
            raise FileExistsError(17, "the name exists already", self.path)
        self._client.check_replaceable(self._final)
        self._is_checked = True

    def _refuse_unfit(self) -> None:
        if self._failure is not None:
            number = getattr(self._failure, "errno", None) or errno.EIO
            raise OSError(number, f"it may lack a part of what was written: {self._failure!r}", self.path) from self._failure
        refuse_ambiguous_target(self._client, self._final, self.path)

    def commit(self) -> None:
        """Gives the file its name; called when the transaction ends well."""
        if self.autocommit:
            return
        self.close()
        if not self._is_checked:
            self._refuse_unfit()
        self._client.rename(self._rest, self._final, replace="x" not in self.mode, durable=self._durable)
        self.autocommit = True

    def fail(self, error: BaseException) -> None:
        """Takes down that the file may lack a part: a transaction that has it then fails, unless it was discarded."""
        self._failure = self._failure or error

    def discard(self) -> None:
        """Removes the file; called when the transaction fails."""
        if self.autocommit:
            return
        with contextlib.suppress(OSError):
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
        try:
            return self._buffered.write(data)
        except BaseException as error:
            self._fail_by(error)
            raise

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with self._failing():
            return self._buffered.seek(offset, whence)

    def tell(self) -> int:
        return self._buffered.tell()

    def truncate(self, size: int | None = None) -> int:
        with self._failing():
            return self._buffered.truncate(size)

    def flush(self, force: bool = False) -> None:
        """Empties the buffer; the bytes are durable when the file is closed, or after :meth:`sync`."""
        del force
        if not self._buffered.closed:
            with self._failing():
                self._buffered.flush()

    def sync(self) -> None:
        """Returns when everything written so far is durable."""
        self.flush()
        with self._failing():
            self.raw.sync()

    def close(self) -> None:
        with self._failing():
            self._buffered.close()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._fail_by(error)
            raise

    def _fail_by(self, error: BaseException) -> None:
        # What is no call for such a file has written nothing.
        if not isinstance(error, (TypeError, ValueError)):
            self.fail(error)

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

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self.fail(error)
        self.close()

    def __repr__(self) -> str:
        return f"<landfast.fs.LandfastFile {self.path} {self.mode}>"
