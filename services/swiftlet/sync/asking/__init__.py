"""Driving a session: asking another server's device the session's questions and carrying out what they lead to."""
