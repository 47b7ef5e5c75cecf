"""How services talk to storage devices on other nodes.

The implementations of the boundaries, their messages and signatures belong here. Which device to ask (`placement`),
what the device does with a request (`store`, `listing`), and the clients' HTTP don't.
"""
