"""Names of the files that identify the directory of an experiment, of a trial, and of a population."""

EXPERIMENT, TRIAL, LEDGER = "experiment.json", "trial.toml", "population.jsonl"
