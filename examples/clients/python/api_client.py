"""Calls an API that has limits, and waits for as long as a denial requires. Uses only the standard library.

    python3 api_client.py http://127.0.0.1:8080/orders 3
"""

import random
import sys
import time
import urllib.error
import urllib.request


def get(url, attempts=5, patience=60.0):
    """Returns the body. Raises the denial if it asks to wait for longer than patience, in seconds."""
    end = time.monotonic() + patience
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return response.read()
        except urllib.error.HTTPError as refusal:
            attempts -= 1
            promised = refusal.headers.get("Retry-After", "")
            if refusal.code not in (429, 503) or not promised.isdecimal() or attempts == 0:
                raise
            # Wait at least as long as promised, plus a random time, so that not all clients return at once.
            wait = int(promised) * random.uniform(1, 1.1)
            if time.monotonic() + wait > end:
                raise
            time.sleep(wait)


if __name__ == "__main__":
    for _ in range(int(sys.argv[2])):
        print(get(sys.argv[1]).decode(), flush=True)
