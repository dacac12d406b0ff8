"""The table [population] of a spec, read and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from offbeat.config.env import EVAL_KWARGS, KWARGS
from offbeat.config.keys import flat_items, leaves, setting_of
from offbeat.core.errors import ConfigError
from offbeat.core.field_definitions import hints_of
from offbeat.core.fields import Bound, Count, Name, Natural, Share, build
from offbeat.core.info_names import INFO, score_of
from offbeat.core.policy_names import DEFAULT_POLICY, policy_key
from offbeat.experiments.search import expect, refuse_duplicates
from offbeat.population.mutation import Gene, Genome
from offbeat.population.rules import ReplaceRule

RETURN = "return_mean"
"""The objective by default: the mean return of the evaluation episodes."""
TEAM_RETURN = "team_return_mean"
"""The objective that only worlds with several agents have: what all agents got together."""
EVALUATED = (RETURN, "return_min", "return_max", "return_std", "length_mean", TEAM_RETURN)
"""Numbers of `offbeat eval --json` that can be objectives."""
PARAMETERS = "curriculum"
"""Table in [population.mutate] with parameters of the env; they are set with the setting of this name."""
DISCOUNTS = ("gamma", "gae_lambda")
"""Keys that mutate as 1 - value, unless their table says otherwise."""


@dataclass(frozen=True, kw_only=True)
class PopulationSettings(ReplaceRule):
    """The keys of [population], without the tables below it."""

    members: Annotated[int, Bound(2, 1000)]
    """Number of members."""
    generation: Count
    """Env steps of one generation of one member. `steps` is a multiple of it."""
    lag: Natural = 0
    """Generations between the scores and the decisions that they lead to, d. 0: each generation waits for the scores of
    all members. With d, a member waits only if it is d generations ahead of the slowest one."""
    start: Natural = 0
    """Env steps of a member before whose end no score leads to a decision."""
    objective: Name = RETURN
    """What is compared: return_mean or another number of `offbeat eval --json`; info/NAME, a number in the env's infos
    with its name in `info_metrics`, such as info/success:last; or else a metric of training, its last value in the
    generation. Those of one policy are policies/NAME/return_mean and so on."""
    maximize: bool = True
    """Whether a higher objective is better."""
    episodes: Count = 20
    """Episodes of the evaluation at the end of each generation. Its seeds are the same for all."""
    copy_optimizer: bool = False
    """Whether a copy includes the optimizer's moments; else they start at zero."""
    mutation_rate: Share = 0.5
    """Probability with which each key of a copy is mutated."""

    @property
    def objective_of(self) -> tuple[str, str]:
        """The policy whose number the objective is, '' for that of the run; and the number."""
        match self.objective.split("/", 2):
            case ["policies", policy, number]:
                return policy, number
        return "", self.objective

    @property
    def objective_info(self) -> str:
        """The objective's name in `info_metrics`, if it is a number in the infos; else ''."""
        number = self.objective_of[1]
        return number.removeprefix(INFO) if number.startswith(INFO) else ""

    @property
    def objective_key(self) -> str:
        """The name of the objective among the numbers of an evaluation, or in the metrics lines."""
        policy, info = self.objective_of[0] or DEFAULT_POLICY, self.objective_info
        return policy_key(policy, score_of(info)) if info else self.objective

    @property
    def objective_is_evaluated(self) -> bool:
        """Whether the objective is measured on evaluation episodes, not during training."""
        return self.objective_of[1] in EVALUATED or bool(self.objective_info)

    @property
    def objective_is_of_training_evaluations(self) -> bool:
        """Whether the objective is measured by the evaluations during training."""
        return self.objective_of[1].startswith("eval_")


@dataclass(frozen=True)
class GeneTable:
    """One table of [population.mutate]."""

    low: float
    """Lowest value."""
    high: float
    """Highest value."""
    factor: tuple[float, ...] = (1.1, 1.5)
    """Smallest and largest factor of a mutation."""
    complement: bool | None = None
    """Whether 1 - value mutates; none: yes for gamma and gae_lambda."""


@dataclass(frozen=True)
class PopulationSpec:
    """The table [population]."""

    settings: PopulationSettings
    genes: Mapping[str, Gene]
    initial: Mapping[str, tuple[float, ...] | None] = field(default_factory=dict)
    """Key -> values of the members in the first generation; None: that of [settings]. Other keys are spread."""

    def genome(self, settings: Mapping[str, float]) -> Genome:
        """Return the genome; `settings` has the values of the keys that start at that of [settings]."""
        members = self.settings.members
        initial = {
            key: (settings[key],) * members if values is None else values for key, values in self.initial.items()
        }
        return Genome(self.genes, self.settings.mutation_rate, initial)


def read_population(where: str, table: Mapping[str, Any]) -> PopulationSpec:
    """Read the table [population] of a spec. `where` is the file, for messages.

    Raises:
        ConfigError: a key is unknown or missing, or a value is invalid.
    """
    plain = {key: value for key, value in table.items() if key != "mutate"}
    settings = build(PopulationSettings, plain, f"{where}, table [population]", _remedy(where))
    mutate = table.get("mutate")
    if not isinstance(mutate, dict) or not mutate:
        raise ConfigError(
            f"{where}: the population has nothing to mutate: add [population.mutate] with for example "
            "learning_rate = { low = 1e-5, high = 1e-2 }"
        )
    items = [*_flattened(where, mutate)]
    refuse_duplicates(where, "[population.mutate]", [key for key, _ in items])
    tables = dict(items)
    genes = {key: _gene(where, key, given) for key, given in tables.items()}
    known = {
        key: _initial(where, key, given["initial"], genes[key], settings.members)
        for key, given in tables.items()
        if given.get("initial", "spread") != "spread"
    }
    return PopulationSpec(settings, genes, known)


def _remedy(where: str) -> str:
    keys = ", ".join(each.name for each in fields(PopulationSettings))
    return f"correct it under [population] in {where}; its keys are {keys} and the table [population.mutate]"


def _flattened(where: str, mutate: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield key -> table, also of keys with dots, which TOML reads as tables in tables."""
    for key, given in flat_items(mutate):
        for name, table in leaves(1 if key == PARAMETERS else 0, key, given):
            setting_of(name)  # it refuses other keys of policies
            _refuse_argument(where, name)
            if not isinstance(table, dict):
                raise ConfigError(
                    f"{where}: {name} is {table!r} under [population.mutate], but a range is expected, such as "
                    f"{name} = {{ low = 1e-4, high = 1e-2 }}"
                )
            yield name, table


def _refuse_argument(where: str, key: str) -> None:
    """Refuse the key of an argument of the env's constructor."""
    if key.startswith(EVAL_KWARGS):
        why = "members are compared by their evaluations, which must be in the same env: write it under [settings]"
    elif key.startswith(KWARGS):
        name = key.removeprefix(KWARGS)
        why = (
            f"it is an argument of the env's constructor: write it under [settings], or {name} under "
            f"[population.mutate.{PARAMETERS}] if the env takes it as a parameter of a curriculum"
        )
    else:
        return
    raise ConfigError(f"{where}: {key} cannot mutate, because {why}")


def _gene(where: str, key: str, given: Mapping[str, Any]) -> Gene:
    plain = {name: value for name, value in given.items() if name != "initial"}
    for name in plain.keys() & hints_of(GeneTable):
        expect(where, f"{name} of {key}", plain[name], hints_of(GeneTable)[name])
    parts = ", ".join((*(each.name for each in fields(GeneTable)), "initial"))
    table = build(GeneTable, plain, f"{where}, [population.mutate] {key}", f"the range of a key has {parts}")
    complement = setting_of(key) in DISCOUNTS if table.complement is None else table.complement
    if not 0 < table.low < table.high or (complement and table.high >= 1):
        limit = "0 < low < high < 1" if complement else "0 < low < high"
        raise ConfigError(
            f"{where}: {key} mutates from {table.low:g} to {table.high:g}, but {limit} is expected, because values are "
            "multiplied by factors"
        )
    if len(table.factor) != 2 or not 1 < table.factor[0] <= table.factor[1]:
        raise ConfigError(
            f"{where}: factor of {key} is {list(table.factor)}, but the smallest and the largest factor are expected, "
            "both above 1, such as [1.1, 1.5]"
        )
    return Gene(table.low, table.high, (table.factor[0], table.factor[1]), complement)


def _initial(where: str, key: str, given: object, gene: Gene, members: int) -> tuple[float, ...] | None:
    if given == "settings":
        return None
    if not isinstance(given, list):
        raise ConfigError(
            f'{where}: initial of {key} is {given!r}, but "spread", "settings" or a list of {members} values, one for '
            "each member, is expected"
        )
    values: tuple[float, ...] = expect(where, f"initial of {key}", given, tuple[float, ...])
    if len(values) != members:
        raise ConfigError(
            f"{where}: initial of {key} has {len(values)} values, but there are {members} members: write one for each"
        )
    for value in values:
        require_within(where, key, value, gene)
    return values


def require_within(where: str, key: str, value: float, gene: Gene) -> None:
    """Raise ConfigError if an initial value is out of its range."""
    if not gene.low <= value <= gene.high:
        raise ConfigError(
            f"{where}: {key} starts at {value:g}, but its range is {gene.low:g} to {gene.high:g}: widen the range, or "
            "change the value"
        )
