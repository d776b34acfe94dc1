"""The file system of fsspec, by fsspec's own tests and by ours."""

import pickle

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
