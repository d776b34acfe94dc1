"""Transactions of the fsspec file system: what has failed leaves nothing behind, and nothing under way."""

import contextlib
import errno
import gzip
import io
import logging
import os

import fsspec.transaction
import pytest

from landfast.fs import LandfastFile
from landfast.raw import RawFile


def old_complete(self, commit=True):
    """As fsspec has it up to 2026.8."""
    while self.files:
        file = self.files.popleft()
        if commit:
            file.commit()
        else:
            file.discard()
    self.fs._intrans = False


def old_exit(self, kind, *_):
    self.complete(commit=kind is None)
    self.fs._intrans = False
    self.fs._transaction = None


def parts(moved):
    return [name for name in os.listdir(moved.first) if name.endswith(".part")]


def test_a_write_behind_a_transaction_that_failed_has_its_name(moved, monkeypatch):
    monkeypatch.setattr(fsspec.transaction.Transaction, "complete", old_complete)
    monkeypatch.setattr(fsspec.transaction.Transaction, "__exit__", old_exit)
    fs = moved.fs
    moved.lay({"A": "old", "C": "old", "dir/f": "f"})
    with pytest.raises(OSError), fs.transaction:
        fs.pipe("/data/A", b"new")
        fs.pipe("/data/dir", b"x")
        fs.pipe("/data/C", b"new")
    assert moved.found() == {"A": "old", "C": "old", "dir/f": "f"}
    fs.pipe("/data/later", b"later")
    with fs.open("/data/later2", "wb") as file:
        file.write(b"later")
    with fs.transaction:
        fs.pipe("/data/A", b"new")
    fs.mv("/data/later2", "/data/later3")
    assert moved.found() == {"A": "new", "C": "old", "dir/f": "f", "later": "later", "later3": "later"}
    fs.start_transaction()
    fs.pipe("/data/dir", b"x")
    with pytest.raises(OSError):
        fs.end_transaction()
    fs.pipe("/data/later", b"again")
    assert moved.found()["later"] == "again" and parts(moved) == []


def test_a_transaction_that_fails_by_one_of_its_names_has_given_none(moved):
    fs, before = moved.fs, {"A": "old", "dir/f": "f", "x": "x"}
    moved.lay(before)
    os.symlink("dir", moved.first / "link")
    os.symlink("x", moved.first / "file")
    links = {"link": "-> dir", "file": "-> x"}
    for first, second in (("A", "dir"), ("A", "link"), ("A", "a"), ("new", "NEW"), ("d/new", "D/new"), ("dir/n", "link/n")):
        with pytest.raises(OSError), fs.transaction:
            fs.makedirs("/data/d", exist_ok=True)
            fs.pipe(f"/data/{first}", b"new")
            fs.pipe(f"/data/{second}", b"new")
        fs.rmdir("/data/d")
        assert moved.found() == {**before, **links}, (first, second)
    with pytest.raises(FileExistsError), fs.transaction:
        fs.pipe("/data/A", b"new")
        fs.pipe("/data/y", b"y", mode="create")
        moved.lay({"y": "theirs"})
    assert moved.found() == {**before, **links, "y": "theirs"}
    with fs.transaction:
        fs.pipe("/data/A", b"first")
        fs.pipe("/data/A", b"last")
        fs.pipe("/data/file", b"a file")
    assert moved.found() == {**before, **links, "A": "last", "file": "a file", "y": "theirs"}


def test_a_transaction_that_fails_while_it_names_says_what_has_its_name(moved, monkeypatch, caplog):
    fs, commit = moved.fs, LandfastFile.commit

    def commit_but_one(file):
        if file.path == "/data/b":
            raise ConnectionError("cut")
        commit(file)

    monkeypatch.setattr(LandfastFile, "commit", commit_but_one)
    with pytest.raises(ConnectionError) as caught, fs.transaction:
        for name in "abc":
            fs.pipe(f"/data/{name}", b"new")
    assert "/data/a" in caught.value.__notes__[0] and moved.found() == {"a": "new"}
    # So does a file that somebody reads: what is given a name before it stays.
    monkeypatch.undo()
    with fs.open("/data/a", "rb"), pytest.raises(PermissionError) as caught, fs.transaction:
        for name in "bac":
            fs.pipe(f"/data/{name}", b"newer")
    assert caught.value.__notes__[0].endswith(": /data/b") and moved.found() == {"a": "new", "b": "newer"}
    # What cannot be discarded takes the place of no error.
    monkeypatch.setattr(LandfastFile, "discard", lambda file: (_ for _ in ()).throw(OSError("gone")))
    with caplog.at_level(logging.WARNING), pytest.raises(KeyError), fs.transaction:
        fs.pipe("/data/c", b"new")
        raise KeyError
    assert "/data/c" in caplog.text and not fs._intrans


def test_no_file_is_opened_in_a_transaction_that_nobody_ends(moved):
    fs = moved.fs
    with pytest.raises(RuntimeError, match="under way"), fs.transaction:
        fs.pipe("/data/outer", b"outer")
        with fs.transaction:
            pass
    with pytest.raises(RuntimeError, match="under way"), fs.transaction:
        fs.start_transaction()
    assert moved.found() == {}
    fs.start_transaction()
    with pytest.raises(RuntimeError, match="under way"), fs.transaction:
        fs.pipe("/data/inner", b"inner")
    fs.pipe("/data/outer", b"outer")
    with pytest.raises(RuntimeError, match="under way"), fs.transaction:
        pass
    fs.end_transaction()
    assert moved.found() == {"outer": "outer"}
    fs.rm("/data/outer")
    ended = fs.transaction
    for name in ("one", "two"):
        with ended:
            fs.pipe(f"/data/{name}", b"whole")
    # Another thread opened it before the end.
    with pytest.raises(OSError, match="has ended"):
        ended.files.append(fs.open("/data/three", "wb", autocommit=False))
    assert moved.found() == {"one": "whole", "two": "whole"}
    file = fs.open("/data/four", "wb", autocommit=False)
    file.write(b"by hand")
    file.commit()
    with fs.transaction:
        with fs.open("/data/five.gz", "wb", compression="infer") as file:
            file.write(b"packed")
        with fs.open("/data/six", "w") as file:
            file.write("text")
    assert moved.found_bytes("four") == b"by hand" and moved.found_bytes("six") == b"text"
    assert gzip.decompress(moved.found_bytes("five.gz")) == b"packed"


WAYS = {
    "text": lambda fs, path: fs.open(path, "w"),
    "packed": lambda fs, path: fs.open(path, "wb", compression="gzip"),
    "packed text": lambda fs, path: fs.open(path, "wt", compression="gzip"),
    "bytes": lambda fs, path: fs.open(path, "wb"),
    "another's text": lambda fs, path: io.TextIOWrapper(fs.open(path, "wb")),
}


def some(file):
    return "new" if isinstance(file, io.TextIOBase) else b"new"


@pytest.mark.parametrize("way", WAYS)
def test_a_transaction_names_no_file_that_is_still_open(moved, way):
    moved.lay({"other": "old", "file": "old and whole"})
    with pytest.raises(OSError, match="still open"), moved.fs.transaction:
        moved.fs.pipe("/data/other", b"new")
        file = WAYS[way](moved.fs, "/data/file")
        file.write(some(file))
    assert moved.found() == {"other": "old", "file": "old and whole"} and parts(moved) == []


@pytest.mark.parametrize("way", WAYS)
def test_a_transaction_names_no_file_whose_block_has_raised(moved, way):
    moved.lay({"other": "old", "file": "old and whole"})
    with pytest.raises(OSError, match="may lack a part"), moved.fs.transaction:
        moved.fs.pipe("/data/other", b"new")
        with contextlib.suppress(KeyError), WAYS[way](moved.fs, "/data/file") as file:
            file.write(some(file))
            raise KeyError
    assert moved.found() == {"other": "old", "file": "old and whole"} and parts(moved) == []


@pytest.mark.parametrize("call", ["write", "flush", "truncate", "seek", "sync", "close"])
@pytest.mark.parametrize("way", WAYS)
def test_a_transaction_names_no_file_that_a_call_has_failed_on(moved, monkeypatch, way, call):
    moved.lay({"file": "old and whole"})

    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="may lack a part") as caught, moved.fs.transaction:
        file = WAYS[way](moved.fs, "/data/file")
        file.write(some(file))
        part = moved.fs._transaction.files[0]
        part.write(b"more")
        with monkeypatch.context() as patch:
            patch.setattr(RawFile, "sync", full) if call in ("sync", "close") else patch.setattr(part, "_buffered", Full(part))
            with pytest.raises(OSError):
                getattr(part, call)(*{"write": [b"x"], "truncate": [0], "seek": [0]}.get(call, []))
        file.close()
    assert caught.value.errno == errno.ENOSPC
    assert moved.found() == {"file": "old and whole"} and parts(moved) == []


class Full:
    """A buffer that cannot empty itself."""

    def __init__(self, part):
        self.closed = False
        self._close = part._buffered.close

    def _full(self, *_):
        raise OSError(errno.ENOSPC, "full")

    write = flush = truncate = seek = _full

    def close(self):
        self._close()


def test_a_transaction_goes_on_without_a_file_that_was_discarded(moved):
    moved.lay({"other": "old", "file": "old and whole"})
    with moved.fs.transaction:
        file = moved.fs.open("/data/file", "wb")
        file.write(b"cut")
        file.discard()
        with moved.fs.open("/data/text", "w") as text:
            text.write("whole")
        with contextlib.suppress(TypeError), moved.fs.open("/data/other", "wb") as other:
            with pytest.raises(TypeError):
                other.write("a text is none of it")
            other.write(b"new")
    assert moved.found() == {"other": "new", "file": "old and whole", "text": "whole"} and parts(moved) == []


def test_the_last_error_of_a_packed_file_is_raised_by_its_close(moved, monkeypatch):
    file = moved.fs.open("/data/file.gz", "wb", compression="infer")
    file.write(b"new")
    monkeypatch.setattr(RawFile, "sync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(OSError, match="full"):
        file.close()


def test_a_transaction_replaces_neither_of_two_names_that_differ_by_case_alone(moved):
    files = {"n.txt": "1", "N.TXT": "2", "other": "old"}
    moved.lay(files)
    with pytest.raises(FileExistsError, match="case alone"), moved.fs.transaction:
        moved.fs.pipe("/data/other", b"new")
        moved.fs.pipe("/data/N.txt", b"new")
    file = moved.fs.open("/data/N.txt", "wb", autocommit=False)
    with pytest.raises(FileExistsError, match="case alone"):
        file.commit()
    file.discard()
    assert moved.found() == files and parts(moved) == []
    with moved.fs.transaction:
        moved.fs.pipe("/data/N.TXT", b"new")
    assert moved.found() == {**files, "N.TXT": "new"}
