"""Striped stores: regions of two daemons, each a process."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile

import numpy
import pytest

import landfast
import landfast.aio


@pytest.fixture(scope="module")
def place():
    directory = tempfile.mkdtemp(dir="/dev/shm")
    meta = os.path.join(directory, "meta")
    daemons = []
    for name in ("a", "b"):
        process = subprocess.Popen(
            [os.environ["LANDFAST_SERVER"], "store", "serve", os.path.join(directory, name)]
            + ["--meta", meta, "--name", name, "--emulate-persistence"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout.readline().startswith("store server")
        daemons.append(process)
    yield meta
    for process in daemons:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()
    shutil.rmtree(directory)


@pytest.fixture
def store(place):
    with landfast.Store(place) as store:
        yield store


@pytest.fixture
def region(store):
    store.create("r", 1 << 20, durability="volatile", unit=4096)
    with store.map("r") as region:
        yield region
    store.free("r")


def test_arrays_are_written_and_filled_in_their_place(region):
    table = numpy.arange(10_000, dtype="<f8")
    region.write(4096, table)
    out = numpy.empty_like(table)
    assert region.readinto(4096, out) == table.nbytes
    assert (out == table).all()
    region.commit()
    one, two = bytearray(8), numpy.empty(3, dtype="<f8")
    region.read_many([(4096 + 8, one), (4096 + 80, two)])
    assert numpy.frombuffer(one, "<f8")[0] == 1 and list(two) == [10, 11, 12]
    region.write_many([(0, b"first"), (500_000, memoryview(b"second"))])
    assert region.read(500_000, 6) == b"second"


def test_buffers_that_overlap_are_not_filled(region):
    whole = bytearray(100)
    with pytest.raises(ValueError, match="overlap"):
        region.read_many([(0, memoryview(whole)[:60]), (0, memoryview(whole)[50:])])
    with pytest.raises(ValueError, match="read-only"):
        region.readinto(0, b"fixed")
    with pytest.raises(BufferError):
        region.write(0, numpy.zeros((4, 4))[:, 1])


def test_an_array_outlives_its_region(store, region):
    with store.map("r", write=False) as other:
        out = numpy.frombuffer(other.read(0, 100), "u1")
    assert out.sum() == 0
    with pytest.raises(ValueError, match="closed"):
        other.read(0, 1)


def test_words_and_counters(region):
    assert region.fetch_add(0, 5) == 0
    assert region.compare_swap(0, 5, 9) == 5
    assert region.compare_swap(0, 5, 1) == 9
    with pytest.raises(ValueError, match="multiple of 8"):
        region.fetch_add(1, 1)
    assert region.notify(3) == 1
    assert region.wait_above(3, 0, 10) == 1
    with pytest.raises(TimeoutError):
        region.wait_above(3, 1, 0.01)


def test_errors_have_the_names_that_python_has_for_them(store, region):
    with pytest.raises(FileNotFoundError):
        landfast.Store("/no/such/store")
    with pytest.raises(FileNotFoundError):
        store.map("missing")
    with pytest.raises(FileExistsError):
        store.create("r", 4096, durability="volatile")
    with pytest.raises(ValueError, match="a/b"):
        store.create("a/b", 4096, durability="volatile")
    with pytest.raises(OSError, match="3 copies need"):
        store.create("c", 4096, durability="volatile", copies=3)
    with pytest.raises(ValueError, match="beyond|do not fit"):
        region.read(len(region), 1)
    with pytest.raises(ValueError):
        region.read(0, 1 << 62)


def test_a_token_maps_with_its_rights(place, store, region):
    region.write(0, b"seen")
    with landfast.Store(place, key_file="") as stranger:
        with pytest.raises(PermissionError):
            stranger.map("r")
        with stranger.map("r", token=store.token("r")) as read:
            assert read.read(0, 4) == b"seen"
            with pytest.raises(PermissionError):
                read.write(0, b"x")
    with pytest.raises(ValueError, match="lfst1-"):
        store.map("r", token="nonsense")


def test_copies_and_servers_are_told(store):
    store.create("two", 8192, durability="volatile", copies=2)
    try:
        info = store.info("two")
        assert sorted(copy["server"] for copy in info["pieces"][0]["copies"]) == ["a", "b"]
        assert set(store.servers()) == {"a", "b"} and "two" in store.regions()
        with store.map("two") as region, pytest.raises(OSError, match="one copy"):
            region.compare_swap(0, 0, 1)
        assert store.rebuild("two") == 0
    finally:
        store.free("two")


def test_a_shuffle_gives_each_reducer_its_runs(store):
    plan = landfast.ShufflePlan([[3, 5], [0, 7]])
    assert (plan.run(1, 1), plan.partition(1), plan.region_size) == ((8, 7), (3, 12), 15)
    store.create("shuffle", plan.region_size, durability="volatile")
    with store.map("shuffle") as region:
        plan.write(region, 0, [(0, b"aaa"), (1, b"bbbbb")])
        plan.write(region, 1, [(1, b"ccccccc")])
        assert plan.read(region, 0) == b"aaa" and plan.read(region, 1) == b"bbbbbccccccc"
        with pytest.raises(ValueError, match="plan says"):
            plan.write(region, 1, [(1, b"short")])
    store.free("shuffle")


def test_calls_are_awaited_together(store, region):
    async def main():
        mapped = await landfast.aio.map_store(store, "r")
        await asyncio.gather(*(mapped.write(i * 8, bytes([i]) * 8) for i in range(50)))
        got = await asyncio.gather(*(mapped.read(i * 8, 8) for i in range(50)))
        mapped.close()
        return got

    assert asyncio.run(main()) == [bytes([i]) * 8 for i in range(50)]


def test_what_was_opened_before_a_fork_is_refused_after_it(store, region):
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (lambda: region.read(0, 1), lambda: store.info("r")):
            try:
                use()
            except landfast.LandfastError:
                refused += 1
        os._exit(0 if refused == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert region.read(0, 1) is not None


def test_ctrl_c_ends_a_wait(place):
    program = (
        "import landfast, sys\n"
        f"store = landfast.Store({place!r})\n"
        "store.create('w', 4096, durability='volatile', ephemeral=True)\n"
        "region = store.map('w')\n"
        "try:\n    print('waits', flush=True)\n    region.wait_above(0, 0, 60)\n"
        "except KeyboardInterrupt:\n    store.free('w'); sys.exit(7)\n"
    )
    import sys

    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "waits\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 7
    process.stdout.close()
