"""A stand-in for the Hugging Face hub: the few endpoints that pushing and loading a model use, over real HTTP."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

TOKEN = "hf_" + "a" * 34
"""The only one that may do anything."""
LARGE = (".safetensors", ".png")
"""Files that go by way of LFS, as on the hub; all others stand in the commit itself."""


@dataclass
class Hub:
    """What the server keeps."""

    address: str = ""
    repos: dict[str, dict[str, Any]] = field(default_factory=dict)
    """name -> what it was created with."""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """repository -> path -> content, after the last commit."""
    commits: list[str] = field(default_factory=list)
    """Summaries."""
    stored: dict[str, bytes] = field(default_factory=dict)
    """What was uploaded by LFS, by its SHA-256."""

    def environment(self, home: Path, token: str | None = TOKEN) -> dict[str, str]:
        """Return what makes huggingface_hub talk to this server alone."""
        names = {"HF_ENDPOINT": self.address, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
        return names | {"HF_TOKEN": token or "", "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1"}

    def sha(self, repo: str) -> str:
        """Return the name of the last commit."""
        return sha1(repr(sorted(self.files[repo].items())).encode()).hexdigest()


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Run the server while entered."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(
            {
                r"/api/models/([^/]+/[^/]+)/revision/main": self._info,
                r"/api/models/([^/]+/[^/]+)/tree/\w+": self._tree,
                r"/([^/]+/[^/]+)/resolve/\w+/(.+)": self._file,
            }
        )

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def do_POST(self) -> None:
        self._answer(
            {
                r"/api/repos/create": self._create,
                r"/api/validate-yaml": self._validate,
                r"/api/models/([^/]+/[^/]+)/preupload/main": self._preupload,
                r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch": self._batch,
                r"/api/models/([^/]+/[^/]+)/commit/main": self._commit,
            }
        )

    def do_PUT(self) -> None:
        self._body = self.rfile.read(int(self.headers["Content-Length"]))
        oid = self.path.removeprefix("/lfs/")
        assert sha256(self._body).hexdigest() == oid
        self.hub.stored[oid] = self._body
        self._send(200, b"")

    # --- what each endpoint does ----------------------------------------------------------------------------

    def _create(self) -> Any:
        asked = json.loads(self._body)
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.hub.repos:
            return 409, {"error": "You already created this model repo", "url": f"{self.hub.address}/{name}"}
        self.hub.repos[name] = asked
        self.hub.files[name] = {}
        return {"url": f"{self.hub.address}/{name}", "name": name}

    def _validate(self) -> Any:
        assert json.loads(self._body)["content"].startswith("---\n")
        return {"errors": [], "warnings": []}

    def _preupload(self, repo: str) -> Any:
        assert repo in self.hub.repos
        paths = [file["path"] for file in json.loads(self._body)["files"]]
        modes = {path: "lfs" if path.endswith(LARGE) else "regular" for path in paths}
        return {"files": [{"path": p, "uploadMode": mode, "shouldIgnore": False} for p, mode in modes.items()]}

    def _batch(self, _repo: str) -> Any:
        objects = json.loads(self._body)["objects"]
        return {
            "objects": [
                {**asked, "actions": {"upload": {"href": f"{self.hub.address}/lfs/{asked['oid']}"}}}
                for asked in objects
            ]
        }

    def _commit(self, repo: str) -> Any:
        for item in map(json.loads, self._body.splitlines()):
            value = item["value"]
            if item["key"] == "header":
                self.hub.commits.append(value["summary"])
            elif item["key"] == "file":
                self.hub.files[repo][value["path"]] = base64.b64decode(value["content"])
            else:
                self.hub.files[repo][value["path"]] = self.hub.stored[value["oid"]]
        return {"commitUrl": f"{self.hub.address}/{repo}/commit/x", "commitOid": self.hub.sha(repo)}

    def _info(self, repo: str) -> Any:
        if repo not in self.hub.files:
            return 404, {"error": "Repository not found"}
        siblings = [{"rfilename": path} for path in self.hub.files[repo]]
        return {"id": repo, "sha": self.hub.sha(repo), "siblings": siblings, "private": False, "tags": []}

    def _tree(self, repo: str) -> Any:
        return [
            {"type": "file", "path": path, "size": len(content), "oid": sha1(content).hexdigest()}
            for path, content in self.hub.files[repo].items()
        ]

    def _file(self, repo: str, path: str) -> Any:
        return self.hub.files[repo][path]

    # --- HTTP -----------------------------------------------------------------------------------------------

    def _answer(self, routes: dict[str, Callable[..., Any]]) -> None:
        self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, b'{"error": "Invalid username or password."}')
            return
        for pattern, route in routes.items():
            if match := re.fullmatch(pattern, path):
                answer = route(*match.groups())
                code, content = answer if isinstance(answer, tuple) else (200, answer)
                self._send(code, content if isinstance(content, bytes) else json.dumps(content).encode())
                return
        self._send(404, json.dumps({"error": f"no such endpoint: {self.command} {path}"}).encode())

    def _send(self, code: int, content: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{sha1(content).hexdigest()}"')
        if match := re.match(r"/[^/]+/[^/]+/resolve/(\w+)/", self.path):
            self.send_header("X-Repo-Commit", match[1])
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""
