"use strict";

const http = require("node:http");
const https = require("node:https");

// A call with several checks has at most this many checks and bytes. The service answers only 16 larger calls at a
// time.
const maxChecks = 64;
const maxBytes = 48 << 10;

// While this many calls with checks are under way, not counting large checks, further checks wait, and share the next
// call.
const maxCalls = 8;

// Calls that settle a check, or that hold or release a place, need connections in addition to those of maxCalls.
const maxSockets = 64;

// CallError is the error for a response that is not a valid answer.
class CallError extends Error {
  constructor(status, reason, detail) {
    super(`the service answers ${status}: ${detail ?? reason}`);
    this.name = "CallError";
    this.detail = detail; // undefined if the response does not come from the service
    this.serviceStatus = status; // not named status, because frameworks would use it as the status of their response
  }
}

// Calls makes the calls to one service, over connections that are kept alive. Idle connections do not keep
// the process running.
class Calls {
  #url;
  #deadline;
  #headers = { "Content-Type": "application/json" };
  #agent;
  #request;
  #tls;
  #waiting = []; // checks, the oldest first
  #calls = 0; // the number of calls with checks under way
  #scheduled = false;
  #open = 0; // the number of requests under way
  #closed = false;

  constructor({ url, token, deadline, tls }) {
    this.#url = new URL(url.endsWith("/") ? url : `${url}/`);
    if (!["http:", "https:"].includes(this.#url.protocol)) throw new TypeError(`sluice: url is ${url}: it must be http:// or https://`);
    const { Agent, request } = this.#url.protocol === "https:" ? https : http;
    this.#agent = new Agent({ keepAlive: true, maxSockets });
    this.#request = request;
    this.#tls = tls;
    this.#deadline = deadline;
    if (token) this.#headers.Authorization = `Bearer ${token}`;
  }

  // check resolves to the answer to one check, which is given as JSON. Checks that are made in one turn of the
  // event loop share calls, except large ones.
  check(text) {
    if (isLarge(text)) return this.#alone("v1/check", text, { repeat: true, isValid: isAnswer });
    return new Promise((resolve, reject) => {
      this.#waiting.push({ text, until: performance.now() + this.#deadline, resolve, reject });
      if (this.#scheduled) return;
      this.#scheduled = true;
      setImmediate(() => {
        this.#scheduled = false;
        this.#flush();
      });
    });
  }

  // post makes a call. If repeat is true and the connection breaks, post repeats the call once, because the service
  // may have closed an idle connection, or may have been restarted.
  post(path, body, { repeat = false } = {}) {
    return this.#alone(path, JSON.stringify(body), { repeat });
  }

  // alone makes a call outside the batches. If its body is large, its errors have the property isLarge.
  async #alone(path, text, { repeat, isValid = () => true }) {
    try {
      const answer = await this.#post(path, text, performance.now() + this.#deadline, repeat);
      if (!isValid(answer)) throw notAnswer();
      return answer;
    } catch (error) {
      error.isLarge = isLarge(text);
      throw error;
    }
  }

  // close closes all connections as soon as no call is under way.
  close() {
    this.#closed = true;
    if (this.#open === 0) this.#agent.destroy();
  }

  #flush() {
    while (this.#waiting.length > 0 && this.#calls < maxCalls) void this.#send(this.#batch());
  }

  #batch() {
    let count = 0;
    for (let bytes = 0; count < this.#waiting.length && count < maxChecks; count++) {
      bytes += Buffer.byteLength(this.#waiting[count].text);
      if (bytes > maxBytes && count > 0) break;
    }
    return this.#waiting.splice(0, count);
  }

  // send never rejects. Each check has an id, so a call whose connection breaks can be repeated.
  async #send(batch) {
    this.#calls++;
    try {
      const reply = await this.#post("v1/check", `{"checks":[${batch.map((one) => one.text)}]}`, batch[0].until, true);
      const answers = reply?.answers;
      if (!Array.isArray(answers) || answers.length !== batch.length || !answers.every(isAnswer)) throw notAnswer();
      batch.forEach((one, n) => one.resolve(answers[n]));
    } catch (error) {
      if (batch.length > 1 && isMistake(error)) {
        for (const one of batch) void this.#send([one]); // the service has rejected the batch and charged nothing
      } else {
        for (const one of batch) one.reject(error);
      }
    } finally {
      this.#calls--;
      this.#flush();
    }
  }

  async #post(path, body, until, repeat) {
    try {
      return await this.#once(path, body, until, this.#agent);
    } catch (error) {
      if (!repeat || !["ECONNRESET", "EPIPE"].includes(error.code)) throw error;
      return this.#once(path, body, until, false);
    }
  }

  async #once(path, body, until, agent) {
    const { status, text } = await this.#exchange(new URL(path, this.#url), body, until, agent);
    let answer;
    try {
      answer = JSON.parse(text);
    } catch {
      throw new CallError(status, "the body is not JSON: is this the address of --check?");
    }
    if (status !== 200) throw new CallError(status, "is this the address of --check?", answer?.detail);
    return answer;
  }

  #exchange(url, body, until, agent) {
    return new Promise((resolve, reject) => {
      const left = until - performance.now();
      const late = () => new Error(`no answer within ${this.#deadline} ms`);
      if (left <= 0) {
        reject(late());
        return;
      }
      const headers = { ...this.#headers, "Content-Length": Buffer.byteLength(body) };
      const request = this.#request(url, { ...this.#tls, method: "POST", agent, headers });
      this.#open++;
      const timer = setTimeout(() => request.destroy(late()), left);
      request.on("close", () => {
        clearTimeout(timer);
        if (--this.#open === 0 && this.#closed) this.#agent.destroy();
      });
      request.on("error", reject);
      request.on("response", (response) => {
        let text = "";
        response.setEncoding("utf8");
        response.on("data", (part) => (text += part));
        response.on("end", () => resolve({ status: response.statusCode, text }));
        response.on("error", reject);
      });
      request.end(body);
    });
  }
}

function notAnswer() {
  return new CallError(200, "the body is not an answer to a check: is this the address of --check?");
}

// isLarge reports whether a check is sent in a call of its own. If a call with a large body fails, it does not count as
// a failure of the service; otherwise, a client could turn off all limits by sending large bodies.
function isLarge(text) {
  return Buffer.byteLength(text) > maxBytes;
}

// isAnswer reports whether a value is an answer to a check. If another server is at this address, it may send
// anything.
function isAnswer(value) {
  return (
    typeof value?.allowed === "boolean" &&
    Number.isInteger(value.status) &&
    value.status >= 200 &&
    value.status <= 599 &&
    typeof value.delay === "number" &&
    value.delay >= 0 &&
    value.headers instanceof Object &&
    [...Object.values(value.headers), value.body ?? "", value.place ?? "", value.at ?? ""].every((text) => typeof text === "string")
  );
}

// isMistake reports whether the service rejected a check as invalid. In this case, onError must not decide, because
// otherwise clients could pass with invalid requests. A 400 without a detail comes from a different server. A 413
// without a detail counts as a mistake, because a client can also cause a proxy to send a 413.
function isMistake(error) {
  if (!(error instanceof CallError)) return false;
  return error.serviceStatus === 413 || ([400, 415].includes(error.serviceStatus) && error.detail !== undefined);
}

module.exports = { Calls, isMistake };
