"""Messages of a run to the user, which are also written to its log."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from offbeat.core.argument_notation import is_for_python
from offbeat.core.errors import RunWarning
from offbeat.core.printing import print_text
from offbeat.metrics.progress.views import Silent, View
from offbeat.run_directory.directory import RunDirectory


@dataclass(frozen=True)
class Messages:
    """Shows messages and writes them to the log. Most parts of a run keep it, so it does not refer to them."""

    directory: RunDirectory
    view: View

    def notify(self, text: str, details: str = "", /) -> None:
        """Show a message to the user and write it to the log; `details` are only written to the log."""
        self.directory.append_to_log("\n".join(filter(None, (text, details.rstrip()))))
        self.view.message(text)

    def show_warning(self, warning: RunWarning) -> None:
        """Write a warning to the log. On the command line, show it: a caller in Python has got it as Python warning."""
        self.directory.append_to_log(str(warning))
        if is_for_python():
            return
        if isinstance(self.view, Silent):
            print_text(f"offbeat: {warning}", sys.stderr)
        else:
            self.view.message(str(warning))
