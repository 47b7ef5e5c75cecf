"""Drives sessions: asks another server's device the questions of a session, and carries out its effects."""
