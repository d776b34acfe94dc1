"""Files, directories and their errors."""

import os
import pickle

import numpy
import pytest

import landfast


def test_bytes_that_were_written_are_read_back(client):
    with client.open("a.bin", "w+b") as file:
        assert file.write_at(3, b"abc") == 3
        file.flush()
        assert file.read_at(0, 100) == b"\0\0\0abc"
        assert file.read_at(100, 5) == b""
        assert file.size() == 6
        file.truncate(4)
        assert file.stat()["size"] == 4
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.read_at(0, 1)
    client.remove("a.bin")


def test_a_range_that_ends_beyond_every_number_is_a_value_error(client):
    with client.open("short.bin", "w+b") as file:
        with pytest.raises(ValueError, match="no file has 2 bytes at"):
            file.write_at(2**64 - 1, b"xx")
        with pytest.raises(ValueError, match="no file has 5 bytes at"):
            file.read_at(2**64 - 1, 5)
        file.write_at(0, b"xx")
        assert file.read_at(0, 5) == b"xx"
    client.remove("short.bin")


def test_arrays_are_written_and_filled_in_their_place(client):
    array = numpy.arange(100_000, dtype="<u4")
    with client.open("array.bin", "w+b") as file:
        assert file.write_at(0, array) == array.nbytes
        back = numpy.empty_like(array)
        assert file.readinto_at(0, back) == array.nbytes
        assert (back == array).all()
        with pytest.raises(ValueError, match="read-only"):
            file.readinto_at(0, bytes(4))
        with pytest.raises(BufferError, match="ascontiguousarray"):
            file.write_at(0, array[::2])
    client.remove("array.bin")


def test_an_error_is_the_one_of_a_local_file(client):
    with pytest.raises(FileNotFoundError) as caught:
        client.open("no/such/file")
    assert caught.value.filename == "no/such/file"
    client.mkdir("dir")
    with pytest.raises(FileExistsError):
        client.mkdir("dir")
    with pytest.raises(IsADirectoryError):
        client.open("dir")
    with client.open("dir/x", "wb"):
        pass
    with pytest.raises(OSError) as caught:
        client.remove("dir")
    assert caught.value.errno == 39  # ENOTEMPTY
    with pytest.raises(ValueError, match="choose rb"):
        client.open("dir/x", "rq")
    client.remove("dir/x")
    client.remove("dir")


def test_a_wrong_password_and_a_wrong_address_name_the_reason(server):
    with pytest.raises(PermissionError, match="LOGON_FAILURE"):
        landfast.connect(server.url, password="wrong")
    with pytest.raises(ValueError, match="begin with smb://"):
        landfast.connect("http://host/share")
    with pytest.raises(FileNotFoundError):
        landfast.connect(server.url.rsplit("/", 1)[0] + "/nothing")
    with pytest.raises(ConnectionError):
        landfast.connect("smb://a@127.0.0.1:1/share")


def test_directories_are_listed_and_renamed(client):
    client.mkdir("from")
    with client.open("from/file", "wb") as file:
        file.write_at(0, b"12345")
    assert [(e["name"], e["size"], e["type"]) for e in client.list("from")] == [("file", 5, "file")]
    client.rename("from", "to")
    with client.open("other", "wb"):
        pass
    with pytest.raises(FileExistsError):
        client.rename("to/file", "other")
    client.rename("to/file", "other", replace=True)
    assert client.stat("other")["size"] == 5
    client.remove("other")
    client.remove("to")


def test_python_files_have_text_lines_and_positions(client):
    with landfast.open(client, "text.txt", "w") as file:
        file.write("first\nsecond\n")
    with landfast.open(client, "text.txt", "a") as file:
        file.write("third\n")
    with landfast.open(client, "text.txt", "r") as file:
        assert file.readlines() == ["first\n", "second\n", "third\n"]
    with landfast.open(client, "text.txt", "r+b") as file:
        file.seek(-6, os.SEEK_END)
        file.write(b"THIRD")
        file.raw.sync()
        file.seek(0)
        assert file.read() == b"first\nsecond\nTHIRD\n"
    client.remove("text.txt")


def test_links_are_seen_where_they_are_not_followed(server, client):
    client.mkdir("linked")
    os.symlink("linked", f"{server.directory}/link")
    assert client.stat("link")["type"] == "directory"
    assert client.stat("link", follow=False)["type"] == "link"
    kinds = {entry["name"]: entry["type"] for entry in client.list(follow=False)}
    assert kinds["link"] == "link" and kinds["linked"] == "directory"
    assert client.spelling("LINK") == "link"
    assert client.identity("link") == client.identity("linked") != client.identity("")
    client.remove("link", follow=False)
    assert client.stat("linked")["type"] == "directory"
    client.remove("linked")


def test_a_session_is_not_pickled(client):
    with pytest.raises(ValueError, match="connect in the other process"):
        pickle.dumps(client)


def test_a_child_of_a_fork_is_told_to_connect_again(server, client):
    with client.open("forked.txt", "w+b") as file:
        file.write_at(0, b"parent")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                try:
                    file.read_at(0, 6)
                except landfast.LandfastError as error:
                    with landfast.connect(server.url) as own, own.open("forked.txt") as again:
                        if "forked" in str(error) and again.read_at(0, 6) == b"parent":
                            status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert file.read_at(0, 6) == b"parent"
    client.remove("forked.txt")
