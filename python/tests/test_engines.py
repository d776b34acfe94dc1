"""What pandas, pyarrow and Dask make of addresses; each is skipped where it is not installed."""

import numpy
import pytest


@pytest.fixture
def address(server):
    return f"landfast://tester@{server.address}/data"


def test_pandas_writes_and_reads_csv_and_parquet(address):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"number": numpy.arange(1000), "text": [f"row {i}" for i in range(1000)]})
    table.to_csv(f"{address}/table.csv", index=False)
    assert pandas.read_csv(f"{address}/table.csv").equals(table)
    pytest.importorskip("pyarrow")
    table.to_parquet(f"{address}/table.parquet")
    assert pandas.read_parquet(f"{address}/table.parquet", columns=["number"])["number"].sum() == 499500


def test_pyarrow_writes_and_scans_a_data_set(address):
    pyarrow = pytest.importorskip("pyarrow")
    import fsspec
    import pyarrow.dataset
    import pyarrow.fs

    fs, path = fsspec.core.url_to_fs(f"{address}/set")
    arrow = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))
    table = pyarrow.table({"key": [i % 3 for i in range(300)], "value": list(range(300))})
    pyarrow.dataset.write_dataset(table, path, format="parquet", partitioning=["key"], filesystem=arrow)
    found = pyarrow.dataset.dataset(path, format="parquet", partitioning=["key"], filesystem=arrow)
    assert sorted(found.to_table(filter=pyarrow.dataset.field("key") == 1)["value"].to_pylist()) == list(range(1, 300, 3))


def test_dask_reads_pieces_of_many_files(address):
    dataframe = pytest.importorskip("dask.dataframe")
    import fsspec

    fs, path = fsspec.core.url_to_fs(f"{address}/pieces")
    fs.makedirs(path, exist_ok=True)
    for part in range(4):
        fs.pipe(f"{path}/{part}.csv", b"x\n" + b"".join(b"%d\n" % (part * 100 + i) for i in range(100)))
    assert dataframe.read_csv(f"{address}/pieces/*.csv")["x"].sum().compute() == sum(range(400))
