"""A server for the tests: the one whose binary LANDFAST_SERVER names, on a share in memory."""

import os
import shutil
import subprocess
import tempfile

import pytest

import landfast
from landfast.fs import LandfastFileSystem

USER, PASSWORD = "tester", "Correct-Horse-7"


class Server:
    """A running `landfast serve`."""

    def __init__(self, directory, *extra, listen="127.0.0.1:0"):
        self.directory = directory
        self.process = subprocess.Popen(
            [os.environ["LANDFAST_SERVER"], "serve", "--share", f"data={directory}", "--user", f"{USER}:{PASSWORD}"]
            + ["--listen", listen, "--rdma-listen", "127.0.0.1:0", *extra],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for line in self.process.stdout:
            if line.startswith("listening "):
                fields = dict(word.split("=") for word in line.split()[1:])
                self.address = fields["smb"]
                self.metrics = fields.get("metrics")
                break
        else:
            raise RuntimeError("the server did not start")
        self.url = f"smb://{USER}@{self.address}/data"

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)
        self.process.stdout.close()


@pytest.fixture(scope="session")
def server():
    os.environ["LANDFAST_PASSWORD"] = PASSWORD
    directory = tempfile.mkdtemp(dir="/dev/shm")
    server = Server(directory, "--emulate-persistence")
    yield server
    server.stop()
    shutil.rmtree(directory)


@pytest.fixture
def another_server():
    """For a test that needs a server of its own."""
    os.environ["LANDFAST_PASSWORD"] = PASSWORD
    return Server


@pytest.fixture
def client(server):
    with landfast.connect(server.url) as client:
        yield client


@pytest.fixture
def region(client):
    with client.open("region.dat", "w+b") as file:
        file.truncate(1 << 20)
    with client.map("region.dat", durability="any", accept_emulated=True) as region:
        yield region
    client.remove("region.dat")


class Moved:
    """A server of three shares: two lie apart, and `again` is the first once more."""

    def __init__(self, server, first, second):
        host, port = server.address.split(":")
        self.fs = LandfastFileSystem(host=host, port=int(port), username="tester", skip_instance_cache=True)
        self.first, self.second = first, second

    def lay(self, files):
        for name, text in files.items():
            path = self.first / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def found_bytes(self, name):
        return (self.first / name).read_bytes()

    def found(self, top=None):
        """Each file with its text, each link with its target, each empty directory."""
        top, found = top or self.first, {}
        for directory, directories, files in os.walk(top):
            for name in files + directories:
                path = os.path.join(directory, name)
                short = os.path.relpath(path, top)
                if short.startswith(".landfast-streams"):
                    continue
                if os.path.islink(path):
                    found[short] = f"-> {os.readlink(path)}"
                elif os.path.isfile(path):
                    found[short] = open(path).read()
                elif not os.listdir(path):
                    found[short] = None
        return found


@pytest.fixture
def moved(tmp_path, another_server):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    server = another_server(first, "--share", f"two={second}", "--share", f"again={first}")
    try:
        yield Moved(server, first, second)
    finally:
        server.stop()
