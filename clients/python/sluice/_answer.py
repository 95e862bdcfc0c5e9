"""Answers of the check API, and errors of its calls."""

import json
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence, Tuple


class SluiceError(Exception):
    """The service rejected a call as invalid, for example because of an unknown rule."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Unavailable(Exception):
    """The service did not answer in time, or not at all."""


@dataclass(frozen=True)
class Answer:
    """The answer to a check. The fields have the names of the check API."""

    allowed: bool
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)  # header fields for the client
    body: str = ""  # the body of the response to a denied request
    retry_after: Optional[int] = None  # seconds; None if the request is allowed, or if waiting does not help
    delay: float = 0.0  # the time in seconds until the request's turn in a queue
    over: Sequence[str] = ()  # the rules with "over: mark" that the request exceeds
    place: Optional[str] = None  # a permit in flight, or a position in a queue
    at: Optional[str] = None  # the time of the charge, if a rule counts by outcome
    asked: bool = True  # False if the service did not answer, and on_error decided
    raw: Mapping[str, Any] = field(default_factory=dict)  # the whole JSON object

    @classmethod
    def parse(cls, raw: Any) -> "Answer":
        """Raises Unavailable if raw is not an answer of the check API."""
        if not _is_answer(raw):
            raise Unavailable("the answer is not one of the check API: is this the address of --check?")
        return cls(
            allowed=raw["allowed"],
            status=raw["status"],
            headers=raw["headers"],
            body=raw.get("body", ""),
            retry_after=raw.get("retry_after"),
            delay=raw["delay"],
            over=raw.get("over", ()),
            place=raw.get("place"),
            at=raw.get("at"),
            raw=raw,
        )

    @property
    def http_status(self) -> int:
        """The status of the HTTP response. A JSON-RPC error is sent with 200, because MCP clients treat any other
        status as a failed connection."""
        return 200 if self.body.startswith('{"jsonrpc":') else self.status

    @property
    def head(self) -> Sequence[Tuple[str, str]]:
        """The header fields of the HTTP response to a denied request."""
        return [*self.headers.items(), ("Content-Length", str(len(self.body.encode())))]


KINDS: Mapping[str, Any] = {"allowed": bool, "status": int, "headers": dict, "delay": (int, float)}
OPTIONAL: Mapping[str, Any] = {"body": str, "retry_after": int, "over": list, "place": str, "at": str}

# The longest delay of a queue, in seconds. An answer with a longer delay is invalid.
LONGEST = 30 * 24 * 3600


def _is_answer(raw: Any) -> bool:
    return (
        isinstance(raw, dict)
        and all(isinstance(raw.get(name), kind) for name, kind in KINDS.items())
        and all(isinstance(raw[name], kind) for name, kind in OPTIONAL.items() if name in raw)
        and all(isinstance(value, str) for value in raw["headers"].values())
        and 200 <= raw["status"] <= 599
        and 0 <= raw["delay"] <= LONGEST
    )


def unavailable(on_error: str) -> Answer:
    """Returns the answer to use while the service is unavailable. on_error is "allow" or "deny"."""
    if on_error == "allow":
        return Answer(allowed=True, asked=False)
    return refusal(
        503,
        "temporary_reduced_capacity",
        "Limits cannot be checked at the moment. Retry in 1 s.",
        kind="https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        retry_after=1,
    )


TITLES = {411: "Length Required", 413: "Request Entity Too Large", 431: "Request Header Fields Too Large", 503: "Service Unavailable"}


def refusal(status: int, error: str, detail: str, kind: str = "about:blank", retry_after: Optional[int] = None) -> Answer:
    """Returns the answer to a request that the middleware itself rejects, in the gateway's format."""
    problem = {"type": kind, "title": TITLES[status], "status": status, "detail": detail, "error": error}
    headers = {"Content-Type": "application/problem+json", "Cache-Control": "no-store"}
    if retry_after is not None:
        problem["retry_after"] = retry_after
        headers["Retry-After"] = str(retry_after)
    body = json.dumps(problem, separators=(",", ":")) + "\n"
    return Answer(allowed=False, status=status, headers=headers, body=body, retry_after=retry_after, asked=False)
