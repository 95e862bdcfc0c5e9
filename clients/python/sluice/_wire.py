"""The part of HTTP/1.1 that the check API needs, and batches of checks. This module uses no sockets or clocks."""

import json
import urllib.parse
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Protocol, TypeVar

from ._answer import Answer, SluiceError, Unavailable

# A batch has at most this many checks and bytes. The service answers only 16 larger batches at a time.
MOST_CHECKS = 64
MOST_BYTES = 48 << 10

# The largest check that shares a call, in bytes.
LARGE = 64 << 10

# The largest answer that is read, in bytes.
MOST_ANSWER = 8 << 20


class Response(NamedTuple):
    status: int
    body: bytes
    reusable: bool  # whether the connection stays open


class Target:
    """The address of the service, and the fields that all requests have."""

    def __init__(self, url: str, token: Optional[str]) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is not the address of a service: write it like http://localhost:8081")
        self.host, self.tls = parts.hostname, parts.scheme == "https"
        self.port = parts.port or (443 if self.tls else 80)
        self._path = parts.path.rstrip("/")
        head = f"Host: {parts.netloc.rpartition('@')[2]}\r\nContent-Type: application/json\r\n"
        if token is not None:
            if not token.isascii() or not token.isprintable():
                raise ValueError("the token must be printable ASCII")
            head += f"Authorization: Bearer {token}\r\n"
        self._head = head

    def request(self, path: str, body: str) -> bytes:
        data = body.encode()
        return f"POST {self._path}{path} HTTP/1.1\r\n{self._head}Content-Length: {len(data)}\r\n\r\n".encode() + data


class Parser:
    """Reads one response from pieces as they arrive."""

    def __init__(self) -> None:
        self._got = bytearray()

    def feed(self, piece: bytes) -> Optional[Response]:
        """Returns the response once it is complete. An empty piece is the end of the connection."""
        if not piece:
            raise ConnectionError("the connection ended before the answer")
        self._got += piece
        if len(self._got) > MOST_ANSWER:
            raise ConnectionError("the answer is too long")
        end = self._got.find(b"\r\n\r\n")
        if end < 0:
            return None
        try:
            return self._parse(bytes(self._got[:end]).decode("latin-1"), bytes(self._got[end + 4 :]))
        except ValueError as err:
            raise ConnectionError(f"the answer is not HTTP: {err}") from None

    @staticmethod
    def _parse(head: str, rest: bytes) -> Optional[Response]:
        first, *lines = head.split("\r\n")
        version, status = first.split(" ")[:2]
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body: Optional[bytes]
        if fields.get("transfer-encoding", "").lower() == "chunked":
            body = _unchunked(rest)
        else:
            length = _size(fields.get("content-length", ""), 10)
            body = rest[:length] if len(rest) >= length else None
        if body is None:
            return None
        return Response(int(status), body, version == "HTTP/1.1" and fields.get("connection", "").lower() != "close")


def _size(text: str, base: int) -> int:
    size = int(text, base)
    if size < 0:
        raise ValueError("a size is negative")
    return size


def _unchunked(data: bytes) -> Optional[bytes]:
    """Returns a chunked body, or None while a part of it is missing."""
    body, at = b"", 0
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        size = _size(data[at:end].partition(b";")[0].decode("latin-1"), 16)
        if size == 0:  # trailers and an empty line follow
            return body if data.find(b"\r\n\r\n", end) >= 0 else None
        start, at = end + 2, end + 2 + size + 2
        if len(data) < at:
            return None
        body += data[start : start + size]


def is_large(text: str) -> bool:
    """Returns whether a check is sent in a call of its own. The breaker ignores failures of large calls; otherwise, a
    client could turn off all limits by sending large bodies."""
    return len(text) > LARGE


class Ask(Protocol):
    """A check that waits for its answer."""

    text: str

    @property
    def over(self) -> bool:
        """The deadline has passed, or the caller has left."""

    def answered(self, answer: Answer) -> None: ...

    def failed(self, err: Exception) -> None: ...


A = TypeVar("A", bound=Ask)


def next_batch(queue: Deque[A]) -> List[A]:
    """Takes the checks of the next call from the queue. Returns an empty list if no check waits."""
    batch: List[A] = []
    size = 0
    while queue and len(batch) < MOST_CHECKS:
        if queue[0].over:
            queue.popleft()
            continue
        size += len(queue[0].text)
        if batch and size > MOST_BYTES:
            break
        batch.append(queue.popleft())
    return batch


def batch_body(batch: List[A]) -> str:
    if len(batch) == 1:
        return batch[0].text
    return '{"checks":[' + ",".join(ask.text for ask in batch) + "]}"


def distribute(batch: List[A], response: Response) -> List[A]:
    """Passes the answers to the checks of a batch. Returns the checks that have to be repeated, each in a call of
    its own. If one check is invalid, the service rejects the whole batch, and charges nothing."""
    try:
        reply = read(response)
    except SluiceError:
        if len(batch) > 1:
            return batch
        raise
    given = [reply] if len(batch) == 1 else reply.get("answers")
    if not isinstance(given, list) or len(given) != len(batch):
        raise Unavailable("the number of answers differs from the number of checks")
    answers = [Answer.parse(one) for one in given]
    for ask, answer in zip(batch, answers):
        ask.answered(answer)
    return []


def read(response: Response) -> Dict[str, Any]:
    """Returns the JSON object of an answer. Raises SluiceError if the call was invalid, and Unavailable if the
    answer does not come from the check API, but, for example, from a proxy."""
    try:
        reply = json.loads(response.body)
    except (ValueError, RecursionError):
        reply = None
    detail = reply.get("detail") if isinstance(reply, dict) else None
    error = f"the service answered {response.status}: {detail or 'is this the address of --check?'}"
    # on_error must not decide after a 413, because a client can cause a proxy in front of the service to send one.
    if response.status == 413 or detail and response.status in (400, 415):
        raise SluiceError(error, response.status)
    if response.status != 200 or not isinstance(reply, dict):
        raise Unavailable(error)
    return reply
