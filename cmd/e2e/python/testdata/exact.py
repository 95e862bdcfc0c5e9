"""exact.py WAY URL checks 2,000 jobs at once, and makes 40 checks of a rule that does not exist."""

import asyncio
import multiprocessing
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from sluice import Sluice, SluiceError

sluice = Sluice(sys.argv[2], deadline=60, on_error="deny")
names = ["jobs" if i % 51 else "no-such-rule" for i in range(2040)]


def ask(name):
    try:
        answer = sluice.check(name, {"api_key": "k"})
    except SluiceError:
        return "wrong"
    return "passed" if answer.allowed else "refused" if answer.asked else "lost"


async def aask(name):
    try:
        answer = await sluice.acheck(name, {"api_key": "k"})
    except SluiceError:
        return "wrong"
    return "passed" if answer.allowed else "refused" if answer.asked else "lost"


async def all_at_once():
    return await asyncio.gather(*map(aask, names))


def threads(names):
    with ThreadPoolExecutor(32) as pool:
        return list(pool.map(ask, names))


if sys.argv[1] == "asyncio":
    got = asyncio.run(all_at_once())
elif sys.argv[1] == "threads":
    got = threads(names)
else:
    first = [ask(name) for name in names[:40]]  # opens connections that child processes must not use
    with multiprocessing.get_context("fork").Pool(4) as pool:
        got = first + [one for part in pool.map(threads, [names[40 + i :: 4] for i in range(4)]) for one in part]
count = Counter(got)
print(f"{count.pop('passed')} passed, {count.pop('refused')} refused, {count.pop('wrong')} wrong", *count.elements())
