"""Trained policies as functions, and episodes that are played with them.

`load` and `snapshots` load the policies of a run as `loaded_policy` defines them; `critic` gives their values, and
`policy_distribution` their probabilities. `policies_to_play` finds them and their env for `offbeat.evaluate` and
`offbeat.watch`, `scoring` and `shown_episodes` play them. `entrants` and `game_sets` are those of a match. Read
`loaded_policy` first.
"""
