"""Limits of accounts and containers: what they are.

In here: the quota file and the limits that it gives an account. Not in here: usage, where the file comes from (in
Kubernetes the operator writes it from a StorageQuota), and refusing requests.
"""

from swiftlet.quota.limits import Limits, Quotas
from swiftlet.quota.parse import parse_quotas
from swiftlet.quota.reload import QuotaFile

__all__ = ["Limits", "QuotaFile", "Quotas", "parse_quotas"]
