"""TeraSort on Ray: records of 100 bytes, sorted by their first ten, between files on shares.

    python -m landfast.sort --records 2000000 --daemons 2             # servers of its own, in memory
    python -m landfast.sort --share smb://alice@a/data --share smb://alice@b/data --records 80000000

    share: input-0 .. input-M      mappers                          reducers     share: output-0 .. output-R
      read --------------------> sample, split, sort ---shuffle---> merge --------> write

Two arms, in turns over the same input:

- ``regions``: mapper m learns from the counts of its pieces how long each is, makes the file for each reducer that long, maps
  it and writes the piece by one-sided writes at the offsets where it belongs; the reducer maps it and reads it one-sidedly.
- ``ray``: the pieces are objects of Ray's object store.

The validator reads all output and compares order, count and a checksum that does not depend on order. The layout of a record
is that of gensort (binary): a key of 10 random bytes, 00 11, the number of the record as 32 hexadecimal digits, 88 99 AA BB,
48 bytes, CC DD EE FF. The random numbers are not gensort's, so its files and checksums differ from these.

A lease of push mode is one client's: two mappers cannot have one file mapped at once. So each pair of mapper and reducer has
a file of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import landfast

RECORD, KEY = 100, 10
PIECE = 1 << 20


def generate(first: int, count: int, seed: int) -> np.ndarray:
    """``count`` records, numbered from ``first``; the same for the same arguments."""
    records = np.empty((count, RECORD), dtype="u1")
    random = np.random.default_rng([seed, first])
    records[:, :KEY] = random.integers(0, 256, (count, KEY), dtype="u1")
    records[:, 10:12] = (0x00, 0x11)
    numbers = np.arange(first, first + count, dtype=">u8").view("u1").reshape(count, 8)
    digits = np.stack((numbers >> 4, numbers & 15), axis=2).reshape(count, 16)
    records[:, 12:28] = ord("0")
    records[:, 28:44] = np.where(digits < 10, digits + ord("0"), digits + ord("A") - 10)
    records[:, 44:48] = (0x88, 0x99, 0xAA, 0xBB)
    records[:, 48:96] = np.repeat(np.frombuffer(b"0123456789AB", dtype="u1"), 4)
    records[:, 96:100] = (0xCC, 0xDD, 0xEE, 0xFF)
    return records


def keys(records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The keys as numbers: the first eight bytes and the other two."""
    high = np.ascontiguousarray(records[:, :8]).view(">u8").ravel().astype("u8")
    low = np.ascontiguousarray(records[:, 8:10]).view(">u2").ravel().astype("u2")
    return high, low


def sorted_records(records: np.ndarray) -> np.ndarray:
    high, low = keys(records)
    return records[np.lexsort((low, high))]


def checksum(records: np.ndarray) -> int:
    """A sum of hashes of records, the same in any order."""
    words = np.zeros((len(records), 104), dtype="u1")
    words[:, :RECORD] = records
    weights = np.random.default_rng(1).integers(0, 1 << 63, 13, dtype="u8") * np.uint64(2) + np.uint64(1)
    mixed = (words.view("<u8") * weights).sum(axis=1, dtype="u8")
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return int(mixed.sum(dtype="u8"))


def read_file(client: landfast.Client, path: str) -> np.ndarray:
    with client.open(path, "rb") as file:
        data = np.empty(file.size(), dtype="u1")
        got = file.readinto_at(0, data)
    if got != len(data):
        raise EOFError(f"{path} ended at {got} of {len(data)} bytes")
    return data.reshape(-1, RECORD)


def write_file(client: landfast.Client, path: str, records: np.ndarray) -> None:
    with client.open(path, "wb") as file:
        file.write_at(0, np.ascontiguousarray(records))
        file.flush()


def write_region(client: landfast.Client, path: str, records: np.ndarray) -> bool:
    """Writes by one-sided writes; whether it was push mode."""
    data = np.ascontiguousarray(records).reshape(-1)
    with client.open(path, "w+b") as file:
        file.truncate(max(len(data), 1))
    with client.map(path, durability="any", accept_emulated=True) as region:
        is_push = region.is_push
        for offset in range(0, len(data), PIECE):
            region.write(offset, data[offset : offset + PIECE])
        region.commit()
    return is_push


def read_region(client: landfast.Client, path: str, data: np.ndarray) -> bool:
    with client.map(path, durability="any", accept_emulated=True) as region:
        region.readinto(0, data)
        return region.is_push


class Mapper:
    """Holds one part of the input, in pieces by reducer."""

    def __init__(self, number: int, shares: list[str], place: str) -> None:
        self.number = number
        self.place = place
        self.clients = [landfast.connect(share) for share in shares]
        self.spent = {"read": 0.0, "sort": 0.0, "shuffle": 0.0}

    def read(self, samples: int) -> np.ndarray:
        begin = time.perf_counter()
        self.records = read_file(self.clients[self.number % len(self.clients)], f"{self.place}/input-{self.number}")
        self.spent["read"] += time.perf_counter() - begin
        step = max(len(self.records) // samples, 1)
        return keys(self.records[::step])[0]

    def split(self, splitters: np.ndarray) -> list[int]:
        begin = time.perf_counter()
        self.records = sorted_records(self.records)
        places = np.searchsorted(keys(self.records)[0], splitters, side="left")
        self.bounds = [0, *places.tolist(), len(self.records)]
        self.spent["sort"] += time.perf_counter() - begin
        return [end - start for start, end in zip(self.bounds, self.bounds[1:])]

    def piece(self, reducer: int) -> np.ndarray:
        return self.records[self.bounds[reducer] : self.bounds[reducer + 1]]

    def shuffle(self) -> int:
        """Writes each piece to its reducer's share; how many of them in push mode."""
        begin = time.perf_counter()
        pushed = 0
        for turn in range(len(self.bounds) - 1):
            reducer = (turn + self.number) % (len(self.bounds) - 1)
            client = self.clients[reducer % len(self.clients)]
            pushed += write_region(client, f"{self.place}/shuffle-{self.number}-{reducer}", self.piece(reducer))
        self.spent["shuffle"] += time.perf_counter() - begin
        return pushed

    def pieces(self) -> Any:
        begin = time.perf_counter()
        found = tuple(np.ascontiguousarray(self.piece(reducer)) for reducer in range(len(self.bounds) - 1))
        self.spent["shuffle"] += time.perf_counter() - begin
        return found if len(found) > 1 else found[0]

    def times(self) -> dict[str, float]:
        return self.spent


def reduce(
    number: int, shares: list[str], place: str, counts: list[int], pieces: list[Any] | None
) -> dict[str, float]:
    client = landfast.connect(shares[number % len(shares)])
    spent = {}
    begin = time.perf_counter()
    records = np.empty((sum(counts), RECORD), dtype="u1")
    offset = 0
    pushed = 0
    for mapper, count in enumerate(counts):
        into = records[offset : offset + count].reshape(-1)
        if pieces is not None:
            import ray

            into[:] = ray.get(pieces[mapper]).reshape(-1)
        elif count:
            pushed += read_region(client, f"{place}/shuffle-{mapper}-{number}", into)
        offset += count
    spent["shuffle"] = time.perf_counter() - begin
    begin = time.perf_counter()
    records = sorted_records(records)
    spent["sort"] = time.perf_counter() - begin
    begin = time.perf_counter()
    write_file(client, f"{place}/output-{number}", records)
    spent["write"] = time.perf_counter() - begin
    return spent


def run_arm(arm: str, shares: list[str], place: str, mappers: int, reducers: int) -> dict[str, Any]:
    """One sort of the input; its times in seconds."""
    import ray

    begin = time.perf_counter()
    actors = [ray.remote(Mapper).options(num_cpus=0.5).remote(number, shares, place) for number in range(mappers)]
    samples = np.sort(np.concatenate(ray.get([actor.read.remote(1000) for actor in actors])))
    splitters = samples[[len(samples) * part // reducers for part in range(1, reducers)]]
    counts = ray.get([actor.split.remote(splitters) for actor in actors])
    middle = time.perf_counter()
    pieces: Any = [[None] * reducers] * mappers
    pushed = 0
    if arm == "regions":
        pushed = sum(ray.get([actor.shuffle.remote() for actor in actors]))
    else:
        pieces = [actor.pieces.options(num_returns=reducers).remote() for actor in actors]
        pieces = [found if reducers > 1 else [found] for found in pieces]
    task = ray.remote(reduce).options(num_cpus=0.5)
    parts = [
        task.remote(
            number,
            shares,
            place,
            [count[number] for count in counts],
            None if arm == "regions" else [found[number] for found in pieces],
        )
        for number in range(reducers)
    ]
    spent: dict[str, float] = {}
    for times in ray.get(parts) + ray.get([actor.times.remote() for actor in actors]):
        for name, seconds in times.items():
            spent[name] = spent.get(name, 0.0) + seconds
    end = time.perf_counter()
    for actor in actors:
        ray.kill(actor)
    return {
        "arm": arm,
        "seconds": end - begin,
        "before_shuffle": middle - begin,
        "after_split": end - middle,
        "in_tasks": spent,
        "pushed_pieces": pushed,
        "pieces": mappers * reducers,
    }


def validate(shares: list[str], place: str, reducers: int, count: int, wanted: int) -> None:
    """Raises unless the output is the input in order."""
    clients = [landfast.connect(share) for share in shares]
    found = total = 0
    last = (0, 0)
    for number in range(reducers):
        records = read_file(clients[number % len(clients)], f"{place}/output-{number}")
        found += len(records)
        total = (total + checksum(records)) & ((1 << 64) - 1)
        if not len(records):
            continue
        high, low = keys(records)
        ordered = (high[1:] > high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] >= low[:-1]))
        if not ordered.all() or (int(high[0]), int(low[0])) < last:
            raise ValueError(f"output-{number} is not in order")
        last = (int(high[-1]), int(low[-1]))
    if (found, total) != (count, wanted):
        raise ValueError(f"{found} records with checksum {total:016x}, not {count} with {wanted:016x}")


@contextlib.contextmanager
def daemons(count: int, program: str) -> Iterator[list[str]]:
    """Servers of this host on shares in memory."""
    password = os.environ.setdefault("LANDFAST_PASSWORD", "sort-demo-only")
    started, directories, shares = [], [], []
    try:
        for _ in range(count):
            directory = tempfile.mkdtemp(prefix="landfast-sort-", dir="/dev/shm")
            directories.append(directory)
            server = subprocess.Popen(
                [program, "serve", "--share", f"data={directory}", "--user", f"sort:{password}"]
                + ["--listen", "127.0.0.1:0", "--rdma-listen", "127.0.0.1:0", "--emulate-persistence"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            started.append(server)
            assert server.stdout is not None
            for line in server.stdout:
                if line.startswith("listening "):
                    fields = dict(word.split("=") for word in line.split()[1:])
                    shares.append(f"smb://sort@{fields['smb']}/data")
                    break
            else:
                raise RuntimeError(f"{program} serve did not start")
        yield shares
    finally:
        for server in started:
            server.terminate()
        for server in started:
            server.communicate(timeout=30)
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)


def prepare(shares: list[str], place: str, mappers: int, records: int, seed: int) -> int:
    """Writes the input, in a directory of each share that is not there yet; its checksum."""
    clients = [landfast.connect(share) for share in shares]
    for client in clients:
        # Two addresses may be one share.
        with contextlib.suppress(FileExistsError):
            client.mkdir(place)
    total = 0
    for number in range(mappers):
        first, end = records * number // mappers, records * (number + 1) // mappers
        part = generate(first, end - first, seed)
        write_file(clients[number % len(clients)], f"{place}/input-{number}", part)
        total = (total + checksum(part)) & ((1 << 64) - 1)
    return total


def clean(shares: list[str], place: str, mappers: int, reducers: int) -> None:
    """Removes what a sort has made, and nothing else."""
    made = [f"input-{mapper}" for mapper in range(mappers)]
    made += [f"output-{reducer}" for reducer in range(reducers)]
    made += [f"shuffle-{mapper}-{reducer}" for mapper in range(mappers) for reducer in range(reducers)]
    for share in shares:
        with landfast.connect(share) as client, contextlib.suppress(FileNotFoundError):
            there = {entry["name"] for entry in client.list(place)}
            for name in there.intersection(made):
                client.remove(f"{place}/{name}")
            if there.issubset(made):
                client.remove(place)


def sort(shares: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    import ray

    # Drawn, so that it is nobody's.
    place = f"landfast-sort-{secrets.token_hex(8)}"
    wanted = prepare(shares, place, options.mappers, options.records, options.seed)
    environment = {"env_vars": {"LANDFAST_PASSWORD": os.environ.get("LANDFAST_PASSWORD", "")}}
    ray.init(
        address=options.ray_address,
        runtime_env=environment,
        log_to_driver=False,
        include_dashboard=False,
        **({} if options.ray_address else {"num_cpus": os.cpu_count() or 1}),
    )
    reports = []
    try:
        for _ in range(options.rounds):
            for arm in options.arms.split(","):
                report = run_arm(arm, shares, place, options.mappers, options.reducers)
                validate(shares, place, options.reducers, options.records, wanted)
                report["gigabytes"] = options.records * RECORD / 1e9
                report["gigabytes_per_minute"] = report["gigabytes"] * 60 / report["seconds"]
                report["validated"] = True
                reports.append(report)
                print(json.dumps(report), flush=True)
    finally:
        ray.shutdown()
        clean(shares, place, options.mappers, options.reducers)
    return reports


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m landfast.sort", description=__doc__.splitlines()[0])
    parser.add_argument("--share", action="append", default=[], help="smb://USER@HOST:PORT/SHARE; give each server's")
    parser.add_argument("--cluster", help="a file with one address of a share in a line")
    parser.add_argument("--daemons", type=int, default=2, help="without a share: servers of its own on this host")
    parser.add_argument("--program", default=os.environ.get("LANDFAST_SERVER", "landfast"), help="the server's program")
    parser.add_argument("--records", type=int, default=1_000_000, help="of 100 bytes each")
    parser.add_argument("--mappers", type=int, default=4)
    parser.add_argument("--reducers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--arms", default="regions,ray", help="regions, ray, or both, in turns")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ray-address", help="a cluster of Ray that runs; without it one of this host")
    options = parser.parse_args()
    shares = list(options.share)
    if options.cluster:
        with open(options.cluster) as lines:
            shares += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if shares:
        sort(shares, options)
    else:
        with daemons(options.daemons, options.program) as own:
            sort(own, options)


if __name__ == "__main__":
    main()
