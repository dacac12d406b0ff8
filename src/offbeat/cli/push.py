"""`offbeat push`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from offbeat.cli.busy import busy
from offbeat.cli.evaluate import at_least
from offbeat.cli.trusting import RunImports, TrustCode


@dataclass(frozen=True)
class Push:
    """Put a trained policy on the Hugging Face hub, with a model card: offbeat push runs/NAME --repo USER/NAME."""

    run_directory: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run directory."""
    repo: Annotated[str, arg(metavar="USER/NAME", help_behavior_hint="")]
    """Repository on the hub; it is made if there is none."""
    checkpoint: str = "latest"
    """latest, best or step-<12 digits>."""
    episodes: int = 20
    """Whole episodes of the evaluation that the card tells of."""
    seed: int = 0
    """Keys the envs of that evaluation."""
    private: bool = False
    """Make the repository private, if it is made."""
    dry_run: bool = False
    """Write the folder, and say what would be pushed."""
    imports: RunImports = ()
    trust_code: TrustCode = False

    def run(self) -> int:
        from offbeat.api.evaluate import score
        from offbeat.api.hub import push, require_name, require_token, write_folder
        from offbeat.api.load import load_to_play
        from offbeat.config.registry import import_modules
        from offbeat.run_directory.directory import RunDirectory

        at_least("episodes", self.episodes, 1)
        at_least("seed", self.seed, 0)
        require_name(self.repo)
        if not self.dry_run:
            require_token()
        import_modules(self.imports)
        saved, loaded = load_to_play(self.run_directory, self.checkpoint, trust_code=self.trust_code)
        with busy("playing episodes"):
            scores = score(loaded, episodes=self.episodes, seed=self.seed)
        folder = write_folder(RunDirectory(self.run_directory), saved, loaded, scores, self.repo)
        print(f"{folder}: return {scores['return_mean']:.1f} +- {scores['return_std']:.1f}")
        for file in sorted(folder.iterdir()):
            print(f"  {file.name}, {file.stat().st_size:,} bytes")
        if self.dry_run:
            print(f"nothing was sent; without --dry-run this goes to {self.repo}")
            return 0
        with busy(f"sending to {self.repo}"):
            address = push(folder, self.repo, private=self.private)
        print(f"pushed to {address}\n  next: offbeat.load('hf://{self.repo}') in Python")
        return 0
