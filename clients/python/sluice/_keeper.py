"""Renews permits in flight for as long as their requests last."""

import json
import threading
import time
from typing import Optional, Set

from ._threads import Pool

# Seconds between renewals. A permit expires 10 s after its last renewal.
INTERVAL = 3.0


class Keeper:
    """Renews permits in a thread, which runs while there are permits."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.begin()

    def begin(self) -> None:
        """Sets the initial state, without permits. After a fork, the child calls begin, because the permits belong to
        the parent."""
        self._lock = threading.Lock()
        self._places: Set[str] = set()
        self._thread: Optional[threading.Thread] = None

    def add(self, place: str) -> None:
        with self._lock:
            self._places.add(place)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="sluice", daemon=True)
                self._thread.start()

    def remove(self, place: str) -> None:
        with self._lock:
            self._places.discard(place)

    def _run(self) -> None:
        while True:
            time.sleep(INTERVAL)
            with self._lock:
                places = list(self._places)
                if not places:
                    self._thread = None
                    return
            for place in places:
                try:
                    self._pool.post("/v1/hold", json.dumps({"place": place}))
                except Exception:
                    break  # the remaining calls would probably fail, too; the next round makes them
