"""What clients notice while something of a store is broken: modes, phases, and how long until all copies are back.

Modes as users write them and those that ship (`modes`, `shipped/`), commands of a shell (`commands`), what breaks and
mends while the load goes on (`hand`), phases as results (`phases`), pictures (`pictures`), and whether a store on this
machine is whole (`whole`) belong here. Stores that benchmarks start themselves are broken by the same hand.
"""
