"""Populations: members that train side by side, copy the weights of better members, and mutate settings (PBT).

`settings` is the table [population], `rules` and `mutation` are the pure decisions, `ledger` has what was measured and
decided, and `tree` what follows from it. `copying` copies weights between checkpoints; `population` runs it all.
Read `rules` first, then `population`.
"""
