"""Sends checks to Sluice over the Redis protocol, with the usual Redis client for Python.

    python3 resp_throttle.py redis://localhost:6380

The program needs the package "redis" (Debian: python3-redis), and a policy with a rule "per-key" by api_key.
"""

import sys

import redis


def throttle(sluice, key, max_burst, count, period, quantity=1):
    """Checks a limit that the program sets: count requests in period seconds, and max_burst + 1 at once."""
    answer = sluice.execute_command("CL.THROTTLE", key, max_burst, count, period, quantity)
    return dict(zip(("limited", "limit", "remaining", "retry_after", "reset_after"), answer))


def check(sluice, rule, cost=1, **key):
    """Checks a rule of the policy. In RESP2, the answer is a list of names and values."""
    pairs = [text for pair in key.items() for text in pair]
    answer = sluice.execute_command("SLUICE.CHECK", rule, *pairs, "COST", cost)
    return answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2]))


def main(url):
    sluice = redis.from_url(url, decode_responses=True)

    answer = throttle(sluice, "user123", 15, 30, 60)
    print("limited" if answer["limited"] else "allowed", "and", answer["remaining"], "left of", answer["limit"])

    answer = check(sluice, "per-key", cost=2, api_key="k-42")
    print("allowed" if answer["allowed"] else "refused", "and", answer["remaining"], "left of", answer["rule"])

    # This sends many checks in one pipeline. Sluice does not support transactions.
    pipeline = sluice.pipeline(transaction=False)
    for _ in range(20):
        pipeline.execute_command("CL.THROTTLE", "user456", 15, 30, 60, 1)
    answers = pipeline.execute()
    print(sum(1 - limited for limited, *_ in answers), "of", len(answers), "allowed, again in", answers[-1][3], "s")


if __name__ == "__main__":
    main(sys.argv[1])
