"""Memory that is shared by actors and the learner, without locks: unrolls, the replay, published weights.

`arena` has named arrays in private or shared memory. All other modules use the arrays of an arena. `league` is
what a league shares: frozen snapshots, odds, results. `records` are read by others while one process writes them.
Read `arena` first, then `unrolls`, `weights` and the folder `replay`.
"""
