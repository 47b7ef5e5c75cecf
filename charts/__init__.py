"""The Helm charts, and what makes and tests them. Charts are data; nothing here runs in a cluster."""
