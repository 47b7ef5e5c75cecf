"""torch: a DataLoader with workers that are forks of a process which has used the file system, or that are new."""

from typing import Any

import fsspec
import torch
from torch.utils.data import DataLoader, Dataset

COUNT = 200


class Objects(Dataset):  # type: ignore[misc]
    """Objects of the store as samples."""

    def __init__(self) -> None:
        self.store = fsspec.filesystem("swiftlet")

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return torch.frombuffer(bytearray(self.store.cat_file(f"torch/{index}")), dtype=torch.uint8)


if __name__ == "__main__":
    objects = Objects()
    objects.store.makedirs("torch", exist_ok=True)
    objects.store.pipe({f"torch/{index}": bytes([index]) * 1000 for index in range(COUNT)})
    for method in ("fork", "spawn"):
        for _ in range(2):
            batches = DataLoader(objects, batch_size=20, num_workers=2, multiprocessing_context=method)
            seen = sorted(int(value) for batch in batches for value in batch[:, 0])
            assert seen == list(range(COUNT)), method
            assert objects.store.cat_file("torch/0") == bytes(1000)
