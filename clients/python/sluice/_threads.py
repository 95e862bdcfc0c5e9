"""Connections to the service, for threads."""

import socket
import ssl
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, TypeVar

from . import _wire
from ._answer import Answer, Unavailable
from ._breaker import Breaker

T = TypeVar("T")

# The most calls with checks under way, not counting large checks. Further checks wait, and share the next call.
CALLS = 4

# The most idle connections that are kept open.
KEPT = 16


class _Ask:
    """A waiting check. Its thread makes the call, or sleeps until another thread has made it."""

    def __init__(self, text: str, deadline: float) -> None:
        self.text, self.deadline = text, deadline
        self.batch: Optional[List["_Ask"]] = None  # the checks of the call that this thread has to make
        self.done = self.over = False
        self._answer: Optional[Answer] = None
        self._err: Optional[Exception] = None
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def sleep(self) -> None:
        self._asleep.acquire(timeout=max(0.0, self.deadline - time.monotonic()))

    def wake(self) -> None:
        if self._asleep.locked():
            self._asleep.release()

    def answered(self, answer: Answer) -> None:
        self._answer, self.done = answer, True
        self.wake()

    def failed(self, err: Exception) -> None:
        if not self.done:
            self._err, self.done = err, True
            self.wake()

    def result(self) -> Answer:
        if self._answer is None:
            raise self._err or Unavailable("no answer")
        return self._answer


class Pool:
    """Makes the calls of all threads. A Pool is safe for concurrent use."""

    def __init__(self, target: _wire.Target, deadline: float, tls: Optional[ssl.SSLContext], breaker: Breaker) -> None:
        self._target, self._deadline, self._tls, self._breaker = target, deadline, tls, breaker
        self.begin()

    def begin(self) -> None:
        """Sets the initial state, without connections. After a fork, the child calls begin, because the connections
        belong to the parent."""
        self._lock = threading.Lock()
        self._queue: Deque[_Ask] = deque()
        self._calls = 0  # the number of calls under way
        self._idle: List[_Connection] = []

    def ask(self, text: str) -> Answer:
        """Returns the answer to a check, which shares the next call with other waiting checks."""
        self._breaker.admit()
        if _wire.is_large(text):
            return Answer.parse(self._exchange("/v1/check", text, time.monotonic() + self._deadline, _wire.read))
        mine = _Ask(text, time.monotonic() + self._deadline)
        with self._lock:
            if self._calls < CALLS:
                self._calls += 1
                mine.batch = [mine]
            else:
                self._queue.append(mine)
        if mine.batch is None:
            mine.sleep()
        with self._lock:
            mine.over = not mine.done and mine.batch is None
        if mine.over:
            raise Unavailable(f"no answer within {self._deadline} s")
        if mine.batch is not None:
            try:
                self._call(mine.batch, mine.deadline)
            finally:
                self._hand_on()
        return mine.result()

    def _hand_on(self) -> None:
        """Lets the thread of the newest check in the next batch make the call, because this check has the latest
        deadline."""
        with self._lock:
            batch = _wire.next_batch(self._queue)
            if not batch:
                self._calls -= 1
                return
            batch[-1].batch = batch
        batch[-1].wake()

    def _call(self, batch: List[_Ask], deadline: float) -> None:
        try:
            again = self._exchange("/v1/check", _wire.batch_body(batch), deadline, lambda r: _wire.distribute(batch, r))
        except Exception as err:
            for ask in batch:
                ask.failed(err)
            return
        for ask in again:
            if not ask.over:  # otherwise on_error has decided, and nothing may be charged
                self._call([ask], ask.deadline)

    def post(self, path: str, body: str) -> Dict[str, Any]:
        """Makes a call outside the batches."""
        self._breaker.admit()
        return self._exchange(path, body, time.monotonic() + self._deadline, _wire.read)

    def _exchange(self, path: str, body: str, deadline: float, read: Callable[[_wire.Response], T]) -> T:
        with self._breaker.call(_wire.is_large(body)):
            return read(self._send(self._target.request(path, body), deadline))

    def _send(self, data: bytes, deadline: float) -> _wire.Response:
        """Sends a call. If an idle connection fails, repeats the call on a new connection, because the service may
        have closed the old one. Nothing is charged twice, because every check and every outcome has an ID."""
        kept = self._take()
        if kept is not None:
            try:
                return self._over(kept, data, deadline)
            except OSError:
                if time.monotonic() >= deadline:
                    raise
                self.close()  # the service has probably closed the other idle connections, too
        return self._over(_Connection(self._target, self._tls, deadline), data, deadline)

    def _over(self, connection: "_Connection", data: bytes, deadline: float) -> _wire.Response:
        try:
            response = connection.exchange(data, deadline)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if response.reusable and len(self._idle) < KEPT:
                self._idle.append(connection)
                return response
        connection.close()
        return response

    def _take(self) -> Optional["_Connection"]:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class _Connection:
    def __init__(self, target: _wire.Target, tls: Optional[ssl.SSLContext], deadline: float) -> None:
        self._socket = socket.create_connection((target.host, target.port), timeout=_left(deadline))
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=target.host)
        except BaseException:
            self._socket.close()
            raise

    def exchange(self, data: bytes, deadline: float) -> _wire.Response:
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(data)
        parser = _wire.Parser()
        while True:
            self._socket.settimeout(_left(deadline))
            response = parser.feed(self._socket.recv(1 << 16))
            if response is not None:
                return response

    def close(self) -> None:
        self._socket.close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer before the deadline")
    return left
