"""Moves of files and trees: a name is removed only when what it named is elsewhere.

    on one share      a rename, whatever it is
    between shares    1. the tree is walked     2. each file is copied, under its own name when it is whole and durable
                      3. unless a file changed meanwhile, what was copied is removed, and nothing else: a directory that got
                         another file meanwhile stays

Whatever would make a file or tree its own target is refused before anything is changed, whichever names, links or shares lead
there.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from fsspec.core import has_magic
from fsspec.utils import stringify_path

from .names import Names, refuse_ambiguous, refuse_ambiguous_target

if TYPE_CHECKING:
    from ._landfast import Client
    from .fs import LandfastFileSystem

__all__ = ["Move"]


class Move:
    """What one call of ``mv`` moves."""

    def __init__(self, fs: LandfastFileSystem, path1: Any, path2: Any, recursive: bool) -> None:
        self._fs = fs
        self._from, self._to, self._recursive = path1, path2, recursive

    def carry_out(self) -> None:
        """Moves; what could not be moved is refused before anything is."""
        pairs = [(source, target) for source, target in self._pairs() if source != target]
        names = Names(self._fs)
        names.refuse_meetings(pairs, lambda _: False)
        names.refuse_sources(pairs)
        for source, target in pairs:
            self._refuse(source, target)
        for source, target in pairs:
            self._move(source, target)

    # Which names go where

    def _pairs(self) -> list[tuple[str, str]]:
        fs = self._fs
        if not isinstance(self._to, (str, os.PathLike)):
            sources = [self._from] if isinstance(self._from, (str, os.PathLike)) else list(self._from)
            targets = list(self._to)
            if len(sources) != len(targets):
                raise ValueError(f"{len(sources)} paths have {len(targets)} targets: give each its own")
            return list(zip(map(fs._strip_protocol, sources), map(fs._strip_protocol, targets)))
        into = stringify_path(self._to)
        target = fs._strip_protocol(into)
        if not isinstance(self._from, (str, os.PathLike)):
            return [(name, _below(target, name)) for one in self._from for name in self._named(one)]
        names = self._named(self._from)
        if self._is_pattern(self._from):
            parents = [name.rsplit("/", 1)[0].split("/") for name in names]
            base = "/".join(os.path.commonprefix(parents))
            return [(name, target.rstrip("/") + name[len(base) :]) for name in names]
        source = names[0]
        if self._is_one_entry(source, target):
            return [(source, target)]
        is_into = fs.isdir(target) or (into.endswith("/") and not fs.isdir(source))
        return [(source, _below(target, source) if is_into else target)]

    def _is_pattern(self, path: Any) -> bool:
        return has_magic(stringify_path(path)) and not self._fs._is_literal(path)

    def _named(self, path: Any) -> list[str]:
        """The names that a path or pattern stands for; what lies in a directory goes with it."""
        if not self._is_pattern(path):
            return [self._fs._strip_protocol(path)]
        names = self._fs.expand_path(path)
        if not self._recursive:
            for name in names:
                if self._fs.isdir(name):
                    raise IsADirectoryError(errno.EISDIR, "a pattern moves directories with recursive=True", name)
        return [name for name in names if not any(name.startswith(f"{other}/") for other in names)]

    def _is_one_entry(self, source: str, target: str) -> bool:
        """Whether two paths name one entry of one directory, so that they differ by case alone."""
        client, old = self._fs._place(source)
        other, new = self._fs._place(target)
        if client is not other or old.casefold() != new.casefold():
            return False
        return _spelled(client, old) == _spelled(client, new)

    # One name

    def _refuse(self, source: str, target: str) -> None:
        client, old = self._fs._place(source)
        other, new = self._fs._place(target)
        if not old:
            raise ValueError(f"{source} is a share: only what lies in it can be moved")
        refuse_ambiguous(client, old, source)
        refuse_ambiguous_target(other, new, target)
        if not self._is_one_entry(source, target):
            self._refuse_itself(source, target)
            if self._fs.isdir(target):
                raise FileExistsError(errno.EEXIST, "a directory has this name already", target)
        if client is other or not self._fs.isdir(source):
            return
        if not self._recursive:
            raise IsADirectoryError(errno.EISDIR, "a directory moves to another share with recursive=True", source)
        if _has(other, new):
            raise FileExistsError(errno.EEXIST, "the name exists already", target)

    def _move(self, source: str, target: str) -> None:
        client, old = self._fs._place(source)
        other, new = self._fs._place(target)
        if client is other:
            self._fs._make_room(target)
            # What was not there at the look is somebody else's.
            client.rename(old, new, replace=_has_entry(client, new), durable=self._fs.durable)
        else:
            self._carry(source, target)

    def _refuse_itself(self, source: str, target: str) -> None:
        """A file or tree that is its own target, or holds it, by whatever names and shares, would be removed with it."""
        client, old = self._fs._place(source)
        other, new = self._fs._place(target)
        is_link = client.stat(_spelled(client, old), follow=False)["type"] == "link"
        try:
            here = client.identity(old)
        except FileNotFoundError:
            return  # a link that leads nowhere
        if here is None and (is_link or client is not other) and _has(other, new):
            raise OSError(errno.EOPNOTSUPP, "the server does not say whether it is the file to move: remove it first", target)
        if here is None:
            return
        for path in _upwards(new):
            try:
                there = other.identity(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            if here == there and path == new:
                raise shutil.SameFileError(f"{source} and {target} are the same file")
            # A link can lie below what it points to.
            if here == there and not is_link:
                raise shutil.Error(f"{source} cannot be moved into itself, to {target}")

    def _carry(self, source: str, target: str) -> None:
        """Moves from share to share."""
        client, rest = self._fs._place(source)
        top = _spelled(client, rest)
        share = source[: len(source) - len(rest)]
        found = list(_walk(client, top))
        places = [(share + one.path, target + one.path[len(top) :]) for one in found]
        Names(self._fs).refuse_meetings(places, lambda _: False)
        stamps = {one.path: _stamp(client, one.path) for one in found if not one.is_directory}
        for one, (path, place) in zip(found, places):
            if one.is_directory:
                self._fs.makedirs(place, exist_ok=True)
            else:
                self._fs._copy_whole(path, place)
        for path, stamp in stamps.items():
            if _stamp(client, path) != stamp:
                raise OSError(errno.EAGAIN, f"it changed while it was copied, and stays; so far {target} is a copy", share + path)
        for one in reversed(found):
            if not one.is_behind_link:
                client.remove(one.path, follow=False)


class _Found(NamedTuple):
    """A file or directory, its path on the share, and whether a link above it leads there."""

    path: str
    is_directory: bool
    is_behind_link: bool


def _walk(client: Client, top: str) -> Iterator[_Found]:
    """A tree, each directory before what lies in it; what a link leads to is a part of it."""
    left = [(top, client.stat(top, follow=False)["type"], False)]
    while left:
        path, kind, is_behind = left.pop()
        is_link = kind == "link"
        if is_link:
            # One that leads nowhere has nothing to copy, and ends the move here.
            kind = client.stat(path)["type"]
        yield _Found(path, kind == "directory", is_behind)
        if kind != "directory":
            continue
        is_behind |= is_link
        if is_behind:
            _refuse_circle(client, top, path)
        for entry in client.list(path, follow=is_behind):
            left.append((f"{path}/{entry['name']}", entry["type"], is_behind))


def _refuse_circle(client: Client, top: str, path: str) -> None:
    here = client.identity(path)
    for above in _upwards(path.rpartition("/")[0]):
        if len(above) >= len(top) and here is not None and client.identity(above) == here:
            raise shutil.Error(f"{path} leads to a directory above it")


def _stamp(client: Client, path: str) -> tuple[int, float]:
    stat = client.stat(path)
    return stat["size"], stat["mtime"]


def _below(directory: str, source: str) -> str:
    return f"{directory.rstrip('/')}/{source.rsplit('/', 1)[-1]}"


def _upwards(path: str) -> Iterator[str]:
    """A path of a share, and the directories above it up to the share's root."""
    yield path
    while path:
        path = path.rpartition("/")[0]
        yield path


def _spelled(client: Client, path: str) -> str:
    try:
        return client.spelling(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return path  # or a link that leads nowhere


def _has_entry(client: Client, path: str) -> bool:
    """Whether a name is there, though it be a link that leads nowhere."""
    try:
        client.stat(_spelled(client, path), follow=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _has(client: Client, path: str) -> bool:
    try:
        client.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
