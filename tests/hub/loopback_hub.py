"""A Hub on the loopback interface, for the real `huggingface_hub` client.

Standard library only, in memory; each commit is a whole snapshot `{path: bytes}`. It answers the requests that the
client makes to create repositories, upload (regular and LFS), list, resolve, download, branch and tag. Xet is not
there: set `HF_HUB_DISABLE_XET=1` where files go through LFS.
"""

import base64
import hashlib
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LFS_SUFFIXES = (".safetensors", ".bin", ".pt", ".parquet")
DATE = "2026-01-01T00:00:00.000Z"


@dataclass
class Commit:
    sha: str
    files: dict[str, bytes]
    title: str


@dataclass
class Repository:
    commits: list[Commit]
    refs: dict[str, str]
    private: bool = False

    def at(self, revision: str) -> Commit | None:
        """The commit of a branch, tag or sha."""
        revision = urllib.parse.unquote(revision)
        sha = self.refs.get(revision, revision)
        return next((commit for commit in self.commits if commit.sha == sha), None)


@dataclass
class State:
    """All repositories by (type, id), the LFS store by SHA-256, a log of requests, and faults to be answered."""

    lfs: bool = True
    repositories: dict[tuple[str, str], Repository] = field(default_factory=dict)
    lfs_store: dict[str, bytes] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    # What is refused: a method of the handler -> status and message.
    faults: dict[str, tuple[int, str]] = field(default_factory=dict)

    def is_lfs(self, path: str) -> bool:
        return self.lfs and path.endswith(LFS_SUFFIXES)


def blob_id(content: bytes) -> str:
    """Git's name for a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "LoopbackServer"

    def log_message(self, *args: object) -> None:
        """Keep the tests' output clean; requests are in `State.log`."""

    @property
    def state(self) -> State:
        return self.server.state

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def reply(self, code: int, value: object = None, headers: dict | None = None, raw: bytes | None = None) -> None:
        data = raw
        if data is None:
            data = b"" if value is None else json.dumps(value).encode()
        self.send_response(code)
        sent = {
            "Content-Type": "application/json" if raw is None else "application/octet-stream",
            "Content-Length": str(len(data)),
            "X-Request-Id": "loopback",
            **(headers or {}),
        }
        for name, text in sent.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def fail(self, code: int, error: str, headers: dict | None = None) -> None:
        self.reply(code, {"error": error}, {"X-Error-Code": error, "X-Error-Message": error, **(headers or {})})

    def handle_request(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        self.state.log.append(f"{self.command} {self.path}")
        body = self.read_body() if self.command in ("POST", "PUT", "DELETE") else b""
        query = dict(urllib.parse.parse_qsl(url.query))
        for pattern, method in ROUTES:
            match = re.fullmatch(pattern, url.path)
            if match and method.__name__ in self.state.faults:
                self.fail(*self.state.faults[method.__name__])
                return
            if match:
                method(self, *match.groups(), body=body, query=query)
                return
        self.state.log.append(f"UNHANDLED {self.command} {self.path}")
        self.fail(404, "EntryNotFound")

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = handle_request

    # Accounts and cards

    def whoami(self, body: bytes, query: dict) -> None:
        token = {"accessToken": {"displayName": "test", "role": "write"}}
        self.reply(200, {"type": "user", "name": "tester", "fullname": "Tester", "orgs": [], "auth": token})

    def validate_yaml(self, body: bytes, query: dict) -> None:
        bad = "license: nonsense" in json.loads(body)["content"]
        errors = [{"message": '"license" must be one of the known licences'}] if bad else []
        self.reply(400 if bad else 200, {"errors": errors, "warnings": []})

    # Repositories

    def create(self, body: bytes, query: dict) -> None:
        wanted = json.loads(body)
        repo_id = f"{wanted.get('organization') or 'tester'}/{wanted['name']}"
        key = (wanted.get("type") or "model", repo_id)
        address = {"url": f"{self.server.base}/{repo_id}", "name": repo_id, "id": repo_id}
        if key in self.state.repositories:
            self.reply(409, {"error": "exists", **address})
            return
        sha = hashlib.sha1(repo_id.encode()).hexdigest()
        attributes = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
        first = Commit(sha, {".gitattributes": attributes}, "initial commit")
        self.state.repositories[key] = Repository([first], {"main": sha}, bool(wanted.get("private")))
        self.reply(200, address)

    def repository(self, kind: str, repo_id: str, rest: str | None, body: bytes, query: dict) -> None:
        repository = self.state.repositories.get((kind, repo_id))
        if repository is None:
            self.fail(404, "RepoNotFound")
            return
        action, _, argument = (rest or "").partition("/")
        if action in self.state.faults:
            self.fail(*self.state.faults[action])
            return
        if action == "preupload":
            self.preupload(repository, argument, body)
        elif action == "commit":
            self.commit(repository, repo_id, urllib.parse.unquote(argument), body)
        elif action in ("branch", "tag"):
            self.reference(repository, action, argument, body)
        elif action == "tree":
            self.tree(repository, argument, query)
        elif action == "paths-info":
            self.paths_info(repository, argument, body)
        elif action == "refs":
            branches = [
                {"name": name, "ref": f"refs/heads/{name}", "targetCommit": sha}
                for name, sha in repository.refs.items()
            ]
            self.reply(200, {"branches": branches, "tags": [], "converts": []})
        elif action in ("", "revision"):
            self.info(repository, repo_id, argument or "main")
        else:
            self.fail(404, "EntryNotFound")

    def info(self, repository: Repository, repo_id: str, revision: str) -> None:
        commit = repository.at(revision)
        if commit is None:
            self.fail(404, "RevisionNotFound")
            return
        self.reply(
            200,
            {
                "_id": "1",
                "id": repo_id,
                "modelId": repo_id,
                "sha": commit.sha,
                "private": repository.private,
                "gated": False,
                "disabled": False,
                "tags": ["custom_code"],
                "downloads": 0,
                "likes": 0,
                "siblings": [{"rfilename": path} for path in commit.files],
                "lastModified": DATE,
                "createdAt": DATE,
            },
        )

    # Uploads

    def preupload(self, repository: Repository, revision: str, body: bytes) -> None:
        if repository.at(revision) is None:
            self.fail(404, "RevisionNotFound")
            return
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if self.state.is_lfs(file["path"]) else "regular",
                "shouldIgnore": False,
                "oid": None,
            }
            for file in json.loads(body)["files"]
        ]
        self.reply(200, {"files": files})

    def commit(self, repository: Repository, repo_id: str, revision: str, body: bytes) -> None:
        parent = repository.at(revision)
        if parent is None:
            self.fail(404, "RevisionNotFound")
            return
        files, title = dict(parent.files), ""
        for line in filter(bytes.strip, body.splitlines()):
            operation = json.loads(line)
            key, value = operation["key"], operation["value"]
            if key == "header":
                title = value["summary"]
            elif key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.state.lfs_store[value["oid"]]
            elif key == "deletedFile":
                files.pop(value["path"], None)
            elif key == "deletedFolder":
                files = {path: content for path, content in files.items() if not path.startswith(value["path"])}
        content = sorted((path, blob_id(data)) for path, data in files.items())
        identity = json.dumps([repo_id, len(repository.commits), title, content])
        sha = hashlib.sha1(identity.encode()).hexdigest()
        repository.commits.append(Commit(sha, files, title))
        repository.refs[revision] = sha
        address = f"{self.server.base}/{repo_id}/commit/{sha}"
        self.reply(200, {"success": True, "commitOid": sha, "commitUrl": address, "hookOutput": ""})

    def reference(self, repository: Repository, kind: str, argument: str, body: bytes) -> None:
        wanted = json.loads(body or b"{}")
        if kind == "tag":
            name, revision = wanted["tag"], argument
        else:
            name, revision = argument, wanted.get("startingPoint") or "main"
        commit = repository.at(revision)
        if commit is None:
            self.fail(404, "RevisionNotFound")
            return
        repository.refs[urllib.parse.unquote(name)] = commit.sha
        self.reply(200, {})

    def lfs_batch(self, repo_id: str, body: bytes, query: dict) -> None:
        objects = []
        for wanted in json.loads(body)["objects"]:
            entry = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self.state.lfs_store:
                entry["actions"] = {"upload": {"href": f"{self.server.base}/_lfs/{wanted['oid']}"}}
            objects.append(entry)
        self.reply(200, {"transfer": "basic", "objects": objects})

    def lfs_upload(self, oid: str, body: bytes, query: dict) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            self.fail(400, "BadChecksum")
            return
        self.state.lfs_store[oid] = body
        self.reply(200)

    # Downloads

    def tree(self, repository: Repository, argument: str, query: dict) -> None:
        revision, _, folder = argument.partition("/")
        commit = repository.at(revision)
        if commit is None:
            self.fail(404, "RevisionNotFound")
            return
        prefix = f"{urllib.parse.unquote(folder)}/" if folder else ""
        inside = {path: content for path, content in commit.files.items() if path.startswith(prefix)}
        if prefix and not inside:
            self.fail(404, "EntryNotFound")
            return
        recursive = query.get("recursive", "false").lower() in ("true", "1")
        entries, folders = [], set()
        for path, content in inside.items():
            parts = path[len(prefix) :].split("/")
            depths = range(1, len(parts)) if recursive else range(1, min(len(parts), 2))
            folders |= {prefix + "/".join(parts[:depth]) for depth in depths}
            if recursive or len(parts) == 1:
                entries.append(self.tree_entry(path, content))
        entries += [{"type": "directory", "oid": blob_id(b""), "size": 0, "path": path} for path in sorted(folders)]
        self.reply(200, entries)

    def tree_entry(self, path: str, content: bytes) -> dict:
        entry = {"type": "file", "oid": blob_id(content), "size": len(content), "path": path}
        if self.state.is_lfs(path):
            oid = hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"oid": oid, "size": len(content), "pointerSize": 134}
        return entry

    def paths_info(self, repository: Repository, revision: str, body: bytes) -> None:
        commit = repository.at(revision)
        if commit is None:
            self.fail(404, "RevisionNotFound")
            return
        if body[:1] == b"{":
            paths = json.loads(body)["paths"]
        else:
            paths = [value for name, value in urllib.parse.parse_qsl(body.decode()) if name == "paths"]
        self.reply(200, [self.tree_entry(path, commit.files[path]) for path in paths if path in commit.files])

    def resolve(self, kind: str | None, repo_id: str, revision: str, path: str, body: bytes, query: dict) -> None:
        repository = self.state.repositories.get(((kind or "models").removesuffix("s"), repo_id))
        if repository is None:
            self.fail(404, "RepoNotFound")
            return
        commit = repository.at(revision)
        if commit is None:
            self.fail(404, "RevisionNotFound")
            return
        content = commit.files.get(urllib.parse.unquote(path))
        if content is None:
            self.fail(404, "EntryNotFound", {"X-Repo-Commit": commit.sha})
            return
        is_lfs = self.state.is_lfs(path)
        etag = hashlib.sha256(content).hexdigest() if is_lfs else blob_id(content)
        headers = {"X-Repo-Commit": commit.sha, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        if is_lfs:
            headers |= {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(content))}
        wanted = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if wanted and self.command == "GET":
            start, end = int(wanted[1]), int(wanted[2] or len(content) - 1)
            headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
            self.reply(206, headers=headers, raw=content[start : end + 1])
            return
        self.reply(200, headers=headers, raw=content)


ROUTES = (
    (r"/api/whoami-v2", Handler.whoami),
    (r"/api/validate-yaml", Handler.validate_yaml),
    (r"/api/repos/create", Handler.create),
    (r"/api/(model|dataset|space)s/([^/]+/[^/]+)(?:/(.*))?", Handler.repository),
    (r"/(?:datasets/|spaces/)?([^/]+/[^/]+)\.git/info/lfs/objects/batch", Handler.lfs_batch),
    (r"/_lfs/([0-9a-f]{64})", Handler.lfs_upload),
    (r"/(?:(datasets|spaces)/)?([^/]+/[^/]+)/(?:resolve|raw)/([^/]+)/(.+)", Handler.resolve),
)


class LoopbackServer(ThreadingHTTPServer):
    """The server; `base` is its address, `state` what it holds."""

    daemon_threads = True

    def __init__(self, lfs: bool = True):
        super().__init__(("127.0.0.1", 0), Handler)
        self.state = State(lfs)
        self.base = f"http://127.0.0.1:{self.server_address[1]}"

    def files(self, repo_id: str, revision: str = "main", kind: str = "model") -> dict[str, bytes]:
        """The files of a repository at a revision."""
        commit = self.state.repositories[kind, repo_id].at(revision)
        return {} if commit is None else commit.files

    def environment(self, home: object) -> dict[str, str]:
        """Variables that make a process's client talk to this server, with `home` as its cache."""
        return {
            "HF_ENDPOINT": self.base,
            "HF_HOME": str(home),
            "HF_TOKEN": "hf_loopback",
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "127.0.0.1",
        }


@contextmanager
def running(lfs: bool = True) -> Iterator[LoopbackServer]:
    """Context: a running server. With `lfs=False` every file is uploaded as a regular one."""
    server = LoopbackServer(lfs)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
