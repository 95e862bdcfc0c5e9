// A Fastify app whose requests are limited by all rules of the policy. One route has an additional limit:
//
//     node fastify.mjs 3000 http://127.0.0.1:8081

import Fastify from "fastify";
import { Sluice } from "@sluicehq/client";

const [port = "3000", url = "http://127.0.0.1:8081"] = process.argv.slice(2);

const sluice = new Sluice({ url });
const fastify = Fastify();
fastify.addHook("onRequest", sluice.fastify());
fastify.get("/search", async () => "found\n");

const key = (request) => ({ "attr:user": request.headers["x-user"] ?? "anonymous" });
fastify.get("/report", { onRequest: sluice.fastify({ rule: "per-user", key }) }, async () => "report\n");

await fastify.listen({ port: Number(port), host: "127.0.0.1" });
