"""The live page at `/`: three files that are part of the package, and ask for nothing from elsewhere.

The shell is open and knows nothing; its script asks for the token where one is needed, and reads `/v1/status` and
`/v1/lift`. The policy of content lets the page run its own script and style, and speak to its own service alone.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from newcomer.serve.openapi import Operation
from newcomer.serve.routes import Answer, Call

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'"
)
FILES = {"/": "index.html", "/page/page.css": "page.css", "/page/page.js": "page.js", "/page/charts.js": "charts.js"}
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


def _serves(name: str, body: bytes) -> Any:
    headers = {
        "content-type": f"{KINDS[name.rpartition('.')[2]]}; charset=utf-8",
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }

    async def answer(service: Any, call: Call) -> Answer:
        return Answer(body, headers)

    return answer


def pages(*, secured: bool) -> list[Operation]:
    """The files as operations; the shell of a service with tokens says that one is needed."""
    found = []
    for path, name in FILES.items():
        body = resources.files(__package__).joinpath(name).read_bytes()
        if secured:
            body = body.replace(b'data-token="none"', b'data-token="needed"')
        kind = KINDS[name.rpartition(".")[2]]
        found.append(Operation("GET", path, "open", "The page", _serves(name, body), None, kind))
    return found
