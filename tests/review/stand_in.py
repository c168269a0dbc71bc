"""A local server that stands in for the APIs of four forges, in the shapes of the documentation that planner.review.forges names."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "secret"  # noqa: S105 - of the stand-in
PAGE = 2  # comments per page


@dataclass
class StandIn:
    """Comments of one pull request, and the requests that were made."""

    url: str = ""
    entries: list[dict[str, Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    denied: dict[str, int] = field(default_factory=dict)  # codes by method
    answer: bytes | None = None  # in place of every answer
    next_page: str = ""  # in place of the server's own address

    def handle(self, request: Handler, body: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
        """Return the code, headers and JSON of the answer."""
        path, _, query = request.path.partition("?")
        self.calls.append(f"{request.command} {path}")
        if code := self.denied.get(request.command):
            return code, {"Location": "http://127.0.0.2:9/"}, {"message": f"no {request.headers}"}
        if path.startswith("/gitlab"):
            assert request.headers["PRIVATE-TOKEN"] == TOKEN
            return self.plain(
                request, path.removeprefix("/gitlab"), query, body, {"author": {"id": 7}}, "/projects/5/merge_requests/9/notes"
            )
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        if path.startswith("/bitbucket"):
            return self.bitbucket(request, path.removeprefix("/bitbucket/repositories/team/repo/pullrequests/9/comments"), query, body)
        if path.startswith("/azure"):
            assert query == "api-version=7.0"
            return self.azure(request, path.removeprefix("/azure/a%20b/_apis/git/repositories/some-guid/pullRequests/9/threads"), body)
        assert request.headers["X-GitHub-Api-Version"] == "2022-11-28"
        return self.plain(request, path, query, body, {"user": {"type": "Bot"}}, "/repos/owner/name/issues/7/comments")

    def plain(
        self,
        request: Handler,
        path: str,
        query: str,
        body: dict[str, Any],
        author: dict[str, Any],
        comments: str,
    ) -> tuple[int, dict[str, str], Any]:
        """Answer as GitHub and GitLab do: pages that a header links."""
        if path == "/user":
            return 200, {}, {"id": 7}
        if request.command == "GET":
            assert path == comments
            assert query.startswith("per_page=100")
            number = int((re.search(r"&page=(\d+)", query) or ["", "1"])[1])
            rest = self.entries[number * PAGE :]
            address = self.next_page or f"{self.url}{request.path.partition('?')[0]}"
            link = {"Link": f'<{address}?per_page=100&page=1>; rel="first", <{address}?per_page=100&page={number + 1}>; rel="next"'}
            return 200, link if rest else {}, self.entries[(number - 1) * PAGE : number * PAGE]
        if request.command == "POST":
            assert path == comments
            self.entries.append({"id": 100 + len(self.entries), "body": body["body"], **author})
            return 201, {}, self.entries[-1]
        one = re.fullmatch(r"/repos/owner/name/issues/comments/(\d+)|/projects/5/merge_requests/9/notes/(\d+)", path)
        assert one
        assert request.command == ("PATCH" if one[1] else "PUT")
        entry = next(entry for entry in self.entries if entry["id"] == int(one[1] or one[2]))
        entry["body"] = body["body"]
        return 200, {}, entry

    def bitbucket(self, request: Handler, path: str, query: str, body: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
        """Answer as Bitbucket Cloud does: pages that name the next one."""
        if request.command == "GET":
            assert path == ""
            assert query.startswith("pagelen=100")
            number = int((re.search(r"&page=(\d+)", query) or ["", "1"])[1])
            page: dict[str, Any] = {"values": self.entries[(number - 1) * PAGE : number * PAGE], "page": number, "pagelen": PAGE}
            if self.entries[number * PAGE :]:
                page["next"] = f"{self.url}{request.path.partition('?')[0]}?pagelen=100&page={number + 1}"
            return 200, {}, page
        if request.command == "POST":
            assert path == ""
            self.entries.append({"id": 100 + len(self.entries), "deleted": False, "content": {"raw": body["content"]["raw"]}})
            return 201, {}, self.entries[-1]
        assert request.command == "PUT"
        entry = next(entry for entry in self.entries if path == f"/{entry['id']}")
        entry["content"] = {"raw": body["content"]["raw"]}
        return 200, {}, entry

    def azure(self, request: Handler, path: str, body: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
        """Answer as Azure DevOps does: threads of comments, all at once."""
        if request.command == "GET":
            assert path == ""
            return 200, {}, {"value": self.entries, "count": len(self.entries)}
        if request.command == "POST":
            assert path == ""
            (comment,) = body["comments"]
            assert (comment["parentCommentId"], comment["commentType"], body["status"]) == (0, "text", "closed")
            self.entries.append({"id": 100 + len(self.entries), "isDeleted": False, "comments": [{"id": 1, "content": comment["content"]}]})
            return 200, {}, self.entries[-1]
        assert request.command == "PATCH"
        thread = next(entry for entry in self.entries if path == f"/{entry['id']}/comments/1")
        thread["comments"][0]["content"] = body["content"]
        return 200, {}, thread["comments"][0]


class Handler(BaseHTTPRequestHandler):
    """Passes requests to the stand-in; an assertion that fails is an answer with code 500."""

    stand_in: StandIn

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        assert not body or self.headers["Content-Type"] == "application/json"
        try:
            code, headers, answer = self.stand_in.handle(self, body)
        except (AssertionError, StopIteration) as error:
            code, headers, answer = 500, {}, {"message": f"the stand-in did not expect {self.command} {self.path}: {error}"}
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode() if self.stand_in.answer is None else self.stand_in.answer)

    do_POST = do_PUT = do_PATCH = do_GET  # noqa: N815 - names of http.server

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serving() -> Iterator[StandIn]:
    """Run the stand-in in a thread."""
    stand_in = StandIn()
    handler = type("OneHandler", (Handler,), {"stand_in": stand_in})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        stand_in.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield stand_in
        finally:
            server.shutdown()
            thread.join()
