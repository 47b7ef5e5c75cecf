"""Which test programs cargo has built: its messages on standard input, `name path` lines on standard output."""

import json
import sys

for line in sys.stdin:
    message = json.loads(line)
    if message["reason"] != "compiler-artifact" or not message["executable"]:
        continue
    if message["target"]["kind"] in (["test"], ["lib"]):
        print(message["target"]["name"], message["executable"])
