"""zarr: an array in chunks, which it reads and writes asynchronously, and a part of it."""

import fsspec
import numpy
import zarr

fsspec.filesystem("swiftlet").makedirs("zarr", exist_ok=True)
values = numpy.arange(1_000_000).reshape(1000, 1000)
array = zarr.create_array(
    "swiftlet://zarr/array.zarr", shape=values.shape, chunks=(100, 100), dtype=values.dtype, overwrite=True
)
array[:] = values
opened = zarr.open_array("swiftlet://zarr/array.zarr", mode="r+")
assert (opened[:] == values).all()
opened[150:250, 10] = 0
again = zarr.open_array("swiftlet://zarr/array.zarr", mode="r")
assert (again[150:250, 10] == 0).all()
assert (again[149, :] == values[149, :]).all()
group = zarr.open_group("swiftlet://zarr/group.zarr", mode="w")
group.create_array("inner", data=values[:10])
assert sorted(zarr.open_group("swiftlet://zarr/group.zarr", mode="r").array_keys()) == ["inner"]
