"""Objects with a time to go: when that is, the queue of them, and the expirer that deletes what is due.

In here: `X-Delete-At` as a value, the hidden account with the queue, who works on a part of it first, the rounds. Not
in here: HTTP (the API reads headers and hides what has expired) and who runs the rounds (`swiftlet.main`). Why it is so
is in docs/design/2026-11-21-expiry.md.
"""
