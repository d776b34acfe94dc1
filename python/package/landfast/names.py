"""Which of the names that one call is going to make are one name for the server.

Two names of a call meet where a server ignores case, by its own rules, and where a link or another share leads to one directory.
Of what meets only the last would be left, so the call is refused before it changes anything. What Python's strings say is no
more than a suspicion: whether suspects meet is asked of the server. Where they are there already, it says how each is spelled;
where they are not, they are made as directories in a directory beside them, which goes again.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import unicodedata
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ._landfast import Client
    from .fs import LandfastFileSystem

__all__ = ["Names", "Plan", "fold", "refuse_ambiguous", "refuse_ambiguous_target", "refuse_equal"]

Pair = tuple[str, str]
#: Whether a source is a directory: two of them may become one.
IsDirectory = Callable[[str], bool]


class Plan:
    """What a call of fsspec that copies files would copy: with this in the place of the file system it copies nothing."""

    def __init__(self, fs: LandfastFileSystem) -> None:
        self._fs = fs
        self.pairs: list[Pair] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def _take_down(self, source: str, target: str, *_: Any, **__: Any) -> None:
        self.pairs.append((source, target))

    put_file = get_file = cp_file = _take_down


class Names:
    """The names that one call makes."""

    def __init__(self, fs: LandfastFileSystem) -> None:
        self._fs = fs
        self._directories: dict[Hashable, _Place] = {}

    def refuse_meetings(self, pairs: Iterable[Pair], is_directory: IsDirectory) -> None:
        """Raises where the targets of two sources are one name."""
        groups: dict[Hashable, list[tuple[str, str, _Place]]] = {}
        pairs = list(pairs)
        for source, target in pairs if len(pairs) > 1 else []:
            place = self._place(target)
            groups.setdefault(place.suspicion(), []).append((source, target, place))
        for group in groups.values():
            if len(group) > 1:
                self._look_closer(group, is_directory)

    def refuse_sources(self, pairs: list[Pair]) -> None:
        """Raises where a source is replaced by another one before it is moved."""
        sources: dict[Hashable, list[tuple[str, _Place]]] = {}
        if len(pairs) < 2:
            return
        for source, _ in pairs:
            place = self._place(source)
            sources.setdefault(place.suspicion(), []).append((source, place))
        for source, target in pairs:
            place = self._place(target)
            suspects = [one for other, one in sources.get(place.suspicion(), []) if other != source]
            if suspects and any(place.entry() == one.entry() for one in suspects):
                raise FileExistsError(errno.EEXIST, f"this path is to be moved itself, and {source} would replace it", target)

    def _look_closer(self, group: list[tuple[str, str, _Place]], is_directory: IsDirectory) -> None:
        texts: dict[tuple[str, ...], str] = {}
        there: set[str] = set()
        with contextlib.ExitStack() as ends:
            probe: _Probe | None = None
            for source, target, place in group:
                earlier = texts.get(place.names)
                if earlier is not None:
                    if earlier == source or (is_directory(earlier) and is_directory(source)):
                        continue
                    raise _meeting(source, target)
                texts[place.names] = source
                spelled = place.spelled()
                if spelled is not None:
                    meets = spelled in there
                    there.add(spelled)
                else:
                    if probe is None:
                        probe = _Probe(place.client, place.above)
                        ends.callback(probe.remove)
                    meets = not probe.takes(place.names)
                if meets:
                    raise _meeting(source, target)

    def _place(self, path: str) -> _Place:
        client, rest = self._fs._place(path)
        names = tuple(name for name in rest.split("/") if name not in ("", "."))
        above = self._directory(client, names[:-1])
        return above._replace(names=above.names + names[-1:])

    def _directory(self, client: Client, names: tuple[str, ...]) -> _Place:
        """The last directory on the way that is there, and what is missing below it."""
        key = (id(client), names)
        if key not in self._directories:
            path = "/".join(names)
            over = self._directory(client, names[:-1]) if names else None
            if over is not None and over.names:
                found = over._replace(names=over.names + names[-1:])
            else:
                try:
                    which: Hashable = _identity(client, path)
                    found = _Place(client, path, which, ())
                except (FileNotFoundError, NotADirectoryError):
                    if over is None:
                        raise
                    found = over._replace(names=names[-1:])
            self._directories[key] = found
        return self._directories[key]


class _Place(NamedTuple):
    """Where a name is to be made."""

    client: Client
    above: str
    """The path of a directory that is there."""
    which: Hashable
    """Which directory this is, by whatever path."""
    names: tuple[str, ...]
    """What comes below it."""

    def suspicion(self) -> Hashable:
        """The same for all names that some server may take for one."""
        return self.which, tuple(fold(name) for name in self.names)

    def spelled(self) -> str | None:
        """The name as the server has it; none where it is not there, or a link that leads nowhere."""
        if len(self.names) > 1:
            return None
        found = _spelling(self.client, "/".join(filter(None, (self.above, *self.names))))
        return None if found is None else found.rsplit("/", 1)[-1]

    def entry(self) -> tuple[str, ...]:
        """The name as the server has it, or as it is given."""
        spelled = self.spelled()
        return self.names if spelled is None else (spelled,)


class _Probe:
    """A directory in which names are made, to see which of them are one."""

    def __init__(self, client: Client, above: str) -> None:
        self._client = client
        self._top = "/".join(filter(None, (above, f".landfast-{secrets.token_hex(8)}.part")))
        self._made: list[str] = []
        self._make(self._top)

    def takes(self, names: tuple[str, ...]) -> bool:
        """Makes a name and the directories above it; whether it was none that is there."""
        path = self._top
        is_new = False
        for name in names:
            path = f"{path}/{name}"
            is_new = self._make(path)
        return is_new

    def _make(self, path: str) -> bool:
        try:
            self._client.mkdir(path)
        except FileExistsError:
            return False
        self._made.append(path)
        return True

    def remove(self) -> None:
        for path in reversed(self._made):
            with contextlib.suppress(OSError):
                self._client.remove(path)


def refuse_equal(pairs: Iterable[Pair], is_directory: IsDirectory) -> None:
    """Raises where two sources get one name on a machine that tells all names apart."""
    taken: dict[str, str] = {}
    for source, target in pairs:
        earlier = taken.setdefault(target, source)
        if earlier != source and not (is_directory(earlier) and is_directory(source)):
            raise _meeting(source, target)


def refuse_ambiguous(client: Client, path: str, shown: str, number: int = errno.ENOENT) -> None:
    """Raises where a name is spelled as none of several that differ by case alone: the server would take any of them."""
    if _spelling(client, path) == path:
        return
    above = ""
    # Each directory by itself: one that is a link is spelled as what it leads to.
    for name in path.split("/"):
        spelled = _spelling(client, f"{above}/{name}" if above else name)
        if spelled is None or spelled.rsplit("/", 1)[-1] != name:
            there = [entry["name"] for entry in client.list(above)]
            alike = [one for one in there if fold(one) == fold(name)]
            if name not in there and len(alike) > 1 and sum(_takes(client, above, name, one) for one in alike) > 1:
                why = "several names there differ from it by case alone: spell it as one of them"
                raise OSError(number, why, shown)
        if spelled is None:
            return
        above = spelled


def refuse_ambiguous_target(client: Client, path: str, shown: str) -> None:
    """The same of a name that something is going to get, which need not be there."""
    if _spelling(client, path) is None:
        # No name there is like it, without a listing. The directory may be one of several.
        path = path.rpartition("/")[0]
        if _spelling(client, path) is None:
            return
    refuse_ambiguous(client, path, shown, errno.EEXIST)


def _takes(client: Client, above: str, name: str, other: str) -> bool:
    """Whether the server takes two names for one; both of them may be there."""
    try:
        probe = _Probe(client, above)
    except OSError:
        return True  # nothing can be made there, so it cannot be asked
    try:
        probe.takes((name,))
        return not probe.takes((other,))
    except OSError:
        return True
    finally:
        probe.remove()


def _meeting(source: str, target: str) -> FileExistsError:
    why = f"another of these paths gets this name, or one that differs by case alone, and {source} would replace it"
    return FileExistsError(errno.EEXIST, why, target)


def fold(name: str) -> str:
    """The same for all names that some server may take for one."""
    return unicodedata.normalize("NFKC", name.upper().casefold()).rstrip(". ")


def _identity(client: Client, path: str) -> Hashable:
    found = client.identity(path)
    if found is not None:
        return found[0], bytes(found[1])
    return client.url, client.spelling(path)


def _spelling(client: Client, path: str) -> str | None:
    try:
        return client.spelling(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None  # or a link that leads nowhere
