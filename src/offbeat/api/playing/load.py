"""Loads trained policies of a run as functions; see `LoadedPolicy`. The algorithm is not needed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from offbeat.api.hub.download import is_published, published_folder
from offbeat.api.playing.critic import Critic
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.trained import Trained
from offbeat.config.arguments import checked
from offbeat.config.importing import import_modules, is_accepted
from offbeat.config.registry import ENCODERS, OUR_ENCODERS, EncoderFactory, name_encoder
from offbeat.config.trust import TRUST_FLAG, Code, require
from offbeat.core.argument_notation import for_reader, printable
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.fields import build, in_short
from offbeat.core.files import GivenPath
from offbeat.core.policy_names import DEFAULT_POLICY, policy_key
from offbeat.core.process.caller_state import caller_state
from offbeat.core.types import Tree
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.models.published import published_layout, published_vector
from offbeat.models.spec import PolicySpec
from offbeat.models.spec_file import read_spec
from offbeat.run_directory.checkpoint import POLICY, WEIGHTS, Checkpoint
from offbeat.run_directory.checkpoint import load as read_checkpoint
from offbeat.run_directory.directory import RunDirectory
from offbeat.run_directory.store import LATEST


@checked
@caller_state()
def load(
    run: GivenPath,
    checkpoint: str = LATEST,
    *,
    policy: str | None = None,
    snapshot: int | None = None,
    encoder: EncoderFactory | None = None,
    trust_code: bool = False,
) -> LoadedPolicy:
    """Load a policy of a run, or one that `offbeat push` has uploaded to the Hugging Face hub.

    The only code that runs is offbeat's own, and that of encoders that are registered or passed: see SECURITY.md.

    Args:
        run: a run directory or a `Run`; or the string "hf://USER/NAME", or a folder with the files that are there.
        checkpoint: latest, best or step-<12 digits>. A policy of the hub has only one, and no other is named.
        policy: name of the policy; None: the only one of the run.
        snapshot: id of a snapshot of the run's league, instead of a checkpoint. Those of the window are on disk, or all
            with `league.keep_all`.
        encoder: the class or function that creates the policy's encoder, if the encoder is your own.
        trust_code: import and call all code that the run names. Use it only for your own runs. The code is listed on
            stderr first.

    Raises:
        ConfigError: the run, checkpoint, snapshot or policy does not exist, is damaged, or names code that was refused;
            or the run has several policies, and none is chosen; or a checkpoint of the hub is named.
    """
    if snapshot is not None:
        saved, code = _read_snapshot(run, checkpoint, policy, snapshot, trust_code=trust_code)
    else:
        saved, code = _read(run, checkpoint, trust_code=trust_code)
    return loaded_from(saved, os.fspath(run), code, encoder, trust_code, policy=policy)


@checked
@caller_state()
def load_all(run: GivenPath, checkpoint: str = LATEST, *, trust_code: bool = False) -> dict[str, LoadedPolicy]:
    """Load all policies of a run, by name. The single policy of a run has the name 'default'.

    Args:
        run: as for `load`.
        checkpoint: as for `load`.
        trust_code: as for `load`.

    Raises:
        ConfigError: as `load`.
    """
    saved, code = _read(run, checkpoint, trust_code=trust_code)
    return _all_loaded_from(saved, os.fspath(run), code, trust_code)


def _read(run: GivenPath, checkpoint: str, *, trust_code: bool) -> tuple[Checkpoint, Code]:
    """Return a checkpoint of a run or of the hub, and the modules that the run names."""
    if is_published(run):
        if checkpoint != LATEST:
            raise ConfigError(f"checkpoint is {checkpoint!r}, but {run} has only one: leave --checkpoint out")
        return read_checkpoint(published_folder(run), with_state=False), Code()
    directory = RunDirectory.open(run, trust_code=trust_code)
    saved = directory.read_checkpoint(checkpoint, with_state=False)
    return saved, Code(imports=directory.read_run().imports)


def _read_snapshot(
    run: GivenPath, checkpoint: str, policy: str | None, number: int, *, trust_code: bool
) -> tuple[Checkpoint, Code]:
    """Return a snapshot of a run's league as a checkpoint, and the modules that the run names."""
    if is_published(run):
        raise ConfigError(f"snapshot is {number}, but {run} has no snapshots: leave it out")
    if checkpoint != LATEST:
        raise ConfigError(f"both the checkpoint {checkpoint} of {run} and the snapshot {number} are given: choose one")
    directory = RunDirectory.open(run, trust_code=trust_code)
    names = directory.snapshot_store().policies or [DEFAULT_POLICY]
    chosen = chosen_policy(names, policy, f"the league of {run}")
    return directory.read_snapshot(chosen, number), Code(imports=directory.read_run().imports)


def load_for_env(run: Path, name: str, *, trust_code: bool = False) -> tuple[Checkpoint, dict[str, LoadedPolicy]]:
    """Load all policies of a run, and import the modules that register its env, to run episodes.

    Returns:
        The checkpoint and its policies, by name.

    Raises:
        ConfigError: as `load`; or the env is code that was refused.
    """
    directory = RunDirectory.open(run, trust_code=trust_code)
    saved, code = directory.read_checkpoint(name, with_state=False), directory.code().to_play()
    require(code, os.fspath(run), trust_code=trust_code)
    import_modules(code.imports)
    policies = _all_loaded_from(saved, os.fspath(run), code, trust_code)
    for loaded in policies.values():
        require(loaded.trained.env_code, os.fspath(run))
    return saved, policies


def _all_loaded_from(saved: Checkpoint, where: str, code: Code, trust_code: bool) -> dict[str, LoadedPolicy]:
    """Return all policies of a checkpoint, by name. The arguments are those of `loaded_from`."""
    return {name: loaded_from(saved, where, code, trust_code=trust_code, policy=name) for name in saved.policies}


def loaded_from(
    saved: Checkpoint,
    where: str,
    code: Code,
    encoder: EncoderFactory | None = None,
    trust_code: bool = False,
    *,
    policy: str | None = None,
) -> LoadedPolicy:
    """Return a policy of a checkpoint.

    Args:
        saved: the checkpoint.
        where: the run, for messages.
        code: other code that the run names.
        encoder: as for `load`.
        trust_code: as for `load`.
        policy: as for `load`.

    Raises:
        ConfigError: as `load`.
    """
    name = chosen_policy(saved.policies, policy, where)
    data = dict(saved.policies[name].about)
    spec = read_spec(data.pop("policy", None))
    trained = build(
        Trained,
        data,
        f"{where}, {policy_key(name, POLICY)}",
        "the file was changed, or was written by another version of offbeat",
    )
    if (spec.context_encoder is None) != (trained.trials is None):
        raise ConfigError(
            f"{where} has a context encoder without trials, or trials without a context encoder: its policy.json was "
            "changed, or is of another version of offbeat. Pass another --checkpoint, or copy the run again"
        )
    if trust_code:
        require(replace(trained.env_code, imports=code.imports, encoders=(spec.encoder,)), where, trust_code=True)
        import_modules(code.imports)
    spec = _with_encoder(spec, where, code, encoder)
    weights = saved.policies[name].weights
    policy_with_weights = policy_of(spec, weights, f"{where}, {policy_key(name, WEIGHTS)}")
    return LoadedPolicy(policy_with_weights, trained, Critic(policy_with_weights, weights))


def chosen_policy(names: Iterable[str], chosen: str | None, where: str) -> str:
    """Return the name of the chosen policy; None chooses the only one.

    Args:
        names: the policies of the run.
        chosen: the name that the user has given.
        where: the run, for messages.

    Raises:
        ConfigError: there is no such policy, or there are several and none is chosen.
    """
    names = list(names)
    if chosen is None and len(names) > 1:
        raise ConfigError(f"{where} has the policies {', '.join(names)}: choose one with --policy NAME")
    if chosen is not None and chosen not in names:
        raise unknown("policy", chosen, names, f"{where} has {', '.join(names)}.")
    return names[0] if chosen is None else chosen


def _with_encoder(spec: PolicySpec, where: str, code: Code, encoder: EncoderFactory | None) -> PolicySpec:
    """Return the spec with an accepted encoder.

    Raises:
        ConfigError: the encoder is code that was refused, or `encoder` is given for one that offbeat includes.
    """
    if encoder is not None:
        if spec.encoder in OUR_ENCODERS:
            raise ConfigError(
                f"encoder is given, but the policy of {where} has offbeat's encoder {spec.encoder}: leave it out"
            )
        return replace(spec, encoder=name_encoder(spec.encoder, encoder))
    require(Code(encoders=(spec.encoder,)), where)
    if ":" not in spec.encoder and spec.encoder not in (*OUR_ENCODERS, *ENCODERS):
        _register(spec.encoder, where, code.imports)
    return spec


def _register(encoder: str, where: str, modules: tuple[str, ...]) -> None:
    """Import the modules that a run names, of which one may register its encoder.

    Raises:
        ConfigError: the caller has not named one of them. That it is installed is not enough: the file would choose it.
    """
    if unnamed := [module for module in modules if not is_accepted(module)]:
        named = for_reader("pass --import with them", "import them before")
        raise ConfigError(
            f"{where} has the encoder {printable(encoder)}, which is not registered, and would import "
            f"{printable(', '.join(unnamed))}, which may register it. Nothing was imported. If you know this code, "
            f"{named}, or pass {TRUST_FLAG}. offbeat.load takes encoder=MyEncoder."
        )
    import_modules(modules)


def policy_of(spec: PolicySpec, weights: Tree, where: str = "weights") -> ActingPolicy:
    """Return the policy with the weights of a checkpoint. Arrays that the policy does not need are ignored.

    Args:
        spec: the policy.
        weights: arrays by name.
        where: the file of the weights, for messages.

    Raises:
        ConfigError: the shapes of the weights are not those of the spec. They are checked before memory is allocated.
    """
    for entry in published_layout(spec).entries:
        if entry.name not in weights or weights[entry.name].shape != entry.shape:
            found = f"the shape {weights[entry.name].shape}" if entry.name in weights else "no array"
            raise ConfigError(
                f"{where} has {found} for {in_short(entry.name)}, but the policy needs the shape {entry.shape}: one "
                "of the files was changed. Pass another --checkpoint, or copy the run again"
            )
    policy = make_policy(spec)
    policy.load(published_vector(spec, weights))
    return policy
