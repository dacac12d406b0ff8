"""Experiments: a spec file is run as trials of sessions, in processes of their own, with a table and graphs.

`spec` reads the file, `search` draws settings, `experiment` plans the sessions and `running` runs them.
Read `experiment` first.
"""
