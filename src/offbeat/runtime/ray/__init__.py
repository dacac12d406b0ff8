"""Ray: actors, evaluations and matches on a cluster.

`connecting` connects to a cluster, or starts Ray on this machine; `cluster` is the connection, and checks the nodes.
Read `acting` first, then `dispatcher`, `proxy` and `remote_actor`. `tasks` is for evaluations and matches.
"""
