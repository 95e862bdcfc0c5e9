import json

import cherrypy
from took import PATHS, member, port, read, say


class Root:
    @cherrypy.expose
    def default(self, *where, **params):
        request = cherrypy.request
        return say(request.headers.get("X-Trial"), read({
            "path router": lambda: "/" + "/".join(where),
            "path path_info": lambda: request.path_info,
            "body params": lambda: params.get("user_name"),
            "body body.params": lambda: request.body.params.get("user_name"),
            "cookie cookie": lambda: request.cookie["user_name"].value,
            "header headers": lambda: request.headers.get("X-User-Name"),
            "host headers": lambda: request.headers.get("Host"),
        })).encode()


cherrypy.config.update({"server.socket_host": "127.0.0.1", "server.socket_port": port, "environment": "production",
                        "log.screen": False, "engine.autoreload.on": False})
cherrypy.quickstart(Root(), "/", {"/": {"request.methods_with_bodies": ("POST", "PUT", "PATCH")}})
