"""Moving containers to another storage policy: a container's phases, and passes over its objects.

What brings a container from one phase to the next, in which order its rows are looked through, and what is told of that
belong here. The move of one object, and reads and writes meanwhile (`swiftlet.placement.moving`), and the command
(`swiftlet.main`) don't. The reasons are in `docs/design/2026-11-29-policy-move.md`.
"""
