"""The sort of landfast.sort: its records, its validator, and the whole of it where Ray is installed."""

import argparse
import os

import numpy
import pytest

from landfast import sort


def test_a_record_has_the_layout_of_gensort():
    record = bytes(sort.generate(0xABC, 1, 1)[0])
    assert len(record) == 100
    assert record[10:12] == b"\x00\x11" and record[44:48] == b"\x88\x99\xaa\xbb" and record[96:] == b"\xcc\xdd\xee\xff"
    assert record[12:44] == b"%032X" % 0xABC
    assert (sort.generate(0xABC, 1, 1) == sort.generate(0xABC, 1, 1)).all()
    assert (sort.generate(0xABC, 1, 1)[0, :10] != sort.generate(0xABC, 1, 2)[0, :10]).any()


def test_records_are_sorted_by_all_ten_bytes_of_their_keys():
    records = sort.generate(0, 5000, 1)
    records[::2, :9] = records[0, :9]
    found = [bytes(record[:10]) for record in sort.sorted_records(records)]
    assert found == sorted(bytes(record[:10]) for record in records)


def test_the_validator_finds_disorder_loss_and_changed_bytes(client, server):
    shares = [server.url]
    client.mkdir("sort")
    records = sort.sorted_records(sort.generate(0, 1000, 1))
    wanted = sort.checksum(records)
    assert sort.checksum(records[::-1]) == wanted

    def judged(first, second):
        for number, part in enumerate((first, second)):
            sort.write_file(client, f"sort/output-{number}", part)
        sort.validate(shares, "sort", 2, 1000, wanted)

    judged(records[:300], records[300:])
    with pytest.raises(ValueError, match="not in order"):
        judged(records[300:], records[:300])
    with pytest.raises(ValueError, match="not in order"):
        judged(records[:300], records[300:][::-1])
    with pytest.raises(ValueError, match="999 records"):
        judged(records[:300], records[301:])
    changed = records.copy()
    changed[17, 60] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        judged(changed[:300], changed[300:])
    sort.clean(shares, "sort", 0, 2)
    assert "sort" not in [entry["name"] for entry in client.list()]


def test_a_sort_removes_what_it_made_and_nothing_else(client, server):
    shares = [server.url, server.url]
    client.mkdir("sort")
    with client.open("sort/thesis.txt", "wb") as file:
        file.write_at(0, b"my thesis")
    sort.prepare(shares, "sort", 3, 1000, 1)
    sort.clean(shares, "sort", 3, 2)
    assert [entry["name"] for entry in client.list("sort")] == ["thesis.txt"]
    client.remove("sort/thesis.txt")
    client.remove("sort")
    sort.prepare(shares, "drawn", 3, 1000, 1)
    sort.clean(shares, "drawn", 3, 2)
    sort.clean(shares, "drawn", 3, 2)
    assert "drawn" not in [entry["name"] for entry in client.list()]


def test_pieces_travel_through_regions(client):
    records = sort.generate(0, 30_000, 1)
    assert sort.write_region(client, "piece", records)
    back = numpy.empty(records.size, dtype="u1")
    assert sort.read_region(client, "piece", back)
    assert (back == records.reshape(-1)).all()
    client.remove("piece")


def test_ray_sorts_by_both_arms():
    pytest.importorskip("ray")
    options = argparse.Namespace(
        records=20_000, mappers=2, reducers=3, rounds=1, arms="regions,ray", seed=1, ray_address=None
    )
    with sort.daemons(2, os.environ["LANDFAST_SERVER"]) as shares:
        regions, control = sort.sort(shares, options)
    assert regions["validated"] and regions["pushed_pieces"] == 6
    assert control["validated"] and control["arm"] == "ray"
