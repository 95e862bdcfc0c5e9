"""Sends a check to Sluice before each piece of work. Uses only the standard library. This command does four pieces of
work under the rule "jobs", and waits when Sluice requires it:

    python3 json_client.py 127.0.0.1:8081 4
"""

import http.client
import json
import os
import sys
import time
import uuid


class Sluice:
    """A connection to the check API. Only one thread at a time may use it."""

    def __init__(self, address, token=None, timeout=1.0):
        self.connection = http.client.HTTPConnection(address, timeout=timeout)
        self.headers = {"Content-Type": "application/json"}
        if token:
            self.headers["Authorization"] = "Bearer " + token

    def ask(self, path, question):
        """Returns the answer to a check. Repeats the check once if the connection is broken."""
        body = json.dumps(question)
        for last in (False, True):
            try:
                self.connection.request("POST", path, body, self.headers)
                response = self.connection.getresponse()
                answer = json.loads(response.read())
                break
            except (OSError, http.client.HTTPException):
                self.connection.close()
                if last:
                    raise
        if response.status != 200:
            raise ValueError(f"{response.status}: {answer['detail']}")
        return answer

    def check(self, rule, key, cost=1):
        # Because of the id, a repeated check is not charged again, even if the service has charged the first one.
        return self.ask("/v1/check", {"rule": rule, "key": key, "cost": cost, "id": str(uuid.uuid4())})

    def wait(self, rule, key, cost=1, patience=60.0):
        """Waits until a check is allowed. Returns False if this would take longer than patience, or never happen."""
        end = time.monotonic() + patience
        while True:
            answer = self.check(rule, key, cost)
            pause = answer["delay"] if answer["allowed"] else answer.get("retry_after")
            if pause is None or time.monotonic() + pause > end:
                return False
            if pause:
                print(f"waiting {pause} s", flush=True)
                time.sleep(pause)
            if answer["allowed"]:
                return True


def main():
    sluice = Sluice(sys.argv[1], token=os.environ.get("DOOR_TOKEN"))
    for n in range(1, int(sys.argv[2]) + 1):
        if not sluice.wait("jobs", {"api_key": "k-42"}):
            sys.exit("there is no room for this work")
        print(f"work {n}", flush=True)


if __name__ == "__main__":
    main()
