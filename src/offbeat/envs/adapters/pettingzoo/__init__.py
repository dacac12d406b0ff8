"""The adapter of PettingZoo: envs with several agents, which act at the same time or by turns.

`adapter` makes worlds from ids and `sources` finds the env of an id. `parallel` and `turns` implement the world
contract (`offbeat.envs.worlds.contract`) for the two APIs of PettingZoo, and `kinds` finds out which API an env has.
`snapshots` saves the state of envs of your own. Read `parallel` first. Only `sources` imports PettingZoo: an env of
your own needs its methods, and not the package.
"""
