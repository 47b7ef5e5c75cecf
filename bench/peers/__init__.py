"""OpenStack Swift's daemons beside ours, in one run on one machine."""
