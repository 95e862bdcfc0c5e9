// A server of node:http whose requests are limited by all rules of the policy:
//
//     node http.mjs 3000 http://127.0.0.1:8081

import { createServer } from "node:http";
import { Sluice } from "@sluicehq/client";

const [port = "3000", url = "http://127.0.0.1:8081"] = process.argv.slice(2);

const sluice = new Sluice({ url });
const server = createServer(sluice.http((req, res) => res.end("found\n")));

server.listen(Number(port), "127.0.0.1");
