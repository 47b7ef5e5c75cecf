"""Makes a plan's files: directories, secrets, users, settings. `rings` makes the rings.

Existing files are kept: a second start changes ports and options, never secrets or data. Every file with a secret is
readable by its owner only, and files appear whole or not at all.
"""

from __future__ import annotations

import errno
import json
import os
import secrets as random_secrets
import shutil
import tempfile
from pathlib import Path
from typing import Any

import yaml

from swiftlet.errors import SettingsError
from swiftlet.main.commands.standalone.plan import Layout, Options, Plan, Secrets

DEFAULT_USER = "test:tester"
MIN_FREE_BYTES = 256 * 1024 * 1024
"""With less free space the object servers would refuse the first upload, so the store does not start."""


def make_directories(layout: Layout) -> None:
    """Make all directories of the layout. Raises SettingsError when they can't be made or the disk is full."""
    try:
        for directory in (layout.data, layout.etc, layout.rings, layout.devices, layout.log, layout.sockets):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=layout.data) as probe:
            probe.write(b"x" * 4096)
    except OSError as error:
        raise _unusable(layout.data, error) from error
    free = shutil.disk_usage(layout.data).free
    if free < MIN_FREE_BYTES:
        raise SettingsError(
            f"only {free // 1_000_000} MB are free for {layout.data}; make room for at least "
            f"{MIN_FREE_BYTES // 1_000_000} MB or choose another place with --data"
        )


def _unusable(data: Path, error: OSError) -> SettingsError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SettingsError(f"the disk of {data} is full; make room or choose another place with --data")
    where = error.filename or data
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return SettingsError(f"{where} can't be written ({error.strerror}); change its owner or choose another --data")
    return SettingsError(f"{where} can't be used for data: {error.strerror}; choose another place with --data")


def load_or_make_secrets(layout: Layout, options: Options) -> Secrets:
    """Return the data directory's secrets, which the first start makes; options for user and key replace
    and are kept.
    """
    known = _read_secrets(layout.secrets)
    user = options.user or known.get("user") or DEFAULT_USER
    _check_user(user)
    same_user = user == known.get("user", user)
    secrets = Secrets(
        hash_path_suffix=known.get("hash_path_suffix") or random_secrets.token_hex(16),
        cluster_key=known.get("cluster_key") or random_secrets.token_hex(32),
        user=user,
        key=options.key or (known.get("key") if same_user else None) or random_secrets.token_urlsafe(18),
    )
    if "hash_path_suffix" not in known and any(layout.devices.iterdir()):
        raise SettingsError(
            f"{layout.devices} holds data, but {layout.secrets} is missing, without which the data can't be found; "
            "put the file back or start with an empty --data"
        )
    wanted = {name: getattr(secrets, name) for name in Secrets.__dataclass_fields__}
    if wanted != known:
        write_file(layout.secrets, json.dumps(wanted, indent=2) + "\n")
    write_file(layout.key_file, secrets.cluster_key + "\n")
    return secrets


def _read_secrets(path: Path) -> dict[str, str]:
    try:
        known = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} can't be read: {error}") from error
    if not isinstance(known, dict) or not all(isinstance(value, str) for value in known.values()):
        raise SettingsError(f"{path} must hold a JSON object whose values are strings")
    return known


def known_policies(layout: Layout) -> list[str]:
    """Return the store's policies as `--policies` has them, in the order of their indexes; none before the first
    start.
    """
    try:
        known = json.loads(layout.policies.read_text())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise SettingsError(f"{layout.policies} can't be read: {error}") from error
    if not isinstance(known, list) or not all(isinstance(name, str) for name in known):
        raise SettingsError(f"{layout.policies} must hold a JSON list of strings")
    return known


def write_policies(plan: Plan) -> None:
    """Store the policies, as their objects have only the indexes."""
    write_file(plan.layout.policies, json.dumps([str(policy) for policy in plan.policies]) + "\n")


def _check_user(user: str) -> None:
    account, colon, name = user.partition(":")
    if not (account and colon and name) or set(user) & set("/ ") or user.count(":") != 1:
        raise SettingsError(f"--user {user!r} must be ACCOUNT:USER such as {DEFAULT_USER}, without '/' and spaces")


def write_users(layout: Layout, secrets: Secrets) -> None:
    """Make the user an admin with the secret; other users in the file stay as they are."""
    account, _, name = secrets.user.partition(":")
    users = _read_users(layout.users)
    mine = next((one for one in users if (one.get("account"), one.get("user")) == (account, name)), None)
    if mine is not None and _matches(str(mine.get("secret_hash")), secrets.key):
        return
    from swiftlet.auth.users import hash_secret

    if mine is None:
        mine = {"account": account, "user": name, "roles": ["admin"]}
        users.append(mine)
    mine["secret_hash"] = hash_secret(secrets.key)
    write_file(layout.users, yaml.safe_dump(users, sort_keys=False))


def _read_users(path: Path) -> list[dict[str, Any]]:
    try:
        users = yaml.safe_load(path.read_text()) or []
    except FileNotFoundError:
        return []
    except (OSError, yaml.YAMLError) as error:
        raise SettingsError(f"{path} can't be read: {error}") from error
    if not isinstance(users, list) or not all(isinstance(one, dict) for one in users):
        raise SettingsError(f"{path} must hold a list of users")
    return users


def _matches(secret_hash: str, secret: str) -> bool:
    from argon2 import PasswordHasher
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return PasswordHasher().verify(secret_hash, secret)
    except (VerificationError, InvalidHashError):
        return False


def write_settings(plan: Plan) -> None:
    """Write one settings file per service, and make the directories of the devices."""
    for device in (*plan.object_devices, *plan.container_devices):
        (plan.layout.devices / device.name).mkdir(mode=0o700, exist_ok=True)
    for service in plan.services:
        head = f"# Written by `swiftlet standalone` at each start; settings of `swiftlet {service.kind}`.\n"
        write_file(service.config, head + yaml.safe_dump(service.settings, sort_keys=False))


def write_file(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _unusable(path.parent, error) from error
