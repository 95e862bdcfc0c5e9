"""Middleware for WSGI frameworks that have no other middleware in this package."""

import io
import urllib.parse
from http import HTTPStatus
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from ._answer import Answer, refusal
from ._exchange import LISTS, MOST_BODY, Attributes, Exchange, Refused, current
from ._exchange import described, headers_of, no_attributes, takes_body, text, too_large
from ._sluice import Sluice

Environ = Dict[str, Any]
Head = List[Tuple[str, str]]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]


class SluiceWSGIMiddleware:
    """Checks each request, and answers those that are denied. The arguments are those of the ASGI middleware, but
    functions are called with the environ."""

    def __init__(
        self,
        app: App,
        sluice: Sluice,
        *,
        everywhere: bool = True,
        attributes: Attributes = no_attributes,
        bodies: Iterable[str] = (),
    ) -> None:
        self.app = app
        self._sluice, self._everywhere, self._attributes = sluice, everywhere, attributes
        self._bodies = tuple(bodies)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        exchange = Exchange(self._sluice, lambda: environ, lambda: self._describe(environ))
        start = _starter(exchange, environ, start_response)
        token = current.set(exchange)
        try:
            if self._everywhere:
                self._sluice.pass_(exchange, exchange.check())
            environ["sluice"] = exchange.answer
            body = self.app(environ, start)
        except Refused as refused:
            if exchange.status:
                raise
            body = _refuse(refused.answer, environ, start)
        except Exception:
            exchange.status = exchange.status or 500  # the server answers with 500
            end(exchange)
            raise
        except BaseException:  # the server stops the thread
            exchange.abandon()
            raise
        finally:
            current.reset(token)
        if not exchange.pending:
            return body
        if isinstance(body, (list, tuple)):  # the body is complete, and servers use the length of the list
            exchange.bytes = sum(map(len, body))
            end(exchange)
            return body
        return Body(body, exchange)

    def _describe(self, environ: Environ) -> Dict[str, Any]:
        return describe(environ, lambda: self._attributes(environ), self._bodies)


class Body:
    """The body of a response. When it ends, the request is settled and its permits are released."""

    def __init__(self, body: Iterable[Any], exchange: Exchange) -> None:
        self._body, self._exchange = body, exchange
        self._pieces = iter(body)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            piece = next(self._pieces)
        except StopIteration:
            end(self._exchange)
            raise
        self._exchange.bytes += len(piece.encode() if isinstance(piece, str) else piece)  # Flask also allows str
        return piece

    def close(self) -> None:
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            end(self._exchange)


def end(exchange: Exchange) -> None:
    exchange.sluice.settle(exchange)
    exchange.sluice.release(exchange)


def _starter(exchange: Exchange, environ: Environ, start_response: StartResponse) -> StartResponse:
    def start(status: str, head: Head, *exc_info: Any) -> Any:
        if exchange.began(int(status[:3]), head, environ["REQUEST_METHOD"]):
            exchange.sluice.settle(exchange)
        return start_response(status, with_fields(head, exchange.fields()), *exc_info)

    return start


def with_fields(head: Head, fields: Dict[str, str]) -> Head:
    replaced = {name for name in fields if name not in LISTS}
    kept = [(name, value) for name, value in head if name.lower() not in replaced]
    return kept + [field for field in ((name.title(), value) for name, value in fields.items()) if field not in kept]


def _refuse(answer: Answer, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    status = answer.http_status
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Refused"
    start_response(f"{status} {phrase}", list(answer.head))
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [answer.body.encode()]


def describe(environ: Environ, attributes: Callable[[], Any], bodies: Iterable[str]) -> Dict[str, Any]:
    """Returns the request of an environ, for a check. The path is the path by which the application routes the
    request, escaped again."""
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    raw = path.encode("latin-1")
    target = urllib.parse.quote(raw, safe="/!$&'()*+,;=:@-._~") or "/"
    if environ.get("QUERY_STRING"):
        target += "?" + text(environ["QUERY_STRING"].encode("latin-1"))
    headers = headers_of(_fields(environ))
    body = _read(environ) if takes_body(text(raw), bodies) else None
    return described(environ["REQUEST_METHOD"], target, headers, environ.get("REMOTE_ADDR"), attributes(), body)


def _fields(environ: Environ) -> Iterator[Tuple[str, str]]:
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            yield name[5:].replace("_", "-"), text(value.encode("latin-1"))
        elif name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value:
            yield name.replace("_", "-"), text(value.encode("latin-1"))


def _read(environ: Environ) -> Optional[bytes]:
    """Reads the body, and puts it back for the application."""
    length = environ.get("CONTENT_LENGTH") or ""
    if not length.isdecimal() and not environ.get("wsgi.input_terminated"):
        if environ.get("HTTP_TRANSFER_ENCODING"):  # few servers can read such a body, each in a different way
            raise Refused(refusal(411, "length_required", "The body needs a Content-Length here."))
        return None
    if length.isdecimal() and int(length) > MOST_BODY:
        raise too_large()
    body: bytes = environ["wsgi.input"].read(int(length) if length.isdecimal() else MOST_BODY + 1)
    if len(body) > MOST_BODY:
        raise too_large()
    environ["wsgi.input"] = io.BytesIO(body)
    return body
