"""The file system of fsspec, by fsspec's own tests and by ours."""

import os
import pickle
import shutil

import fsspec
import fsspec.tests.abstract as abstract
import pytest

from landfast.fs import LandfastFileSystem


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, server):
        return fsspec.filesystem("landfast", **options_of(server), auto_mkdir=True)

    @pytest.fixture
    def fs_path(self, fs):
        path = "/data/abstract"
        fs.makedirs(path, exist_ok=True)
        yield path
        fs.rm(path, recursive=True)


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


def options_of(server):
    host, port = server.address.split(":")
    return {"host": host, "port": int(port), "username": "tester", "durable": False}


@pytest.fixture
def fs(server):
    return LandfastFileSystem(**options_of(server))


def test_an_address_gives_host_user_and_path():
    fs = LandfastFileSystem
    found = fs._get_kwargs_from_urls("landfast://al%20ice:p%40ss@[::1]:4450/data/a?b#c")
    assert found == {"host": "::1", "port": 4450, "username": "al ice", "password": "p@ss"}
    assert fs._strip_protocol("landfast://u@h:1/data/a?b#c/") == "/data/a?b#c"
    assert fs._strip_protocol("landfast://h") == "/"
    assert fs(host="::1", port=1).unstrip_protocol("/data/x") == "landfast://[::1]:1/data/x"


def test_fsspec_opens_an_address(server):
    address = f"landfast://tester@{server.address}/data/opened.txt"
    with fsspec.open(address, "wt") as file:
        file.write("text")
    with fsspec.open(address, "rt") as file:
        assert file.read() == "text"
    fs, path = fsspec.core.url_to_fs(address)
    assert fs.cat(path) == b"text" and fs.size(path) == 4 and fs.isfile(path)
    assert fs.cat_file(path, 1, 3) == b"ex" and fs.cat_file(path, -2) == b"xt"
    assert fs.modified(path) >= fs.created(path)
    fs.rm(path)
    assert not fs.exists(path)


def test_directories_are_made_walked_and_removed(fs):
    fs.mkdir("/data/walk/a/b", create_parents=True)
    with pytest.raises(FileExistsError):
        fs.mkdir("/data/walk/a")
    with pytest.raises(FileExistsError):
        fs.makedirs("/data/walk/a")
    fs.pipe({"/data/walk/one": b"1", "/data/walk/a/two": b"22", "/data/walk/a/b/three": b"333"})
    assert fs.find("/data/walk") == ["/data/walk/a/b/three", "/data/walk/a/two", "/data/walk/one"]
    assert fs.glob("/data/walk/**/t*") == ["/data/walk/a/b/three", "/data/walk/a/two"]
    assert fs.du("/data/walk") == 6
    with pytest.raises(NotADirectoryError):
        fs.rmdir("/data/walk/one")
    with pytest.raises(OSError):
        fs.rmdir("/data/walk/a")
    fs.mv("/data/walk/one", "/data/walk/a/b")
    fs.mv("/data/walk/a", "/data/walk/c", recursive=True)
    assert fs.cat("/data/walk/c/b/one") == b"1"
    fs.rm("/data/walk", recursive=True)
    assert not fs.exists("/data/walk")


def test_a_transaction_shows_whole_files_or_nothing(fs):
    fs.pipe("/data/whole", b"old")
    with pytest.raises(RuntimeError), fs.transaction:
        with fs.open("/data/whole", "wb") as file:
            file.write(b"half of the n")
        raise RuntimeError
    assert fs.cat("/data/whole") == b"old"
    with fs.transaction:
        with fs.open("/data/whole", "wb") as file:
            file.write(b"new")
        assert fs.cat("/data/whole") == b"old"
    assert fs.cat("/data/whole") == b"new"
    with pytest.raises(RuntimeError), fs.transaction:
        fs.pipe("/data/whole", b"piped")
        raise RuntimeError
    for mode in ("r+b", "ab"):
        with pytest.raises(ValueError, match="whole files"), fs.transaction:
            fs.open("/data/whole", mode)
    assert fs.cat("/data/whole") == b"new"
    assert not [name for name in fs.ls("/data", detail=False) if ".landfast-" in name]
    fs.rm("/data/whole")


def test_files_are_changed_in_their_middle_and_at_their_end(fs):
    fs.pipe("/data/middle", b"0123456789")
    with fs.open("/data/middle", "r+b") as file:
        file.seek(4)
        file.write(b"XX")
    with fs.open("/data/middle", "ab") as file:
        file.write(b"end")
    assert fs.cat("/data/middle") == b"0123XX6789end"
    with fs.open("/data/middle", "rb", block_size=4) as file:
        assert [file.read(5), file.tell(), file.readline()] == [b"0123X", 5, b"X6789end"]
    with pytest.raises(FileExistsError):
        fs.open("/data/middle", "xb")
    with pytest.raises(FileNotFoundError):
        fs.open("/data/no/such", "rb")
    fs.rm("/data/middle")


def test_a_file_system_is_pickled_without_its_sessions(fs):
    fs.pipe("/data/pickled", b"x")
    assert pickle.loads(pickle.dumps(fs)).cat("/data/pickled") == b"x"
    fs.rm("/data/pickled")


def test_a_path_without_a_share_is_refused(fs):
    with pytest.raises(ValueError, match="name of a share"):
        fs.ls("/")


def test_a_copy_of_a_file_onto_itself_is_refused_and_changes_nothing(fs, server):
    fs.pipe("/data/self.txt", b"precious")
    os.link(f"{server.directory}/self.txt", f"{server.directory}/hard.txt")
    os.symlink("self.txt", f"{server.directory}/soft.txt")
    for target in ("self.txt", "SELF.txt", "hard.txt", "soft.txt"):
        with pytest.raises(shutil.SameFileError):
            fs.cp("/data/self.txt", f"/data/{target}")
        assert fs.cat("/data/self.txt") == b"precious", target
    fs.cp("/data/self.txt", "/data/other.txt")
    fs.cp("/data/self.txt", "/data/other.txt")
    assert fs.cat("/data/other.txt") == b"precious"
    fs.rm(["/data/self.txt", "/data/hard.txt", "/data/soft.txt", "/data/other.txt"])


def test_a_move_of_a_file_onto_itself_by_another_share_keeps_it(tmp_path, another_server):
    server = another_server(tmp_path, "--share", f"again={tmp_path}")
    try:
        fs = LandfastFileSystem(**options_of(server))
        fs.pipe("/data/self.txt", b"precious")
        with pytest.raises(shutil.SameFileError):
            fs.mv("/data/self.txt", "/again/self.txt")
        assert fs.cat("/data/self.txt") == b"precious"
        fs.mv("/data/self.txt", "/again/moved.txt")
        assert fs.cat("/data/moved.txt") == b"precious" and not fs.exists("/data/self.txt")
    finally:
        server.stop()


def test_a_recursive_removal_does_not_leave_its_tree(fs, server):
    fs.makedirs("/data/keep/deep")
    fs.makedirs("/data/tree/a")
    fs.pipe({"/data/keep/x": b"x", "/data/keep/deep/y": b"y", "/data/tree/a/f": b"f"})
    top = f"{server.directory}/tree"
    os.symlink("../keep", f"{top}/link")
    os.symlink("../../keep/x", f"{top}/a/file")
    os.symlink("nowhere", f"{top}/a/dangling")
    os.symlink("..", f"{top}/a/loop")
    os.symlink("keep", f"{server.directory}/toplink")
    fs.rm("/data/toplink", recursive=True)
    assert not os.path.lexists(f"{server.directory}/toplink")
    # By another spelling.
    fs.rm("/data/TREE", recursive=True)
    assert not os.path.exists(top)
    assert fs.find("/data/keep") == ["/data/keep/deep/y", "/data/keep/x"]
    with pytest.raises(OSError):
        fs.rm("/data/keep", recursive=True, maxdepth=1)
    assert fs.exists("/data/keep/deep/y")
    fs.rm("/data/keep", recursive=True)
    with pytest.raises(FileNotFoundError):
        fs.rm("/data/keep", recursive=True)


def test_a_put_replaces_only_the_file_of_exactly_that_name(fs, tmp_path):
    for name in ("Readme", "readme"):
        (tmp_path / name).write_text(name)
    fs.mkdir("/data/put")
    fs.put(str(tmp_path / "Readme"), "/data/put/")
    with pytest.raises(FileExistsError, match="ignores case"):
        fs.put(str(tmp_path / "readme"), "/data/put/")
    assert fs.cat("/data/put/Readme") == b"Readme"
    fs.rm("/data/put", recursive=True)


def test_a_name_with_brackets_is_that_file_and_no_other(fs, tmp_path):
    marked, plain = "/data/file[1].txt", "/data/file1.txt"
    fs.pipe({marked: b"marked", plain: b"plain"})
    assert fs.cat(marked) == b"marked"
    fs.get(marked, str(tmp_path / "got"))
    assert (tmp_path / "got").read_bytes() == b"marked"
    fs.cp(marked, "/data/copied.txt")
    assert fs.cat("/data/copied.txt") == b"marked"
    fs.mv(marked, "/data/moved[2].txt")
    assert fs.cat("/data/moved[2].txt") == b"marked" and not fs.exists(marked)
    fs.mv("/data/moved[2].txt", marked)
    fs.rm(marked)
    assert not fs.exists(marked) and fs.cat(plain) == b"plain"
    # What is not there as it is written is a pattern.
    fs.rm("/data/file[1].txt")
    assert not fs.exists(plain)
    fs.makedirs("/data/dir[1]/b")
    fs.makedirs("/data/dir1")
    fs.pipe({"/data/dir[1]/a": b"a", "/data/dir[1]/b/c": b"c", "/data/dir1/a": b"other"})
    fs.cp("/data/dir[1]", "/data/copy", recursive=True)
    assert fs.find("/data/copy") == ["/data/copy/a", "/data/copy/b/c"] and fs.cat("/data/copy/a") == b"a"
    fs.get("/data/dir[1]", str(tmp_path / "tree"), recursive=True)
    assert (tmp_path / "tree" / "b" / "c").read_bytes() == b"c"
    fs.rm("/data/dir[1]", recursive=True)
    assert fs.find("/data/dir1") == ["/data/dir1/a"]
    fs.rm(["/data/dir1", "/data/copy", "/data/copied.txt"], recursive=True)


def test_what_a_listing_does_not_show_is_not_removed(fs, server):
    top = f"{server.directory}/Mail"
    os.makedirs(f"{top}/cur")
    for name in ("plain", "170.host:2,S"):
        with open(f"{top}/cur/{name}", "w") as file:
            file.write(name)
    assert fs.ls("/data/Mail/cur", detail=False) == ["/data/Mail/cur/plain"]
    for tree in ("/data/Mail", "/data/Mail/cur"):
        with pytest.raises(OSError, match="170.host:2,S") as caught:
            fs.rm(tree, recursive=True)
        assert caught.value.errno == 39 and caught.value.filename == "/data/Mail/cur"
    assert sorted(os.listdir(f"{top}/cur")) == ["170.host:2,S", "plain"]
    os.unlink(f"{top}/cur/170.host:2,S")
    fs.rm("/data/Mail", recursive=True)
    assert not os.path.exists(top)


def test_a_name_with_a_colon_or_backslash_is_refused_and_writes_no_stream(fs, server, tmp_path):
    fs.mkdir("/data/signs")
    for sign in ":\\":
        local = tmp_path / f"run{sign}1"
        local.write_text("precious")
        path = f"/data/signs/run{sign}1"
        for call in (
            lambda: fs.put(str(local), "/data/signs/"),
            lambda: fs.put(str(tmp_path), "/data/signs/tree", recursive=True),
            lambda: fs.pipe(path, b"precious"),
            lambda: fs.open(path, "wb"),
            lambda: fs.cp("/data/signs/there", path),
            lambda: fs.mv("/data/signs/there", path),
            lambda: fs.mkdir(path),
        ):
            fs.pipe("/data/signs/there", b"there")
            with pytest.raises(ValueError, match="colon or backslash"):
                call()
        local.unlink()
    assert os.listdir(f"{server.directory}/signs") == ["there"]
    fs.rm("/data/signs", recursive=True)


def test_a_removal_that_is_not_recursive_removes_no_directory(fs, server):
    fs.makedirs("/data/flat/empty")
    fs.pipe("/data/flat/file", b"x")
    os.symlink("empty", f"{server.directory}/flat/link")
    os.symlink("nowhere", f"{server.directory}/flat/nowhere")
    for path in ("/data/flat/empty", "/data/flat/e*", ["/data/flat/empty"]):
        with pytest.raises(IsADirectoryError):
            fs.rm(path)
    fs.rm("/data/flat/link")
    fs.rm("/data/flat/nowhere")
    assert sorted(os.listdir(f"{server.directory}/flat")) == ["empty", "file"]
    fs.rm("/data/flat", recursive=True)


def test_a_link_to_a_directory_above_ends_no_copy(fs, server, tmp_path):
    fs.makedirs("/data/round/deep")
    fs.pipe("/data/round/deep/file", b"x")
    for name in ("one", "two"):
        os.symlink("..", f"{server.directory}/round/deep/{name}")
    os.symlink("deep", f"{server.directory}/round/again")
    files = ["again/file", "deep/file"]
    assert fs.find("/data/round") == [f"/data/round/{name}" for name in files]
    fs.cp("/data/round", "/data/copy", recursive=True)
    fs.get("/data/round", str(tmp_path / "got"), recursive=True)
    assert fs.find("/data/copy") == [f"/data/copy/{name}" for name in files]
    assert sorted(str(path.relative_to(tmp_path / "got")) for path in (tmp_path / "got").rglob("file")) == files
    fs.rm(["/data/round", "/data/copy"], recursive=True)


def test_a_file_system_connects_again_after_its_server_was_away(tmp_path, another_server):
    server = another_server(tmp_path)
    fs = LandfastFileSystem(**options_of(server))
    fs.pipe("/data/x", b"x")
    server.stop()
    with pytest.raises(ConnectionError):
        fs.cat_file("/data/x")
    again = another_server(tmp_path, listen=server.address)
    try:
        assert fs.cat_file("/data/x") == b"x"
    finally:
        again.stop()


def test_a_name_that_could_be_either_of_two_is_not_removed(fs, server):
    top = f"{server.directory}/either"
    os.makedirs(f"{top}/deep/er")
    os.symlink("deep/er", f"{top}/link")
    for name in ("Both", "both", "One"):
        with open(f"{top}/deep/er/{name}", "w") as file:
            file.write(name)
    for path in ("/data/either/deep/er/BOTH", "/data/either/link/BOTH"):
        for recursive in (False, True):
            with pytest.raises(FileNotFoundError, match="case alone"):
                fs.rm(path, recursive=recursive)
    fs.rm("/data/either/DEEP/er/both")
    fs.rm("/data/either/link/ONE")
    assert os.listdir(f"{top}/deep/er") == ["Both"]
    fs.rm("/data/either", recursive=True)
