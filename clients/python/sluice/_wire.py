"""HTTP/1.1 as far as the check API needs it, and batches: bytes and text, without sockets or clocks."""

import json
import urllib.parse
from typing import Any, Deque, List, NamedTuple, Optional, Protocol, TypeVar

from ._answer import SluiceError, Unavailable

# The service answers larger batches only sixteen at a time.
MOST_CHECKS = 64
MOST_BYTES = 48 << 10

# Statuses of answers to wrong questions.
MISTAKES = (400, 413, 415)

# The largest answer that is read, in bytes.
MOST_ANSWER = 8 << 20


class Response(NamedTuple):
    status: int
    body: bytes
    reusable: bool  # the connection stays open


class Target:
    """The address of the service, with what every request to it has in common."""

    def __init__(self, url: str, token: Optional[str]) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is no address of the service: write it as in http://localhost:8081")
        self.url = url
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
            length = int(fields["content-length"]) if "content-length" in fields else _missing_length()
            body = rest[:length] if len(rest) >= length else None
        if body is None:
            return None
        return Response(int(status), body, version == "HTTP/1.1" and fields.get("connection", "").lower() != "close")


def _missing_length() -> int:
    raise ValueError("it has no length")


def _unchunked(data: bytes) -> Optional[bytes]:
    """Returns a chunked body, or None while a part of it is missing."""
    body, at = b"", 0
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(data[at:end].partition(b";")[0], 16)
        if size == 0:  # trailers and an empty line follow
            return body if data.find(b"\r\n\r\n", end) >= 0 else None
        start, at = end + 2, end + 2 + size + 2
        if len(data) < at:
            return None
        body += data[start : start + size]


class Ask(Protocol):
    """A check that waits for its answer."""

    text: str

    @property
    def over(self) -> bool:
        """The deadline has passed, or the caller has left."""

    def answered(self, answer: Any) -> None: ...

    def failed(self, err: Exception) -> None: ...


A = TypeVar("A", bound=Ask)


def next_batch(queue: Deque[A]) -> List[A]:
    """Takes the checks of the next call from the queue. The list is empty if none is left."""
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
    """Hands out the answers to a batch. It returns the checks to be asked again, each by itself: one invalid
    check makes the service refuse the whole batch, and nothing of it has been charged."""
    if response.status == 400 and len(batch) > 1:
        return batch
    reply = read(response)
    answers = [reply] if len(batch) == 1 else reply["answers"]
    if len(answers) != len(batch):
        raise Unavailable("the service sent another number of answers than there were checks")
    for ask, answer in zip(batch, answers):
        ask.answered(answer)
    return []


def failure(response: Response) -> Optional[Unavailable]:
    """Returns an error if the service answered that it cannot or will not answer."""
    return None if response.status in (200, *MISTAKES) else Unavailable(_detail(response))


def read(response: Response) -> Any:
    """Returns the JSON of an answer, or raises SluiceError if the question was wrong."""
    if response.status in MISTAKES:
        raise SluiceError(_detail(response))
    try:
        return json.loads(response.body)
    except ValueError:
        raise SluiceError("the answer is not JSON: is this the address of --check?") from None


def _detail(response: Response) -> str:
    try:
        detail = json.loads(response.body)["detail"]
    except (ValueError, TypeError, KeyError):
        detail = "is this the address of --check?"
    return f"the service answered {response.status}: {detail}"
