// Programs in TypeScript, which are compiled and not run.
import { createServer } from "node:http";
import express, { type Request, type Response } from "express";
import fastify, { type FastifyReply, type FastifyRequest } from "fastify";
import { Sluice, type Answer, type Check } from "@sluicehq/client";

const sluice = new Sluice({ url: "http://127.0.0.1:8081", token: "t", deadline: 250, onError: "deny", log: (line: string) => console.error(line) });

const app = express();
app.use(sluice.express());
app.use(sluice.express({ skip: (req: Request) => req.path === "/health", attributes: (req: Request) => ({ user: req.get("X-User"), n: 1 }) }));
app.post(
  "/login",
  express.json(),
  sluice.express<Request, Response>({
    rule: "login",
    key: (req) => ({ client_ip: req.ip, "body:username": String(req.body.username) }),
    cost: async (req) => Number(req.query.cost),
    onError: (req) => (req.path === "/login" ? "deny" : "allow"),
    handler: (req, res, answer) => res.status(answer.status).json({ wait: answer.retry_after }),
  }),
  (req, res) => {
    req.sluice?.settle({ counts: false, cost: 3, numbers: { "usage.total_tokens": 7 } });
    res.json(req.sluice?.answer.results[0]?.remaining);
  },
);

createServer(sluice.http((req, res) => res.end(req.sluice?.answer.over?.join()), { onError: "allow" }));

const server = fastify();
server.addHook("onRequest", sluice.fastify());
server.get("/jobs", { preHandler: sluice.fastify<FastifyRequest, FastifyReply>({ body: (request) => request.body, handler: (request, reply, answer) => reply.send(answer) }) }, (request) => request.raw.sluice?.answer);

const check: Check = { rule: "jobs", key: { api_key: "k-42" }, cost: 2 };
const answer: Answer = await sluice.check(check, { onError: "allow" });
const wait: number | undefined = answer.allowed ? answer.delay : answer.retry_after;
await sluice.peek({ request: { path: "/", headers: { accept: ["a", "b"] } } });
const { settled }: { settled: boolean } = await sluice.settle(check, { status: 200 }, answer.at);
if (answer.place) await sluice.release(answer.place);
console.log(wait, settled);

// @ts-expect-error: it is onError
new Sluice({ onerror: "deny" });
// @ts-expect-error: it is "allow" or "deny"
new Sluice({ onError: "open" });
// @ts-expect-error: it is key
sluice.express({ keyGenerator: () => "" });
// @ts-expect-error: a check is about a request or a rule
await sluice.check({ cost: 1 });
// @ts-expect-error: of a request, a check has the path
await sluice.check({ request: {} });
