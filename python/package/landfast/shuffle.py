"""A shuffle through a region of a striped store: all offsets follow from the sizes, so that nobody asks anybody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._landfast import Buffer, StoreRegion


class ShufflePlan:
    """Where each run lies: ``sizes[mapper][reducer]``, in bytes. The runs of a reducer lie together, by mapper."""

    def __init__(self, sizes: Sequence[Sequence[int]]) -> None:
        reducers = len(sizes[0]) if sizes else 0
        if any(len(row) != reducers for row in sizes) or any(size < 0 for row in sizes for size in row):
            raise ValueError("sizes[mapper][reducer] are lengths, with as many reducers for each mapper")
        self.mappers = len(sizes)
        by_reducer = (row[reducer] for reducer in range(reducers) for row in sizes)
        self._begins = [0, *accumulate(by_reducer)]

    @property
    def region_size(self) -> int:
        """The bytes that a region needs for it."""
        return self._begins[-1]

    def run(self, mapper: int, reducer: int) -> tuple[int, int]:
        """Where a run lies: offset and length."""
        if not 0 <= mapper < self.mappers:
            raise ValueError(f"there is no mapper {mapper}")
        at = reducer * self.mappers + mapper
        return self._begins[at], self._begins[at + 1] - self._begins[at]

    def partition(self, reducer: int) -> tuple[int, int]:
        """Where all runs of a reducer lie: offset and length."""
        begin, end = self._begins[reducer * self.mappers], self._begins[(reducer + 1) * self.mappers]
        return begin, end - begin

    def write(self, region: StoreRegion, mapper: int, runs: Iterable[tuple[int, Buffer]]) -> None:
        """Writes runs of a mapper, pairs of a reducer and its bytes, all at once and one-sidedly."""
        writes = []
        for reducer, data in runs:
            offset, length = self.run(mapper, reducer)
            found = memoryview(data).nbytes  # type: ignore[arg-type]
            if found != length:
                raise ValueError(f"the run for reducer {reducer} has {found} bytes, and the plan says {length}")
            writes.append((offset, data))
        region.write_many(writes)

    def read(self, region: StoreRegion, reducer: int) -> bytes:
        """All runs of a reducer, in the order of the mappers."""
        return region.read(*self.partition(reducer))
