"""Middleware for Django. Add "sluice.django.SluiceMiddleware" to MIDDLEWARE, and this to the settings:

    SLUICE = {"url": "http://localhost:8081"}

SLUICE has the arguments of Sluice and of the ASGI middleware. Functions in it are called with Django's request."""

import asyncio
from types import SimpleNamespace
from typing import Any, AsyncIterable, AsyncIterator, Callable, Dict, Iterable, Iterator, Optional

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, resolve

from ._answer import Answer
from ._exchange import LISTS, Exchange, Refused, current, no_attributes
from ._sluice import EXEMPT, Cost, F, Key, Sluice
from .wsgi import describe, end

_shared: Dict[str, Sluice] = {}


def sluice() -> Sluice:
    """Returns the client of the service, made from the settings of the project."""
    if "sluice" not in _shared:
        names = ("url", "token", "deadline", "on_error", "tls")
        _shared["sluice"] = Sluice(**{name: value for name, value in _settings().items() if name in names})
    return _shared["sluice"]


def limit(rule: Optional[str] = None, *, key: Optional[Key] = None, cost: Cost = 1) -> Callable[[F], F]:
    """Decorates a view, like Sluice.limit."""
    return sluice().limit(rule, key=key, cost=cost)


def exempt(view: F) -> F:
    """Decorates a view, like Sluice.exempt."""
    return sluice().exempt(view)


def _settings() -> Dict[str, Any]:
    return getattr(settings, "SLUICE", {})


def SluiceMiddleware(get_response: Any) -> Any:
    client = sluice()
    everywhere = _settings().get("everywhere", True)
    attributes = _settings().get("attributes", no_attributes)
    bodies = tuple(_settings().get("bodies", ()))

    def begin(request: HttpRequest) -> Exchange:
        exchange = Exchange(client, lambda: request, lambda: describe(_environ(request), lambda: attributes(request), bodies))
        request._sluice = exchange
        return exchange

    def asks(request: HttpRequest) -> bool:
        return everywhere and not (client.exempts and _is_exempt(request))

    def middleware(request: HttpRequest) -> HttpResponse:
        exchange = begin(request)
        try:
            return handle(exchange, request)
        except BaseException:  # such as an error of attributes, or the server stops the thread
            exchange.abandon()
            raise

    async def async_middleware(request: HttpRequest) -> HttpResponse:
        exchange = begin(request)
        try:
            return await async_handle(exchange, request)
        except BaseException:  # such as an error of attributes, or the request is cancelled
            exchange.abandon()
            raise

    def handle(exchange: Exchange, request: HttpRequest) -> HttpResponse:
        token = current.set(exchange)
        try:
            if asks(request):
                client.pass_(exchange, exchange.check())
            request.sluice = exchange.answer
            response = get_response(request)
        except Refused as refused:
            response = _response(refused.answer)
        finally:
            current.reset(token)
        if _finish(exchange, request, response):
            client.settle(exchange)
        if not response.streaming:
            client.release(exchange)
        return response

    async def async_handle(exchange: Exchange, request: HttpRequest) -> HttpResponse:
        token = current.set(exchange)
        try:
            if asks(request):
                await client.apass(exchange, exchange.check())
            request.sluice = exchange.answer
            response = await get_response(request)
        except Refused as refused:
            response = _response(refused.answer)
        finally:
            current.reset(token)
        if _finish(exchange, request, response):
            await client.asettle(exchange)
        if not response.streaming:
            await client.arelease(exchange)
        return response

    chosen: Any = async_middleware if asyncio.iscoroutinefunction(get_response) else middleware
    chosen.process_exception = _process_exception
    return chosen


vars(SluiceMiddleware).update(sync_capable=True, async_capable=True)


def _process_exception(request: HttpRequest, err: Exception) -> Optional[HttpResponse]:
    return _response(err.answer) if isinstance(err, Refused) else None


def _finish(exchange: Exchange, request: HttpRequest, response: HttpResponse) -> bool:
    """Adds the fields to the response, and returns whether the request can be settled before the response is sent."""
    if not response.streaming:
        exchange.bytes = len(response.content)
    known = exchange.began(response.status_code, response.items(), request.method or "GET")
    for name, value in exchange.fields().items():
        if name in LISTS and response.has_header(name) and response[name] != value:
            value = response[name] + ", " + value
        response[name.title()] = value
    if exchange.pending and response.streaming:
        if not known:
            pieces = response.streaming_content
            response.streaming_content = _acounted(pieces, exchange) if getattr(response, "is_async", False) else _counted(pieces, exchange)
        response._resource_closers.append(lambda: end(exchange))
    return known or not response.streaming


def _counted(pieces: Iterable[bytes], exchange: Exchange) -> Iterator[bytes]:
    for piece in pieces:
        exchange.bytes += len(piece)
        yield piece
    end(exchange)


async def _acounted(pieces: AsyncIterable[bytes], exchange: Exchange) -> AsyncIterator[bytes]:
    async for piece in pieces:
        exchange.bytes += len(piece)
        yield piece
    await exchange.sluice.asettle(exchange)


def _response(answer: Answer) -> HttpResponse:
    response = HttpResponse(answer.body, status=answer.http_status)
    for name, value in answer.headers.items():
        response[name] = value
    return response


def _environ(request: HttpRequest) -> Dict[str, Any]:
    """Returns the part of a WSGI environ that a check needs, even if Django runs under ASGI. Django itself reads the
    body, and keeps it for the view."""
    return {
        **request.META,
        "SCRIPT_NAME": "",
        "PATH_INFO": request.path.encode().decode("latin-1"),
        "wsgi.input": SimpleNamespace(read=lambda size: request.body),
        "wsgi.input_terminated": True,
    }


def _is_exempt(request: HttpRequest) -> bool:
    try:
        return getattr(resolve(request.path_info, getattr(request, "urlconf", None)).func, EXEMPT, False)
    except Resolver404:
        return False
