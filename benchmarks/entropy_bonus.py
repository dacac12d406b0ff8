"""How far from an equilibrium does an entropy bonus hold self-play? Kuhn poker, computed exactly, without training.

    python -m benchmarks.entropy_bonus    # seconds

With an entropy bonus, self-play ends where returns and bonus together cannot be improved. This is an equilibrium of
another game. Its NashConv in the game itself is what training with this bonus can reach.
"""

from __future__ import annotations

import sys

from tests.reference.kuhn_poker import KuhnPoker, equilibrium_with_entropy

from benchmarks.common import describe, machine, markdown_table, publish
from benchmarks.options import new_parser, read_options
from offbeat.league.average import average_policy

COEFFICIENTS = (0.3, 0.2, 0.15, 0.1, 0.07)


def main() -> int:
    """Compute the figures and write them."""
    parser = new_parser(__doc__)
    options = read_options(parser)
    from open_spiel.python.algorithms.exploitability import nash_conv

    kuhn, found = KuhnPoker(), []
    for entropy in COEFFICIENTS:
        policy = equilibrium_with_entropy(kuhn, entropy)
        distance = float(nash_conv(kuhn.game, average_policy(kuhn.game, [kuhn.function(policy)])))
        found.append({"entropy_coef": entropy, "nash_conv": distance, "value": kuhn.value(policy)})
    about = machine()
    record = {"machine": about, "kuhn_poker": found}
    rows = [[f"{each['entropy_coef']:g}", f"{each['nash_conv']:.3f}", f"{each['value']:.3f}"] for each in found]
    parts = [
        "# Entropy bonus",
        "The equilibrium of Kuhn poker with an entropy bonus, computed exactly: `python -m benchmarks.entropy_bonus`.",
        f"{describe(about)}.",
        markdown_table(["entropy_coef", "NashConv", "value"], rows),
    ]
    publish(options.out, "entropy-bonus", record, *parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
