"""Ray: the connection to a cluster, for everything that runs on one.

`cluster` connects to a cluster, or starts Ray on this machine, and checks that its nodes suit the work.
"""
