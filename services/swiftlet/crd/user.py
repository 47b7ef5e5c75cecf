"""The spec of a StorageUser, who may log in."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from swiftlet.crd.base import NamedRef, SecretKey, SecretKeyRef, View

UserRole = Literal["admin", "user", "reader", "reseller_admin"]
LoginPart = Annotated[str, Field(pattern=r"^[^:/\s]+$", max_length=128)]


class UserSecretRef(SecretKeyRef):
    """The Secret that holds the user's key."""

    key: SecretKey = "key"


class StorageUserSpec(View):
    """One user of a cluster."""

    cluster_ref: NamedRef
    account: LoginPart
    user: LoginPart
    roles: Annotated[tuple[UserRole, ...], Field(min_length=1, max_length=4)] = ("user",)
    secret_ref: UserSecretRef | None = None

    @property
    def login(self) -> str:
        """`account:user`, as clients send it in X-Auth-User."""
        return f"{self.account}:{self.user}"
