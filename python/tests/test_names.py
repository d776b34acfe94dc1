"""Names that are one for the server: of two that meet, none is lost."""

import os
import shutil

import pytest


def local(directory, files):
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(directory)


def test_of_two_names_that_differ_by_case_a_copy_loses_none(moved, tmp_path):
    fs = moved.fs
    letters = local(tmp_path / "letters", {"Q": "big", "q": "small"})
    deep = local(tmp_path / "deep", {"A/x": "big", "a/x": "small"})
    calls = [
        lambda: fs.put(letters, "/data/t", recursive=True),
        lambda: fs.put(f"{letters}/*", "/data/t/"),
        lambda: fs.put(f"{deep}/*/x", "/data/t/"),
        lambda: fs.put([f"{deep}/A/x", f"{deep}/a/x"], ["/data/t/A/x", "/data/t/a/x"]),
        lambda: fs.put([f"{deep}/A/x", f"{deep}/a/x"], "/data/t/"),
        lambda: fs.pipe({"/data/Q": b"big", "/data/q": b"small"}),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(FileExistsError):
            call()
        assert moved.found() == {}, number
        with pytest.raises(FileExistsError), fs.transaction:
            call()
        shutil.rmtree(moved.first / "t", ignore_errors=True)
        assert moved.found() == {}, number
    with pytest.raises(FileExistsError), fs.transaction:
        fs.put(f"{letters}/Q", "/data/")
        fs.put(f"{letters}/q", "/data/")
    assert moved.found() == {}
    # Each by itself: the other is there.
    fs.makedirs("/data/t/A")
    fs.put(f"{deep}/A/x", "/data/t/A/x")
    with pytest.raises(FileExistsError, match="A/x"):
        fs.put(f"{deep}/a/x", "/data/t/a/x")
    with pytest.raises(FileExistsError, match="A/x"):
        fs.cp("/data/t/A/x", "/two/y") or fs.cp("/two/y", "/data/t/a/x")
    assert moved.found() == {"t/A/x": "big"}


def test_a_copy_of_a_tree_with_two_names_of_one_is_refused(moved, tmp_path):
    fs = moved.fs
    for files in ({"d/K": "big", "d/k": "small"}, {"d/S/f": "big", "d/s/f": "small"}):
        moved.lay(files)
        for share in ("data", "two"):
            with pytest.raises(FileExistsError):
                fs.cp("/data/d", f"/{share}/e", recursive=True)
            assert moved.found() == files and moved.found(moved.second) == {}
        fs.get("/data/d", str(tmp_path / "got"), recursive=True)
        assert moved.found(tmp_path / "got") == {name[2:]: text for name, text in files.items()}
        for top in (moved.first / "d", tmp_path / "got"):
            shutil.rmtree(top)
    moved.lay({"a/f": "1", "b/f": "2"})
    for call in (fs.get, fs.cp):
        with pytest.raises(FileExistsError):
            call(["/data/a/f", "/data/b/f"], str(tmp_path) if call is fs.get else "/two")
    assert moved.found(moved.second) == {} and not (tmp_path / "f").exists()


def test_two_names_that_the_server_folds_into_one_are_not_moved_as_one(moved):
    for one, other in (("ı", "i"), ("ſ", "s"), ("É", "é")):
        files = {f"tree/{one}": "1", f"tree/{other}": "2"}
        moved.lay(files)
        (moved.first / "t").mkdir()
        for call in (
            lambda: moved.fs.mv("/data/tree", "/two/tree", recursive=True),
            lambda: moved.fs.mv([f"/data/tree/{one}", f"/data/tree/{other}"], "/data/t/"),
            lambda: moved.fs.mv("/data/tree/*", "/data/t/"),
            lambda: moved.fs.cp("/data/tree", "/two/tree", recursive=True),
        ):
            with pytest.raises(FileExistsError):
                call()
            assert moved.found() == {**files, "t": None} and moved.found(moved.second) == {}
        shutil.rmtree(moved.first / "tree")
        (moved.first / "t").rmdir()


def test_names_that_the_server_tells_apart_are_moved(moved):
    files = {"tree/\u212a": "kelvin", "tree/k": "k", "tree/ß": "eszett", "tree/ss": "ss"}
    moved.lay(files)
    moved.fs.mv("/data/tree", "/two/tree", recursive=True)
    assert moved.found() == {} and moved.found(moved.second) == files
    (moved.first / "t").mkdir()
    moved.fs.mv("/two/tree/*", "/data/t/")
    assert moved.found() == {name.replace("tree", "t"): text for name, text in files.items()}
    # Both are there already.
    moved.lay({"Both": "1", "both": "2", "new/Both": "3", "new/both": "4"})
    moved.fs.cp(["/data/new/Both", "/data/new/both"], ["/data/Both", "/data/both"])
    assert moved.found()["Both"] == "3" and moved.found()["both"] == "4"


def test_a_move_by_a_link_meets_what_came_by_its_directory(moved):
    files = {"a": "A", "b": "B", "real/x": "x"}
    moved.lay(files)
    os.symlink("real", moved.first / "link")
    before = moved.found()
    for targets in (
        ["/data/real/n", "/data/link/n"],
        ["/data/real/n", "/data/LINK/N"],
        ["/data/real/n", "/again/link/n"],
        ["/data/real/new/n", "/data/link/new/n"],
        ["/data/link/../b", "/data/real/n"],
    ):
        for call in (moved.fs.mv, moved.fs.cp):
            with pytest.raises(OSError):
                call(["/data/a", "/data/b"], targets)
            assert moved.found() == before, targets
