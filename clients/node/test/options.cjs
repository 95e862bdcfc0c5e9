// The options of limits: options.cjs SERVICE, with the policy beside it. It exits with 0 if all assertions hold.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const http = require("node:http");
const http2 = require("node:http2");
const { setImmediate: nextTurn } = require("node:timers/promises");
const { Sluice } = require("@sluicehq/client"); // by its own name, as programs import it

const sluice = new Sluice({ url: `http://${process.argv[2]}/`, deadline: 10_000 });

// listening resolves to a function that makes requests to a server, with the server's URL and a function that closes the server.
async function listening(server) {
  if (server.ready) await server.listen({ port: 0, host: "127.0.0.1" });
  else await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = (server.server ?? server).address();
  const url = `http://127.0.0.1:${port}`;
  const ask = (path, init) => fetch(url + path, { ...init, headers: { connection: "close", ...init?.headers } });
  ask.url = url;
  ask.close = () => {
    server.closeAllConnections?.(); // a Sluice keeps its connections open
    return server.close();
  };
  return ask;
}

async function statuses(ask, paths, init) {
  const all = [];
  for (const path of paths) all.push((await ask(path, init)).status);
  return all;
}

// mcp checks that the second call of a tool is denied by a JSON-RPC error with status 200.
async function mcp(ask, headers) {
  const call = json({ jsonrpc: "2.0", id: 7, method: "tools/call" });
  Object.assign(call.headers, headers);
  assert.equal(await (await ask("/mcp", call)).text(), "called");
  const denied = await ask("/mcp", call);
  const { id, error } = await denied.json();
  assert.deepEqual([denied.status, id, error.code], [200, 7, -32029]);
}

const json = (value) => ({ method: "POST", body: JSON.stringify(value), headers: { "content-type": "application/json" } });

async function expressLimits(express, address) {
  const app = express();
  app.set("env", "test");
  const user = (req) => ({ user: req.headers["x-user"] });
  const router = express.Router();
  router.get("/jobs", sluice.express({ attributes: user, skip: async (req) => req.headers["x-admin"] === "1" }), (req, res) => res.send("job"));
  app.use(router);
  app.post("/login", express.json(), sluice.express({ body: (req) => req.body }), (req, res) => res.send("in"));
  app.post("/mcp", express.json(), sluice.express({ body: (req) => req.body }), (req, res) => res.send("called"));
  app.get("/page", sluice.express({ rule: "named", key: (req) => ({ api_key: req.headers["x-user"], "query:page": req.query.page }), cost: (req) => Number(req.query.cost ?? 1) }), (req, res) => res.send("page"));
  const own = (req, res, answer) => res.status(answer.status).json({ wait: answer.retry_after > 0, rule: answer.results.find((one) => !one.allowed).rule });
  app.use("/slow", sluice.express({ handler: own }), (req, res) => res.send("slow"));
  app.get("/soft", sluice.express(), (req, res) => res.json(req.sluice.answer.over ?? []));
  const mounted = express.Router();
  mounted.get("/mounted", sluice.express(), (req, res) => res.send("mounted"));
  app.use("/api", mounted);
  const second = sluice.express({ rule: "slow", key: (req) => ({ client_ip: `${req.headers["x-forwarded-for"]}0` }) });
  app.get("/page/both", sluice.express({ rule: "named", key: (req) => ({ api_key: req.headers["x-user"], "query:page": req.query.page }) }), second, (req, res) => res.send("both"));
  app.get("/room", sluice.express(), sluice.express({ rule: "room", key: () => ({}) }), (req, res) => res.send("room"));
  app.get("/wrong", sluice.express({ rule: "unknown", key: () => ({}) }));
  app.get("/broken", sluice.express({ key: () => Promise.reject(new Error("no database")), rule: "named" }));
  app.use((error, req, res, next) => res.status(500).send(error.message));
  const ask = await listening(http.createServer(app));
  const a = `a-${address}`;
  const from = { headers: { "x-forwarded-for": address } };

  // Attributes from the program, and skipped requests.
  assert.deepEqual(await statuses(ask, ["/jobs", "/jobs", "/jobs"], { headers: { "x-user": a } }), [200, 200, 429]);
  assert.deepEqual(await statuses(ask, ["/jobs"], { headers: { "x-user": `${a}2` } }), [200]);
  const skipped = await ask("/jobs", { headers: { "x-user": a, "x-admin": "1" } });
  assert.deepEqual([skipped.status, skipped.headers.get("RateLimit")], [200, null]);

  // A parsed body, also one with half a surrogate pair.
  assert.deepEqual(await statuses(ask, ["/login", "/login"], json({ username: a })), [200, 429]);
  assert.deepEqual(await statuses(ask, ["/login", "/login"], json({ username: `${a}\ud800` })), [400, 400]);

  await mcp(ask, from.headers);

  // One rule, by a key and with a cost.
  assert.deepEqual(await statuses(ask, ["/page?page=1&cost=3", "/page?page=1&cost=2", "/page?page=1"], { headers: { "x-user": a } }), [200, 429, 200]);

  // Denials by the program's own handler.
  await ask("/slow", from);
  const refused = await ask("/slow", from);
  assert.deepEqual([refused.status, await refused.json()], [429, { wait: true, rule: "slow" }]);
  assert.ok(Number(refused.headers.get("Retry-After")) > 0);

  // The check of a mounted router has the whole path.
  assert.deepEqual(await statuses(ask, ["/api/mounted", "/api/mounted"], from), [200, 429]);

  // Paths that differ only in case count as one path, as for the router.
  assert.deepEqual(await statuses(ask, ["/API/Mounted"], from), [429]);

  // The fields list both limits of one request.
  const both = (await ask("/page/both?page=2", { headers: { ...from.headers, "x-user": a } })).headers.get("RateLimit");
  assert.match(both, /^"named";r=3;.*, "slow";r=0/);

  // The end of requests in flight is unknown, so the reset of another limit goes.
  const room = (await ask("/room", from)).headers;
  assert.deepEqual([room.get("X-RateLimit-Limit"), room.get("X-RateLimit-Reset")], ["1", null]);

  await ask("/soft");
  assert.deepEqual(await (await ask("/soft")).json(), ["soft"]);

  // Mistakes of the program are errors, and no request passes because of one.
  const wrong = await ask("/wrong");
  assert.equal(wrong.status, 500);
  assert.match(await wrong.text(), /400.*unknown/);
  assert.equal(await (await ask("/broken")).text(), "no database");
  ask.close();
}

// A check has the path as the framework routes it.
async function cases(express, fastify, options, address) {
  const app = express();
  app.enable("case sensitive routing");
  app.get("/Exact", sluice.express(), (req, res) => res.send("exact"));
  const exact = await listening(http.createServer(app));
  assert.deepEqual(await statuses(exact, ["/exact", "/Exact", "/Exact"], { headers: { "x-forwarded-for": address } }), [404, 200, 429]);
  const folding = fastify(options);
  folding.get("/api/mounted", { onRequest: sluice.fastify() }, () => "mounted");
  const ask = await listening(folding);
  assert.deepEqual(await statuses(ask, ["/api/mounted?A", "/API/mounted?A"], { headers: { "x-forwarded-for": address } }), [200, 429]);
  exact.close();
  await ask.close();
}

async function fastifyLimits(fastify, name) {
  const app = fastify();
  const user = `f-${name}`;
  app.post("/login", { preHandler: sluice.fastify({ body: (request) => request.body }) }, () => "in");
  app.post("/mcp", { preHandler: sluice.fastify({ body: (request) => request.body }) }, () => "called");
  app.get("/page", { onRequest: sluice.fastify({ rule: "named", key: (request) => ({ api_key: user, "query:page": request.query.page }), cost: 3 }) }, () => "page");
  app.register(async (scope) => {
    scope.addHook("onRequest", sluice.fastify({ attributes: () => ({ user }), handler: (request, reply, answer) => reply.send({ status: answer.status }) }));
    scope.get("/jobs", (request) => request.raw.sluice.answer.results[0].rule);
  });
  app.get("/wrong", { onRequest: sluice.fastify({ rule: "unknown", key: () => ({}) }) }, () => "no");
  const ask = await listening(app);
  assert.deepEqual(await statuses(ask, ["/login", "/login"], json({ username: user })), [200, 429]);
  await mcp(ask, { "x-forwarded-for": `192.0.2.1${name}` });
  assert.deepEqual(await statuses(ask, ["/page?page=1", "/page?page=1"]), [200, 429]);
  assert.equal(await (await ask("/jobs")).text(), "jobs");
  await ask("/jobs");
  const refused = await ask("/jobs");
  assert.deepEqual([refused.status, await refused.json()], [429, { status: 429 }]);
  assert.equal((await ask("/wrong")).status, 500);
  await ask.close();
}

// Requests by which clients could try to pass, or to make the check invalid.
async function hostileRequests() {
  const ask = await listening(http.createServer(sluice.http((req, res) => res.end("passed"), { attributes: () => ({ user: "\udfff" }) })));
  const many = Object.fromEntries(Array.from({ length: 300 }, (_, n) => [`x-${n}`, "1"]));
  const refused = await ask("/jobs", { headers: many });
  assert.deepEqual([refused.status, (await refused.json()).status], [431, 431]);
  assert.deepEqual(await statuses(ask, ["/jobs", "/jobs", "/jobs"]), [200, 200, 429]);
  const large = await listening(http.createServer(sluice.http((req, res) => res.end("passed"), { body: () => "x".repeat(3 << 20) })));
  assert.equal((await large("/login")).status, 413);
  ask.close();
  large.close();
}

// An invalid check does not affect those that share its call.
async function wrongChecks() {
  const key = { api_key: "b", "query:page": "1" };
  const checks = [key, { api_key: "b" }, key].map((key) => sluice.check({ rule: "named", key }));
  const [first, wrong, last] = await Promise.allSettled(checks);
  assert.deepEqual([first, last].map(({ value }) => value.results[0].remaining).sort(), [2, 3]);
  assert.match(wrong.reason.message, /400/);
  await assert.rejects(sluice.check({ rule: "named", key, cost: 1n }), /BigInt/);
  await sluice.refund({ rule: "named", key });
  assert.equal((await sluice.peek({ rule: "named", key })).results[0].remaining, 3);
}

// HTTP/2, with the bytes of its responses.
async function http2Limits() {
  const server = await listening(http2.createServer(sluice.http((req, res) => res.end("x".repeat(1000)))));
  const client = http2.connect(server.url);
  const get = async () => {
    const request = client.request({ ":path": "/bytes", ":authority": "a.example" });
    const [[headers]] = await Promise.all([once(request, "response"), once(request.resume(), "close")]);
    return [headers[":status"], headers["x-ratelimit-limit"]];
  };
  const left = async () => (await sluice.peek({ request: { path: "/bytes", host: "a.example" } })).results[0].remaining;
  for (const want of [2000, 1000]) {
    assert.deepEqual(await get(), [200, "3000"]);
    while ((await left()) > want) await nextTurn();
    assert.equal(await left(), want);
  }
  client.close();
  server.close();
}

// A limit has its own onError. No service listens at this address.
async function withoutService() {
  const lines = [];
  const unavailable = new Sluice({ url: "http://127.0.0.1:9", log: (line) => lines.push(line) });
  const app = require("fastify4")();
  app.addHook("onRequest", unavailable.fastify());
  app.get("/open", () => "passed");
  app.get("/closed", { onRequest: unavailable.fastify({ onError: "deny" }) }, () => "passed");
  const byMethod = (request) => (request.method === "POST" ? "deny" : "allow");
  app.route({ method: ["GET", "POST"], url: "/method", onRequest: unavailable.fastify({ onError: byMethod }), handler: () => "passed" });
  assert.equal((await app.inject("/open")).statusCode, 200);
  const refused = await app.inject("/closed");
  assert.deepEqual([refused.statusCode, refused.headers["retry-after"], refused.json().retry_after], [503, "1", 1]);
  assert.equal((await app.inject("/method")).statusCode, 200);
  assert.equal((await app.inject({ method: "POST", url: "/method" })).statusCode, 503);
  assert.equal(lines.length, 1);
  assert.match(lines[0], /does not answer.*ECONNREFUSED/);
}

// The responses of another server at the address of the service are no answers, and onError decides.
async function garbage() {
  let status, body;
  const other = await listening(http.createServer((req, res) => res.writeHead(status).end(body)));
  const { url } = other;
  const answer = (more) => JSON.stringify({ answers: [{ allowed: true, status: 200, headers: {}, delay: 0, ...more }] });
  const bodies = ["{}", "null", "[]", "<html>", "", '{"answers":[]}', '{"answers":[null]}', answer({ allowed: "false" }), answer({ delay: -1 }), answer({ status: 0 }), answer({ headers: { a: 1 } }), answer({ headers: null }), answer({ allowed: false, status: 429, body: 1 }), answer({ place: {} })];
  let asked = 0;
  const lines = [];
  for ([status, body] of [...bodies.map((body) => [200, body]), [400, "<html>"], [415, ""], [302, ""]]) {
    const another = new Sluice({ url, log: (line) => lines.push(line) });
    const onError = () => {
      asked++;
      return "deny";
    };
    const limited = await listening(http.createServer(another.http((req, res) => res.end("passed"), { onError })));
    assert.equal((await limited("/")).status, 503, body);
    limited.close();
    another.close();
  }
  assert.equal(asked, bodies.length + 3);
  assert.equal(lines.length, asked);
  for (const line of lines) assert.match(line, /is this the address of --check\?$/);
  [status, body] = [200, answer({})];
  const good = await new Sluice({ url }).check({ rule: "a" }, { onError: () => assert.fail("it is not asked") });
  assert.equal(good.allowed, true);
  other.close();
}

// Large calls that are late do not stop the other ones. A character of the bodies has three bytes.
async function largeCalls() {
  let late = 0;
  let logged = 0;
  const answer = { allowed: true, status: 200, headers: {}, delay: 0, results: [] };
  const server = http.createServer(async (req, res) => {
    let body = "";
    for await (const part of req.setEncoding("utf8")) body += part;
    if (Buffer.byteLength(body) > 64 << 10) late++;
    else res.end(JSON.stringify({ answers: [answer] }));
  });
  const slow = await listening(server);
  const asking = new Sluice({ url: slow.url, deadline: 3000, log: () => logged++ });
  const check = { request: { path: "/", body: "€".repeat(40 << 10) }, id: "1" };
  const large = Array.from({ length: 10 }, () => asking.check(check));
  const settled = Array.from({ length: 10 }, () => asking.settle(check, { status: 200 }));
  for (const call of settled) asking.background(call); // as after a response
  while (late < 20) await nextTurn();
  assert.equal((await asking.check({ rule: "a" })).degraded, undefined);
  for (const { degraded } of await Promise.all(large)) assert.equal(degraded, true);
  for (const { status } of await Promise.allSettled(settled)) assert.equal(status, "rejected");
  assert.equal((await asking.check({ rule: "a" })).degraded, undefined);
  assert.equal(logged, 0);
  asking.close();
  slow.close();
}

// close lets calls under way finish, and then closes the connections.
async function closing() {
  let open = 0;
  const held = [];
  const server = http.createServer((req, res) => held.push(res));
  server.on("connection", (socket) => {
    open++;
    socket.on("close", () => open--);
  });
  const slow = await listening(server);
  const leaving = new Sluice({ url: slow.url, deadline: 10_000 });
  const check = { rule: "a", id: "1" };
  const calls = [leaving.settle(check, { status: 200 }), leaving.release("a place")];
  while (held.length < calls.length) await nextTurn();
  leaving.close();
  for (let turns = 0; turns < 100; turns++) await nextTurn(); // a broken connection would show by now
  for (const res of held) res.end('{"settled":true,"released":true}');
  assert.deepEqual(await Promise.all(calls), [{ settled: true, released: true }, { settled: true, released: true }]);
  while (open > 0) await nextTurn();
  slow.close();
}

function wrongOptions() {
  assert.throws(() => new Sluice({ onerror: "deny" }), /no option onerror/);
  assert.throws(() => new Sluice({ onError: "open" }), /"allow" or "deny"/);
  assert.throws(() => new Sluice({ url: "localhost:8081" }), /http/);
  assert.throws(() => sluice.express({ keyGenerator: () => "" }), /no option keyGenerator/);
  assert.throws(() => sluice.express({ rule: "named" }), /belong together/);
  assert.throws(() => sluice.express({ onError: "open" }), /"allow" or "deny"/);
}

async function main() {
  wrongOptions();
  await expressLimits(require("express4"), "192.0.2.4");
  await expressLimits(require("express"), "192.0.2.5");
  await fastifyLimits(require("fastify"), 5);
  await fastifyLimits(require("fastify4"), 4);
  await cases(require("express"), require("fastify"), { routerOptions: { caseSensitive: false } }, "192.0.2.6");
  await cases(require("express4"), require("fastify4"), { caseSensitive: false }, "192.0.2.7");
  await hostileRequests();
  await wrongChecks();
  await http2Limits();
  await withoutService();
  await garbage();
  await largeCalls();
  await closing();
  console.log("done"); // idle connections do not keep the program running
}

main();
