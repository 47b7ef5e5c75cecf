"""pandas: CSV and Parquet by URL, with the credentials of the environment."""

import fsspec
import pandas

table = pandas.DataFrame({"number": range(10_000), "name": [f"n{number}" for number in range(10_000)]})
fsspec.filesystem("swiftlet").makedirs("pandas", exist_ok=True)
table.to_csv("swiftlet://pandas/table.csv.gz", index=False)
pandas.testing.assert_frame_equal(pandas.read_csv("swiftlet://pandas/table.csv.gz"), table)
table.to_parquet("swiftlet://pandas/table.parquet")
read = pandas.read_parquet("swiftlet://pandas/table.parquet", columns=["number"], filters=[("number", ">=", 9_000)])
assert read["number"].tolist() == list(range(9_000, 10_000))
