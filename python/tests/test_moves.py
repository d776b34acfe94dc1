"""Moves of the fsspec file system: what they remove is elsewhere."""

import os
import re
import shutil
import tempfile
import urllib.request

import pytest

import landfast.names
from landfast.fs import LandfastFileSystem


TREE = {"t/f": "f", "t/sub/g": "g"}


def test_a_tree_that_is_moved_below_itself_is_refused_by_name_pattern_list_and_share(moved):
    moved.lay(TREE)
    for source in ("/data/t", "/data/t*", ["/data/t"], "/data/t/*", "/again/t", "/again/t*", ["/again/t"]):
        for target in ("/again/t/", "/again/t/sub/new", "/again/T/sub", "/data/t/sub", "/data/t/sub/"):
            if (source, target) == ("/again/t", "/again/t/"):
                moved.fs.mv(source, target, recursive=True)  # the same name: nothing to do
            else:
                with pytest.raises(OSError):
                    moved.fs.mv(source, target, recursive=True)
            assert moved.found() == TREE, (source, target)
    with pytest.raises(shutil.Error, match="into itself"):
        moved.fs.mv("/data/t/*", "/data/t/sub/", recursive=True)
    with pytest.raises(ValueError, match="is a share"):
        moved.fs.mv("/again", "/data/t", recursive=True)
    assert moved.found() == TREE
    moved.fs.mv("/data/t", "/again/u", recursive=True)
    assert moved.found() == {"u/f": "f", "u/sub/g": "g"}


def test_a_transaction_moves_nothing_and_says_so(moved):
    fs, files = moved.fs, {"x": "x", "a": "a"}
    moved.lay(files)
    for source, target in (("/data/x", "/two/x"), ("/data/x", "/data/y"), (["/data/x", "/data/a"], "/data/d/")):
        with pytest.raises(NotImplementedError, match="transaction"), fs.transaction:
            fs.pipe("/data/new", b"new")
            fs.mv(source, target)
    assert moved.found() == files and moved.found(moved.second) == {}


def test_a_move_of_a_link_onto_its_target_is_refused(moved):
    moved.lay({"self": "precious"})
    os.symlink("self", moved.first / "soft")
    os.link(moved.first / "self", moved.first / "hard")
    before = moved.found()
    for source, target in (("soft", "self"), ("soft", "hard"), ("self", "hard"), ("hard", "soft"), ("self", "soft")):
        for share in ("data", "again"):
            with pytest.raises(shutil.SameFileError):
                moved.fs.mv(f"/data/{source}", f"/{share}/{target}")
            assert moved.found() == before
    moved.fs.mv("/data/soft", "/data/other")
    moved.fs.mv("/data/self", "/data/SELF")
    assert moved.found() == {"SELF": "precious", "hard": "precious", "other": "-> self"}


def test_a_move_removes_only_what_it_has_copied(moved):
    fs, tree = moved.fs, {"tree/f": "f", "tree/sub/g": "g", "tree/sub/deep/h": "h"}
    moved.lay(tree)
    for target in ("/data/new", "/two/new"):
        with pytest.raises(ValueError, match="maxdepth"):
            fs.mv("/data/tree", target, recursive=True, maxdepth=1)
    with pytest.raises(IsADirectoryError):
        fs.mv("/data/tree", "/two/new")
    (moved.first / "empty").mkdir()
    with pytest.raises(IsADirectoryError):
        fs.mv("/data/empty", "/two/empty")
    os.symlink("nowhere", moved.first / "tree" / "dangling")
    with pytest.raises(FileNotFoundError):
        fs.mv("/data/tree", "/two/new", recursive=True)
    with pytest.raises(FileNotFoundError):
        fs.mv("/data/tr*", "/two/", recursive=True)
    os.unlink(moved.first / "tree" / "dangling")
    assert moved.found() == {**tree, "empty": None} and moved.found(moved.second) == {}
    fs.mv("/data/*", "/two/", recursive=True)
    assert moved.found() == {} and moved.found(moved.second) == {**tree, "empty": None}


def test_links_of_a_moved_tree_go_and_what_they_lead_to_stays(moved):
    keep = {"keep/x": "x", "keep/deep/y": "y"}
    moved.lay({**keep, "tree/f": "f"})
    os.symlink("../keep", moved.first / "tree" / "link")
    os.symlink("../keep/x", moved.first / "tree" / "file")
    os.symlink("../..", moved.first / "keep" / "deep" / "circle")
    with pytest.raises(shutil.Error, match="above it"):
        moved.fs.mv("/data/tree", "/two/tree", recursive=True)
    assert moved.found(moved.second) == {} and moved.found()["tree/f"] == "f"
    os.unlink(moved.first / "keep" / "deep" / "circle")
    moved.fs.mv("/data/tree", "/two/tree", recursive=True)
    assert moved.found() == keep
    carried = {"f": "f", "file": "x", "link/x": "x", "link/deep/y": "y"}
    assert moved.found(moved.second) == {f"tree/{name}": text for name, text in carried.items()}


def test_moves_that_would_meet_are_refused(moved):
    files = {"a/f": "1", "b/f": "2", "b/G": "3", "c/g": "4"}
    moved.lay(files)
    (moved.first / "d").mkdir()
    for share in ("data", "two"):
        with pytest.raises(FileExistsError):
            moved.fs.mv(["/data/a/f", "/data/b/f"], f"/{share}/d/")
        with pytest.raises(FileExistsError):
            moved.fs.mv(["/data/b/G", "/data/c/g"], f"/{share}/d/")
        with pytest.raises(FileExistsError):
            moved.fs.mv(["/data/a/f", "/data/b/f"], ["/data/b/f", f"/{share}/d/f"])
        with pytest.raises(ValueError, match="targets"):
            moved.fs.mv(["/data/a/f", "/data/b/f"], [f"/{share}/d/f"])
    assert moved.found() == {**files, "d": None} and moved.found(moved.second) == {}


def test_a_move_by_case_alone_keeps_everything(moved):
    moved.lay(TREE)
    moved.fs.mv("/data/t", "/data/T", recursive=True)
    assert moved.found() == {"T/f": "f", "T/sub/g": "g"}


def test_two_names_that_differ_by_case_alone_are_not_moved_as_one(moved):
    files = {"tree/both": "1", "tree/Both": "2"}
    moved.lay(files)
    with pytest.raises(FileExistsError, match="case alone"):
        moved.fs.mv("/data/tree", "/two/tree", recursive=True)
    assert moved.found() == files


def test_a_moved_file_replaces_another_as_a_whole(moved):
    moved.lay({"x": "new", "link": "?"})
    (moved.second / "x").write_text("old")
    moved.fs.mv("/data/x", "/two/x")
    assert moved.found() == {"link": "?"} and moved.found(moved.second) == {"x": "new"}
    moved.lay(TREE)
    (moved.second / "t").mkdir()
    (moved.second / "t" / "t").mkdir()
    with pytest.raises(FileExistsError):
        moved.fs.mv("/data/t", "/two/t", recursive=True)
    assert moved.found() == {**TREE, "link": "?"}


def test_a_put_takes_a_local_name_with_brackets_as_it_is(moved, tmp_path):
    local = tmp_path / "local[1]"
    local.mkdir()
    (tmp_path / "local1").mkdir()
    (tmp_path / "p[1].txt").write_text("marked")
    (tmp_path / "p1.txt").write_text("plain")
    (local / "f").write_text("f")
    moved.fs.put(str(tmp_path / "p[1].txt"), "/data/")
    moved.fs.put(str(tmp_path / "p[1].txt"), "/data/named")
    moved.fs.put(str(local), "/data/tree", recursive=True)
    moved.fs.put(str(local), "/data/tree", recursive=True)
    found = {"p[1].txt": "marked", "named": "marked", "tree/f": "f", "tree/local[1]/f": "f"}
    assert moved.found() == found


def test_a_file_that_changes_while_it_is_moved_stays(moved, monkeypatch):
    moved.lay(TREE)
    copy = moved.fs._copy_whole

    def copy_and_change(source, target):
        copy(source, target)
        if source == "/data/t/f":
            moved.lay({"t/f": "f and more"})

    monkeypatch.setattr(moved.fs, "_copy_whole", copy_and_change)
    with pytest.raises(OSError, match="changed while"):
        moved.fs.mv("/data/t", "/two/t", recursive=True)
    assert moved.found() == {"t/f": "f and more", "t/sub/g": "g"}


def test_what_a_transaction_or_a_move_has_named_is_durable_under_its_name(another_server):
    # On a disk: in memory no name is.
    directory = tempfile.mkdtemp(dir="/var/tmp")
    server = another_server(directory, "--metrics", "127.0.0.1:0")
    try:
        host, port = server.address.split(":")
        for durable in (True, False):
            fs = LandfastFileSystem(host=host, port=int(port), username="tester", durable=durable)
            fs.pipe("/data/source", b"source")
            before = synced(server)
            with fs.transaction:
                fs.pipe("/data/new", b"new")
            # The part has its name flushed, and the file its own.
            assert synced(server) - before >= (2 if durable else 0), durable
            before = synced(server)
            fs.mv("/data/source", "/data/moved")
            assert synced(server) - before >= (1 if durable else 0), durable
    finally:
        server.stop()
        shutil.rmtree(directory)


def synced(server):
    """How many directories the server has made durable."""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics") as answer:
        found = re.search(r"^landfast_directories_synced\S* (\d+)", answer.read().decode(), re.MULTILINE)
    return int(found.group(1))


def test_a_move_onto_a_directory_is_refused_before_anything_is_moved(moved):
    files = {"a": "a", "b": "b", "d/b/f": "f"}
    moved.lay(files)
    for share in ("data", "two"):
        (moved.second / "d" / "b").mkdir(parents=True, exist_ok=True)
        with pytest.raises(FileExistsError, match="directory"):
            moved.fs.mv(["/data/a", "/data/b"], f"/{share}/d/")
        assert moved.found() == files and moved.found(moved.second) == {"d/b": None}


def test_a_name_that_could_be_either_of_two_is_not_moved_replaced_or_removed(moved):
    files = {"q.txt": "1", "Q.TXT": "2", "src": "src", "d/f": "f", "D/f": "F"}
    moved.lay(files)
    for name in ("Qa", "qA"):
        (moved.first / name).mkdir()
    before = moved.found()
    for share in ("data", "two"):
        with pytest.raises(FileNotFoundError, match="case alone"):
            moved.fs.mv("/data/Q.txt", f"/{share}/got")
        with pytest.raises(FileNotFoundError, match="case alone"):
            moved.fs.mv("/data/QA/", f"/{share}/got", recursive=True)
    for source in ("/data/src", "/two/src"):
        (moved.second / "src").write_text("src")
        for target in ("Q.txt", "QA/new"):
            with pytest.raises(FileExistsError, match="case alone"):
                moved.fs.mv(source, f"/data/{target}")
        with pytest.raises(FileExistsError, match="case alone"):
            moved.fs.mv([source, "/data/d/f"], ["/data/new", "/data/Q.txt"])
    with pytest.raises(FileExistsError, match="case alone"):
        moved.fs.mv("/data/q.txt", "/data/Q.txt")
    with pytest.raises(FileNotFoundError, match="case alone"):
        moved.fs.rmdir("/data/QA")
    assert moved.found() == before and moved.found(moved.second) == {"src": "src"}
    # Spelled as one of them; and where one alone is there, it is that one, which keeps its spelling.
    moved.fs.rmdir("/data/qA")
    moved.fs.rmdir("/data/QA")
    moved.fs.mv("/data/Q.TXT", "/data/got")
    moved.fs.mv("/data/src", "/data/Q.txt")
    assert moved.found() == {"q.txt": "src", "got": "2", "d/f": "f", "D/f": "F"}


def test_a_name_is_refused_as_one_of_several_only_if_the_server_takes_it_for_several(moved):
    # Python folds the ligature into two letters, and our server does not.
    moved.lay({"file": "1", "\ufb01le": "2", "new": "new", "newer": "newer"})
    moved.fs.mv("/data/new", "/data/FILE")
    assert sorted(moved.found().values()) == ["2", "new", "newer"]
    with moved.fs.transaction:
        moved.fs.pipe("/data/File", b"newest")
    assert sorted(moved.found().values()) == ["2", "newer", "newest"]
    moved.fs.rm("/data/FiLe")
    assert moved.found() == {"\ufb01le": "2", "newer": "newer"}
    # Where nothing can be made there, it cannot be asked.
    moved.lay({"file": "1"})
    server = moved.fs._place("/data/x")[0]
    assert landfast.names._takes(server, "away", "FILE", "\ufb01le") and not landfast.names._takes(server, "", "FILE", "\ufb01le")
    assert landfast.names._takes(server, "", "FILE", "file") and "1" in moved.found().values()
