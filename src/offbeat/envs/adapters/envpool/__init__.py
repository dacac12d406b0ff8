"""The adapter of EnvPool: `adapter` makes its pools the columns of an actor. `pool_of_one` is a pool with one env."""
