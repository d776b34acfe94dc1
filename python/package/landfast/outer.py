"""What stands around a file, text or a compressor: closing it closes the file, and what failed in writing is the file's.

A compressor has taken bytes that are not in the file yet, and so has text. What a signal's handler raises between the two, no method
of the file sees. Therefore each call that may hand something on tells the file itself (:func:`landfast.file.told`).
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from .file import told

if TYPE_CHECKING:
    from .file import LandfastFile

__all__ = ["Packed", "Text", "Unpacked"]


class _Outer:
    """What both have of the file."""

    _file: LandfastFile

    def fail(self, error: BaseException) -> None:
        self._file.fail(error)

    def _fail_by(self, error: BaseException) -> None:
        self._file._fail_by(error)

    def commit(self) -> None:
        """See :meth:`LandfastFile.commit`: the name is that of all that was written, and the file is closed."""
        self._file.commit()

    def discard(self) -> None:
        """See :meth:`LandfastFile.discard`."""
        self._file.discard()

    def close(self) -> None:
        raise NotImplementedError

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._file.leave(error)
        self.close()

    def writelines(self, lines: Any) -> None:
        # Whatever `lines` raises, some of them are written.
        try:
            super().writelines(lines)  # type: ignore[misc]
        except BaseException as error:
            self.fail(error)
            raise


class _OverFile(io.BufferedIOBase):
    """A compressor and its file: gzip and zip leave theirs open, and the server takes it for used."""

    def __init__(self, packer: Any, file: LandfastFile) -> None:
        self._packer = packer
        self._file = file

    def __getattr__(self, name: str) -> Any:
        if name in ("_packer", "_file"):
            raise AttributeError(name)  # the constructor has not ended
        return getattr(self._packer, name)

    def seekable(self) -> bool:
        return bool(self._packer.seekable())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._packer.seek(offset, whence)

    def tell(self) -> int:
        return self._packer.tell()

    @property
    def closed(self) -> bool:
        file = self.__dict__.get("_file")
        return file is None or file.closed


class Unpacked(_OverFile):
    """What a compressor reads of a file."""

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        return self._packer.read(-1 if size is None else size)

    def read1(self, size: int = -1) -> bytes:
        # Not all that register with fsspec have it.
        return getattr(self._packer, "read1", self._packer.read)(size)

    def readline(self, size: int | None = -1) -> bytes:
        return self._packer.readline(-1 if size is None else size)

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._packer.close()
        finally:
            self._file.close()


class Packed(_Outer, _OverFile):
    """A compressor over a file that is written. The last error of those of Python would be nobody's."""

    def writable(self) -> bool:
        return True

    @told
    def write(self, data: Any) -> int:
        return self._packer.write(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        try:
            return self._packer.seek(offset, whence)
        except BaseException as error:
            # gzip refuses to go back by an error without a number; what the file raises the file knows.
            if type(error) is not OSError or error.errno is not None:
                self._fail_by(error)
            raise

    @told
    def tell(self) -> int:
        return self._packer.tell()

    @told
    def flush(self) -> None:
        if not self.closed:
            self._packer.flush()

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._packer.close()
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            self._file.close()


class Text(_Outer, io.TextIOWrapper):
    """Text over a file that is written, or over a compressor. Reading, too, hands on what was written before it."""

    def __init__(self, under: Any, file: LandfastFile, **text: Any) -> None:
        self._file = file
        super().__init__(under, **text)

    def write(self, text: str) -> int:
        # Without `told`, as it is called most.
        try:
            return _write(self, text)
        except BaseException as error:
            self._fail_by(error)
            raise

    flush = told(io.TextIOWrapper.flush)
    seek = told(io.TextIOWrapper.seek)
    tell = told(io.TextIOWrapper.tell)
    truncate = told(io.TextIOWrapper.truncate)
    read = told(io.TextIOWrapper.read)
    readline = told(io.TextIOWrapper.readline)
    reconfigure = told(io.TextIOWrapper.reconfigure)
    detach = told(io.TextIOWrapper.detach)
    close = told(io.TextIOWrapper.close)


_write = io.TextIOWrapper.write
