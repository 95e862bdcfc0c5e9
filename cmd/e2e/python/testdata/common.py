"""Common code of the applications: all frameworks send the same responses, with limits if SLUICE_URL is set."""

import os

from sluice import Sluice

URL = os.environ.get("SLUICE_URL", "")
SETTINGS = {"bodies": ["/auth/*", "/mcp"]}


def client():
    return Sluice(URL, on_error=os.environ.get("SLUICE_ON_ERROR", "allow"), deadline=float(os.environ.get("SLUICE_DEADLINE", "60")))


def login(password):
    """Returns status and body of a login."""
    return (200, "welcome") if password == "right" else (401, "wrong password")
