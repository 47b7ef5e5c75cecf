"""Why pods don't run: from messages of the scheduler, kubelets and controllers to a cause and the field to change.
Pure.

This package reads pods, claims, nodes, classes and events as Kubernetes writes them, and repeats in Kubernetes' words
what keeps a pod from running. What that means for the store, and reading from an API server, don't belong here. The
operator and `kubectl swiftlet` both use it, so that they say the same.

Fault model: sentences of other programs change between versions. A sentence that is not understood is repeated as it
is, with the advice that fits its source; nothing is decided by it.
"""

from swiftlet_operator.trouble.claims import waiting_claims
from swiftlet_operator.trouble.diagnosis import Diagnosis, diagnose
from swiftlet_operator.trouble.question import Question, questions
from swiftlet_operator.trouble.seen import Evidence, Part, Seen, pod_of_claim
from swiftlet_operator.trouble.words import OnItsWay, Trouble, groups, on_the_way, told

__all__ = [
    "Diagnosis",
    "Evidence",
    "OnItsWay",
    "Part",
    "Question",
    "Seen",
    "Trouble",
    "diagnose",
    "groups",
    "on_the_way",
    "pod_of_claim",
    "questions",
    "told",
    "waiting_claims",
]
