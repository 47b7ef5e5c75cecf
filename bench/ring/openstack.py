"""Put OpenStack Swift's own ring builder through the scenario; run by the Python it is installed for.

    python openstack.py DIRECTORY

Reads `scenario.json` from the directory (see run.py, which writes it). Writes `tables.bin` (every assignment table
in turn, 16 bits per slot) and `steps.json`: per step its title and per rebalance the CPU seconds, the devices, and
the lengths of the table's rows.
"""

import json
import os
import sys
import time
from typing import Any

from swift.common.ring import RingBuilder  # type: ignore[import-not-found]


def _add(builder: Any, zone: int, node: int, device: int, weight: float) -> None:
    builder.add_dev(
        {
            "region": 1,
            "zone": zone,
            "ip": f"10.0.{zone}.{node}",
            "port": 6200,
            "device": f"d{device}",
            "weight": weight,
        }
    )


def _apply(builder: Any, kind: str, values: Any) -> None:
    if kind == "add":
        _add(builder, *values)
    elif kind == "remove":
        builder.remove_dev(*values)
    elif kind == "weight":
        builder.set_dev_weight(*values)
    else:
        builder.set_replicas(*values)


def main() -> None:
    directory = sys.argv[1]
    with open(os.path.join(directory, "scenario.json")) as file:
        scenario = json.load(file)
    builder = RingBuilder(scenario["part_power"], scenario["replicas"], 1)
    builder.set_overload(scenario["overload"])
    report: list[dict[str, Any]] = []
    with open(os.path.join(directory, "tables.bin"), "wb") as tables:
        for title, actions in scenario["steps"]:
            for kind, values in actions:
                _apply(builder, kind, values)
            runs = []
            for _ in range(scenario["max_rebalances"]):
                builder.pretend_min_part_hours_passed()
                begin = time.process_time()
                changed, _, _ = builder.rebalance(seed=7)
                seconds = time.process_time() - begin
                ring = builder.get_ring()
                rows = ring._replica2part2dev_id
                for row in rows:
                    tables.write(row.tobytes())
                runs.append({"cpu_s": seconds, "rows": [len(row) for row in rows], "devices": ring.devs})
                if not changed or not report:
                    break
            report.append({"title": title, "runs": runs})
    with open(os.path.join(directory, "steps.json"), "w") as file:
        json.dump(report, file)


if __name__ == "__main__":
    main()
