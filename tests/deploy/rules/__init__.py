"""What a schema does not say of rendered manifests: the Restricted profile of Pod Security, and
that names, ports, paths, memory, times and GPUs of different objects fit each other. A rule is
a generator over documents; it yields one line per violation: where, what, and what is wanted.
"""

from rules import claims, network, pods, server

RULES = pods.RULES + network.RULES + server.RULES + claims.RULES


def violations(documents):
    return [line for rule in RULES for line in rule(documents)]
