"""`offbeat push`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from offbeat.cli.flags import CheckpointName, ChosenPolicy, RunImports, TrustCode
from offbeat.cli.output import spinner
from offbeat.core.errors import ConfigError, require_at_least


@dataclass(frozen=True)
class Push:
    """Upload a trained policy with a model card to the Hugging Face hub: offbeat push runs/NAME USER/NAME."""

    run_directory: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run directory."""
    repo: Annotated[Positional[str], arg(metavar="REPO")]
    """Repository on the hub, USER/NAME. It is created if it does not exist."""
    checkpoint: CheckpointName = "latest"
    """latest, best or step-<12 digits>."""
    policy: ChosenPolicy = None
    episodes: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None
    """Number of whole episodes of the evaluation on the model card, by default 20. For a policy that infers its task:
    number of trials, by default one in each test task."""
    seed: int = 0
    """Seed of the envs of that evaluation."""
    private: bool = False
    """Make a newly created repository private."""
    dry_run: bool = False
    """Write the folder and list its files, but do not upload them."""
    imports: RunImports = ()
    trust_code: TrustCode = False

    def run(self) -> int:
        from offbeat.api.hub.upload import FOLDER, folder_to_upload, push, require_name, require_token
        from offbeat.api.playing.load import chosen_policy, load_for_env
        from offbeat.api.playing.policies_to_play import policies_to_play
        from offbeat.api.playing.scoring import score
        from offbeat.config.importing import import_modules
        from offbeat.plots.runs import read_run
        from offbeat.run_directory.directory import RunDirectory

        if self.episodes is not None:
            require_at_least("episodes", self.episodes, 1)
        require_at_least("seed", self.seed, 0)
        require_name(self.repo)
        if not self.dry_run:
            require_token()
        import_modules(self.imports)
        saved, policies = load_for_env(self.run_directory, self.checkpoint, trust_code=self.trust_code)
        name = chosen_policy(policies, self.policy, str(self.run_directory))
        read_run(self.run_directory, "steps")  # a run without returns is refused before its policy plays
        with spinner("playing episodes"):
            scores = score(policies_to_play(policies), episodes=self.episodes, seed=self.seed)
        scores = scores.get("policies", {name: scores})[name]
        if scores["return_mean"] is None:
            raise ConfigError(
                f"no agent of the policy {name} took part in the {scores['episodes']} episodes of the evaluation, so "
                "the model card would have no return: pass more --episodes, or another --seed"
            )
        directory = RunDirectory(self.run_directory)
        shown = directory.path / FOLDER
        with folder_to_upload(directory, saved.policies[name], policies[name], scores, self.repo) as folder:
            print(f"{shown}: return {scores['return_mean']:.1f} +- {scores['return_std']:.1f}")
            for file in sorted(folder.iterdir()):
                print(f"  {file.name}, {file.stat().st_size:,} bytes")
            if self.dry_run:
                print(f"nothing was uploaded; without --dry-run these files are uploaded to {self.repo}")
                return 0
            with spinner(f"uploading to {self.repo}"):
                address = push(folder, self.repo, private=self.private)
        print(f"pushed to {address}\n  next: offbeat.load('hf://{self.repo}') in Python")
        return 0
