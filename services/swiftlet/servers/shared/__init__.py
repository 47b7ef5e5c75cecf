"""What object servers and container servers have in common: JSON requests, sockets, pauses, sync answers."""
