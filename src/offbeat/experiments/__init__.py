"""Experiments: the trials of a spec file, each with one session per seed, and a report of their results.

`spec` reads the file, `search` chooses settings, `experiment` plans the sessions, `running` runs each in a process that
`launching` starts on this machine, or `ray_launcher` on a node of a Ray cluster. `pruning` ends bad trials early, by
the rule in `pruning_rule`, and `report` writes the table and the graphs.
Read `experiment` first.
"""
