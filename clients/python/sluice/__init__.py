"""Rate limits for Python web applications, decided by a Sluice service.

Use SluiceMiddleware for FastAPI, Starlette and other ASGI applications, sluice.flask for Flask, sluice.django for
Django, and SluiceWSGIMiddleware for other WSGI applications."""

from ._answer import Answer, SluiceError, Unavailable
from ._exchange import Refused, outcome
from ._sluice import Sluice
from .asgi import SluiceMiddleware
from .wsgi import SluiceWSGIMiddleware

__all__ = ["Answer", "Refused", "Sluice", "SluiceError", "SluiceMiddleware", "SluiceWSGIMiddleware", "Unavailable", "outcome"]
__version__ = "0.1.0"
