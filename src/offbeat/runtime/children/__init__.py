"""Child processes of a run: how they start and end, and what notices that one died or hangs.

`launch` is what a child gets, `child_main` what it runs, `child` how its parent sees it. `supervised` finds workers
that are lost, and `supervisor` restarts them. Read `child` first.
"""
