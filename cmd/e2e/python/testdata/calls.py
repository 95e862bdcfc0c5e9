"""calls.py URL TOKEN makes each call that needs no request, in the blocking and the async form."""

import asyncio
import sys

from sluice import Sluice

sluice = Sluice(sys.argv[1], token=sys.argv[2], deadline=60, on_error="deny")
key = {"api_key": "k"}


def shown(answer):
    left = [result["remaining"] for result in answer.raw.get("results", [])]
    return f"{answer.status} {left}"


def blocking():
    return [sluice.check("jobs", key, 3), sluice.peek("jobs", key), sluice.refund("jobs", key, 2), sluice.check("jobs", key, 11)]


async def awaited():
    answers = [await sluice.acheck("jobs", key, 3), await sluice.apeek("jobs", key), await sluice.arefund("jobs", key, 2)]
    await sluice.aclose()
    return answers


print(*map(shown, blocking()), sep=", ")
values = [sluice.check("jobs", {"api_key": value, "unknown": None}) for value in (7, "7", "\ud800", "\ufffd")]
print(*map(shown, values), sep=", ")
sluice.close()
print(*map(shown, asyncio.run(awaited())), sep=", ")
