"""Python's own forms of files over :class:`landfast.File`."""

from __future__ import annotations

import errno
import functools
import io
import os
import types
from typing import IO, TYPE_CHECKING, Any

from ._landfast import Client, write_raw

if TYPE_CHECKING:
    from ._landfast import File


class BeforeTheFile(OSError):
    """A position lies before the first byte of the file: `zipfile` asks so whether an archive is there."""


class RawFile(io.RawIOBase):
    """An unbuffered file with a position.

    A mode with ``a`` writes at the end, as it is at that moment: of several programs that append by this package none writes where
    another does.

    With ``durable`` (the default) closing a file that was written to flushes it: when :meth:`close` returns, its bytes are
    durable in the class of the server's medium.
    """

    def __init__(self, file: File, mode: str, durable: bool = True) -> None:
        super().__init__()
        self._file = file
        self._mode = mode
        self._durable = durable
        self._is_dirty = False
        self._position = file.size() if "a" in mode else 0
        self.name = file.path

    @property
    def mode(self) -> str:
        return self._mode

    def readable(self) -> bool:
        return "r" in self._mode or "+" in self._mode

    def writable(self) -> bool:
        return "r" not in self._mode or "+" in self._mode

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check()
        if whence == os.SEEK_CUR:
            offset += self._position
        elif whence == os.SEEK_END:
            offset += self._file.size()
        elif whence != os.SEEK_SET:
            raise ValueError(f"whence {whence}: choose 0, 1 or 2")
        if offset < 0:
            raise BeforeTheFile(errno.EINVAL, f"position {offset} lies before the file", self.name)
        self._position = offset
        return offset

    def readinto(self, buffer: Any) -> int:
        self._check()
        if not self.readable():
            raise io.UnsupportedOperation("not readable")
        got = self._file.readinto_at(self._position, buffer)
        self._position += got
        return got

    #: A method in C: see `write_raw`. What it raises before it writes comes from here.
    write = property(functools.partial(types.MethodType, write_raw))

    def _begin_write(self) -> bool:
        """Whether a write goes to the end of the file."""
        self._check_writable()
        self._is_dirty = True
        return "a" in self._mode

    def truncate(self, size: int | None = None) -> int:
        self._check_writable()
        size = self._position if size is None else size
        self._is_dirty = True
        try:
            self._file.truncate(size)
        finally:
            # A sync of another thread may have begun before this was sent.
            self._is_dirty = True
        return size

    def sync(self) -> None:
        """Returns when everything written so far is durable."""
        self._check()
        # Before: a write of another thread that comes meanwhile is not covered.
        self._is_dirty = False
        try:
            self._file.flush()
        except BaseException:
            self._is_dirty = True
            raise

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._is_dirty and self._durable and not self._file.closed:
                self.sync()
        finally:
            try:
                self._file.close()
            finally:
                super().close()

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on a closed file")

    def _check_writable(self) -> None:
        self._check()
        if not self.writable():
            raise io.UnsupportedOperation("not writable")


def open(
    client: Client,
    path: str,
    mode: str = "rb",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    durable: bool = True,
) -> IO[Any]:
    """A file of ``client``'s share as Python's ``open`` would give it, text or bytes, buffered or not.

    A file that is closed without an error is durable, unless ``durable`` is false. Python's ``flush`` only empties Python's
    buffer; ``sync`` of the raw file makes durable what has left the buffer.
    """
    binary = mode if "b" in mode else mode.replace("t", "") + "b"
    if "b" in mode and encoding is not None:
        raise ValueError("a file of bytes has no encoding")
    raw = RawFile(client.open(path, binary), binary, durable)
    if buffering == 0:
        if "b" not in mode:
            raw.close()
            raise ValueError("only a file of bytes is unbuffered")
        return raw  # type: ignore[return-value]
    size = BUFFER_SIZE if buffering in (-1, 1) else buffering
    if raw.readable() and raw.writable():
        buffered: Any = io.BufferedRandom(raw, size)
    elif raw.writable():
        buffered = io.BufferedWriter(raw, size)
    else:
        buffered = io.BufferedReader(raw, size)
    if "b" in mode:
        return buffered
    return io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline, line_buffering=buffering == 1)


# One request of the server: with less, small reads cost a round trip each.
BUFFER_SIZE = 1 << 20
