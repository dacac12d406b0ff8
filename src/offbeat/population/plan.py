"""The plan of a population: its settings, checked before anything starts, and the config of each member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from offbeat.config.changes import reason_against
from offbeat.config.config import Config
from offbeat.config.env import EnvConfig
from offbeat.config.keys import ENCODER_KWARGS, POLICIES, flat, own_values, parts_of, setting_of, values_of
from offbeat.config.policies import Policies, tables_of
from offbeat.config.registry import algorithm_entry
from offbeat.config.resolve import settings_list
from offbeat.config.run_config import LIMITS, RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.unknown_keys import unknown_key
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.field_definitions import hints_of
from offbeat.core.fields import read
from offbeat.core.info_names import INFO, score_of
from offbeat.core.policy_names import DEFAULT_POLICY, policy_key
from offbeat.core.seeding import derive_seed
from offbeat.experiments.setting_types import kind_of, setting_hints
from offbeat.experiments.spec import Spec
from offbeat.experiments.spec_notation import with_place
from offbeat.experiments.trials import config_of, with_workers
from offbeat.metrics.names import METRICS
from offbeat.population.mutation import ROLE, Genome, Values, shown
from offbeat.population.settings import (
    EVALUATED,
    PARAMETERS,
    RETURN,
    TEAM_RETURN,
    PopulationSettings,
    PopulationSpec,
    read_population,
    require_within,
)


@dataclass(frozen=True)
class PopulationPlan:
    """A population, from its spec."""

    spec: Spec
    settings: PopulationSettings
    """The keys of [population], without the tables below it."""
    genome: Genome
    generations: int
    """Number of generations of each member."""

    @property
    def seed(self) -> int:
        """Seed of the population: of its decisions, its evaluations, and of the seeds of its members."""
        return self.spec.seeds[0]

    @property
    def members(self) -> int:
        return self.settings.members

    @cached_property  # each member needs them at each start, and they may be in a file that changes meanwhile
    def policies(self) -> Policies:
        """The tables [policies.NAME] of all members, without the values that mutate."""
        return _config(self.spec, self.settings, {}).policies

    @cached_property  # as the policies
    def configs(self) -> tuple[Config, ...]:
        """The config of each member in its first generation."""
        first = (self.genome.first(member, self.members, self.seed) for member in range(self.members))
        configs = (_config(self.spec, self.settings, values) for values in first)
        return tuple(config.with_run(seed=self.seed_of(member)) for member, config in enumerate(configs))

    def examples(self) -> list[tuple[Values, Config]]:
        """Return values that contain the bounds of every key, with their configs, to be checked."""
        lowest = {key: gene.low for key, gene in self.genome.genes.items()}
        values = [lowest, *({**lowest, key: gene.high} for key, gene in self.genome.genes.items())]
        return [(each, _config(self.spec, self.settings, each)) for each in values]

    def seed_of(self, member: int) -> int:
        """Return the seed of a member's run."""
        return derive_seed(self.seed, f"{ROLE}/member", member)

    def run_settings(self, values: Values) -> dict[str, Any]:
        """Return the settings of a member's run, without its seed."""
        return with_workers(_run_settings(self.spec, self.settings, values), self.configs[0])

    def changes(self, values: Values) -> dict[str, Any]:
        """Return the settings that a resume sets to give a member these values."""
        return _as_settings(self.spec.settings, values)


def _run_settings(spec: Spec, settings: PopulationSettings, values: Values) -> dict[str, Any]:
    """Return all settings of a run with these values. Each generation ends with an evaluation of its own."""
    of_run = {"eval_every": 0, **spec.settings, **_as_settings(spec.settings, values)}
    if settings.objective_is_of_training_evaluations:
        of_run = {"eval_time_share": 1.0, **of_run}  # none is skipped
    if settings.objective_info:
        names = (*_texts("info_metrics", of_run), settings.objective_info)
        of_run["info_metrics"] = tuple(dict.fromkeys(names))
    return flat(of_run)


def _as_settings(settings: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """Return values as settings: parameters of the env as one curriculum, after that of the spec."""
    given = {key: value for key, value in values.items() if not key.startswith(f"{PARAMETERS}.")}
    parameters = [f"{key.partition('.')[2]} 0:{value!r}" for key, value in values.items() if key not in given]
    return {**given, **({PARAMETERS: (*_texts(PARAMETERS, settings), *parameters)} if parameters else {})}


def _texts(key: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the items of a setting of the env that is a list of texts; none if it is not given."""
    texts: tuple[str, ...] = read(key, settings.get(key, ()), hints_of(EnvConfig)[key])
    return texts


# --- from the spec ------------------------------------------------------------------------------------------


def plan_of(spec: Spec) -> PopulationPlan:
    """Return the plan of a spec with a table [population].

    Raises:
        ConfigError: a key or value is invalid, or settings contradict each other.
    """
    _refuse_unsupported(spec)
    population = read_population(spec.where, spec.population or {})
    settings = population.settings
    _require_objective(spec, settings)
    hints = setting_hints(spec.algorithm)
    genes = {}
    for key, gene in population.genes.items():
        _require_numeric(spec, key, hints)
        whole = not key.startswith(f"{PARAMETERS}.") and kind_of(hints[setting_of(key)]) is int
        if whole and (gene.low != int(gene.low) or gene.high != int(gene.high)):
            raise ConfigError(f"{spec.where}: {key} accepts only whole numbers: its low and high must be whole numbers")
        genes[key] = replace(gene, whole=whole)
    population = replace(population, genes=genes)
    _require_values(spec, population)
    genome = population.genome(_settings_values(spec, population))
    plan = PopulationPlan(spec, settings, genome, _generations(_config(spec, settings, {}), settings, spec.where))
    for config in plan.configs:
        _require_suitable(config, settings, spec.where)
    return plan


def _refuse_unsupported(spec: Spec) -> None:
    """Refuse what belongs to an experiment, and limits that the population itself sets."""
    where = spec.where
    if len(spec.envs) > 1 or len(spec.seeds) > 1:
        raise ConfigError(f"{where}: a population has one env and one seed: write a spec for each of the others")
    if spec.search is not None:
        raise ConfigError(f"{where} has [search] and [population]: the population chooses the values; keep one table")
    if spec.target_return is not None:
        raise ConfigError(f"{where}: target_return is not supported by a population: leave it out")
    if any(key.partition(".")[0] == "league" for key in spec.settings):
        raise ConfigError(
            f"{where}: a league is not supported by a population, because its snapshots and ratings belong to the run "
            "that has played against them: leave it out"
        )
    for key in LIMITS:
        if key in spec.settings:
            raise ConfigError(f"{where}: {key} is not supported by a population, which stops its members itself")


def _require_objective(spec: Spec, settings: PopulationSettings) -> None:
    """Refuse an unknown objective. Algorithms that offbeat does not include may have metrics of their own."""
    objective, known = settings.objective, (*EVALUATED, *METRICS)
    policy, number = settings.objective_of
    if number.startswith("best_eval_"):
        remedy = objective.replace("best_eval_", "eval_")
        raise ConfigError(
            f"{spec.where}: the objective is {objective}, which can be the score of weights that a copy has replaced: "
            f"write objective = {remedy!r}"
        )
    if number.startswith(INFO):
        _require_info_name(spec, objective, number)
    path = algorithm_entry(spec.algorithm).algorithm
    own = not (isinstance(path, str) and path.startswith("offbeat."))
    if number not in known and not settings.objective_info and not own:
        raise unknown(
            "objective", objective, (policy_key(policy or DEFAULT_POLICY, name) for name in known),
            f"{spec.where}: give the name of a metric; {INFO}NAME is a number in the infos.",
        )  # fmt: skip


def _require_info_name(spec: Spec, objective: str, number: str) -> None:
    """Refuse an objective without a name in `info_metrics`, such as one with the name of its score."""
    if not all(number.split("/")):
        raise ConfigError(
            f"{spec.where}: the objective is {objective}, which lacks the name of a number in the infos: write, for "
            "example, objective = 'info/success'"
        )
    for name in _texts("info_metrics", spec.settings):
        if number == score_of(name) != INFO + name:
            remedy = objective.replace(number, INFO + name)
            raise ConfigError(
                f"{spec.where}: the objective is {objective}: write objective = {remedy!r}, the name in info_metrics"
            )


def require_measurable(plan: PopulationPlan, policies: Sequence[str], *, several_agents: bool) -> None:
    """Refuse an objective that no member will measure.

    Args:
        plan: the population.
        policies: names of the policies of each member.
        several_agents: whether the env has several agents.

    Raises:
        ConfigError: with the remedy.
    """
    where = plan.spec.where
    objective = plan.settings.objective
    policy, number = plan.settings.objective_of
    of_run = plan.settings.objective_is_evaluated or number.startswith("eval_") or policies[0] == DEFAULT_POLICY
    if policy and len(policies) == 1 and of_run:
        raise ConfigError(
            f"{where}: the objective is {objective}, but each member has one policy, whose numbers are those of the "
            f"run: write objective = {number!r}"
        )
    if policy and policy not in policies:
        raise unknown("policy", policy, policies, f"{where}: the objective is {objective}.")
    if number == TEAM_RETURN and not several_agents:
        raise ConfigError(
            f"{where}: the objective is {objective}, but the env has one agent: write objective = {RETURN!r}"
        )
    every, generation = plan.configs[0].run.evaluation_interval, plan.settings.generation
    if plan.settings.objective_is_of_training_evaluations and (not every or generation % every):
        raise ConfigError(
            f"{where}: the objective is {objective}, which only evaluations during training measure, and eval_every is "
            f"{every}, so not every generation ends with one: write eval_every = {generation} under [settings], or an "
            f"objective of the evaluation after each generation, such as {objective.replace(number, RETURN)}"
        )


def _require_numeric(spec: Spec, key: str, hints: Mapping[str, Any]) -> None:
    """Refuse a key that cannot mutate."""
    if key.startswith(f"{PARAMETERS}."):
        return
    setting = setting_of(key)
    if setting.startswith(ENCODER_KWARGS):
        raise ConfigError(
            f"{spec.where}: {key} cannot mutate, because the saved network was made with it: leave it out, or search "
            "over it"
        )
    if setting not in hints:
        remedy = f"Each key of [population.mutate] has a range; {settings_list(spec.algorithm)} shows all keys."
        raise with_place(spec.where, unknown_key(setting, None, hints, remedy))
    if kind_of(hints[setting]) not in (int, float):
        raise ConfigError(f"{spec.where}: {key} cannot mutate, because it is not a number: leave it out")


def _require_values(spec: Spec, population: PopulationSpec) -> None:
    """Refuse keys that a resume cannot change, and ranges with values that the setting does not accept."""
    lowest = {key: gene.low for key, gene in population.genes.items()}
    base = _config(spec, population.settings, {})
    for name in (text.split()[0] for text in base.env.curriculum):
        if f"{PARAMETERS}.{name}" in population.genes:
            raise ConfigError(f"{spec.where}: {name} mutates and is in {PARAMETERS} under [settings]: keep one of them")
    for key, gene in population.genes.items():
        if key.startswith(POLICIES):
            _require_learning(_config(spec, population.settings, {key: gene.low}), key, spec.where)
        reason = reason_against(base, PARAMETERS if key.startswith(f"{PARAMETERS}.") else key)
        if reason or key in {*hints_of(RunConfig), *hints_of(RuntimeConfig)}:
            or_else = ", each member has its own" if key == "seed" else ", or search over it"
            why = reason[0] if reason else "it is not a setting of the algorithm or the env"
            raise ConfigError(f"{spec.where}: {key} cannot mutate, because {why}: leave it out{or_else}")
        for value in (gene.low, gene.high):
            _config(spec, population.settings, {**lowest, key: value})


def _require_learning(config: Config, key: str, where: str) -> None:
    """Refuse a key of a policy that does not learn."""
    policy, _ = parts_of(key)
    if not config.trains(policy):
        raise ConfigError(f"{where}: {key} cannot mutate, because the policy {policy} does not learn: leave it out")


def _config(spec: Spec, settings: PopulationSettings, values: Values) -> Config:
    """Return the config of a run with these values.

    Raises:
        ConfigError: a setting is invalid.
    """
    try:
        return config_of(spec, spec.envs[0], _run_settings(spec, settings, values))
    except ConfigError as error:
        run = f"a member with {shown(values)}" if values else spec.envs[0]
        raise with_place(f"{spec.where}, {run}", error) from error


def _settings_values(spec: Spec, population: PopulationSpec) -> Values:
    """Return the values of the keys that start at their value in [settings], the preset or the defaults."""
    config = _config(spec, population.settings, {})
    own = dict(own_values(tables_of(config.policies)))
    for key in population.genes:
        if key in {*spec.settings, *own} and not (key in population.initial and population.initial[key] is None):
            place = "[settings]" if key in spec.settings else f"[policies.{parts_of(key)[0]}]"
            raise ConfigError(
                f'{spec.where}: {key} is under {place}, but mutates: write initial = "settings" in its range, or leave '
                f"it out of {place}"
            )
    wanted = [key for key, values in population.initial.items() if values is None]
    values = values_of(config)
    numbers = {}
    for key in wanted:
        value = values.get(key, values.get(setting_of(key)))  # a policy without its own value has that of the run
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{spec.where}: {key} has no number to start at: write a list of values as its initial")
        require_within(spec.where, key, value, population.genes[key])
        numbers[key] = float(value)
    return numbers


def _generations(config: Config, settings: PopulationSettings, where: str) -> int:
    steps, generation = config.run.steps, settings.generation
    if steps < 2 * generation or steps % generation:
        near = max(2, round(steps / generation)) * generation
        raise ConfigError(
            f"{where}: steps is {steps} and a generation has {generation} env steps, but steps must be a multiple of "
            f"it, two generations at least: write for example steps = {near}"
        )
    return steps // generation


def _require_suitable(config: Config, settings: PopulationSettings, where: str) -> None:
    """Refuse a generation that ends within a batch, a start that is never reached, and layouts that members measure."""
    rows = config.runtime.batch_rows
    if config.algorithm_settings.learns_from == "unrolls" and settings.generation < rows:
        raise ConfigError(
            f"{where}: a generation has {settings.generation} env steps, but one batch has {rows} rows: raise "
            "generation, or make the batch smaller"
        )
    last_scored = config.run.steps - (1 + settings.lag) * settings.generation
    if last_scored <= 0:
        raise ConfigError(
            f"{where}: lag is {settings.lag}, but there are {config.run.steps // settings.generation} generations, so "
            "no score would lead to a decision: lower it"
        )
    if settings.start > last_scored:
        raise ConfigError(
            f"{where}: start is {settings.start}, but the last scores that can lead to a decision are those after "
            f"{last_scored} env steps: lower it"
        )
    if config.runtime.split == "measured":
        raise ConfigError(
            f"{where}: each member would measure its own layout: write actors and envs_per_actor under [settings]"
        )
