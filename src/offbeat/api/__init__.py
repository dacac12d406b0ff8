"""The functions that Python users and the command line call: one module each, but those that load policies
(`playing/`).

`running/` starts, continues and runs a run, `callbacks/` calls the user's callbacks in it, `playing/` has the trained
policies as functions and what plays episodes with them, `hub/` shares them. Read `train.py` and `resume.py` first.
"""
