"""A population, from its spec to its report. A stopped or killed population is continued.

    train a generation -> keep its checkpoint -> evaluate -> ledger -> decide -> copy, mutate -> train the next one

Each arrow can be interrupted: the ledger and the run directories say what has been done.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from offbeat.config.config import Config
from offbeat.config.config_file import load_runtime
from offbeat.config.importing import defer_signals
from offbeat.core.errors import ConfigError, OffbeatError, RunFailed
from offbeat.experiments.directory import ExperimentDirectory
from offbeat.experiments.jobs import Job
from offbeat.experiments.launching import Launcher
from offbeat.experiments.progress import JobCounts, JobsView
from offbeat.experiments.running import JobOutcome, JobSchedule, Pool, StopSignals, wait_until_free
from offbeat.experiments.spec import read_spec
from offbeat.experiments.trials import Trial, try_envs, write_policies
from offbeat.population.copying import keep, with_policies_of
from offbeat.population.ledger import Decision, Failure, Ledger, Score
from offbeat.population.members import MemberJob, Scoring, Training, member_name
from offbeat.population.mutation import shown
from offbeat.population.plan import PopulationPlan, plan_of, require_measurable
from offbeat.population.report import write_report
from offbeat.population.tree import Family
from offbeat.run_directory.checkpoint import load
from offbeat.run_directory.directory import RunDirectory
from offbeat.run_directory.names import LEDGER

RESTARTS_AFTER_KILL = 3
"""Times that a job whose process was killed is started again in one generation of a member."""
_KEPT = re.compile(r"(?:\.writing-)?member-\d+-generation-(\d+)")
"""Name of a kept checkpoint, with its generation; also of one that was not written to its end."""


@dataclass(frozen=True)
class PopulationResult:
    """The result of `Population.run`."""

    exit_code: int
    """0: all members are finished; 1: a member failed and has not finished; 130: stopped by a signal."""
    failed: tuple[JobOutcome, ...]
    """Outcomes of the members that have failed and have not finished."""
    winner: Path | None
    """The run directory of the member with the best score of the last generation. None while a member that has not
    failed may still get a score, or if no member has a score of that generation."""
    score: float | None
    """Its score."""
    continued: tuple[Failure, ...] = ()
    """Failures of members after which they have continued with the next generation, also before a stop."""


class Population:
    """The members of a population, and their directory. All errors of the spec are found here, before any change.

    Args:
        spec_file: path of the spec.
        path: path of the population's directory.
        imports: modules to import first, here and in the processes of the members.
        trust_code: whether to import and call all code that the spec names, and to write through links that lead out
            of the directory.
        elsewhere: whether the members run on other machines.

    Raises:
        ConfigError: the spec is invalid, or the directory contains something else.
    """

    def __init__(
        self,
        spec_file: Path,
        path: Path,
        *,
        imports: tuple[str, ...] = (),
        trust_code: bool = False,
        elsewhere: bool = False,
    ) -> None:
        self._spec = read_spec(spec_file, imports=imports, trust_code=trust_code)
        plan = plan_of(self._spec)
        self._text = spec_file.read_bytes()
        self.directory, self.path = ExperimentDirectory(path, trust_code=trust_code), path
        self.directory.require_for(self._spec)
        self.plan = _with_started_workers(plan, path)
        _require_startable(self.plan, elsewhere=elsewhere)

    @property
    def configs(self) -> list[Config]:
        """The config of a member: those of the others need the same cores and devices."""
        return [self.plan.configs[0]]

    @property
    def total(self) -> int:
        """Number of jobs: one training and one evaluation for each generation of each member."""
        return 2 * self.plan.members * self.plan.generations

    def counts(self, ledger: Ledger) -> JobCounts:
        """Return the number of jobs of generations that have ended: both of one with a score have finished."""
        return JobCounts(self.total, 2 * len(ledger.scores), len(ledger.failures), "trainings and evaluations")

    def family(self) -> Family:
        """Return the family, from the ledger.

        Raises:
            ConfigError: the ledger is damaged.
        """
        ledger = Ledger.read(self.path / LEDGER)
        return Family(self.plan.settings, self.plan.genome, self.plan.seed, ledger)

    def finished_members(self) -> list[int]:
        """Return the members that have ended all generations."""
        ended = self.family().ledger.finished
        return [member for member in range(self.plan.members) if ended(member) == self.plan.generations]

    def known_jobs(self) -> list[Job]:
        """Return the next job of each member for which all decisions are known."""
        family = self.family()
        done = {member: family.ledger.finished(member) for member in range(self.plan.members)}
        known = {
            member: generation
            for member, generation in done.items()
            if generation < self.plan.generations
            and (generation == 0 or (member, generation - 1) in family.ledger.decisions)
        }
        return [
            _job_of_generation(self.plan, self.path, family, member, generation) for member, generation in known.items()
        ]

    def run(self, launcher: Launcher, view: JobsView) -> PopulationResult:
        """Run until all members are finished, and write the report, also after a stop.

        Args:
            launcher: starts the processes of the members.
            view: the progress view.

        Raises:
            ConfigError: another process uses the directory, or the members cannot run in it.
            RunFailed: the system starts no process, or Ray is lost.
            KeyboardInterrupt: a second signal was received; the running members were killed.
        """
        launcher.prepare(self.path, view.message)
        with self.directory.locked(), StopSignals() as stops:
            self.directory.require_for(self._spec)
            family = self.family()
            pool = Pool(launcher, view, stops, self.counts(family.ledger))
            schedule = Schedule(self.plan, self.path, family, view, pool.count)
            wait_until_free(schedule.first_jobs(), view, stops)
            self.write_files()
            view.start()
            try:
                try:
                    pool.run_from(schedule)
                except (ConfigError, RunFailed):
                    self._write_report(family, schedule, view)
                    raise
                winner = self._write_report(family, schedule, view)
            finally:
                view.close()
        failed = tuple(schedule.failed.values())
        score = None if winner is None else family.ledger.scores[winner, self.plan.generations - 1].score
        return PopulationResult(
            130 if stops.requested else 1 if failed or winner is None else 0,
            failed,
            None if winner is None else self.path / member_name(winner),
            score,
            tuple(sorted(family.ledger.failures.values(), key=lambda failure: (failure.generation, failure.member))),
        )

    def _write_report(self, family: Family, schedule: Schedule, view: JobsView) -> int | None:
        """Write the report of all results so far, and return the winner."""
        with defer_signals():  # a second signal ends the command after the report
            return write_report(self.plan, self.directory, family, view.message, schedule.failed)

    def write_files(self) -> None:
        """Write the record of the population and what its members need, before anything starts."""
        self.directory.write_record(self._spec, self._text)
        write_policies(self.plan.policies, self.path)
        for folder in ("scores", "kept"):
            (self.path / folder).mkdir(exist_ok=True)


class Schedule(JobSchedule):
    """Chooses the job that starts next, and makes the decisions between generations.

    Args:
        plan: the plan of the population.
        path: path of its directory.
        family: its members, with all that is in the ledger.
        view: the progress view.
        count: is called with the outcome of a job that could not start.
    """

    def __init__(
        self,
        plan: PopulationPlan,
        path: Path,
        family: Family,
        view: JobsView,
        count: Callable[[JobOutcome], None] = lambda _: None,
    ) -> None:
        self._plan, self._path, self._family, self._view, self._count = plan, path, family, view, count
        self._ledger = family.ledger
        self._running: set[int] = set()
        self._restarts: Counter[str] = Counter()
        self.failed: dict[int, JobOutcome] = {}
        """Outcomes of members that have failed and have not continued."""

    def first_jobs(self) -> list[Job]:
        """Return the first job of each member."""
        members = range(self._plan.members)
        return [Training(self._plan, self._path, member, 0, self._family.values(member, 0)) for member in members]

    def prepare_next(self) -> Job | None:
        """Prepare the job that starts next, and return it; None if none can. The member with the fewest generations is
        first.
        """
        while (job := self._startable()) is None and not self._running and self._continue_failed():
            pass
        return job

    def _startable(self) -> Job | None:
        idle = [m for m in range(self._plan.members) if m not in self._running and m not in self.failed]
        for member in sorted(idle, key=lambda m: (self._ledger.finished(m), m)):
            generation = self._ledger.finished(member)
            if generation == self._plan.generations:
                continue
            try:
                job = self._prepare(member, generation)
            except (OSError, OffbeatError) as error:  # a full disk, or a damaged checkpoint
                job = Training(self._plan, self._path, member, generation, {})
                self.failed[member] = JobOutcome(job, "failed", str(error))
                self._count(self.failed[member])
                continue
            if job is not None:
                self._running.add(member)
                return job
        return None

    def _continue_failed(self) -> bool:
        """Enter the failures of the members whose scores the others need now; return whether there were any.

        These members continue with the next generation. A failure is not entered before: until then, a failed member is
        tried again if the population is started again.
        """
        ended = self._ledger.finished
        waits = any(m not in self.failed and ended(m) < self._plan.generations for m in range(self._plan.members))
        if not waits or not self.failed:
            return False
        generation = min(map(ended, self.failed))
        decided = [m for m in self.failed if generation == 0 or (m, generation - 1) in self._ledger.decisions]
        continuing = [member for member in decided if ended(member) == generation]
        for member in continuing:
            outcome = self.failed.pop(member)
            reason = " ".join(outcome.reason.split())
            saved = self._run(member).saved_env_steps()
            env_steps = self._ledger.env_steps((member, generation - 1)) if saved is None else saved
            self._ledger.add(Failure(member, generation, env_steps, reason))
            self._view.message(
                f"{outcome.job.name} has failed: the others do not wait for its score any more, and it continues "
                "with the next generation"
            )
        return bool(continuing)

    def ended(self, outcome: JobOutcome) -> None:
        """Enter the score of an evaluation that has ended, or note that a member has failed."""
        job = outcome.job
        assert isinstance(job, MemberJob)
        self._running.discard(job.member)
        if outcome.state == "finished" and isinstance(job, Scoring):
            self._enter_score(job)
        elif outcome.state == "failed":
            self.failed[job.member] = outcome

    def restart(self, outcome: JobOutcome) -> bool:
        """Let a job that was killed start again, a limited number of times; return whether it does."""
        job = outcome.job
        assert isinstance(job, MemberJob)
        if not outcome.killed or self._restarts[job.name] >= RESTARTS_AFTER_KILL:
            return False
        self._restarts[job.name] += 1
        self._running.discard(job.member)
        return True

    def _enter_score(self, job: Scoring) -> None:
        try:
            score = job.score(self._ledger.env_steps((job.member, job.generation - 1)))
        except ConfigError as error:
            self.failed[job.member] = JobOutcome(job, "failed", str(error))
            self._view.message(f"{job.name} failed: {error}")
            return
        env_steps = job.run.saved_env_steps() or 0
        self._ledger.add(Score(job.member, job.generation, score, env_steps))
        self._view.message(f"{job.name}: {job.plan.settings.objective} {score:g}")
        self._drop_kept()

    # --- between generations --------------------------------------------------------------------------------

    def _prepare(self, member: int, generation: int) -> MemberJob | None:
        """Return the next job of a generation, which can start then; None if a score is missing for the decision."""
        if generation > 0 and not self._decide(member, generation):
            return None
        job = _job_of_generation(self._plan, self._path, self._family, member, generation)
        if isinstance(job, Scoring):
            keep(job.run.checkpoints_folder / "latest", self._kept(member, generation))
        return job

    def _decide(self, member: int, generation: int) -> bool:
        """Make the decision before a generation, and apply it; return False if a score is missing for it."""
        decision = self._family.decide(member, generation - 1)
        if decision is None:
            return False
        self._apply(self._entered(decision))
        return True

    def _entered(self, decision: Decision) -> Decision:
        """Enter a decision into the ledger, unless it is known; return it as it was entered."""
        if (decision.member, decision.generation) not in self._ledger.decisions:
            if decision.donor is not None and _starts_anew(self._run(decision.member), self._learned(decision)):
                decision = self._without_copy(decision)
            self._ledger.add(decision)
        return decision

    def _apply(self, decision: Decision) -> None:
        """Copy the donor's policies, unless the member has trained in its next generation already."""
        run = self._run(decision.member)
        if decision.donor is not None and (run.saved_env_steps() or 0) <= self._learned(decision):
            _require_checkpoint(run, decision.generation + 1)
            self._copy(decision)

    def _learned(self, decision: Decision) -> int:
        """Return the env steps of a member at the end of the generation after which it decides."""
        return self._ledger.env_steps((decision.member, decision.generation))

    def _without_copy(self, decision: Decision) -> Decision:
        """Return the decision of a member without a checkpoint into which it could copy: it takes the values only."""
        reason = f"{decision.reason}; without a checkpoint it copies no weights, only values"
        self._view.message(
            f"{member_name(decision.member)} has no checkpoint: it copies no weights, and starts with new ones"
        )
        return replace(decision, donor=None, donor_generation=None, reason=reason)

    def _copy(self, decision: Decision) -> None:
        """Copy the donor's policies into the member's latest checkpoint. Doing it twice gives the same checkpoint."""
        assert decision.donor is not None
        assert decision.donor_generation is not None
        run, donor = self._run(decision.member), self._run(decision.donor)
        with run.lock():
            own = run.read_checkpoint("latest", with_replay=True)
            theirs = load(self._kept(decision.donor, decision.donor_generation))
            merged = with_policies_of(own, theirs, optimizer=self._plan.settings.copy_optimizer)
            store = run.checkpoint_store(run.read_run().checkpoints_kept)
            store.save(self._learned(decision), merged, ["latest"])
        what = f"the weights of {donor.path.name} after generation {decision.donor_generation}, {decision.reason}"
        values = shown(decision.values)
        run.append_to_log(f"after generation {decision.generation} copied {what}; next: {values}")
        donor.append_to_log(f"{run.path.name} copied {what}")
        self._view.message(f"{run.path.name} copies {what}; next: {values}")

    def _run(self, member: int) -> RunDirectory:
        return RunDirectory(self._path / member_name(member))

    def _kept(self, member: int, generation: int) -> Path:
        """Return the path of the checkpoint at the end of a member's generation."""
        return self._path / "kept" / f"{member_name(member)}-generation-{generation:03}"

    def _drop_kept(self) -> None:
        """Delete the checkpoints that no decision will need: those before the slowest member's, less the lag."""
        slowest = min(self._ledger.finished(member) for member in range(self._plan.members))
        needed = slowest - 1 - self._plan.settings.lag
        for path in (self._path / "kept").iterdir():
            found = _KEPT.fullmatch(path.name)
            if found and (slowest == self._plan.generations or int(found[1]) < needed):
                shutil.rmtree(path, ignore_errors=True)


def _job_of_generation(
    plan: PopulationPlan, path: Path, family: Family, member: int, generation: int
) -> Training | Scoring:
    """Return the next job of a member's generation: its training, or else its evaluation.

    Raises:
        ConfigError: the checkpoint with which it has finished the generation before is missing.
    """
    values = family.values(member, generation)
    training = Training(plan, path, member, generation, values)
    if not _starts_anew(training.run, family.ledger.env_steps((member, generation - 1))):
        _require_checkpoint(training.run, generation)
    if training.status() != "finished":
        return training
    return Scoring(plan, path, member, generation, values)


def _starts_anew(run: RunDirectory, learned: int) -> bool:
    """Whether a member has no checkpoint, and has never had one of something that it had `learned`, in env steps."""
    return not learned and run.saved_env_steps() is None


def _require_checkpoint(run: RunDirectory, generation: int) -> None:
    """Raise ConfigError if the checkpoint from which a generation after the first continues is missing."""
    if run.saved_env_steps() is None:
        raise ConfigError(
            f"{run.path} has no checkpoint, from which {run.path.name} generation {generation} continues: restore the "
            "directory, or pass another --dir"
        )


def _with_started_workers(plan: PopulationPlan, path: Path) -> PopulationPlan:
    """Return a plan with the number of workers of a member that has saved, if the spec does not give it.

    The member may have started on a machine with another number of cores.
    """
    spec = plan.spec
    if "workers" in spec.settings or not plan.configs[0].runtime.entry.workers_learn:
        return plan
    runs = [RunDirectory(path / member_name(member)) for member in range(plan.members)]
    for config in (run.config_file for run in runs if run.saved_env_steps() is not None):
        try:
            workers = load_runtime(config).workers
        except ConfigError:  # the file is damaged: only this member cannot continue
            continue
        return plan_of(replace(spec, settings={**spec.settings, "workers": workers}))
    return plan


def _require_startable(plan: PopulationPlan, *, elsewhere: bool) -> None:
    """Take a few steps in the env, with the bounds of all values, and refuse what could not start.

    Raises:
        ConfigError: the env fails, or does not suit the settings or the objective.
    """
    examples = [
        Trial(number, plan.spec.envs[0], {key: _without_zeros(value) for key, value in values.items()}, {}, config)
        for number, (values, config) in enumerate(plan.examples())
    ]
    tested = try_envs(examples, plan.spec, kind="member", elsewhere=elsewhere)[0]
    require_measurable(plan, tuple(tested.policies), several_agents=tested.world is not None)


def _without_zeros(value: float) -> float:
    """Return a whole number as an integer, for messages."""
    return int(value) if value.is_integer() else value
