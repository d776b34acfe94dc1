"""A server for the tests: the one whose binary LANDFAST_SERVER names, on a share in memory."""

import os
import shutil
import subprocess
import tempfile

import pytest

import landfast

USER, PASSWORD = "tester", "Correct-Horse-7"


class Server:
    """A running `landfast serve`."""

    def __init__(self, directory, *extra):
        self.directory = directory
        self.process = subprocess.Popen(
            [os.environ["LANDFAST_SERVER"], "serve", "--share", f"data={directory}", "--user", f"{USER}:{PASSWORD}"]
            + ["--listen", "127.0.0.1:0", "--rdma-listen", "127.0.0.1:0", *extra],
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
