"""Names of the files that identify the directory of an experiment, of a trial, and of a population; and of a spec.

They are here because plots read these directories, and may not import experiments and populations.
"""

EXPERIMENT, TRIAL, LEDGER, SPEC = "experiment.json", "trial.toml", "population.jsonl", "spec.toml"
