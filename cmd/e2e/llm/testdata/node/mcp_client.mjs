// Calls tools of a server with the official SDK of the Model Context Protocol, one after the other, and writes the
// results that a program gets as JSON:
//
//     echo '{"url":"http://127.0.0.1:8080/mcp","key":"k","calls":[{"tool":"search"}]}' | node mcp_client.mjs
//
// Headers of a call are added to its request.

import { readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const { url, key, calls } = JSON.parse(readFileSync(0, "utf8"));
let headers = {};

const client = new Client({ name: "test", version: "1.0.0" });
await client.connect(
  new StreamableHTTPClientTransport(new URL(url), {
    fetch: (to, init) => {
      const all = new Headers(init.headers);
      all.set("Authorization", `Bearer ${key}`);
      for (const [name, value] of Object.entries(headers)) all.set(name, value);
      return fetch(to, { ...init, headers: all });
    },
  }),
);
const tools = (await client.listTools()).tools.map((tool) => tool.name);
const results = [];
for (const call of calls) {
  headers = call.headers ?? {};
  try {
    const { content } = await client.callTool({ name: call.tool, arguments: {} });
    results.push({ text: content[0].text });
  } catch (error) {
    results.push({ class: error.constructor.name, code: error.code, message: error.message, data: error.data });
  }
}
console.log(JSON.stringify({ tools, results }));
await client.close();
