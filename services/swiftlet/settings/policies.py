"""The storage policies that a process knows now: from its settings, or from a file that may grow while it runs.

Fault model: the file may be replaced at any moment, be damaged, or name a policy whose ring is missing yet. A damaged
file leaves the last good policies in force; a new policy counts once its ring can be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from swiftlet.errors import SettingsError
from swiftlet.policy_moves import Phase, PolicyMove
from swiftlet.ring.model import Coding, WriteQuorum
from swiftlet.settings.files import read_yaml
from swiftlet.settings.sections import PolicySection

_LIST = TypeAdapter(tuple[PolicySection, ...])


def check_policies(policies: Sequence[PolicySection]) -> None:
    """Check the names and indexes of policies.

    Raises ValueError unless they are unique and exactly one policy is the default, which is not deprecated.
    """
    if doubles := _doubles([policy.name.lower() for policy in policies]):
        raise ValueError(f"name {', '.join(doubles)} is given to more than one policy")
    if doubles := _doubles([str(policy.index) for policy in policies]):
        raise ValueError(f"index {', '.join(doubles)} is given to more than one policy")
    defaults = [policy.name for policy in policies if policy.default]
    if len(defaults) != 1:
        raise ValueError(f"exactly one policy must have default: true; now it is {', '.join(defaults) or 'none'}")
    if any(policy.default and policy.deprecated for policy in policies):
        raise ValueError(f"policy {defaults[0]} is the default and deprecated; make another one the default first")


def _doubles(values: Sequence[str]) -> list[str]:
    return sorted({value for value in values if values.count(value) > 1})


def read_policies(path: Path) -> tuple[PolicySection, ...]:
    """Return the policies in a YAML file that holds a list of them. Raises SettingsError that says what is wrong with
    it.
    """
    document = read_yaml(path, "policies file")
    try:
        policies = _LIST.validate_python(document)
        check_policies(policies)
    except ValidationError as error:
        raise SettingsError(f"{path}: {_described(error)}") from error
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from error
    return policies


def _described(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'policies'}: {one['msg']}" for one in error.errors())


class Policies:
    """Storage policies, readable from any thread; what `named` and `at` find changes only by `take`."""

    def __init__(self, policies: Sequence[PolicySection]) -> None:
        """Begin with these policies."""
        self._policies = tuple(policies)

    def __iter__(self) -> Iterator[PolicySection]:
        return iter(self._policies)

    @property
    def default(self) -> PolicySection:
        """Return the policy of containers created without X-Storage-Policy."""
        return next(policy for policy in self._policies if policy.default)

    def named(self, name: str) -> PolicySection | None:
        """Return the policy of that name, without regard to case."""
        return next((policy for policy in self._policies if policy.name.lower() == name.lower()), None)

    def at(self, index: int) -> PolicySection | None:
        """Return the policy of that index."""
        return next((policy for policy in self._policies if policy.index == index), None)

    def for_new(self, index: int) -> int:
        """Return the policy of a new container that should be like those of policy `index`: the default if that is
        deprecated.
        """
        policy = self.at(index)
        return self.default.index if policy is not None and policy.deprecated else index

    def name_of(self, index: int) -> str:
        """Return the name of a policy, or its number when it is not known here."""
        policy = self.at(index)
        return policy.name if policy is not None else str(index)

    def write_quorum(self, index: int) -> WriteQuorum:
        """Return what acknowledges writes of a policy; `majority` while it is not known here."""
        policy = self.at(index)
        return policy.write_quorum if policy is not None else "majority"

    def coding(self, index: int) -> Coding | None:
        """Return the erasure coding of a policy; None when its objects are whole, or it is not known here."""
        policy = self.at(index)
        return None if policy is None or policy.coding is None else policy.coding.coding

    def pack_below(self, index: int) -> int:
        """Return up to how many bytes an object of a policy with erasure coding is kept as copies; 0 for none."""
        policy = self.at(index)
        return 0 if policy is None else policy.pack_below

    def move_in_force(self, move: PolicyMove | None) -> PolicyMove | None:
        """Return a container's move if it matters for its objects.

        One that is settled does not when its source was retired: then it is proved that no object is left there. Before
        that the source can't be retired, so one that is missing from the policies is missing by mistake.
        """
        if move is not None and move.phase is Phase.SETTLED and self.at(move.source) is None:
            return None
        return move

    @property
    def of_copies(self) -> list[int]:
        """Return the indexes of the policies whose objects are whole."""
        return [policy.index for policy in self._policies if policy.coding is None]

    @property
    def coded(self) -> list[int]:
        """Return the indexes of the policies whose objects have erasure coding."""
        return [policy.index for policy in self._policies if policy.coding is not None]

    def take(self, announced: Sequence[PolicySection], usable: Callable[[int], bool]) -> bool:
        """Put those in force that are known already or `usable`, by index; return whether anything changed.

        While the new default can't be used, everything stays as it is: there is always one default. Raises
        SettingsError when the coding of one that is known has changed.
        """
        for policy in announced:
            known = self.at(policy.index)
            if known is not None and known.coding != policy.coding:
                raise SettingsError(
                    f"coding of policy {policy.name} has changed: its objects could no longer be read. Put it back, "
                    "and add another policy for new containers"
                )
        taken = tuple(policy for policy in announced if self.at(policy.index) is not None or usable(policy.index))
        if taken == self._policies or not any(policy.default for policy in taken):
            return False
        self._policies = taken
        return True
