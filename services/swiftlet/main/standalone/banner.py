"""What a person reads once the store is up."""

from __future__ import annotations

from swiftlet.main.standalone.plan import Plan


def banner(plan: Plan, seconds: float) -> str:
    """Where the store is, how to use it right away, where its data and logs are, how to stop it."""
    user, key = plan.secrets.user, plan.secrets.key
    storage = f"{plan.endpoint}/v1/AUTH_{user.partition(':')[0]}"
    return f"""
Swiftlet is up after {seconds:.1f} s: an object store with {len(plan.object_devices)} devices in as many zones.

  endpoint   {plan.endpoint}
  auth URL   {plan.auth_url}
  user       {user}
  key        {key}

With curl:
  TOKEN=$(curl -si {plan.auth_url} -H 'X-Auth-User: {user}' -H 'X-Auth-Key: {key}' \\
    | tr -d '\\r' | awk 'tolower($1) == "x-auth-token:" {{print $2}}')
  curl -i -X PUT {storage}/photos -H "X-Auth-Token: $TOKEN"
  curl -i -X PUT {storage}/photos/hello.txt -H "X-Auth-Token: $TOKEN" -d 'hello, world'
  curl {storage}/photos/hello.txt -H "X-Auth-Token: $TOKEN"

With the swift client:
  swift -A {plan.auth_url} -U {user} -K {key} upload photos README.md
  swift -A {plan.auth_url} -U {user} -K {key} list photos

  data       {plan.layout.data}
  logs       {plan.layout.log}/*.log
  metrics    {plan.metrics_url}
  stop       Ctrl-C here, or `swiftlet standalone --stop --data {plan.layout.data}`
"""
