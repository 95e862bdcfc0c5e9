// Makes one call to a model with an official SDK. It writes, as JSON, the results that a program gets from the SDK:
//
//     echo '{"sdk":"openai","url":"http://127.0.0.1:8080","api":"chat","model":"sample","text":"Write 5 words"}' | node client.mjs
//
// ../../main_long_test.go has the fields of call and answer. ../go/main.go is the same in Go.

import { readFileSync } from "node:fs";

const call = JSON.parse(readFileSync(0, "utf8"));
const answer = { calls: 0, waits: [] };

// skipWaits replaces the timers of SDKs, except timers with the length of a request's timeout, which are not waits.
const timeout = 3_600_000; // ms
function skipWaits() {
  const real = globalThis.setTimeout;
  globalThis.setTimeout = (f, ms, ...args) => {
    if (new Error().stack.includes("node_modules") && Math.abs(ms - timeout) > 100) {
      answer.waits.push(ms);
      ms = 0;
    }
    return real(f, ms, ...args);
  };
}
if (call.skipWaits) skipWaits();

async function countedFetch(...args) {
  answer.calls++;
  const response = await fetch(...args);
  answer.encoding = response.headers.get("content-encoding") ?? "";
  return response;
}

async function client() {
  const { default: SDK } = await import({ openai: "openai", "openai-6": "openai-6", anthropic: "@anthropic-ai/sdk" }[call.sdk]);
  return new SDK({
    apiKey: call.key || "none",
    baseURL: call.url + (call.api === "messages" ? "" : "/v1"),
    maxRetries: call.retries ?? 0,
    timeout,
    fetch: countedFetch,
    defaultHeaders: call.headers ?? {},
  });
}

const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tool = { name: "weather", description: "The weather of a city." };

// apis has, for each API, the parameters of a call, the function of the client, and the contents of a whole
// response.
const apis = {
  chat: {
    of: (client) => client.chat.completions,
    params: () => ({
      messages: [{ role: "user", content: call.text }],
      ...(call.maxTokens && { max_completion_tokens: call.maxTokens }),
      ...(call.tools && { tools: [{ type: "function", function: { ...tool, parameters } }] }),
      ...(call.stream && call.usage && { stream_options: { include_usage: true } }),
    }),
    final: (stream) => stream.finalChatCompletion(),
    read({ choices: [choice], usage }) {
      const wanted = choice.message.tool_calls?.[0]?.function;
      answer.text = choice.message.content ?? "";
      answer.finish = choice.finish_reason;
      answer.tool = wanted && { name: wanted.name, arguments: wanted.arguments };
      answer.usage = usage && { input: usage.prompt_tokens, cached: usage.prompt_tokens_details.cached_tokens, output: usage.completion_tokens };
    },
  },
  responses: {
    of: (client) => client.responses,
    params: () => ({
      input: call.text,
      ...(call.maxTokens && { max_output_tokens: call.maxTokens }),
      ...(call.tools && { tools: [{ type: "function", ...tool, parameters, strict: false }] }),
    }),
    final: (stream) => stream.finalResponse(),
    read({ output, output_text, status, usage }) {
      const wanted = output.find(({ type }) => type === "function_call");
      answer.text = output_text;
      answer.finish = status;
      answer.tool = wanted && { name: wanted.name, arguments: wanted.arguments };
      answer.usage = usage && { input: usage.input_tokens, cached: usage.input_tokens_details.cached_tokens, output: usage.output_tokens };
    },
  },
  messages: {
    of: (client) => client.messages,
    params: () => ({
      messages: [{ role: "user", content: call.text }],
      max_tokens: call.maxTokens || 1000,
      ...(call.tools && { tools: [{ ...tool, input_schema: parameters }] }),
    }),
    final: (stream) => stream.finalMessage(),
    read({ content, stop_reason, usage }) {
      const wanted = content.find(({ type }) => type === "tool_use");
      answer.text = content.map(({ text }) => text ?? "").join("");
      answer.finish = stop_reason;
      answer.tool = wanted && { name: wanted.name, arguments: JSON.stringify(wanted.input) };
      const { input_tokens: fresh, cache_read_input_tokens: cached, cache_creation_input_tokens: written } = usage;
      answer.usage = { input: fresh + cached + written, cached, output: usage.output_tokens };
    },
  },
};

async function make() {
  const api = apis[call.api];
  const place = api.of(await client());
  const params = { model: call.model, ...api.params() };
  if (!call.stream) {
    api.read(await place.create(params));
    return;
  }
  const stream = place.stream(params);
  answer.events = 0;
  for await (const _ of stream) {
    if (++answer.events === call.leaveAfter) {
      stream.abort();
      return;
    }
  }
  api.read(await api.final(stream));
}

try {
  await make();
} catch (e) {
  answer.error = {
    class: e.constructor.name,
    status: e.status ?? 0,
    code: e.code ?? "",
    type: e.type ?? "",
    message: e.message,
    headers: e.headers instanceof Headers ? Object.fromEntries(e.headers) : {},
  };
}
console.log(JSON.stringify(answer));
