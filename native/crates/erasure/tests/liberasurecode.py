"""Print what liberasurecode makes of known data, for every scheme: `liberasurecode.txt`, with which a test compares.

python -m pip install pyeclib xxhash, in an environment of its own; ISA-L, which makes these bytes, is in its wheel.
"""

import pyeclib.ec_iface
import xxhash

CELL_BYTES = 64
# What liberasurecode writes before a fragment's bytes.
HEADER_BYTES = 80


def known_bytes(count: int) -> bytes:
    """The same bytes that the test makes."""
    state, made = 0, bytearray()
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        made.append(state >> 56)
    return bytes(made)


def parity(data: int, parities: int) -> bytes:
    """The parity cells of `data` known cells, one after another."""
    driver = pyeclib.ec_iface.ECDriver(k=data, m=parities, ec_type="isa_l_rs_cauchy")
    known = known_bytes(data * CELL_BYTES)
    fragments = [fragment[HEADER_BYTES:] for fragment in driver.encode(known)]
    if b"".join(fragments[:data]) != known:
        raise ValueError(f"{data}+{parities}: data fragments are not the data")
    return b"".join(fragments[data:])


for k in range(2, 17):
    for m in range(1, 9):
        print(k, m, xxhash.xxh3_64_hexdigest(parity(k, m)))
