"""pyarrow: a dataset in partitions, written and read by threads, and a filter that reads only some of them."""

import fsspec
import pyarrow
import pyarrow.dataset
import pyarrow.fs

store = fsspec.filesystem("swiftlet")
store.makedirs("arrow", exist_ok=True)
filesystem = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(store))
table = pyarrow.table({"part": [number % 5 for number in range(50_000)], "value": list(range(50_000))})
pyarrow.dataset.write_dataset(
    table,
    "arrow/set",
    filesystem=filesystem,
    format="parquet",
    partitioning=["part"],
    existing_data_behavior="delete_matching",
)
dataset = pyarrow.dataset.dataset("arrow/set", filesystem=filesystem, format="parquet", partitioning=["part"])
assert len(dataset.files) == 5
assert dataset.count_rows() == 50_000
found = dataset.to_table(filter=pyarrow.dataset.field("part") == 3)
assert sorted(found["value"].to_pylist()) == list(range(3, 50_000, 5))
assert filesystem.get_file_info("arrow/none").type == pyarrow.fs.FileType.NotFound
with filesystem.open_output_stream("arrow/stream") as stream:
    stream.write(b"x" * 10_000_000)
with filesystem.open_input_file("arrow/stream") as file:
    file.seek(9_999_990)
    assert file.read() == b"x" * 10
