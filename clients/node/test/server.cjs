// A server of the tests: server.cjs FRAMEWORK PORT SERVICE, with the framework "http", "http2", "express4", "express5",
// "fastify4" or "fastify5". It has the same routes in each, behind a limit by the whole policy; "none" in place of the
// service is without a limit.
"use strict";

const http = require("node:http");
const { Sluice } = require("../index.js");

const [framework, port, service, settings = "{}"] = process.argv.slice(2);
const { limit = {}, client = {} } = JSON.parse(settings);
const sluice = service === "none" ? undefined : new Sluice({ url: `http://${service}`, deadline: 10_000, ...client });

const held = new Map(); // by name: how to go on

// routes write to a response of node:http, whose request has a path, a query and a method.
const routes = {
  "/": (req, res) => res.end("ok"),
  "/login": (req, res) => {
    res.statusCode = req.headers["x-password"] === "right" ? 200 : 401;
    res.end("login");
  },
  "/report": (req, res) => {
    const cost = new URL(req.url, "http://x").searchParams.get("cost");
    if (cost) req.sluice?.settle({ cost: Number(cost) });
    res.end("report");
  },
  "/download": (req, res) => {
    res.write("a".repeat(600));
    res.end("b".repeat(400));
  },
  "/events": (req, res) => {
    res.setHeader("Content-Type", "text/event-stream");
    res.write("data: 1\n\n");
    held.set("events", () => res.end("data: 2\n\n"));
  },
  "/hold": (req, res) => held.set("hold", () => res.end("held")),
  "/go": (req, res) => {
    const name = new URL(req.url, "http://x").searchParams.get("name");
    held.get(name)?.();
    res.end(String(held.delete(name)));
  },
  "/left": (req, res) => res.end(String(held.has("hold"))),
  "/throws": () => {
    throw new Error("the handler is broken");
  },
};

function serve(req, res) {
  const path = new URL(req.url, "http://x").pathname;
  res.setHeader("Content-Type", "text/plain");
  res.setHeader("Server-Timing", "app;dur=1");
  if (!routes[path]) res.statusCode = 404;
  (routes[path] ?? routes["/"])(req, res);
}

const servers = {
  http: () => http.createServer(sluice ? sluice.http(guarded(serve), limit) : guarded(serve)),
  express4: () => express(require("express4")),
  express5: () => express(require("express")),
  fastify4: () => fastify(require("fastify4")),
  fastify5: () => fastify(require("fastify")),
};

// guarded answers as frameworks do when a handler throws.
function guarded(handler) {
  return (req, res) => {
    try {
      handler(req, res);
    } catch {
      res.statusCode = 500;
      res.end("broken");
    }
  };
}

function express(make) {
  const app = make();
  app.disable("x-powered-by");
  app.set("env", "test"); // no stack in the log
  if (sluice) app.use(sluice.express(limit));
  app.use(serve);
  app.use((error, req, res, next) => res.status(500).end("broken"));
  return http.createServer(app);
}

function fastify(make) {
  const app = make({ exposeHeadRoutes: false });
  if (sluice) app.addHook("onRequest", sluice.fastify(limit));
  app.setErrorHandler((error, request, reply) => reply.code(500).send("broken"));
  // The routes write as those of node:http do, with the fields that hooks have set.
  app.route({
    method: ["GET", "HEAD", "POST", "OPTIONS"],
    url: "*",
    handler(request, reply) {
      for (const [name, value] of Object.entries(reply.getHeaders())) reply.raw.setHeader(name, value);
      reply.hijack();
      guarded(serve)(request.raw, reply.raw);
    },
  });
  return app;
}

const server = servers[framework]();
if (server.ready) server.listen({ port: Number(port), host: "127.0.0.1" });
else server.listen(Number(port), "127.0.0.1");
