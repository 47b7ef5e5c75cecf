"""The Protocols between a caller and a storage device, one module for each.

One call is one request to one device; choosing devices, quorums and retries is the caller's. Every call ends
within the transport's timeouts, by an answer or by an error of `swiftlet.errors`: NodeUnreachable, NodeTimeout,
NodeBusy, NodeError for the node's own trouble (try another one), the others for what the device decided.
The current request id travels with every call (`swiftlet.context.request_id`).
"""
