"""The pitfalls that a StorageCluster falls into, each with the reason and the field to change.

Most are those that operators of OpenStack Swift have found by measuring: weak proxies, an overloaded balancer, too many
and too few proxies, too few disks, two replicas, slow databases, and sumo nodes (pods that serve the API and store
objects) in the wrong places. Each check is pure and looks at one of them. With a load a check says what that needs;
without one it can only compare the cluster's parts with each other, and says less.

What is looked at and found (`subject`), checks by what they are about (`replicas`, `proxies`, `storage`), and the list
of them all (`checks`) belong here.
"""
