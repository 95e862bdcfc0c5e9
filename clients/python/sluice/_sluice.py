"""The client of the check API."""

import asyncio
import functools
import inspect
import json
import os
import ssl
import time
import typing
import uuid
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, TypeVar, Union

from . import _wire
from ._aio import AsyncPool
from ._answer import Answer, SluiceError, Unavailable, unavailable
from ._breaker import Breaker, log
from ._exchange import Exchange, OnError, current, texts, too_large
from ._keeper import Keeper
from ._threads import Pool

F = TypeVar("F", bound=Callable[..., Any])
Key = Callable[[Any], Mapping[str, Any]]
Cost = Union[int, Callable[[Any], int]]

EXEMPT = "__sluice_exempt__"


class Sluice:
    """A client of the service at a URL, which is the address of "sluice serve --check".

    A check and its repetition take at most ``deadline`` seconds. If the service has not answered by then, ``on_error``
    decides: "allow", "deny" (503), or a function of the framework's request that returns one of these. ``token`` is
    one of --door-tokens. ``tls`` replaces the default context of an https URL, for example to present a client
    certificate.

    A Sluice is safe for concurrent use by threads and by asyncio tasks. Each method that calls the service has a
    blocking and an async form."""

    def __init__(
        self,
        url: str = "http://localhost:8081",
        *,
        token: Optional[str] = None,
        deadline: float = 0.5,
        on_error: OnError = "allow",
        tls: Optional[ssl.SSLContext] = None,
    ) -> None:
        if not callable(on_error) and on_error not in ("allow", "deny"):
            raise ValueError(f'on_error is "allow", "deny" or a function, not {on_error!r}')
        target = _wire.Target(url, token)
        if target.tls and tls is None:
            tls = ssl.create_default_context()
        breaker = Breaker(url, deadline)
        context = tls if target.tls else None
        self._on_error = on_error
        self._pool = Pool(target, deadline, context, breaker)
        self._async = AsyncPool(target, deadline, context, breaker)
        self.keeper = Keeper(self._pool)
        self.exempts = False  # whether any function is exempt
        if hasattr(os, "register_at_fork"):
            forked = weakref.WeakMethod(self._forked)
            os.register_at_fork(after_in_child=lambda: _call(forked()))

    def _forked(self) -> None:
        self._pool.begin()
        self.keeper.begin()

    # Checks by name.

    def check(self, rule: str, key: Optional[Mapping[str, Any]] = None, cost: int = 1) -> Answer:
        """Checks a rule for a key, and charges it if it is allowed. The key is a mapping from the names of its parts to
        their values."""
        return self._asked(_named(rule, key, cost))

    async def acheck(self, rule: str, key: Optional[Mapping[str, Any]] = None, cost: int = 1) -> Answer:
        return await self._aasked(_named(rule, key, cost))

    def peek(self, rule: str, key: Optional[Mapping[str, Any]] = None, cost: int = 1) -> Answer:
        """Returns the answer that check would return, but charges nothing."""
        return self._asked({**_named(rule, key, cost), "peek": True})

    async def apeek(self, rule: str, key: Optional[Mapping[str, Any]] = None, cost: int = 1) -> Answer:
        return await self._aasked({**_named(rule, key, cost), "peek": True})

    def refund(self, rule: str, key: Optional[Mapping[str, Any]] = None, cost: int = 1) -> Answer:
        """Gives back the units that a check charged. Raises Unavailable if the service does not answer."""
        return Answer.parse(self._pool.post("/v1/refund", json.dumps(_named(rule, key, cost))))

    async def arefund(self, rule: str, key: Optional[Mapping[str, Any]] = None, cost: int = 1) -> Answer:
        return Answer.parse(await self._async.post("/v1/refund", json.dumps(_named(rule, key, cost))))

    def close(self) -> None:
        """Closes idle connections of threads. Later calls open new ones."""
        self._pool.close()

    async def aclose(self) -> None:
        """Closes idle connections of the running event loop."""
        await self._async.close()

    # Decorators.

    def limit(self, rule: Optional[str] = None, *, key: Optional[Key] = None, cost: Cost = 1) -> Callable[[F], F]:
        """Checks a limit before a function runs, in a request that a middleware of this package handles.

        With a ``rule``, only that rule is checked, for the key that the function ``key`` returns for the
        framework's request. Without a ``rule``, all rules that match the request are checked; use this with a
        middleware that has ``everywhere=False``."""
        if key is not None and rule is None:
            raise TypeError("key needs a rule: limit(rule, key=...)")

        def decorate(f: F) -> F:
            if inspect.iscoroutinefunction(f):

                @functools.wraps(f)
                async def limited(*args: Any, **kwargs: Any) -> Any:
                    exchange = self._exchange(f)
                    await self.apass(exchange, _check_of(exchange, rule, key, cost))
                    return await f(*args, **kwargs)
            else:

                @functools.wraps(f)
                def limited(*args: Any, **kwargs: Any) -> Any:
                    exchange = self._exchange(f)
                    self.pass_(exchange, _check_of(exchange, rule, key, cost))
                    return f(*args, **kwargs)

            limited.__signature__ = _signature(f)  # type: ignore[attr-defined]
            return typing.cast(F, limited)

        return decorate

    def exempt(self, f: F) -> F:
        """Marks the function of a route as exempt. Its requests pass without a check."""
        setattr(f, EXEMPT, True)
        self.exempts = True
        return f

    @staticmethod
    def _exchange(f: Any) -> Exchange:
        exchange = current.get()
        if exchange is None:
            raise RuntimeError(f"{f.__qualname__} has a limit, and no middleware of sluice handles the request")
        return exchange

    # For the middleware.

    def decide(self, exchange: Exchange, check: Dict[str, Any]) -> Answer:
        """Makes a check and returns the answer. If the service does not answer, on_error decides. Raises Refused if the
        request is denied."""
        try:
            answer = self._asked(check, exchange)
        except SluiceError as err:
            raise _refusing(err) from err
        exchange.note(check, answer)
        return answer

    async def adecide(self, exchange: Exchange, check: Dict[str, Any]) -> Answer:
        try:
            answer = await self._aasked(check, exchange)
        except SluiceError as err:
            raise _refusing(err) from err
        exchange.note(check, answer)
        return answer

    def pass_(self, exchange: Exchange, check: Dict[str, Any]) -> None:
        """Like decide, but also waits for the request's turn in a queue."""
        answer = self.decide(exchange, check)
        if answer.delay:
            time.sleep(answer.delay)

    async def apass(self, exchange: Exchange, check: Dict[str, Any]) -> None:
        answer = await self.adecide(exchange, check)
        if answer.delay:
            await asyncio.sleep(answer.delay)

    def settle(self, exchange: Exchange) -> None:
        """Reports the outcome of a request, for rules that count by outcome. If the service does not answer, the
        request counts."""
        self._report("/v1/settle", exchange.settlements())

    async def asettle(self, exchange: Exchange) -> None:
        await self._areport("/v1/settle", exchange.settlements())

    def release(self, exchange: Exchange) -> None:
        """Releases the permits of a request. If the service does not answer, they expire."""
        self._report("/v1/release", exchange.places())

    async def arelease(self, exchange: Exchange) -> None:
        await self._areport("/v1/release", exchange.places())

    def _report(self, path: str, bodies: List[str]) -> None:
        for body in bodies:
            try:
                self._pool.post(path, body)
            except Exception:
                _lost(path)

    async def _areport(self, path: str, bodies: List[str]) -> None:
        for body in bodies:
            try:
                await self._async.post(path, body)
            except Exception:
                _lost(path)

    def _asked(self, check: Dict[str, Any], exchange: Optional[Exchange] = None) -> Answer:
        try:
            return self._pool.ask(json.dumps(check))
        except Unavailable:
            return self._unavailable(exchange)

    async def _aasked(self, check: Dict[str, Any], exchange: Optional[Exchange] = None) -> Answer:
        try:
            return await self._async.ask(json.dumps(check))
        except Unavailable:
            return self._unavailable(exchange)

    def _unavailable(self, exchange: Optional[Exchange]) -> Answer:
        on_error = self._on_error
        if callable(on_error):
            on_error = on_error(exchange.request if exchange else None)
        return unavailable(on_error)


def _call(f: Optional[Callable[[], None]]) -> None:
    if f is not None:
        f()


def _lost(path: str) -> None:
    log.debug("%s was not answered", path, exc_info=True)


def _refusing(err: SluiceError) -> Exception:
    """Returns Refused if the check was too large, and otherwise the error."""
    return too_large() if err.status == 413 else err


def _named(rule: str, key: Optional[Mapping[str, Any]], cost: int) -> Dict[str, Any]:
    return {"rule": rule, "key": texts(key or {}), "cost": cost, "id": str(uuid.uuid4())}


def _check_of(exchange: Exchange, rule: Optional[str], key: Optional[Key], cost: Cost) -> Dict[str, Any]:
    units = cost(exchange.request) if callable(cost) else cost
    return exchange.check(rule, key(exchange.request) if key else None, units)


def _signature(f: Callable[..., Any]) -> inspect.Signature:
    """Returns the signature of a function with its annotations resolved. Otherwise, frameworks would look for the
    annotations of a decorated function in this module."""
    signature = inspect.signature(f)
    try:
        hints = typing.get_type_hints(f, include_extras=True)
    except Exception:
        return signature
    parameters = [p.replace(annotation=hints.get(p.name, p.annotation)) for p in signature.parameters.values()]
    return signature.replace(parameters=parameters, return_annotation=hints.get("return", signature.return_annotation))
