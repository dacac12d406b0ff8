"""What follows from the ledger of a population: the next decision of a member, its values, and the family tree."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from offbeat.core.errors import ConfigError
from offbeat.core.fields import in_short
from offbeat.core.seeding import stream
from offbeat.population.ledger import Decision, Ledger
from offbeat.population.mutation import ROLE, Genome, Values
from offbeat.population.rules import FAILED, donor_of, ranking
from offbeat.population.settings import PopulationSettings

Node = tuple[int, int]
"""A member and its generation."""


@dataclass(frozen=True)
class Family:
    """The members of a population over the generations: all that follows from the settings, the seed and the ledger.

    Raises:
        ConfigError: the ledger has other members or other keys than the population.
    """

    settings: PopulationSettings
    genome: Genome
    seed: int
    ledger: Ledger

    def __post_init__(self) -> None:
        members, keys = self.settings.members, sorted(self.genome.genes)
        for member, generation in (*self.ledger.scores, *self.ledger.failures):
            if member >= members:
                raise self._changed(
                    f"has a generation {generation} of member {member}, but there are {members} members"
                )
        for (member, generation), decision in self.ledger.decisions.items():
            if sorted(decision.values) != keys:
                raise self._changed(
                    f"has a decision of member {member} after generation {generation} with values of "
                    f"{in_short(sorted(decision.values))}, but {', '.join(keys) or 'no keys'} are mutated"
                )

    def _changed(self, what: str) -> ConfigError:
        return ConfigError(f"{self.ledger.path} {what}: it was changed. Restore it, or pass another --dir")

    # --- decisions ------------------------------------------------------------------------------------------

    def decide(self, member: int, generation: int) -> Decision | None:
        """Return the decision of a member at the end of a generation; None if scores that it needs are missing.

        The random numbers are those of (seed, "pbt", member, generation), so timing does not change a decision.
        """
        if (known := self.ledger.decisions.get((member, generation))) is not None:
            return known
        scored = generation - self.settings.lag
        if scored < 0:
            return self._keep(member, generation, "no scores yet")
        scores = self.scores(scored)
        if scores is None:
            return None
        newer = any(end >= scored for end in self.ledger.copied(member))  # it would be replaced for its old weights
        if newer or scored < self._start:
            reason = "its weights are newer than the scores" if newer else "before the start"
            return self._keep(member, generation, reason)
        if scores[member] == FAILED:
            scores[member] = self._score_since(member, scored, generation)
        random = stream(self.seed, ROLE, member, generation)
        donor = donor_of(self.settings, member, scores, float(random.random()))
        if donor is None:
            return self._keep(member, generation, "no member is far enough ahead, or it is not among the worst")
        values = self.genome.mutated(self.values(donor, scored), random)
        own = "it has failed," if scores[member] == FAILED else f"score {self._shown(scores[member])}"
        return Decision(member, generation, donor, scored, f"{own} against score {self._shown(scores[donor])}", values)

    def _keep(self, member: int, generation: int, reason: str) -> Decision:
        return Decision(member, generation, None, None, reason, self.values(member, generation))

    def scores(self, generation: int, failed: Collection[int] = ()) -> list[float] | None:
        """Return the scores of a generation, higher is better, and `FAILED` of members that have failed.

        None if one is missing. `failed`: as for `Ledger.scores_of`.
        """
        scores = self.ledger.scores_of(generation, self.settings.members, failed)
        if scores is None:
            return None
        return [FAILED if score is None else self._sign * score for score in scores]

    def _score_since(self, member: int, failed: int, generation: int) -> float:
        """Return the newest score of a member after a generation in which it has failed, up to another; or `FAILED`.

        With a lag, it may have finished generations since then: this score is that of its present weights.
        """
        since = (self.ledger.scores.get((member, each)) for each in range(generation, failed, -1))
        return next((self._sign * each.score for each in since if each is not None), FAILED)

    def _shown(self, score: float) -> str:
        return f"{self._sign * score:g}"

    @property
    def _sign(self) -> int:
        """The factor with which a higher objective is better."""
        return 1 if self.settings.maximize else -1

    @property
    def _start(self) -> int:
        """The first generation whose scores may lead to a decision."""
        return max(0, -(-self.settings.start // self.settings.generation) - 1)

    # --- the tree -------------------------------------------------------------------------------------------

    def values(self, member: int, generation: int) -> Values:
        """Return the values with which a member trains in a generation; the decision before it must be known."""
        if generation == 0:
            return self.genome.first(member, self.settings.members, self.seed)
        return self.ledger.decisions[member, generation - 1].values

    def parent(self, node: Node) -> Node | None:
        """Return the node whose weights a member had at the start of a generation; None in the first generation."""
        member, generation = node
        if generation == 0:
            return None
        decision = self.ledger.decisions[member, generation - 1]
        if decision.donor is None or decision.donor_generation is None:
            return member, generation - 1
        return decision.donor, decision.donor_generation

    def lineage(self, node: Node) -> list[Node]:
        """Return the nodes from the first generation to a node along which its weights were trained."""
        nodes = [node]
        while (parent := self.parent(nodes[0])) is not None:
            nodes.insert(0, parent)
        return nodes

    def winner(self, generation: int, failed: Collection[int] = ()) -> int | None:
        """Return the member with the best score of a generation; None if a score is missing, or all have failed."""
        scores = self.scores(generation, failed)
        return None if scores is None or max(scores) == FAILED else ranking(scores)[0]
