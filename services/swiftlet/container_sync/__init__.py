"""Container sync: copies of containers in other clusters, Swiftlet or OpenStack Swift, over their public API.

Which clusters trust each other (realms), how their requests are signed, which containers are copied, and comparing a
container with its copy and sending what that lacks belong here. Admitting such requests, and what an object looks like
in them, is the API's; running the rounds is `swiftlet.main`'s. The reasons are in
`docs/design/2026-11-27-container-sync.md`.
"""
