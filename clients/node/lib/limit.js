"use strict";

const { randomUUID } = require("node:crypto");
const { Exchange } = require("./exchange.js");
const { known, verdict } = require("./options.js");
const { tooLarge, tooManyFields } = require("./refusal.js");
const { describe, texts } = require("./request.js");

// These fields are lists: if earlier middleware has set one of them, the values of the answer are appended.
const lists = new Set(["vary", "access-control-expose-headers", "ratelimit", "ratelimit-policy"]);

// left means that the request needs no answer, because its client has left or another handler has answered.
const left = { allowed: false };

// Limit is the middleware with one set of options. It checks each request, sets the fields of the answer, and settles
// the check after the response.
class Limit {
  #sluice;
  #options;

  constructor(sluice, options = {}) {
    const { rule, key, cost, skip, attributes, body, onError, handler, ...rest } = options;
    known(rest, "a limit");
    if ((rule === undefined) !== (key === undefined)) throw new TypeError("sluice: rule and key belong together: key(req) returns the parts of the rule's key");
    if (rule !== undefined && (attributes || body)) throw new TypeError("sluice: attributes and body describe a request: leave out rule and key");
    if (typeof onError !== "function") verdict(onError ?? "allow");
    this.#sluice = sluice;
    this.#options = options;
  }

  express() {
    return (req, res, next) => {
      this.#admit(req, req, res, nodeFields(res)).then((answer) => this.#proceed(req, res, answer, next)).catch((error) => process.nextTick(next, error));
    };
  }

  http(handler) {
    const middleware = this.express();
    return (req, res) => {
      middleware(req, res, (error) => {
        if (!error) return handler(req, res);
        this.#sluice.report(error);
        res.statusCode = 500;
        res.end();
      });
    };
  }

  fastify() {
    return async (request, reply) => {
      const answer = await this.#admit(request, request.raw, reply.raw, replyFields(reply));
      if (!answer) return undefined;
      if (answer === left) return reply.hijack();
      reply.code(httpStatus(answer));
      if (this.#options.handler) await this.#options.handler(request, reply, answer);
      else reply.send(Buffer.from(answer.body ?? ""));
      return reply;
    };
  }

  // proceed calls next or sends the denial. It calls next outside of the promise, so that an error thrown by next
  // does not become a rejection.
  async #proceed(req, res, answer, next) {
    if (!answer) {
      process.nextTick(next);
      return;
    }
    if (answer === left) return;
    res.statusCode = httpStatus(answer);
    if (this.#options.handler) {
      await this.#options.handler(req, res, answer, next);
      return;
    }
    const body = Buffer.from(answer.body ?? "");
    res.setHeader("Content-Length", body.length);
    res.end(body);
  }

  // admit resolves to undefined if the request is allowed, to left if it needs no answer, and otherwise to the answer
  // that denies it.
  async #admit(req, raw, res, fields) {
    if (res.destroyed || raw.socket.destroyed) return left;
    const client = raw.socket.remoteAddress ?? "127.0.0.1"; // clients of a Unix socket are on this machine
    const exchange = new Exchange(this.#sluice, raw, res, fields);
    if (await this.#options.skip?.(req)) return undefined;
    const check = await this.#check(req, raw, client);
    const answer = await this.#ask(req, check);
    if (!(await exchange.follow(check, answer)) || res.headersSent) return left;
    setFields(fields, answer.headers);
    return answer.allowed ? undefined : answer;
  }

  async #ask(req, check) {
    if (check.request === null) return tooManyFields();
    const { onError } = this.#options;
    try {
      return await this.#sluice.check(check, { onError: typeof onError === "function" ? () => onError(req) : onError });
    } catch (error) {
      if (error.serviceStatus === 413) return tooLarge();
      throw error;
    }
  }

  async #check(req, raw, client) {
    const { rule, key, cost, attributes, body } = this.#options;
    const check = { id: randomUUID(), place: true };
    if (rule !== undefined) {
      check.rule = rule;
      check.key = texts(await key(req));
    } else {
      check.request = describe(req, raw, client, { attributes: await attributes?.(req), body: await body?.(req) });
    }
    const units = typeof cost === "function" ? await cost(req) : cost;
    if (units !== undefined) check.cost = units;
    return check;
  }
}

// httpStatus returns the status of the response. A JSON-RPC error is sent with 200, because MCP clients treat any
// other status as a failed connection.
function httpStatus({ status, body }) {
  return body?.startsWith('{"jsonrpc":') ? 200 : status;
}

// nodeFields gives access to the header fields of a response of node:http.
function nodeFields(res) {
  return { all: () => res.getHeaders(), get: (name) => res.getHeader(name), set: (name, value) => res.setHeader(name, value), remove: (name) => res.removeHeader(name) };
}

// replyFields gives access to the header fields of a response of Fastify.
function replyFields(reply) {
  return { all: () => reply.getHeaders(), get: (name) => reply.getHeader(name), set: (name, value) => reply.header(name, value), remove: (name) => reply.removeHeader(name) };
}

// setFields sets the fields of an answer. To fields that are lists, it appends the values.
function setFields(fields, headers) {
  if ("X-Ratelimit-Limit" in headers) fields.remove("X-Ratelimit-Reset"); // an answer about requests in flight has none
  for (const [name, value] of Object.entries(headers)) {
    const before = lists.has(name.toLowerCase()) ? fields.get(name) : undefined;
    fields.set(name, before === undefined ? value : [before, value].flat().join(", "));
  }
}

module.exports = { Limit };
