"""Every upstream reports each request as a line of JSON in the file LOG, before it answers. A key is the part of the
request that was read and the idiom that has read it."""

import json
import os

PATHS = ["/%s/login" % v for v in ("ip", "body", "skip", "query", "cookie", "header", "host")]

log = os.open(os.environ["LOG"], os.O_WRONLY | os.O_APPEND)
port = int(os.environ["PORT"])


def text(v):
    """Returns a value as a program would compare it or put it into a query."""
    if v is None or isinstance(v, bool):
        return None
    if isinstance(v, bytes):
        v = v.decode("utf-8", "replace")
    if isinstance(v, (list, tuple)):
        return text(v[0]) if len(v) == 1 else None
    if isinstance(v, dict) or not isinstance(v, (str, int, float)):
        return None
    return str(v)


def read(idioms):
    """Calls every idiom. An idiom that fails counts as having read nothing."""
    took = {}
    for name, idiom in idioms.items():
        try:
            took[name] = text(idiom())
        except Exception:
            took[name] = None
    return took


def say(trial, took):
    line = json.dumps({"upstream": os.environ["NAME"], "trial": trial or "", "took": took})
    os.write(log, line.encode() + b"\n")
    return line


def member(data, name):
    return data[name] if isinstance(data, dict) else None
