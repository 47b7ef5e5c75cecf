"""The wide-area lab: regions in network namespaces, joined by links with delay, rate, queue and faults."""
