"""Middleware for ASGI: FastAPI, Starlette, and all other frameworks on asyncio."""

import asyncio
import sys
import urllib.parse
from collections import deque
from typing import Any, Awaitable, Callable, Deque, Dict, Iterable, List, MutableMapping, Optional, Sequence, Tuple

from ._answer import Answer
from ._exchange import LISTS, MOST_BODY, Attributes, Exchange, Refused, current
from ._exchange import described, headers_of, no_attributes, takes_body, text, too_large
from ._sluice import EXEMPT, Sluice

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Head = List[Tuple[bytes, bytes]]


class SluiceMiddleware:
    """Checks each request and WebSocket, and answers those that are denied.

    ``attributes`` is a function that returns attributes of a request, for rules with ``attr:NAME``. ``bodies``
    is a list of paths, such as "/login" or "/v1/*". Checks of requests to these paths contain the body, for rules that
    read it. With ``everywhere=False``, only functions with a limit make checks."""

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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, self._closing(receive), send)
        elif scope["type"] in ("http", "websocket"):
            await self._handle(scope, _Receive(receive), send)
        else:
            await self.app(scope, receive, send)

    def _closing(self, receive: Receive) -> Receive:
        async def closing() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._sluice.aclose()
            return message

        return closing

    async def _handle(self, scope: Scope, receive: "_Receive", send: Send) -> None:
        body: Optional[bytes] = None
        exchange = Exchange(self._sluice, lambda: _request(scope), lambda: self._describe(scope, exchange, body))
        responder = _Responder(exchange, scope, send)
        token = current.set(exchange)
        try:
            if self._everywhere and not (self._sluice.exempts and self._is_exempt(scope)):
                if scope["type"] == "http" and takes_body(scope["path"], self._bodies):
                    body = await receive.body()
                if not await self._admit(exchange, scope, receive):
                    return
            scope["sluice"] = exchange.answer
            await self.app(scope, receive, responder.send)
        except Refused as refused:
            if exchange.status:
                raise
            await self._refuse(refused.answer, scope, responder)
        except Exception:
            exchange.status = exchange.status or 500  # the server or the framework answers with 500
            raise
        except BaseException:
            exchange.abandon()
            raise
        finally:
            current.reset(token)
            try:
                await self._sluice.asettle(exchange)
            finally:
                await self._sluice.arelease(exchange)

    def _describe(self, scope: Scope, exchange: Exchange, body: Optional[bytes]) -> Dict[str, Any]:
        headers = headers_of((text(name), text(value)) for name, value in scope["headers"])
        client = scope.get("client")
        attributes = {} if self._attributes is no_attributes else self._attributes(exchange.request)
        return described(scope.get("method", "GET"), _target(scope), headers, client and client[0], attributes, body)

    async def _admit(self, exchange: Exchange, scope: Scope, receive: "_Receive") -> bool:
        """Checks the request, and waits for its turn in a queue. Returns False if the client leaves before the turn."""
        answer = await self._sluice.adecide(exchange, exchange.check())
        if not answer.delay:
            return True
        if scope["type"] == "websocket":
            await asyncio.sleep(answer.delay)
            return True
        return not await receive.left_within(answer.delay)

    def _is_exempt(self, scope: Scope) -> bool:
        """Returns whether the router of Starlette or FastAPI will choose an exempt function."""
        routes = getattr(scope.get("app", self.app), "routes", None)
        return routes is not None and getattr(_endpoint(routes, scope), EXEMPT, False)

    @staticmethod
    async def _refuse(answer: Answer, scope: Scope, responder: "_Responder") -> None:
        head = [(name.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in answer.head]
        body = b"" if scope.get("method") == "HEAD" else answer.body.encode()
        prefix = "http.response"
        if scope["type"] == "websocket":
            prefix = "websocket.http.response"
            if prefix not in scope.get("extensions", {}):
                await responder.send({"type": "websocket.close", "code": 1008})  # a 403
                return
        await responder.send({"type": prefix + ".start", "status": answer.http_status, "headers": head})
        await responder.send({"type": prefix + ".body", "body": body})


class _Receive:
    """Passes messages to the application: first those that the middleware has already read, then new ones."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._seen: Deque[Message] = deque()
        self._next: "Optional[asyncio.Future[Message]]" = None

    async def __call__(self) -> Message:
        if self._seen:
            return self._seen.popleft()
        if self._next is not None:
            pending, self._next = self._next, None
            return await pending
        return await self._receive()

    async def body(self) -> bytes:
        """Reads the body, and keeps it for the application."""
        pieces, size = [], 0
        while True:
            message = await self._receive()
            self._seen.append(message)
            piece = message.get("body", b"")
            pieces.append(piece)
            size += len(piece)
            if size > MOST_BODY:
                raise too_large()
            if not message.get("more_body"):
                return b"".join(pieces)

    async def left_within(self, seconds: float) -> bool:
        """Waits for a time, and returns whether the client left before its end. Reads at most one message of the
        body, so that the server does not receive the rest of the body yet."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not (self._seen and self._seen[-1].get("more_body")):
            if self._seen and self._seen[-1]["type"] == "http.disconnect":
                return True
            if self._next is None:
                self._next = asyncio.ensure_future(self._receive())
            try:
                done, _ = await asyncio.wait({self._next}, timeout=end - loop.time())
            except BaseException:
                self._next.cancel()
                raise
            if not done:
                return False
            self._seen.append(self._next.result())
            self._next = None
        await asyncio.sleep(end - loop.time())
        return False


class _Responder:
    """Adds the fields to the response, and settles the request as soon as its outcome is known."""

    def __init__(self, exchange: Exchange, scope: Scope, send: Send) -> None:
        self._exchange, self._scope, self._send = exchange, scope, send

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind in ("http.response.start", "websocket.http.response.start"):
            await self._start(message, message["status"])
        elif kind == "websocket.accept":
            await self._start(message, 101)
        elif kind == "websocket.close":
            self._exchange.status = self._exchange.status or 403
        elif kind in ("http.response.body", "websocket.http.response.body"):
            self._exchange.bytes += len(message.get("body", b""))
            if not message.get("more_body"):
                await self._end()
        elif kind == "http.response.pathsend":
            await self._end()
        await self._send(message)

    async def _start(self, message: Message, status: int) -> None:
        head: Head = [(bytes(name), bytes(value)) for name, value in message.get("headers") or ()]
        pairs = [(text(name), text(value)) for name, value in head]
        if self._exchange.began(status, pairs, self._scope.get("method", "GET")):
            await self._exchange.sluice.asettle(self._exchange)
        message["headers"] = with_fields(head, self._exchange.fields())

    async def _end(self) -> None:
        """Settles the request and releases its permits before the last byte is sent, so that the client's next request
        can get a permit."""
        await self._exchange.sluice.asettle(self._exchange)
        await self._exchange.sluice.arelease(self._exchange)


def with_fields(head: Head, fields: Dict[str, str]) -> Head:
    replaced = {name.encode("latin-1") for name in fields if name not in LISTS}
    kept = [(name, value) for name, value in head if name.lower() not in replaced]
    added = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in fields.items()]
    return kept + [field for field in added if field not in kept]


def _target(scope: Scope) -> str:
    """Returns the path and the query as received. If the server does not provide the received path, the path is the
    one that the application sees, escaped again."""
    raw = scope.get("raw_path")
    path = text(raw) if isinstance(raw, bytes) and raw else urllib.parse.quote(scope["path"], safe="/!$&'()*+,;=:@-._~")
    query = text(scope.get("query_string", b""))
    return f"{path}?{query}" if query else path


def _request(scope: Scope) -> Any:
    """Returns Starlette's request (FastAPI uses the same type), or the scope if Starlette is not loaded."""
    requests = sys.modules.get("starlette.requests")
    if requests is None:
        return scope
    return requests.Request(scope) if scope["type"] == "http" else requests.HTTPConnection(scope)


def _endpoint(routes: Sequence[Any], scope: Scope) -> Any:
    for route in routes:
        match, child = route.matches(scope)
        if match.name == "FULL":
            below = getattr(route, "routes", None)
            if below is None:
                return getattr(route, "endpoint", None)
            return _endpoint(below, {**scope, **child})
    return None
