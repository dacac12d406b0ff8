"""A stand-in for W&B's server: it lets a run begin, and takes whatever else is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

_ME = {"id": "1", "name": "someone"}
_ANSWERS: dict[str, Any] = {
    "viewer": {"id": "1", "entity": "someone", "username": "someone", "flags": "{}", "teams": {"edges": []}},
    "upsertBucket": {
        "bucket": {
            "id": "1",
            "name": "abcd",
            "displayName": "run",
            "config": "{}",
            "historyLineCount": 0,
            "project": {"id": "1", "name": "offbeat", "entity": _ME},
        },
        "inserted": True,
    },
    "entity": {"id": "1", "organization": None},
    "createRunFiles": {"runID": "1", "uploadHeaders": [], "files": []},
}


@contextmanager
def wandb_server() -> Iterator[dict[str, str]]:
    """Run the server while entered; gives the environment in which W&B talks to it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield {"WANDB_MODE": "online", "WANDB_BASE_URL": address, "WANDB_API_KEY": "a" * 40, "NO_PROXY": "127.0.0.1"}
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = json.dumps({"data": _ANSWERS if "graphql" in self.path else {}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST  # noqa: N815 - http.server's names

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""
