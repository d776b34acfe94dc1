"""A file of the fsspec file system, which may get its name only when all of it is there.

Whatever a call on it raises, the file may lack a part from then on, and gets no name; but not what was no call for such a file,
and has written nothing. A signal's handler raises anywhere, so what stands around the file tells it what passes by
(:mod:`landfast.outer`).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import secrets
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .names import refuse_ambiguous_target
from .raw import BeforeTheFile, RawFile

if TYPE_CHECKING:
    from ._landfast import Client
    from .fs import LandfastFileSystem

__all__ = ["LandfastFile", "told"]


def told(call: Callable[..., Any]) -> Any:
    """A method that tells its object what it raises, by `_fail_by`."""

    @functools.wraps(call)
    def telling(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return call(self, *arguments, **options)
        except BaseException as error:
            self._fail_by(error)
            raise

    return telling


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
        self._around: Any = None
        # A block that an exception ends closes its file while that is under way.
        self._known = None if self.autocommit else sys.exc_info()[1]
        if not self.autocommit:
            if "a" in mode or "r" in mode:
                raise ValueError(f"a transaction writes whole files: mode {mode} is none of it")
            if "x" in mode and fs.exists(path):
                raise FileExistsError(17, "the name exists already", path)
            directory, slash, _ = rest.rpartition("/")
            self._rest = f"{directory}{slash}.landfast-{secrets.token_hex(8)}.part"
        self.raw = RawFile(client.open(self._rest, mode if self.autocommit else "xb"), mode, durable)
        try:
            if self.raw.readable() and self.raw.writable():
                self._buffered: Any = io.BufferedRandom(self.raw, buffer_size)
            elif self.raw.writable():
                self._buffered = io.BufferedWriter(self.raw, buffer_size)
            else:
                self._buffered = io.BufferedReader(self.raw, buffer_size)
            self.size = self.raw._file.size() if "r" in mode else None
        except BaseException:
            # A buffer may be larger than memory.
            with contextlib.suppress(OSError):
                self.raw.close()
                if not self.autocommit:
                    client.remove(self._rest)
            raise
        self.blocksize = buffer_size

    def check(self) -> None:
        """Raises what :meth:`commit` would, as far as it can be known."""
        if self.autocommit:
            return
        refuse_ambiguous_target(self._client, self._final, self.path)
        if "x" in self.mode and self.fs.exists(self.path):
            raise FileExistsError(17, "the name exists already", self.path)
        self._client.check_replaceable(self._final)
        self._is_checked = True

    def refuse_cut(self) -> None:
        """Raises if the file may lack a part."""
        if self._failure is not None:
            number = getattr(self._failure, "errno", None) or errno.EIO
            raise OSError(number, f"it may lack a part of what was written: {self._failure!r}", self.path) from self._failure

    def commit(self) -> None:
        """Gives the file its name; called when the transaction ends well."""
        if self.autocommit:
            return
        # Its program knows of an exception that is under way, and has the file named all the same.
        self._known = sys.exc_info()[1]
        (self._around or self).close()
        self.refuse_cut()
        if not self._is_checked:
            refuse_ambiguous_target(self._client, self._final, self.path)
        try:
            self._client.rename(self._rest, self._final, replace="x" not in self.mode, durable=self._durable)
        except OSError as error:
            if error.filename == self._rest:
                error.filename = self.path
            raise
        self.autocommit = True

    def fail(self, error: BaseException) -> None:
        """Takes down that the file may lack a part: a transaction that has it then fails, unless it was discarded."""
        self._failure = self._failure or error

    def hold(self, around: Any) -> None:
        """Takes what is around an open file that gets its name later, and is closed with it.

        A text that nobody else held any more would close itself, and the file, as if it were whole.
        """
        if not self.autocommit:
            self._around = around

    def discard(self) -> None:
        """Removes the file; called when the transaction fails."""
        if self.autocommit:
            return
        try:
            # What is around a file that was closed without it cannot empty itself.
            with contextlib.suppress(OSError, ValueError):
                (self._around or self).close()
        finally:
            with contextlib.suppress(OSError):
                self.close()
        client = self._client
        if client.has_ended:
            client, _ = self.fs._place(self.path)  # connects anew
        client.remove(self._rest)
        self.autocommit = True

    def readable(self) -> bool:
        return self.raw.readable()

    def writable(self) -> bool:
        return self.raw.writable()

    def seekable(self) -> bool:
        return True

    # Where a file is read and written, a read empties the buffer first.

    @told
    def read(self, length: int = -1) -> bytes:
        return self._buffered.read(length)

    @told
    def read1(self, length: int = -1) -> bytes:
        return self._buffered.read1(length)

    @told
    def readinto(self, buffer: Any) -> int:
        return self._buffered.readinto(buffer)

    def readline(self, size: int | None = -1) -> bytes:
        # Without `told`, as it is called most: that would cost a second call.
        try:
            return self._buffered.readline(-1 if size is None else size)
        except BaseException as error:
            self._fail_by(error)
            raise

    def write(self, data: Any) -> int:
        try:
            return self._buffered.write(data)
        except BaseException as error:
            self._fail_by(error)
            raise

    @told
    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._buffered.seek(offset, whence)

    @told
    def tell(self) -> int:
        return self._buffered.tell()

    @told
    def truncate(self, size: int | None = None) -> int:
        return self._buffered.truncate(size)

    @told
    def flush(self, force: bool = False) -> None:
        """Empties the buffer; the bytes are durable when the file is closed, or after :meth:`sync`."""
        del force
        if not self._buffered.closed:
            self._buffered.flush()

    @told
    def sync(self) -> None:
        """Returns when everything written so far is durable."""
        self.flush()
        self.raw.sync()

    @told
    def close(self) -> None:
        if not self.autocommit and not self.closed:
            error = sys.exc_info()[1]
            if error is not None and error is not self._known:
                self.fail(error)
        self._around = self._known = None
        self._buffered.close()

    def _fail_by(self, error: BaseException) -> None:
        # Not what is derived of them: a signal's handler may raise that.
        if type(error) not in REFUSALS:
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
        self.leave(error)
        self.close()

    def leave(self, error: BaseException | None) -> None:
        """Its ``with`` block ends, by an exception or well: then one that is under way is not of this file."""
        if error is not None:
            self.fail(error)
        else:
            self._known = sys.exc_info()[1]

    def writelines(self, lines: Any) -> None:
        # Whatever `lines` raises, some of them are written.
        try:
            super().writelines(lines)
        except BaseException as error:
            self.fail(error)
            raise

    def __repr__(self) -> str:
        return f"<landfast.fs.LandfastFile {self.path} {self.mode}>"


# What Python's own classes raise, and RawFile, of a call that is none for such a file, before they write anything.
REFUSALS = (
    TypeError,
    ValueError,
    BufferError,
    LookupError,
    OverflowError,
    UnicodeEncodeError,
    UnicodeDecodeError,
    io.UnsupportedOperation,
    BeforeTheFile,
)
