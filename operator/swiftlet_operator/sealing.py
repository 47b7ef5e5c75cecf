"""Keys encrypted to recipients, as files of the age format, and recovery keys that open them.

The content is a Secret as JSON, so that a person with an identity gets it back with two standard programs:
`age --decrypt -i key.txt FILE | kubectl apply -f -`. Anybody can encrypt to a public key, so the Secret has an
annotation with a message authentication code that only the owner of the recovery key can make: the operator accepts
what it has sealed itself, and nothing that somebody else put on a volume.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyrage

from swiftlet_operator.manifests import GROUP, Manifest, annotations_of
from swiftlet_operator.problems import SealError

SEAL = f"{GROUP}/seal"
"""Annotation within the sealed Secret: its message authentication code."""
GENERATION = f"{GROUP}/sealed-generation"
"""Annotation within the sealed Secret: of two copies the one with the higher number is newer."""
MAX_SEALED_BYTES = 32 * 1024
"""The largest size in bytes of a sealed copy; servers store none that is larger."""
MAX_IDENTITIES = 16
MAGIC = b"age-encryption.org/v1\n"
_NAME = re.compile(r"([0-9a-f]{8})-([0-9]{1,12})\.age")
_MAC_PURPOSE = b"swiftlet sealed keys v1"


@dataclass(frozen=True, slots=True, repr=False)
class RecoveryKeys:
    """The operator's identities: the first one seals, all open."""

    identities: tuple[str, ...]

    @property
    def recipient(self) -> str:
        """Return the public key that the operator seals to."""
        return public_key(self.identities[0])

    def mac(self, content: bytes) -> str:
        """Return the message authentication code of `content` by the first identity."""
        return _mac(self.identities[0], content)

    def made(self, content: bytes, code: str) -> bool:
        """Return whether one of the identities has made the code for these bytes."""
        return any(hmac.compare_digest(_mac(one, content), code) for one in self.identities)


def new_identity() -> str:
    """Return a new age identity."""
    return str(pyrage.x25519.Identity.generate())


def public_key(identity: str) -> str:
    """Return the recipient that an identity opens for. Raises SealError when it is not an identity."""
    try:
        return str(pyrage.x25519.Identity.from_str(identity).to_public())
    except pyrage.IdentityError as error:
        raise SealError(f"not an identity of age (AGE-SECRET-KEY-1...): {error}") from error


def parse_identities(text: str) -> tuple[str, ...]:
    """Return the identities of a file as `age-keygen` writes it, one per line. Raises SealError for an invalid line."""
    lines = [line.strip() for line in text.splitlines()]
    found = tuple(dict.fromkeys(line for line in lines if line and not line.startswith("#")))
    if not found:
        raise SealError("there is no identity of age in it (a line AGE-SECRET-KEY-1...)")
    if len(found) > MAX_IDENTITIES:
        raise SealError(f"it has {len(found)} identities, at most {MAX_IDENTITIES} are read")
    for one in found:
        public_key(one)
    return found


def wrong_recipients(recipients: Sequence[str]) -> list[str]:
    """Return the recipients that age does not accept, mostly because of a typing error."""
    return [one for one in recipients if _recipient(one) is None]


def encrypt(content: bytes, recipients: Sequence[str]) -> bytes:
    """Return bytes that the owners of these recipients can open. Raises SealError for an invalid recipient."""
    known = [_recipient(one) for one in recipients]
    if None in known or not known:
        raise SealError(f"not a recipient of age (age1...): {', '.join(wrong_recipients(recipients)) or 'none given'}")
    sealed: bytes = pyrage.encrypt(content, known)
    return sealed


def decrypt(sealed: bytes, identities: Sequence[str]) -> bytes:
    """Return the decrypted bytes. Raises SealError when no identity opens them, or they are damaged."""
    try:
        content: bytes = pyrage.decrypt(sealed, [pyrage.x25519.Identity.from_str(one) for one in identities])
    except (pyrage.DecryptError, pyrage.IdentityError) as error:
        raise SealError(f"it can't be opened: {error}") from error
    return content


def encrypt_with_passphrase(content: bytes, passphrase: str) -> bytes:
    """Return bytes that the passphrase opens."""
    sealed: bytes = pyrage.passphrase.encrypt(content, passphrase)
    return sealed


def decrypt_with_passphrase(sealed: bytes, passphrase: str) -> bytes:
    """Return the decrypted bytes. Raises SealError when the passphrase is wrong, or the bytes are damaged."""
    try:
        content: bytes = pyrage.passphrase.decrypt(sealed, passphrase)
    except pyrage.DecryptError as error:
        raise SealError(f"it can't be opened: {error}") from error
    return content


def seal_secret(secret: Manifest, keys: RecoveryKeys, more_recipients: Sequence[str] = ()) -> bytes:
    """Return a Secret sealed to the recovery key and others."""
    notes = {**annotations_of(secret), SEAL: keys.mac(_canonical(secret))}
    marked = {**secret, "metadata": {**secret["metadata"], "annotations": notes}}
    return encrypt(json.dumps(marked, indent=1).encode() + b"\n", [keys.recipient, *more_recipients])


def open_secret(sealed: bytes, keys: RecoveryKeys) -> Manifest:
    """Return the Secret that was sealed. Raises SealError when it can't be opened, or the operator has not
    sealed it.
    """
    if len(sealed) > MAX_SEALED_BYTES:
        raise SealError(f"it is larger than {MAX_SEALED_BYTES} bytes")
    secret = read_secret(decrypt(sealed, keys.identities))
    notes = annotations_of(secret)
    code = str(notes.pop(SEAL, ""))
    if not keys.made(_canonical(secret), code):
        raise SealError("it was not sealed by this operator")
    return secret


def read_secret(content: bytes) -> Manifest:
    """Return the Secret in decrypted bytes, with the code in its annotations. Raises SealError when there is none."""
    try:
        secret = json.loads(content)
        metadata = secret["metadata"]
        if secret["kind"] != "Secret" or not all(isinstance(metadata[key], str) for key in ("name", "namespace")):
            raise SealError("what was sealed is no Secret")
        texts = {**metadata["annotations"], **secret["data"]}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SealError(f"what was sealed is no Secret: {error!r}") from error
    if not all(isinstance(one, str) for one in texts.values()):
        raise SealError("what was sealed is no Secret: it has entries that are no texts")
    assert isinstance(secret, dict)
    return secret


def copy_name(suffix_id: str, generation: int) -> str:
    """Return the name of a sealed copy's file."""
    return f"{suffix_id}-{generation}.age"


def parse_copy_name(name: str) -> tuple[str, int] | None:
    """Return fingerprint of the suffix and generation; None for a name that is no copy's."""
    match = _NAME.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def _recipient(text: str) -> Any:
    try:
        return pyrage.x25519.Recipient.from_str(text)
    except pyrage.RecipientError:
        return None


def _mac(identity: str, content: bytes) -> str:
    key = hmac.digest(identity.encode(), _MAC_PURPOSE, hashlib.sha256)
    return hmac.new(key, content, hashlib.sha256).hexdigest()


def _canonical(secret: Manifest) -> bytes:
    return json.dumps(secret, sort_keys=True, separators=(",", ":")).encode()
