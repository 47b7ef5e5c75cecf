"""dask: lines of many objects, counted by other processes, to which the file system is pickled."""

import dask.bag
import fsspec

if __name__ == "__main__":
    store = fsspec.filesystem("swiftlet")
    store.makedirs("dask", exist_ok=True)
    store.pipe({f"dask/lines/{number}.txt": f"{number}\n".encode() * 1000 for number in range(20)})
    lines = dask.bag.read_text("swiftlet://dask/lines/*.txt")
    for scheduler in ("processes", "threads"):
        assert lines.map(int).sum().compute(scheduler=scheduler, num_workers=2) == sum(range(20)) * 1000
    written = lines.map(str.strip).to_textfiles("swiftlet://dask/out/*.txt", compute=False)
    dask.compute(*written, scheduler="processes", num_workers=2)
    assert len(store.ls("dask/out")) == 20
