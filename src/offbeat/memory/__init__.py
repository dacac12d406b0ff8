"""Memory that actors write and the learner reads: unrolls, the replay, published weights. There are no locks.

`arena` has named arrays in private or shared memory. Everything else uses the arrays of an arena.
Read `arena`, then `unrolls`; `replay` builds on `rings`.
"""
