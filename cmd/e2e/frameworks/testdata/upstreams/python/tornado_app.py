import json

import tornado.ioloop
import tornado.web
from took import PATHS, member, port, read, say


class Take(tornado.web.RequestHandler):
    def initialize(self, route=None): self.route = route

    def check_xsrf_cookie(self): pass

    def both(self):
        r = self.request
        self.write(say(r.headers.get("X-Trial"), read({
            "path router": lambda: self.route,
            "path request.path": lambda: r.path,
            "body get_argument": lambda: self.get_argument("user_name", None),
            "body get_body_argument": lambda: self.get_body_argument("user_name", None),
            "body body_arguments": lambda: r.body_arguments["user_name"][0],
            "body json.loads": lambda: member(json.loads(r.body), "user_name"),
            "query get_query_argument": lambda: self.get_query_argument("user_name", None),
            "cookie get_cookie": lambda: self.get_cookie("user_name"),
            "header headers": lambda: r.headers.get("X-User-Name"),
            "host host": lambda: r.host,
        })))

    get = post = both


app = tornado.web.Application([(path + "/?", Take, {"route": path}) for path in PATHS] + [(".*", Take)],
                              log_function=lambda h: None)
app.listen(port, "127.0.0.1")
tornado.ioloop.IOLoop.current().start()
