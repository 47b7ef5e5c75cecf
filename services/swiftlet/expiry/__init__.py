"""Objects that expire: when they do, the queue of them, and the expirer that deletes those that are due.

`X-Delete-At` as a value, the hidden account with the queue, the order in which nodes work on a part of it, and the
rounds belong here. HTTP (the API reads headers and hides what has expired) and running the rounds (`swiftlet.main`)
don't. The reasons are in `docs/design/2026-11-21-expiry.md`.
"""
