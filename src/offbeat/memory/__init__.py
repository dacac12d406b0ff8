"""Memory that is shared by actors and the learner, without locks: unrolls, the replay, published weights.

`arena` has named arrays in private or shared memory. All other modules use the arrays of an arena.
Read `arena` first, then `unrolls`, `weights` and the folder `replay`.
"""
