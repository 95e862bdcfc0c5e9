// A server of the Model Context Protocol with two tools, made with the official SDK. It writes its URL when it
// listens.

import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";

function tools() {
  const server = new McpServer({ name: "tools", version: "1.0.0" });
  for (const name of ["search", "mail"]) {
    server.registerTool(name, { description: name }, async () => ({ content: [{ type: "text", text: `${name} is done` }] }));
  }
  return server;
}

// Each request gets a new server, because there are no sessions.
const listener = createServer(async (request, response) => {
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  await tools().connect(transport);
  await transport.handleRequest(request, response);
});
listener.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${listener.address().port}`));
