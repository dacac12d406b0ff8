"""Leagues: who plays against whom in self-play, and how strong the players are. All functions here are pure.

`sides`, `plan`, `players` and `results` have the nouns. `table` counts the results, `opponents` draws from it, `turns`
says who learns. `ratings` and `standings` compare players. `average` is the policy of all snapshots together. Read
`table` first.
"""
