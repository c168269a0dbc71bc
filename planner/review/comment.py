"""One comment on a pull request: found by a marker, created or updated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from planner.review.forges import Comment, Forge, ForgeError, Json, Run, without_html

WHEN = ("always", "on-change", "on-finding")
_SECRET = {"Authorization", "PRIVATE-TOKEN"}
_SECONDS = 60
_PAGES = 100
_SHOWN = 300  # characters of a forge's message
_MARKER = re.compile(r"<!-- modelplan-review id=(?P<id>[\w.-]*) run=(?P<run>\d{1,18})\.(?P<attempt>\d{1,18}) -->")
_LINE = re.compile(r"_modelplan-review id=(?P<id>[\w.-]*) run=(?P<run>\d{1,18})\.(?P<attempt>\d{1,18})_")


def wanted(when: str, review: Mapping[str, Any]) -> bool:
    """Return whether a review, as JSON, is worth a new comment."""
    if when == "on-finding":
        return bool(review["findings"])
    return when == "always" or bool(review["changed"] or review["policy_edits"] or review["findings"])


def post(forge: Forge, report: str, name: str, *, new: bool) -> str:
    """Create the comment called ``name`` if ``new`` and there is none, or update it; return what was done. Raises ForgeError.

    An existing comment is always updated, so that it does not become outdated. Comments of others are never changed, and where the forge
    names the author, the comment of a later run is kept: anybody can write a marker.
    """
    body = with_marker(forge, report, name)
    if (size := len(body.encode("utf-16-le")) // 2) > forge.limit:
        raise ForgeError(f"the comment has {size:,} characters, {forge.name} accepts {forge.limit:,}; see planner diff --limit")
    there = next(((one, run) for one in _comments(forge) if (run := _run_of(one, name)) and one.ours is not False), None)
    if there is None and not new:
        return "no comment: nothing to report"
    if there is None:
        _send(forge, "POST", forge.comments, forge.new(body))
        return f"created a comment on {forge.name}"
    comment, run = there
    if comment.ours and forge.run < run:
        return "no comment: a later run has commented"
    _send(forge, forge.update, comment.url, forge.changed(body))
    return f"updated the comment on {forge.name}"


def with_marker(forge: Forge, report: str, name: str) -> str:
    """Return the comment's text: the review and the marker, hidden in the first line or, without HTML, visible as the last one."""
    marker = f"modelplan-review id={name} run={forge.run.number}.{forge.run.attempt}"
    return f"<!-- {marker} -->\n{report}" if forge.html else f"{without_html(report)}\n_{marker}_\n"


def _run_of(comment: Comment, name: str) -> Run | None:
    """Return the run that wrote the comment, if it is the one called ``name``."""
    lines = comment.body.strip().splitlines() or [""]
    marker = _MARKER.fullmatch(lines[0].strip()) or _LINE.fullmatch(lines[-1].strip())
    return Run(int(marker["run"]), int(marker["attempt"])) if marker and marker["id"] == name else None


def _comments(forge: Forge) -> Iterator[Comment]:
    """Yield the comments of the pull request, page by page."""
    user = _send(forge, "GET", forge.user)[0] if forge.user else {}
    url: str | None = forge.comments
    for _ in range(_PAGES):
        if url is None:
            return
        page, url = _send(forge, "GET", url)
        try:
            entries = page if isinstance(page, list) else page.get("values", page.get("value", ()))
            yield from filter(None, (forge.read(one, user) for one in entries))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ForgeError(f"{forge.name} sent no list of comments") from None


class _NoRedirect(HTTPRedirectHandler):
    """Follow no redirect, since the token would go with it."""

    def redirect_request(self, *_: object) -> None:
        return None


def _send(forge: Forge, method: str, url: str, body: Json | None = None) -> tuple[Any, str | None]:
    """Return the answer to a request, and the URL of the next page. Raises ForgeError."""
    if urlsplit(url)[:2] != urlsplit(forge.comments)[:2] or urlsplit(url).scheme not in ("http", "https"):
        raise ForgeError(f"{forge.name}: the token is not sent to another address, {urlsplit(url).netloc}")
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {**forge.headers, "Content-Type": "application/json", "User-Agent": "modelplan"}, method=method)  # noqa: S310 - checked above
    try:
        with build_opener(_NoRedirect).open(request, timeout=_SECONDS) as answer:
            read = json.load(answer)
            following = re.search(r'<([^<>]*)>; *rel="?next"?(?:[;,]|$)', answer.headers.get("Link", ""))
    except HTTPError as error:
        with error:
            raise ForgeError(_refused(forge, method, error)) from None
    except (OSError, HTTPException) as error:
        raise ForgeError(f"{forge.name} was not reached: {getattr(error, 'reason', error)}") from None
    except (ValueError, RecursionError):
        raise ForgeError(f"{forge.name} did not answer in JSON") from None
    further = read.get("next") if isinstance(read, dict) else None
    return read, following[1] if following else further


def _refused(forge: Forge, method: str, error: HTTPError) -> str:
    """Describe an answer that is an error, with the forge's own message and without the token."""
    try:
        text = error.read(10 * _SHOWN).decode(errors="replace")
    except (OSError, HTTPException):
        text = ""
    for name in _SECRET & forge.headers.keys():
        text = text.replace(forge.headers[name].removeprefix("Bearer "), "***")
    hint = {
        401: f"; check {forge.variable}",
        403: f"; {forge.variable} must be allowed to comment",
        404: f"; the pull request does not exist, or {forge.variable} may not see it",
    }.get(error.code, "")
    message = f": {' '.join(text.split())[:_SHOWN]}" if text.strip() else ""
    return f"{forge.name} refused {method} with {error.code}{hint}{message}"
