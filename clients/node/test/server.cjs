// A server of the tests: server.cjs FRAMEWORK PORT SERVICE [CLIENT-OPTIONS]. The framework is "http", "express4",
// "express5", "fastify4" or "fastify5", and each has the same routes behind a limit by the whole policy. If the
// service is "none", nothing is limited.
"use strict";

const http = require("node:http");
const { Sluice } = require("@sluicehq/client");

const [framework, port, service, options = "{}"] = process.argv.slice(2);
const sluice = service === "none" ? undefined : new Sluice({ url: `http://${service}`, deadline: 10_000, ...JSON.parse(options) });

const held = new Map(); // functions that finish waiting responses, by name

// routes return a status and a text.
const routes = {
  "/": () => [200, "ok"],
  "/login": (req) => [req.headers["x-password"] === "right" ? 200 : 401, "login"],
  "/report": (req) => {
    const cost = query(req).get("settle");
    if (cost) req.sluice?.settle({ cost: Number(cost) });
    return [200, "report"];
  },
  "/quiet": () => [204, ""],
  "/poll": () => [200, "nothing new"],
  "/job": () => [200, "done"],
  "/go": (req) => {
    const name = query(req).get("name");
    held.get(name)?.();
    return [200, String(held.delete(name))];
  },
  "/left": () => [200, String(held.has("hold"))],
  "/throws": () => {
    throw new Error("the handler is broken");
  },
};

// streams write to the response of node:http themselves.
const streams = {
  "/download": (req, res) => {
    res.setHeader("Content-Type", "text/plain");
    res.write("a".repeat(600));
    res.end("b".repeat(400));
  },
  "/events": (req, res) => {
    res.setHeader("Content-Type", "text/event-stream");
    res.write("data: 1\n\n");
    held.set("events", () => res.end("data: 2\n\n"));
  },
  "/hold": (req, res) => held.set("hold", () => res.end("held")),
};

const url = (req) => new URL(req.url, "http://x");
const query = (req) => url(req).searchParams;

// answer returns the status and the text of a route.
function answer(req) {
  return routes[url(req).pathname]?.(req) ?? [404, "unknown"];
}

// fields returns the fields of an answer: with ?cost= and ?free=, those that rules read.
function fields(req) {
  const all = { "Content-Type": "text/plain", "X-Uncounted": query(req).has("free") ? "yes" : "no" };
  return query(req).has("cost") ? { ...all, "X-Cost": query(req).get("cost") } : all;
}

function plain(req, res) {
  const stream = streams[url(req).pathname];
  if (stream) return stream(req, res);
  try {
    const [status, text] = answer(req);
    res.writeHead(status, fields(req)).end(text);
  } catch {
    res.writeHead(500, { "Content-Type": "text/plain" }).end("broken");
  }
}

function express(make) {
  const app = make();
  app.disable("x-powered-by");
  app.set("env", "test"); // no stack in the log
  if (sluice) app.use(sluice.express());
  app.use((req, res, next) => (streams[req.path] ? streams[req.path](req, res) : next()));
  app.use((req, res) => {
    const [status, text] = answer(req);
    res.status(status).set(fields(req)).send(text);
  });
  app.use((error, req, res, next) => res.status(500).send("broken"));
  return http.createServer(app);
}

function fastify(make) {
  const app = make({ exposeHeadRoutes: false });
  if (sluice) app.addHook("onRequest", sluice.fastify());
  app.setErrorHandler((error, request, reply) => reply.code(500).send("broken"));
  const method = ["GET", "HEAD", "POST", "OPTIONS"];
  for (const [path, stream] of Object.entries(streams)) {
    app.route({
      method,
      url: path,
      handler(request, reply) {
        for (const [name, value] of Object.entries(reply.getHeaders())) reply.raw.setHeader(name, value);
        reply.hijack();
        stream(request.raw, reply.raw);
      },
    });
  }
  app.route({
    method,
    url: "*",
    async handler(request, reply) {
      const [status, text] = answer(request.raw);
      return reply.code(status).headers(fields(request.raw)).send(text);
    },
  });
  return app;
}

const servers = {
  http: () => http.createServer(sluice ? sluice.http(plain) : plain),
  express4: () => express(require("express4")),
  express5: () => express(require("express")),
  fastify4: () => fastify(require("fastify4")),
  fastify5: () => fastify(require("fastify")),
};

servers[framework]().listen({ port: Number(port), host: "127.0.0.1" });
