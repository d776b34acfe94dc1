"""What stands around a file that is written, text or a compressor: closing it closes the file, and what failed is the file's."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .file import LandfastFile

__all__ = ["Packed", "Text"]


class Packed(io.BufferedIOBase):
    """A compressor over a file. Those of Python leave their file open, and its last error to nobody."""

    def __init__(self, packer: Any, file: LandfastFile) -> None:
        self._packer = packer
        self._file = file

    def __getattr__(self, name: str) -> Any:
        if name in ("_packer", "_file"):
            raise AttributeError(name)  # the constructor has not ended
        return getattr(self._packer, name)

    def fail(self, error: BaseException) -> None:
        self._file.fail(error)

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._packer.seekable())

    def write(self, data: Any) -> int:
        return self._packer.write(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._packer.seek(offset, whence)

    def tell(self) -> int:
        return self._packer.tell()

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

    @property
    def closed(self) -> bool:
        file = self.__dict__.get("_file")
        return file is None or file.closed

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self.fail(error)
        self.close()


class Text(io.TextIOWrapper):
    """Text over a file, or over a :class:`Packed` one."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        fail = getattr(self.buffer, "fail", None)
        if error is not None and fail is not None:
            fail(error)
        self.close()
