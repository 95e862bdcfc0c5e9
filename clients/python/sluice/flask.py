"""Limits for Flask."""

from typing import Any, Dict, Iterable, Optional

import flask

from ._answer import Answer
from ._exchange import Attributes, Exchange, Refused, current, no_attributes
from ._sluice import EXEMPT, Sluice
from .wsgi import Body, describe, end, with_fields


class SluiceFlask:
    """Checks each request of an application, and answers those that are denied. The arguments are those of the ASGI
    middleware, but functions are called with ``flask.request``.

    The check is a ``before_request`` function. Functions that were registered earlier run first, and can set values
    that ``attributes`` reads."""

    def __init__(
        self,
        app: Optional[flask.Flask] = None,
        sluice: Optional[Sluice] = None,
        *,
        everywhere: bool = True,
        attributes: Attributes = no_attributes,
        bodies: Iterable[str] = (),
    ) -> None:
        self._sluice = sluice or Sluice()
        self._everywhere, self._attributes, self._bodies = everywhere, attributes, tuple(bodies)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: flask.Flask) -> None:
        app.before_request(self._before)
        app.after_request(self._after)
        app.teardown_request(self._teardown)
        app.register_error_handler(Refused, lambda refused: _response(refused.answer))

    def _before(self) -> Optional[flask.Response]:
        request = flask.request._get_current_object()  # type: ignore[attr-defined]
        exchange = Exchange(self._sluice, lambda: request, self._describe)
        flask.g._sluice = exchange
        current.set(exchange)
        if self._everywhere and not getattr(flask.current_app.view_functions.get(request.endpoint or ""), EXEMPT, False):
            try:
                self._sluice.pass_(exchange, exchange.check())
            except Refused as refused:
                return _response(refused.answer)
        flask.g.sluice = exchange.answer
        return None

    def _describe(self) -> Dict[str, Any]:
        return describe(flask.request.environ, lambda: self._attributes(flask.request), self._bodies)

    def _after(self, response: flask.Response) -> flask.Response:
        exchange: Optional[Exchange] = flask.g.get("_sluice")
        if exchange is None:  # an earlier before_request function has answered
            return response
        head = response.headers.to_wsgi_list()
        fields = exchange.fields()
        if exchange.began(response.status_code, head, flask.request.method):
            self._sluice.settle(exchange)
        if not response.is_streamed:
            exchange.bytes = response.calculate_content_length() or 0
            end(exchange)
        elif exchange.pending:
            pieces: Any = response.response
            response.response = Body(pieces, exchange)
        response.headers.clear()
        response.headers.extend(with_fields(head, fields))
        return response

    def _teardown(self, err: Optional[BaseException]) -> None:
        current.set(None)
        exchange = flask.g.pop("_sluice", None)
        if exchange is not None and not exchange.status:  # the server will answer the error
            exchange.status = 500
            end(exchange)


def _response(answer: Answer) -> flask.Response:
    return flask.Response(answer.body, answer.http_status, list(answer.headers.items()))
