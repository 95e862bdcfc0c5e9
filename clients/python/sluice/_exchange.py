"""The state of a request to the application, with its checks and their answers."""

import base64
import ipaddress
import json
import re
import uuid
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Union

from ._answer import Answer, refusal

if TYPE_CHECKING:
    from ._sluice import Sluice

OnError = Union[str, Callable[[Any], str]]
Attributes = Callable[[Any], Mapping[str, Any]]

# The service accepts at most this many header fields of a request or a response.
MOST_FIELDS = 256

# The largest body that is sent with a check, in bytes.
MOST_BODY = 1 << 20

# The largest body that is sent as text, in bytes. In JSON, a byte can take six bytes, and a check has at most 2 MiB.
MOST_TEXT = 256 << 10

# These fields are lists: the values of the answer are added to the values of the response. Other fields are
# replaced.
LISTS = frozenset(["vary", "access-control-expose-headers"])

# These fields combine the values of several answers to one request.
SHARED = frozenset(["ratelimit", "ratelimit-policy", *LISTS])

# These fields of an answer describe the body of the denial.
OF_BODY = frozenset(["content-type", "cache-control"])

SURROGATE = re.compile("[\ud800-\udfff]")


class Refused(Exception):
    """A limit denied the request. The middleware turns this exception into the response."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"refused with {answer.status}")
        self.answer = answer


class Exchange:
    """The state of one request. Decorators, and the function outcome, get it from the variable current."""

    def __init__(self, sluice: "Sluice", request: Callable[[], Any], describe: Callable[[], Dict[str, Any]]) -> None:
        self.sluice = sluice
        self._request, self._describe = request, describe
        self._made: Any = None
        self.answers: List[Tuple[Dict[str, Any], Answer]] = []  # the checks and their answers
        self.outcome: Dict[str, Any] = {}  # the members of the outcome that the application has reported
        self.status = 0  # the status of the response; 0 before it begins
        self.head: Dict[str, Any] = {}  # the header fields of the response, by their names in lower case
        self.bytes = 0  # the number of bytes of the response's body so far
        self.headless = False  # whether the response has no body
        self.settled = False

    @property
    def request(self) -> Any:
        """The framework's request object."""
        if self._made is None:
            self._made = self._request()
        return self._made

    def check(self, rule: Optional[str] = None, key: Optional[Mapping[str, Any]] = None, cost: int = 1) -> Dict[str, Any]:
        """Returns a check of one rule, or of the whole request."""
        if not isinstance(cost, int) or cost < 1:
            raise ValueError(f"the cost is {cost!r}: it must be an integer, at least 1")
        check: Dict[str, Any] = {"id": str(uuid.uuid4()), "place": True}
        if rule is None:
            check["request"] = self._describe()
        else:
            check["rule"], check["key"] = rule, texts(key or {})
        if cost != 1:
            check["cost"] = cost
        return check

    def note(self, check: Dict[str, Any], answer: Answer) -> None:
        """Records a check and its answer. Raises Refused if the answer denies the request."""
        self.answers.append((check, answer))
        if not answer.allowed:
            raise Refused(answer)
        if answer.place is not None:
            self.sluice.keeper.add(answer.place)

    @property
    def answer(self) -> Optional[Answer]:
        """The first answer. If the whole request was checked, this is the answer to that check."""
        return self.answers[0][1] if self.answers else None

    def fields(self) -> Dict[str, str]:
        """Returns the fields of the response, by their names in lower case. Fields with room for one limit describe
        the limit that denies the request, or else the one with the least remaining."""
        fields: Dict[str, str] = {}
        tightest: Optional[int] = None
        for _, answer in self.answers:
            given = {name.lower(): value for name, value in answer.headers.items() if name.lower() not in OF_BODY}
            left = given.get("x-ratelimit-remaining", "")
            remaining = int(left) if left.isdecimal() else None
            tighter = not answer.allowed or tightest is None or remaining is not None and remaining < tightest
            if tighter and remaining is not None:
                tightest = remaining
                fields.pop("x-ratelimit-reset", None)  # an answer about requests in flight has none
            for name, value in given.items():
                if name in SHARED and name in fields and fields[name] != value:
                    fields[name] += ", " + value
                elif tighter or name not in fields:
                    fields[name] = value
        return fields

    def began(self, status: int, head: Iterable[Tuple[str, str]], method: str) -> bool:
        """Records the head of the response. Returns whether the length of the body is known. If it is, the request
        can be settled before the head is sent."""
        self.status, self.head = status, headers_of(head)
        self.headless = method == "HEAD" or status < 200 or status in (204, 304)
        return self.headless or self.length is not None

    @property
    def pending(self) -> bool:
        """True if the request has to be settled or released."""
        return any(answer.at is not None or answer.place is not None for _, answer in self.answers)

    @property
    def length(self) -> Optional[int]:
        """The Content-Length of the response, or None."""
        value = self.head.get("content-length")
        return int(value) if isinstance(value, str) and value.isdecimal() else None

    def settlements(self) -> List[str]:
        """Returns the bodies of the calls that settle the request, but only the first time."""
        if self.settled:
            return []
        self.settled = True
        open_answers = [(check, answer) for check, answer in self.answers if answer.at is not None]
        if not open_answers:
            return []
        outcome: Dict[str, Any] = {}
        if self.status:
            known = self.length
            outcome["status"] = self.status
            outcome["bytes"] = 0 if self.headless else self.bytes if known is None else known
            if fields_in(self.head) <= MOST_FIELDS:
                outcome["headers"] = self.head
        outcome.update(self.outcome)
        settlements = [{**check, "outcome": outcome, "at": answer.at} for check, answer in open_answers]
        for settlement in settlements:
            del settlement["place"]
        return [json.dumps(settlement) for settlement in settlements]

    def places(self) -> List[str]:
        """Returns the bodies of the calls that release the request's permits, but only the first time."""
        held, places = self.answers, []
        self.answers = []
        for _, answer in held:
            if answer.place is not None:
                self.sluice.keeper.remove(answer.place)
                places.append(json.dumps({"place": answer.place}))
        return places

    def abandon(self) -> None:
        """Drops the permits of the request without a call. They will expire."""
        self.places()


current: ContextVar[Optional[Exchange]] = ContextVar("sluice_exchange", default=None)


def outcome(
    *,
    status: Optional[int] = None,
    cost: Optional[int] = None,
    counts: Optional[bool] = None,
    numbers: Optional[Mapping[str, int]] = None,
) -> None:
    """Reports an outcome that the response does not show, for rules that count by outcome. Call it while the
    request is handled, before the response starts. The arguments are the members of "outcome" in /v1/settle. Without a
    middleware, the function does nothing."""
    exchange = current.get()
    if exchange is not None:
        given = {"status": status, "cost": cost, "counts": counts, "numbers": numbers and dict(numbers)}
        exchange.outcome.update({name: value for name, value in given.items() if value is not None})


def utf8(raw: bytes) -> Optional[str]:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def text(raw: bytes) -> str:
    """Decodes a part of the head of a request or response: as UTF-8, or as Latin-1 if it is not UTF-8."""
    decoded = utf8(raw)
    return raw.decode("latin-1") if decoded is None else decoded


def headers_of(pairs: Iterable[Tuple[str, str]]) -> Dict[str, Any]:
    """Returns header fields in the format of a check: a value, or the list of values of a repeated field."""
    headers: Dict[str, Any] = {}
    for name, value in pairs:
        name = name.lower()
        if name not in headers:
            headers[name] = value
        elif isinstance(headers[name], list):
            headers[name].append(value)
        else:
            headers[name] = [headers[name], value]
    return headers


def texts(values: Mapping[str, Any]) -> Dict[str, str]:
    """Converts values to text, and drops None. Lone surrogates, which UTF-8 cannot encode, are replaced."""
    return {name: SURROGATE.sub("\ufffd", str(value)) for name, value in values.items() if value is not None}


def fields_in(headers: Mapping[str, Any]) -> int:
    return sum(len(value) if isinstance(value, list) else 1 for value in headers.values())


def described(
    method: str,
    path: str,
    headers: Dict[str, Any],
    client: Optional[str],
    attributes: Mapping[str, Any],
    body: Optional[bytes],
) -> Dict[str, Any]:
    """Returns the request of a check."""
    request: Dict[str, Any] = {"method": method, "path": path, "headers": headers}
    if fields_in(headers) > MOST_FIELDS:
        raise Refused(refusal(431, "malformed_request", "The request has too many header fields."))
    if client and is_address(client):
        request["client"] = client
    known = texts(attributes)
    if known:
        request["attributes"] = known
    if body is not None:
        decoded = utf8(body) if len(body) <= MOST_TEXT else None
        if decoded is not None:
            request["body"] = decoded
        else:
            request["body_base64"] = base64.b64encode(body).decode()
    return request


def is_address(client: str) -> bool:
    try:
        ipaddress.ip_address(client)
    except ValueError:
        return False
    return True


def takes_body(path: str, bodies: Iterable[str]) -> bool:
    """Returns whether checks of requests to a path contain the body. Each item of bodies is a path, or has a "*" at
    its end: "/v1/*" matches all paths that start with "/v1/"."""
    return any(path == p or p.endswith("*") and path.startswith(p[:-1]) for p in bodies)


def too_large() -> Refused:
    return Refused(refusal(413, "body_too_large", f"The body is larger than {MOST_BODY} bytes."))


def no_attributes(_: Any) -> Mapping[str, Any]:
    return {}
