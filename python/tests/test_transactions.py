"""Transactions of the fsspec file system: what has failed leaves nothing behind, and nothing under way."""

import gzip
import logging
import os

import fsspec.transaction
import pytest

from landfast.fs import LandfastFile


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
