"""Envs: one contract of rows, adapters that implement it for each library of envs, and checks.

`contract` defines what every adapter provides, `make` makes envs from an id, `registration` finds and registers ids.
`worlds/` has envs with several agents, `checking/` finds faults of an env, `testing/` has envs for tests, `meta/` envs
with tasks. Read `contract` first, then `adapters/gymnasium`.
"""

from offbeat.envs.requirements import require_gymnasium

require_gymnasium()  # before any module here imports it, and fails without saying why
