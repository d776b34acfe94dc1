"""Transactions of the fsspec file system: files that get their names together.

    0. no more files come: one that another thread opens from here on is none of this transaction, and has its name at once
    1. each file is whole and closed: none is open, and no call on it has failed
    2. each name is looked at: a directory, a file that somebody has open and lets nobody delete, two names that are one for
       the server, a name that could be either of two, a new name that an earlier file gets
    3. each file gets its name, in their order: not that of a file that somebody has open

What fails in 1 or 2 has given no name to anything. What fails in 3 leaves the names that were given before it. In each case the
rest is discarded and the transaction has ended: fsspec before 2026.9 leaves it under way, and then the process writes files that
never get a name, as it has one file system for each address.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING

from fsspec.transaction import Transaction

from .names import Names

if TYPE_CHECKING:
    from types import TracebackType

    from .file import LandfastFile
    from .fs import LandfastFileSystem

__all__ = ["WholeFiles"]


class WholeFiles(Transaction):
    """What :attr:`LandfastFileSystem.transaction` gives."""

    def __init__(self, fs: LandfastFileSystem) -> None:
        super().__init__(fs)
        self.files = _Parts()
        #: Until all files have their names, or none will get one.
        self.has_begun = False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.complete(commit=kind is None)

    def start(self) -> None:
        fs = self.fs
        # fsspec would forget the files of the first.
        if self.has_begun or self.files or (fs._intrans and fs._transaction not in (None, self)):
            raise RuntimeError("a transaction is under way: end it first")
        self.files = _Parts()
        fs._transaction, fs._intrans, self.has_begun = self, True, True
        _UNDER_WAY.add(self)
        self.files.takes = True

    def complete(self, commit: bool = True) -> None:
        """Ends the transaction, however it ends."""
        fs = self.fs
        named: list[str] = []
        try:
            fs._intrans = False
            self.files.end()
            if commit:
                self._look()
                while self.files:
                    is_new = not self.files[0].autocommit
                    self.files[0].commit()
                    path = self.files.popleft().path
                    if is_new:
                        named.append(path)
        except BaseException as error:
            if named:
                error.add_note(f"of this transaction these have their names: {', '.join(named)}")
            raise
        finally:
            fs._intrans = False
            _UNDER_WAY.discard(self)
            left = self.files.end()
            self.files.clear()
            fs._transaction, self.has_begun = None, False
            _discard(left)

    def _look(self) -> None:
        """Raises what can be known before the first file gets its name."""
        files = [file for file in self.files if not file.autocommit]
        for file in files:
            # Before: what failed may have left it open.
            file.refuse_cut()
            if not file.closed:
                # What is around it, a text or a compressor, may hold a part of it back.
                raise OSError(errno.EBUSY, "it is still open: close it before the transaction ends", file.path)
        paths: dict[str, None] = {}
        for file in files:
            if file.path in paths and "x" in file.mode:
                raise FileExistsError(errno.EEXIST, "an earlier file of the transaction gets this name", file.path)
            paths[file.path] = None
        Names(self.fs).refuse_meetings(((path, path) for path in paths), lambda _: False)
        for file in files:
            file.check()


    def forget(self) -> None:
        """A child of a fork has no part in it: what it writes has its name at once, and the parent's files are the parent's."""
        self.fs._intrans, self.fs._transaction = False, None
        self.files, self.has_begun = _Parts(), False


_UNDER_WAY: weakref.WeakSet[WholeFiles] = weakref.WeakSet()


def _forget_all() -> None:
    for transaction in list(_UNDER_WAY):
        transaction.forget()
    _UNDER_WAY.clear()


os.register_at_fork(after_in_child=_forget_all)


def _discard(files: list[LandfastFile]) -> None:
    """Discards all that can be, whatever is raised meanwhile; a failure is raised unless another error is on its way."""
    failure: BaseException | None = None
    away: dict[int, OSError] = {}
    for file in files:
        which = id(file._client)
        try:
            if which in away:
                raise away[which]
            file.discard()
        except FileNotFoundError:
            pass  # its name came, and the answer did not
        except BaseException as error:
            if isinstance(error, (ConnectionError, TimeoutError)):
                # Each attempt to connect anew may take its time.
                away[which] = error
            logger.warning("%s: what a transaction wrote stays under another name: %s", file.path, error)
            failure = failure or error
    if failure is not None and sys.exc_info()[1] is None:
        raise failure


class _Parts(deque):  # type: ignore[type-arg]
    """The files of a transaction. None is taken that nobody would name: another thread may have ended it meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.takes = False
        self._lock = threading.Lock()

    def append(self, file: LandfastFile) -> None:
        with self._lock:
            if self.takes:
                super().append(file)
                return
        file.discard()
        raise OSError(errno.ECANCELED, "the transaction that it was opened in has ended", file.path)

    def end(self) -> list[LandfastFile]:
        """What is there, and no more comes."""
        with self._lock:
            self.takes = False
            return list(self)


logger = logging.getLogger("landfast")
