"""serve.py SERVER MODULE:NAME PORT serves an application on 127.0.0.1."""

import importlib
import sys

server, target, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
module, _, name = target.partition(":")
app = getattr(importlib.import_module(module), name)

if server == "uvicorn":
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", proxy_headers=False)
elif server == "hypercorn":
    import asyncio

    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    asyncio.run(serve(app, config))
elif server == "waitress":
    import waitress

    waitress.serve(app, host="127.0.0.1", port=port, threads=64)
elif server == "wsgiref":
    import socketserver
    import wsgiref.simple_server as simple

    class Server(socketserver.ThreadingMixIn, simple.WSGIServer):
        daemon_threads = True

    simple.make_server("127.0.0.1", port, app, Server).serve_forever()
else:
    sys.exit(f"no server {server}")
