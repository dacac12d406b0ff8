"""Memory that acting writes and learning reads: arenas, unrolls, the replay, published weights.

`arena` lays named arrays out on private or shared memory; all else lies on arenas, without locks.
Read `arena`, then `unrolls`; `replay` builds on `rings`.
"""
