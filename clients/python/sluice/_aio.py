"""Connections to the service, for asyncio."""

import asyncio
import ssl
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from . import _wire
from ._answer import Answer, Unavailable
from ._breaker import Breaker
from ._threads import CALLS, KEPT, T

_Streams = Tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Ask:
    def __init__(self, text: str, deadline: float, future: "asyncio.Future[Answer]") -> None:
        self.text, self.deadline, self._future = text, deadline, future

    @property
    def over(self) -> bool:
        return self._future.done()

    def answered(self, answer: Answer) -> None:
        if not self._future.done():
            self._future.set_result(answer)

    def failed(self, err: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(err)


class _Loop:
    """The state of one event loop."""

    def __init__(self) -> None:
        self.queue: Deque[_Ask] = deque()
        self.calls = 0  # the number of calls under way
        self.idle: List[_Streams] = []
        self.tasks: "set[asyncio.Task[None]]" = set()  # the loop itself keeps only weak references


class AsyncPool:
    """Makes the calls of all event loops. Each loop can run in a thread of its own."""

    def __init__(self, target: _wire.Target, deadline: float, tls: Optional[ssl.SSLContext], breaker: Breaker) -> None:
        self._target, self._deadline, self._tls, self._breaker = target, deadline, tls, breaker
        self._loops: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop]" = weakref.WeakKeyDictionary()

    def _of(self, loop: asyncio.AbstractEventLoop) -> _Loop:
        state = self._loops.get(loop)
        if state is None:
            state = self._loops.setdefault(loop, _Loop())
        return state

    async def ask(self, text: str) -> Answer:
        """Returns the answer to a check, which shares the next call with other waiting checks."""
        self._breaker.admit()
        if _wire.is_large(text):
            return Answer.parse(await self._exchange("/v1/check", text, self._deadline, _wire.read))
        loop = asyncio.get_running_loop()
        state = self._of(loop)
        future: "asyncio.Future[Answer]" = loop.create_future()
        ask = _Ask(text, loop.time() + self._deadline, future)
        state.queue.append(ask)
        if state.calls < CALLS:
            state.calls += 1
            task = loop.create_task(self._work(loop, state))
            state.tasks.add(task)
            task.add_done_callback(state.tasks.discard)
        timer = loop.call_at(ask.deadline, ask.failed, Unavailable(f"no answer within {self._deadline} s"))
        try:
            return await future
        finally:
            timer.cancel()

    async def _work(self, loop: asyncio.AbstractEventLoop, state: _Loop) -> None:
        """Makes calls until no check is waiting."""
        try:
            while True:
                batch = _wire.next_batch(state.queue)
                if not batch:
                    return
                await self._call(batch, batch[-1].deadline - loop.time())
        finally:
            state.calls -= 1

    async def _call(self, batch: List[_Ask], left: float) -> None:
        try:
            again = await self._exchange("/v1/check", _wire.batch_body(batch), left, lambda r: _wire.distribute(batch, r))
        except Exception as err:
            for ask in batch:
                ask.failed(err)
            return
        except BaseException:  # the loop is closing
            for ask in batch:
                ask.failed(Unavailable("the program ends"))
            raise
        now = asyncio.get_running_loop().time
        for ask in again:
            if not ask.over:  # otherwise on_error has decided, and nothing may be charged
                await self._call([ask], ask.deadline - now())

    async def post(self, path: str, body: str) -> Dict[str, Any]:
        """Makes a call outside the batches."""
        self._breaker.admit()
        return await self._exchange(path, body, self._deadline, _wire.read)

    async def _exchange(self, path: str, body: str, left: float, read: Callable[[_wire.Response], T]) -> T:
        with self._breaker.call(_wire.is_large(body)):
            return read(await asyncio.wait_for(self._send(self._target.request(path, body)), left))

    async def _send(self, data: bytes) -> _wire.Response:
        """Sends a call. Repeats it in the same cases as _threads.Pool."""
        state = self._of(asyncio.get_running_loop())
        if state.idle:
            try:
                return await self._over(state, state.idle.pop(), data)
            except OSError:
                _close(state)
        streams = await asyncio.open_connection(self._target.host, self._target.port, ssl=self._tls)
        return await self._over(state, streams, data)

    async def _over(self, state: _Loop, streams: _Streams, data: bytes) -> _wire.Response:
        reader, writer = streams
        response = None
        try:
            writer.write(data)
            await writer.drain()
            parser = _wire.Parser()
            while response is None:
                response = parser.feed(await reader.read(1 << 16))
            return response
        finally:
            if response is not None and response.reusable and len(state.idle) < KEPT:
                state.idle.append(streams)
            else:
                writer.close()

    async def close(self) -> None:
        """Closes the idle connections of the running loop."""
        _close(self._of(asyncio.get_running_loop()))


def _close(state: _Loop) -> None:
    while state.idle:
        state.idle.pop()[1].close()
