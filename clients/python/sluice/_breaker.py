"""A circuit breaker, so that requests do not wait for the deadline while the service is down."""

import asyncio
import logging
import threading
import time
from contextlib import contextmanager
from typing import Iterator

from ._answer import SluiceError, Unavailable

log = logging.getLogger("sluice")


class Breaker:
    """After five failed calls in a row, lets one call a second test whether the service answers again; all other calls
    fail at once."""

    def __init__(self, url: str, deadline: float) -> None:
        self._url, self._deadline = url, deadline
        self._lock = threading.Lock()
        self._failures = 0
        self._next = 0.0  # when the next call may be made

    def admit(self) -> None:
        """Raises Unavailable if no call may be made now."""
        if self._failures < 5:
            return
        with self._lock:
            now = time.monotonic()
            if now < self._next:
                raise Unavailable("the service did not answer the last calls")
            self._next = now + 1

    @contextmanager
    def call(self, is_large: bool) -> Iterator[None]:
        """A context for a call, which records whether the service answers. The failure of a large call is not
        recorded. Failures of the connection are raised as Unavailable."""
        try:
            yield
        except (OSError, asyncio.TimeoutError, Unavailable) as err:
            unavailable = Unavailable(str(err) or f"no answer within {self._deadline} s")
            if not is_large:
                self._failed(unavailable)
            raise unavailable from err
        except SluiceError:
            self._answered()
            raise
        self._answered()

    def _answered(self) -> None:
        if self._failures:
            with self._lock:
                self._failures = 0
            log.warning("the service at %s answers again", self._url)

    def _failed(self, err: Unavailable) -> None:
        with self._lock:
            self._failures += 1
            self._next = time.monotonic() + 1
            first = self._failures == 1
        if first:
            log.warning("the service at %s does not answer, and on_error decides: %s", self._url, err)
