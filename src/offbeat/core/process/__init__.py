"""The process that offbeat runs in: its threads, memory, signals and settings of libraries, and its end.

Training changes some of them for its time, and `caller_state` restores them.
"""
