"""A trained policy, from a run to a function: the normaliser is included, and no algorithm is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from offbeat.config.env import UNSET, EnvConfig
from offbeat.config.registry import ENCODERS, EncoderFactory, import_modules, name_encoder
from offbeat.config.trust import Code, require
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Counter, Name, build, in_short
from offbeat.core.types import INFO_MASK, Array, Leaf, Tree
from offbeat.envs.actions import action_encoder, split_columns
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.models.published import published_layout, published_vector
from offbeat.models.spec import ENCODERS as OUR_ENCODERS
from offbeat.models.spec import PolicySpec
from offbeat.models.stacks import Stacks
from offbeat.run_directory.checkpoint import MANIFEST, POLICY, WEIGHTS, Checkpoint
from offbeat.run_directory.checkpoint import load as read_checkpoint
from offbeat.run_directory.directory import RunDirectory

HUB = "hf://"
"""What the name of a policy on the Hugging Face hub begins with."""


@dataclass(frozen=True)
class Trained:
    """What a policy was trained on, and how far."""

    env: Name
    algorithm: Name
    env_steps: Counter
    learning_step: Counter
    updates: Counter
    env_config: EnvConfig = UNSET
    """How the env was played."""
    eval_return_mean: float | None = None
    """Mean return of the evaluation for which it was saved as the best."""


class LoadedPolicy:
    """Call it with an observation, or a batch of them, to get the action to hand to the env.

    With a recurrent core, or stacks of frames, it remembers what it was called with: `reset` lets it forget, where an
    episode begins.
    """

    def __init__(self, policy: ActingPolicy, trained: Trained) -> None:
        self.policy = policy
        self.trained = trained
        self._encode = action_encoder(policy.spec.action)
        self.reset()

    def reset(self, ended: Any = None) -> None:
        """Begin a new episode: in every env, or where `ended`, [N] bool, is true."""
        if ended is None:
            self._memory: _Memory | None = None
        elif self._memory is not None:
            self._memory.forget(np.asarray(ended, bool))

    @property
    def remembers(self) -> bool:
        """Whether an action depends on earlier calls."""
        spec = self.policy.spec
        return spec.recurrent or any(leaf.stack > 1 for leaf in spec.observation)

    def __call__(self, observation: Any, *, action_mask: Any = None, random: np.random.Generator | None = None) -> Any:
        """Choose an action.

        Args:
            observation: as the env gives it, for one env or for N: an array, or dicts and tuples of arrays.
            action_mask: what the env's info has under this name, where the policy was trained with it.
            random: sample with this generator; None takes the most likely action.

        Returns:
            The action of one env as it accepts it (an int for Discrete), or that of N: [N, *shape], in the dicts and
            tuples of the env.

        Raises:
            ValueError: the observation or the mask is not of the shape that the policy was trained on.
        """
        leaves, single = self.leaves(observation, action_mask)
        memory = self._remembered(len(next(iter(leaves.values()))))
        seen, state, policy = memory.seen(leaves), memory.state, self.policy
        action = policy.greedy(seen, state) if random is None else policy.act(seen, random, state).action
        spec = self.policy.spec.action
        chosen = self.encode(action)
        return _single(next(iter(split_columns(spec, chosen)))) if single else chosen

    def leaves(self, observation: Any, action_mask: Any = None) -> tuple[Tree, bool]:
        """Return the leaves that the policy is given, [N, *shape], and whether the observation was that of one env.

        Arguments and errors are those of a call.
        """
        return self._as_stored({**self._found(observation), INFO_MASK: action_mask})

    def encode(self, action: Array) -> Any:
        """Return N actions as the env accepts them, for what the policy gave: [N, *shape], in its dicts and tuples."""
        return self._encode(self.policy.to_env(action))

    def _remembered(self, envs: int) -> _Memory:
        """Return what is remembered of so many envs: as the last call left it, nothing in the first."""
        memory = self._memory
        if memory is None or not (self.remembers or len(memory.state) == envs):
            memory = self._memory = _Memory(self.policy.spec, envs)
        if len(memory.state) != envs:
            raise ValueError(
                f"{envs} observations, but the policy remembers {len(memory.state)} envs: call begin() before others"
            )
        return memory

    def _found(self, observation: Any) -> Tree:
        """Return the parts of an observation by the names of leaves."""
        return dict(named("observation", observation, {leaf.name for leaf in self.policy.spec.observation}))

    def _as_stored(self, given: Mapping[str, Any]) -> tuple[Tree, bool]:
        """Return the leaves with a column axis, and whether that axis was added here."""
        leaves, single = {}, False
        for leaf in self.policy.spec.observation:
            if given.get(leaf.name) is None:
                raise ValueError(_lacks(leaf, given))
            array = np.asarray(given[leaf.name])
            single = array.shape == leaf.shape
            if not single and array.shape[1:] != leaf.shape:
                raise ValueError(
                    f"{leaf.name} has shape {array.shape}, but {leaf.shape} or (N, *{leaf.shape}) is expected"
                )
            leaves[leaf.name] = _as_stored(leaf, array[None] if single else array)
        return leaves, single


class _Memory:
    """What a policy remembers of N envs between calls."""

    def __init__(self, spec: PolicySpec, envs: int) -> None:
        self.state = np.zeros((envs, spec.state_size), np.float32)
        self._stacks, self._begins = Stacks(spec.observation, envs), np.ones(envs, np.bool_)

    def forget(self, ended: Array) -> None:
        """Let other episodes begin with the next observations, where `ended`, [N]."""
        self.state[ended] = 0
        self._begins[ended] = True

    def seen(self, leaves: Tree) -> Tree:
        """Return the next observations as the policy sees them."""
        self._stacks.push(leaves, self._begins)
        self._begins[:] = False
        return self._stacks.seen(leaves)


def named(name: str, tree: Any, leaves: AbstractSet[str] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Yield what is found in dicts and tuples of any depth, by name; what is under the name of a leaf as it is."""
    if name in leaves or not isinstance(tree, Mapping | tuple | list):
        yield name, tree
        return
    for key, part in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
        yield from named(f"{name}/{key}", part, leaves)


def _lacks(leaf: Leaf, given: Mapping[str, Any]) -> str:
    if leaf.name == INFO_MASK:
        return "this policy chooses among allowed actions: pass action_mask=info['action_mask'], as the env gave it"
    key = leaf.name.partition("/")[2]
    there = (name.partition("/")[2] for name, part in given.items() if part is not None)
    return f"the observation lacks {key!r}: it has {', '.join(map(repr, there))}"


def _as_stored(leaf: Leaf, values: Array) -> Array:
    """Return values [N, *shape] as they are kept in training."""
    if leaf.is_mask:
        allowed: Array = values != 0
        return allowed
    if not leaf.choices:
        _require_whole(leaf, values)
        return values.astype(leaf.dtype, copy=False)
    numbers: Array = values - np.array(leaf.start).reshape(leaf.shape) if leaf.start else values
    if ((numbers < 0) | (numbers >= np.array(leaf.choices).reshape(leaf.shape))).any():
        raise ValueError(f"{leaf.name} is {values.tolist()}, which is not one of the choices that the policy knows")
    return numbers.astype(leaf.dtype, copy=False)


def _require_whole(leaf: Leaf, values: Array) -> None:
    """Refuse what would become other numbers where whole ones are kept, such as pixels from 0 to 1."""
    if values.dtype == leaf.dtype or np.dtype(leaf.dtype).kind not in "iu":
        return
    limits = np.iinfo(leaf.dtype)
    if values.dtype.kind not in "iub" or (values < limits.min).any() or (values > limits.max).any():
        raise ValueError(
            f"{leaf.name} has {values.dtype} numbers from {values.min()} to {values.max()}, but whole ones from "
            f"{limits.min} to {limits.max} are expected, as the env gave them: pass them as {leaf.dtype}"
        )


def _single(action: Any) -> Any:
    """Return one env's action, with Python's own numbers for choices."""
    if isinstance(action, dict):
        return {key: _single(part) for key, part in action.items()}
    if isinstance(action, tuple):
        return tuple(_single(part) for part in action)
    return action.copy() if isinstance(action, np.ndarray) else action.item()


def load(
    run: Path | str, name: str = "latest", *, encoder: EncoderFactory | None = None, trust_code: bool = False
) -> LoadedPolicy:
    """Load the policy of a run, or one that `offbeat push` put on the Hugging Face hub.

    No code runs but offbeat's own, and encoders that this process has registered or was given: see SECURITY.md.

    Args:
        run: a run directory; or, as text, "hf://USER/NAME".
        name: latest, best or step-<12 digits>. On the hub there is one alone.
        encoder: what makes the policy's encoder, where it is one of your own: the class, or a function.
        trust_code: import and call whatever the run names: for one's own runs. It is said on stderr before.

    Raises:
        ConfigError: there is no such run or checkpoint, it is damaged, or it names code that was refused.
    """
    if isinstance(run, str) and run.startswith(HUB):
        return loaded_from(read_checkpoint(_downloaded(run.removeprefix(HUB))), run, Code(), encoder, trust_code)
    directory = RunDirectory.open(Path(run), trust_code=trust_code)
    code = Code(imports=directory.read_run().imports)
    return loaded_from(directory.read_checkpoint(name), str(run), code, encoder, trust_code)


def load_to_play(run: Path, name: str, *, trust_code: bool = False) -> tuple[Checkpoint, LoadedPolicy]:
    """Load a run's policy to play it: what its env is registered by is imported too. As `load`.

    Returns:
        The checkpoint, and the policy of it.

    Raises:
        ConfigError: as `load`; or the env is code that was refused.
    """
    directory = RunDirectory.open(run, trust_code=trust_code)
    saved, config = directory.read_checkpoint(name), directory.read_run()
    code = Code(imports=config.imports, env=config.env)
    if not trust_code:
        require(code, str(run))
        import_modules(config.imports)
    return saved, loaded_from(saved, str(run), code, None, trust_code)


def loaded_from(
    saved: Checkpoint,
    where: str,
    code: Code,
    encoder: EncoderFactory | None = None,
    trust_code: bool = False,
) -> LoadedPolicy:
    """Return the policy of a checkpoint.

    Args:
        saved: the checkpoint.
        where: it is from.
        code: what else the run names.
        encoder: as for `load`.
        trust_code: as for `load`.
    """
    data = dict(saved.policy)
    spec = PolicySpec.from_json(data.pop("policy", None))
    trained = build(Trained, data, f"{where}, {POLICY}", "the file was changed, or is of another version of offbeat")
    if trust_code:
        require(replace(code, env=trained.env, encoder=spec.encoder), where, trust_code=True)
        import_modules(code.imports)
    spec = _with_encoder(spec, where, code, encoder)
    return LoadedPolicy(policy_of(spec, saved.weights, f"{where}, {WEIGHTS}"), trained)


def _with_encoder(spec: PolicySpec, where: str, code: Code, encoder: EncoderFactory | None) -> PolicySpec:
    """Return the spec with an encoder that may be made here.

    Raises:
        ConfigError: it names code that was refused, or it has none of the caller's.
    """
    if encoder is not None:
        if spec.encoder in OUR_ENCODERS:
            raise ConfigError(f"encoder is given, but the policy of {where} has {spec.encoder}: leave it out")
        return replace(spec, encoder=name_encoder(spec.encoder, encoder))
    require(Code(encoder=spec.encoder), where)
    if ":" not in spec.encoder and spec.encoder not in (*OUR_ENCODERS, *ENCODERS):
        require(Code(imports=code.imports), where)  # one of them may register it
        import_modules(code.imports)
    return spec


def require_hub() -> None:
    """Raise ConfigError if huggingface_hub is missing."""
    if find_spec("huggingface_hub") is None:
        raise ConfigError('the hub needs huggingface_hub, which is not installed: run pip install "offbeat[hub]"')


def _downloaded(repo: str) -> Path:
    """Return the folder of a policy from the hub, in huggingface_hub's cache.

    Raises:
        ConfigError: there is no such policy, or the hub cannot be reached.
    """
    require_hub()
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(repo, allow_patterns=[MANIFEST, WEIGHTS, POLICY]))
    except Exception as error:
        words = " ".join(str(error).split())
        raise ConfigError(
            f"{HUB}{repo} cannot be loaded ({type(error).__name__}: {words}): give USER/NAME as `offbeat push` was "
            "given it; a private one needs hf auth login"
        ) from error
    if not (folder / MANIFEST).is_file():
        raise ConfigError(f"{HUB}{repo} has no {MANIFEST}: give a repository that `offbeat push` has made")
    return folder


def policy_of(spec: PolicySpec, weights: Tree, where: str = "weights") -> ActingPolicy:
    """Return the policy with these weights, as a checkpoint keeps them: all else in them is left out.

    Args:
        spec: what the policy is.
        weights: by name.
        where: they are from.

    Raises:
        ConfigError: they are not of the sizes that the spec says; no memory has been taken for those.
    """
    for entry in published_layout(spec).entries:
        if entry.name not in weights or weights[entry.name].shape != entry.shape:
            there = weights[entry.name].shape if entry.name in weights else "nothing"
            raise ConfigError(
                f"{where} has {there} as {in_short(entry.name)}, where the policy has {entry.shape}: one of its "
                "files was changed"
            )
    policy = make_policy(spec)
    policy.load(published_vector(spec, weights))
    return policy
