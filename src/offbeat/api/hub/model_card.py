"""The model card of a policy on the Hugging Face hub: README.md of the uploaded folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from offbeat import __version__
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.trained import Trained
from offbeat.config.env import adapter_prefix, family_of
from offbeat.config.registry import algorithm_title, encoder_path
from offbeat.core.frozen_table import thawed
from offbeat.core.types import INFO_MASK, PREVIOUS_REWARD
from offbeat.envs.registration import maker_in

EVALUATION, CURVE = "evaluation.json", "return.png"
"""The files beside the card that it names."""


def card(loaded: LoadedPolicy, scores: Mapping[str, Any], repo: str, imports: Sequence[str] = ()) -> str:
    """Return the model card: the hub's metadata in YAML, then a page in Markdown.

    Args:
        loaded: the policy.
        scores: its scores, as `score` has returned them.
        repo: the repository, USER/NAME.
        imports: the modules that the run imported, which may register its env.
    """
    from huggingface_hub import EvalResult, ModelCardData

    trained = loaded.trained
    score = f"{scores['return_mean']:.2f} +/- {scores['return_std']:.2f}"
    result = EvalResult(
        task_type="reinforcement-learning",
        task_name="reinforcement-learning",
        dataset_type=trained.env,
        dataset_name=trained.env,
        metric_type="mean_reward",
        metric_name="mean_reward",
        metric_value=score,
        verified=False,
    )
    metadata = ModelCardData(
        library_name="offbeat",
        pipeline_tag="reinforcement-learning",
        tags=["reinforcement-learning", "deep-reinforcement-learning", "offbeat", trained.algorithm, trained.env],
        model_name=repo.partition("/")[2],
        eval_results=[result],
    )
    return f"---\n{metadata.to_yaml()}\n---\n{_page(loaded, scores, score, _example(loaded, repo, imports))}"


def _notes(loaded: LoadedPolicy, scores: Mapping[str, Any]) -> str:
    """Return notes on how to call the policy."""
    notes = []
    if loaded.trained.agents:
        notes.append("In the evaluation, other agents of the env acted with the other policies of the same run.")
    if kwargs := thawed(loaded.trained.env_config.eval_kwargs):
        notes.append(f"In the evaluation, the env had other arguments than in the training: `{kwargs}`.")
    if (trials := loaded.trained.trials) is not None:
        notes.append(
            f"The policy infers its task. The scores are those of the last of {trials.episodes} episodes in new tasks; "
            f"the mean return of the first one is {scores['first_return_mean']:.2f}. Call "
            "`policy.reset_task()` in a new task, and after each step `policy.observe(observation, action, reward, "
            "next_observation)`."
        )
    if (encoder := encoder_path(loaded.acting_policy.spec.encoder)) is not None:
        remedy = "it was defined in a script" if encoder.startswith("__main__:") else "install it first"
        notes.append(f"The code of its encoder, `{encoder}`, is not in this repository: {remedy}.")
    if loaded.remembers:
        notes.append("The policy has a memory: call `policy.reset()` at the start of each episode.")
    if any(leaf.name == PREVIOUS_REWARD for leaf in loaded.acting_policy.spec.observation):
        notes.append("It needs the last reward: call `policy(observation, reward=reward)` after the first step.")
    if family_of(loaded.trained.env):
        frame = " x ".join(map(str, loaded.acting_policy.spec.observation[0].shape[-2:]))
        notes.append(
            f"The policy expects single grayscale frames of {frame} bytes, not those of `gym.make`, and stacks them "
            "itself. `policy.trained.env_config` has the settings of the game."
        )
    elif (repeats := loaded.trained.env_config.action_repeats) > 1:
        notes.append(
            f"It was trained with `frame_skip={repeats}`: repeat each action in {repeats} steps of the env, "
            "unless the episode ends before."
        )
    return "".join(f"\n{note}\n" for note in notes)


def _example(loaded: LoadedPolicy, repo: str, modules: Sequence[str]) -> str:
    """Return Python code that loads and calls the policy.

    If the env of the training has one agent, and no adapter of offbeat makes it, the code makes one like it.
    """
    trained, mask = loaded.trained, loaded.acting_policy.spec.info_mask
    imports, load = _loading(loaded, repo)
    if trained.agents:
        first, agents = json.dumps(trained.agents[0]), ", ".join(trained.agents)
        given = f"observations[{first}]" + f', action_mask=infos[{first}]["{INFO_MASK}"]' * mask
        return "\n".join([*imports, "", load, f"action = policy({given})  # acts for {agents}"])
    given = "observation" + f', action_mask=info["{INFO_MASK}"]' * mask
    if adapter_prefix(trained.env):
        return "\n".join([*imports, "", load, f"action = policy({given})"])
    of_env, makes = _making(trained)
    of_env += [f"import {module}" for module in modules]
    reset = "observation, info = env.reset(seed=7)"
    return "\n".join([*of_env, *imports, "", load, *makes, reset, f"action = policy({given})"])


def _loading(loaded: LoadedPolicy, repo: str) -> tuple[list[str], str]:
    """Return Python code that loads the policy: imports, also of an encoder of the user, and a line."""
    imports, encoder = ["import offbeat"], ""
    path = encoder_path(loaded.acting_policy.spec.encoder)
    module, _, name = (path or "").partition(":")
    if path is not None and "<" not in path and module != "__main__":  # <lambda> or a script: it cannot be imported
        imports.insert(0, _import_of(module, name))
        encoder = f", encoder={name}"
    return imports, f'policy = offbeat.load("hf://{repo}"{encoder})  # pip install "offbeat[hub]"'


def _import_of(module: str, name: str) -> str:
    """Return the line that imports a class, or the class in which it is."""
    return f"from {module} import {name.partition('.')[0]}"


def _making(trained: Trained) -> tuple[list[str], list[str]]:
    """Return Python code that makes an env as that of the training: imports, and the rest."""
    module, _, name = trained.env.rpartition(":")
    arguments = [f"{key}={value!r}" for key, value in thawed(trained.env_config.kwargs).items()]
    if maker_in(module, name) is None:
        prefix = "offbeat.envs.own:" if trained.env.startswith("offbeat/") else ""
        arguments.insert(0, json.dumps(f"{prefix}{trained.env}"))
        imports, call = ["import gymnasium as gym"], "gym.make"
    else:
        imports, call = [_import_of(module, name)], name
    makes = [f"env = {call}({', '.join(arguments)})"]
    for wrapper in trained.env_config.wrappers:
        module, _, name = wrapper.partition(":")
        imports.append(_import_of(module, name))
        makes.append(f"env = {name}(env)")
    return imports, makes


def _page(loaded: LoadedPolicy, scores: Mapping[str, Any], score: str, example: str) -> str:
    trained = loaded.trained
    algorithm, env = algorithm_title(trained.algorithm), trained.env
    agents = f", for {', '.join(trained.agents)}" if trained.agents else ""
    lowest, highest = f"{scores['return_min']:.2f}", f"{scores['return_max']:.2f}"
    return f"""
# {algorithm} on {env}{agents}

Trained with offbeat {__version__} over {trained.env_steps:,} env steps ({trained.updates:,} updates).

| mean return | lowest | highest | mean length | episodes |
| ---: | ---: | ---: | ---: | ---: |
| {score} | {lowest} | {highest} | {scores["length_mean"]:.1f} | {scores["episodes"]} |

Returns are undiscounted sums over whole episodes. Actions are the most likely ones. +/- is the standard deviation over
episodes. The evaluation was run for this card, with envs and seeds that were not used in training.

![Return against env steps]({CURVE})

## Use it

```python
{example}
```
{_notes(loaded, scores)}
## Files

| file | what it is |
| --- | --- |
| `weights.safetensors`, `policy.json` | the policy, normalisation included; `manifest.json` has their SHA-256 |
| `config.toml` | the settings of the training run |
| `{EVALUATION}`, `{CURVE}` | the scores above, and the learning curve |
"""
