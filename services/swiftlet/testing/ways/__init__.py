"""Ways of a client to a store: an in-memory twin with faults, and the suite that every way has to pass."""
