"""Names of the files that identify the directory of an experiment, of a trial, and of a population; and of a spec."""

EXPERIMENT, TRIAL, LEDGER, SPEC = "experiment.json", "trial.toml", "population.jsonl", "spec.toml"
