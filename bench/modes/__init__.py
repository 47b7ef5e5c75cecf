"""How fast objects come and go through the proxies (M1) and directly to and from the devices (M2)."""
