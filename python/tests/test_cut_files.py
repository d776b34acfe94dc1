"""Files of a transaction that may lack a part: whoever raised and wherever, the old file stays. And files that lack nothing."""

import contextlib
import errno
import io
import os
import zipfile

import fsspec
import pytest

from landfast.fs import LandfastFile, LandfastFileSystem
from landfast.raw import RawFile


class Late(Exception):
    """What a time limit raises, by a signal's handler."""


def late(*_):
    raise Late


def parts(moved):
    return [name for name in os.listdir(moved.first) if name.endswith(".part")]


OURS = {
    "text": lambda fs, **how: fs.open("/data/file", "w", encoding="utf-16", **how),
    "packed": lambda fs, **how: fs.open("/data/file", "wb", compression="gzip", **how),
    "packed text": lambda fs, **how: fs.open("/data/file", "wt", compression="bz2", **how),
    "zipped": lambda fs, **how: fs.open("/data/file", "wb", compression="zip", **how),
    "bytes": lambda fs, **how: fs.open("/data/file", "wb", **how),
}


def some(file, count=1):
    return "new" * count if isinstance(file, io.TextIOBase) else os.urandom(3 * count)


CALLS = {
    "write": lambda file: file.write(some(file, 1 << 20)),
    "writelines": lambda file: file.writelines([some(file, 1 << 20)]),
    "flush": lambda file: file.flush(),
    "seek": lambda file: file.seek(1 << 20),
    "tell": lambda file: file.tell(),
    "truncate": lambda file: file.truncate(),
    "close": lambda file: file.close(),
    "commit": lambda file: file.commit(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("way", OURS)
def test_a_transaction_names_no_file_that_a_time_limit_has_cut(moved, monkeypatch, way, call):
    """The handler raises before the first line of a method of the file, or of its raw one, which the method cannot see."""
    moved.lay({"file": "old and whole"})
    has_raised = []
    with contextlib.suppress(OSError), moved.fs.transaction:
        file = OURS[way](moved.fs)
        file.write(some(file))
        with monkeypatch.context() as patch:
            if way == "bytes":
                for name in ("_begin_write", "seek", "truncate", "sync"):
                    patch.setattr(RawFile, name, late)
            else:
                for name in ("write", "flush", "seek", "tell", "truncate"):
                    patch.setattr(LandfastFile, name, late)
            try:
                CALLS[call](file)
            except Late:
                has_raised.append(call)
            except io.UnsupportedOperation:
                pass  # not of this kind of file
        with contextlib.suppress(ValueError):
            file.write(some(file))
        file.close()
    if has_raised:
        assert moved.found() == {"file": "old and whole"}
    assert parts(moved) == []


def test_a_question_that_is_refused_cuts_no_file(moved):
    with moved.fs.transaction:
        with moved.fs.open("/data/bytes", "wb") as file:
            file.write(b"new")
            for call in (lambda: file.seek(-22, 2), lambda: file.seek(-1), lambda: file.write("text"), lambda: file.read(1)):
                with pytest.raises((OSError, TypeError)):
                    call()
            file.write(b"er")
        with moved.fs.open("/data/text", "w", encoding="ascii") as file:
            for call in (lambda: file.write("\xe9"), lambda: file.write(b"bytes"), lambda: file.seek(1, 1), lambda: file.read(1)):
                with pytest.raises((OSError, TypeError, ValueError)):
                    call()
            file.write("new")
        with moved.fs.open("/data/packed", "wb", compression="gzip") as file:
            file.write(b"new")
            for call in (lambda: file.seek(0), lambda: file.seek(0, 2), lambda: file.write("text"), lambda: file.read(1)):
                with pytest.raises((OSError, TypeError, ValueError)):
                    call()
        with moved.fs.open("/data/zip", "w+b") as file, zipfile.ZipFile(file, "a") as archive:
            archive.writestr("name", "text")
    assert moved.found_bytes("bytes") == b"newer" and moved.found_bytes("text") == b"new"
    assert moved.fs.open("/data/packed", compression="gzip").read() == b"new"
    assert zipfile.ZipFile(moved.first / "zip").read("name") == b"text"


@pytest.mark.parametrize("raised", [ValueError, OSError, TypeError])
def test_an_exception_derived_of_a_refusal_is_none(moved, monkeypatch, raised):
    moved.lay({"file": "old and whole"})
    own = type("Own", (raised,), {})

    def limit(*_):
        raise own

    with pytest.raises(OSError, match="may lack a part"), moved.fs.transaction, moved.fs.open("/data/file", "wb") as file:
        with monkeypatch.context() as patch:
            patch.setattr(RawFile, "_begin_write", limit)
            with pytest.raises(own):
                file.write(some(file, 1 << 20))
    assert moved.found() == {"file": "old and whole"}


def test_a_file_that_another_thread_opens_while_a_transaction_names_is_its_own(moved, monkeypatch):
    fs, commit, opened = moved.fs, LandfastFile.commit, []
    moved.lay({"victim": "old"})

    def commit_beside(file):
        if not opened:
            opened.append(fs.open("/data/victim", "wb"))
            opened[0].write(b"all ")
            with pytest.raises(RuntimeError, match="under way"):
                fs.start_transaction()
            with pytest.raises(RuntimeError, match="under way"), fs.transaction:
                pass
        commit(file)

    monkeypatch.setattr(LandfastFile, "commit", commit_beside)
    with fs.transaction:
        fs.pipe("/data/a", b"new")
        fs.pipe("/data/b", b"new")
    opened[0].write(b"of it")
    opened[0].close()
    assert moved.found() == {"a": "new", "b": "new", "victim": "all of it"}
    with fs.transaction:
        fs.pipe("/data/a", b"newer")
    assert moved.found()["a"] == "newer"


def test_a_file_of_a_transaction_that_ended_joins_no_later_one(moved):
    fs = moved.fs
    ended = fs.transaction
    with ended:
        taken = ended.files
    with fs.transaction, pytest.raises(OSError, match="has ended"):
        taken.append(fs.open("/data/late", "wb", autocommit=False))
    assert moved.found() == {} and parts(moved) == []


REFUSED = {
    "encoding": (LookupError, {"mode": "w", "encoding": "nope"}),
    "newline": (ValueError, {"mode": "w", "newline": "nope"}),
    "compression": (ValueError, {"mode": "wb", "compression": "nope"}),
    "compression of text": (ValueError, {"mode": "w", "compression": "nope"}),
    "buffer": ((MemoryError, OverflowError), {"mode": "wb", "block_size": 1 << 45}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_file_that_the_caller_never_got_is_none_of_its_transaction(moved, why):
    moved.lay({"file": "old"})
    refusal, how = REFUSED[why]
    with moved.fs.transaction:
        moved.fs.pipe("/data/other", b"new")
        with pytest.raises(refusal):
            moved.fs.open("/data/file", **how)
    assert moved.found() == {"file": "old", "other": "new"} and parts(moved) == []
    if why != "buffer":
        # Outside of one it empties nothing.
        with pytest.raises(refusal):
            moved.fs.open("/data/file", **how)
        assert moved.found()["file"] == "old"


def test_a_compressor_that_cannot_be_made_leaves_no_file_in_a_transaction(moved, monkeypatch):
    moved.lay({"file": "old"})
    monkeypatch.setitem(fsspec.compression.compr, "gzip", late)
    with moved.fs.transaction:
        moved.fs.pipe("/data/other", b"new")
        with pytest.raises(TypeError):
            moved.fs.open("/data/file", "wb", compression="gzip")
    assert moved.found() == {"file": "old", "other": "new"} and parts(moved) == []


@pytest.mark.parametrize("how", [{"mode": "wb"}, {"mode": "wt"}, {"mode": "wt", "compression": "gzip"}])
@pytest.mark.parametrize("end", ["with", "finally"])
def test_a_transaction_names_no_file_of_fsspec_open_whose_block_has_raised(moved, monkeypatch, how, end):
    moved.lay({"file": "old and whole", "other": "old"})
    address = f"landfast://tester@{moved.fs._authority}/data/file"
    fs = fsspec.core.url_to_fs(address)[0]
    with pytest.raises(OSError, match="may lack a part"), fs.transaction:
        fs.pipe("/data/other", b"new")
        with contextlib.suppress(KeyError):
            if end == "with":
                with fsspec.open(address, **how) as file:
                    file.write(some(file))
                    raise KeyError
            opened = fsspec.open(address, **how)
            file = opened.open()
            try:
                file.write(some(file))
                raise KeyError
            finally:
                opened.close()
    assert moved.found() == {"file": "old and whole", "other": "old"} and parts(moved) == []


def test_a_file_is_whole_that_is_written_while_an_earlier_exception_is_handled(moved):
    fs = moved.fs
    try:
        raise KeyError
    except KeyError:
        with fs.transaction:
            file = fs.open("/data/a", "wb")
            file.write(b"new")
            file.close()
            with fs.open("/data/b", "w") as text:
                try:
                    raise LookupError
                except LookupError:
                    text.write("new")
    with fs.transaction:
        file = fs.open("/data/c", "w")
        file.write("new")
        try:
            raise KeyError
        except KeyError:
            file.commit()  # says itself that it is whole
    assert moved.found() == {name: "new" for name in "abc"}


def test_a_file_that_failed_and_was_left_open_is_named_by_what_failed(moved, monkeypatch):
    with pytest.raises(OSError, match="may lack a part.*full") as caught, moved.fs.transaction:
        file = moved.fs.open("/data/file", "w", compression="gzip")
        with monkeypatch.context() as patch:
            patch.setattr(LandfastFile, "write", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
            with pytest.raises(OSError):
                file.write(some(file, 1 << 20))
    assert caught.value.errno == errno.ENOSPC and moved.found() == {} and parts(moved) == []


@pytest.mark.parametrize("compression", ["gzip", "bz2", "xz", "zip"])
@pytest.mark.parametrize("mode", ["b", "t"])
def test_a_compressed_file_that_was_read_and_closed_is_open_no_more(moved, compression, mode):
    fs = moved.fs
    with fs.open("/data/file", f"w{mode}", compression=compression) as file:
        file.write("1\n2\n3\n" if mode == "t" else b"1\n2\n3\n")
    with fs.open("/data/file", f"r{mode}", compression=compression) as old:
        lines = list(old)
        old.seek(0)
        assert (old.readline(), old.read(1), old.tell() > 0) == (lines[0], lines[1][:1], True)
        if mode == "b":
            buffer = bytearray(3)
            assert old.readinto(buffer) == 3 and buffer == b"\n3\n" and old.read1() == b""
    assert old.closed
    with fs.transaction, fs.open("/data/file", f"w{mode}", compression=compression) as file:
        file.writelines(lines * 2)
    with fs.open("/data/file", f"r{mode}", compression=compression) as new:
        assert list(new) == lines * 2
    fs.rm("/data/file")
    assert moved.found() == {}
    # Nor is one that cannot be read.
    moved.lay({"zip": "no archive"})
    with pytest.raises(zipfile.BadZipFile) as caught:
        fs.open("/data/zip", compression="zip")
    fs.rm("/data/zip")
    assert moved.found() == {} and caught


@pytest.mark.parametrize("way", OURS)
def test_a_file_that_an_exception_left_behind_is_still_open(moved, way):
    moved.lay({"file": "old and whole"})

    def write_and_fail():
        file = OURS[way](moved.fs)
        file.write(some(file))
        raise KeyError

    with pytest.raises(OSError, match="still open"), moved.fs.transaction, contextlib.suppress(KeyError):
        write_and_fail()
    assert moved.found() == {"file": "old and whole"} and parts(moved) == []


def test_a_transaction_whose_two_new_files_have_one_name_names_nothing(moved):
    moved.lay({"old": "old"})
    for first, second in (("xb", "xb"), ("wb", "xb")):
        with pytest.raises(FileExistsError, match="'/data/new'"), moved.fs.transaction:
            moved.fs.pipe("/data/old", b"new")
            for mode in (first, second):
                with moved.fs.open("/data/new", mode) as file:
                    file.write(b"new")
        assert moved.found() == {"old": "old"} and parts(moved) == []
    with moved.fs.transaction:
        for mode in ("xb", "wb"):
            with moved.fs.open("/data/new", mode) as file:
                file.write(mode.encode())
    assert moved.found() == {"old": "old", "new": "wb"}


def test_an_error_of_a_commit_names_the_file_and_not_its_part(moved):
    moved.lay({"file": "old"})
    with moved.fs.open("/data/file", "rb"), pytest.raises(OSError) as caught, moved.fs.transaction:
        moved.fs.pipe("/data/file", b"new")
    assert caught.value.filename == "/data/file"
    file = moved.fs.open("/data/new", "xb", autocommit=False)
    moved.lay({"new": "theirs"})
    with pytest.raises(FileExistsError) as caught:
        file.commit()
    assert caught.value.filename == "/data/new"
    file.discard()
    assert moved.found() == {"file": "old", "new": "theirs"} and parts(moved) == []


@pytest.mark.parametrize("way", OURS)
def test_text_and_packed_files_are_committed_and_discarded_whole(moved, way):
    moved.lay({"file": "old"})
    file = OURS[way](moved.fs, autocommit=False)
    file.write(some(file))
    file.discard()
    assert file.closed and moved.found() == {"file": "old"} and parts(moved) == []
    with moved.fs.transaction, OURS[way](moved.fs) as file:
        file.write(some(file))
        file.discard()
    assert moved.found() == {"file": "old"} and parts(moved) == []
    file = OURS[way](moved.fs, autocommit=False)
    new = some(file)
    file.write(new)
    (file.buffer if way == "text" else file).commit()
    how = {"text": {"mode": "r", "encoding": "utf-16"}, "packed": {"compression": "gzip"}, "zipped": {"compression": "zip"}}
    how["packed text"] = {"mode": "rt", "compression": "bz2"}
    with moved.fs.open("/data/file", **how.get(way, {})) as file:
        assert file.read() == new
    assert parts(moved) == []


@pytest.mark.parametrize("fails", ["end", "block"])
def test_a_transaction_whose_connection_was_lost_leaves_nothing_on_the_server(tmp_path, another_server, fails):
    server = another_server(tmp_path)
    host, port = server.address.split(":")
    fs = LandfastFileSystem(host=host, port=int(port), username="tester", skip_instance_cache=True)
    (tmp_path / "file").write_text("old")
    with pytest.raises((ConnectionError, KeyError)), fs.transaction:
        fs.pipe("/data/file", b"new")
        fs.pipe("/data/other", b"new")
        server.stop()
        server = another_server(tmp_path, listen=server.address)
        if fails == "block":
            raise KeyError
    try:
        assert [name for name in os.listdir(tmp_path) if not name.startswith(".landfast-streams")] == ["file"]
        assert (tmp_path / "file").read_text() == "old"
    finally:
        server.stop()


def test_a_transaction_whose_server_stays_away_dials_it_once(tmp_path, another_server, monkeypatch, caplog):
    server = another_server(tmp_path)
    host, port = server.address.split(":")
    fs = LandfastFileSystem(host=host, port=int(port), username="tester", skip_instance_cache=True)
    dialled = []

    def dial(*arguments):
        dialled.append(arguments)
        raise ConnectionError(errno.ETIMEDOUT, "away")

    with pytest.raises(KeyError), fs.transaction:
        for number in range(3):
            fs.pipe(f"/data/{number}", b"new")
        server.stop()
        monkeypatch.setattr("landfast.fs.Client", dial)
        raise KeyError
    assert len(dialled) == 1 and caplog.text.count("stays under another name") == 3


def lines_that_end_early():
    yield b"one\n"
    raise ValueError("no more lines")


@pytest.mark.parametrize("way", ["bytes", "packed"])
def test_lines_that_raise_leave_a_file_that_gets_no_name(moved, way):
    moved.lay({"file": "old and whole"})
    with pytest.raises(OSError), moved.fs.transaction:
        with OURS[way](moved.fs) as file, contextlib.suppress(ValueError):
            file.writelines(lines_that_end_early())
    assert moved.found() == {"file": "old and whole"} and parts(moved) == []


def test_a_call_that_is_none_for_a_file_cuts_nothing(moved):
    with moved.fs.transaction, moved.fs.open("/data/file", "wb") as file:
        file.write(b"whole")
        with pytest.raises((OverflowError, ValueError)):
            file.truncate(-1)
    assert moved.found() == {"file": "whole"}


def test_a_block_that_another_one_suppresses_ends_well_for_the_file(moved):
    with moved.fs.transaction, contextlib.ExitStack() as stack:
        file = stack.enter_context(moved.fs.open("/data/file", "wb"))
        file.write(b"whole")
        stack.enter_context(contextlib.suppress(KeyError))
        raise KeyError("of nobody")
    assert moved.found() == {"file": "whole"}


def test_a_child_of_a_fork_is_in_no_transaction_of_its_parent(moved):
    with moved.fs.transaction:
        with moved.fs.open("/data/parents", "wb") as file:
            file.write(b"whole")
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                with moved.fs.open("/data/childs", "wb") as file:
                    file.write(b"whole")
            os._exit(0)
        os.waitpid(child, 0)
        assert moved.found().get("childs") == "whole", "it has its name at once"
    assert moved.found() == {"parents": "whole", "childs": "whole"}


def test_what_raises_while_a_transaction_is_discarded_leaves_no_other_part(moved, monkeypatch):
    discard, raised = LandfastFile.discard, []

    def interrupted(file):
        if not raised:
            raised.append(file)
            discard(file)
            raise KeyboardInterrupt
        discard(file)

    monkeypatch.setattr(LandfastFile, "discard", interrupted)
    with pytest.raises(KeyError), moved.fs.transaction:
        for name in "abc":
            with moved.fs.open(f"/data/{name}", "wb") as file:
                file.write(b"whole")
        raise KeyError("of the program")
    assert raised and parts(moved) == []
