"use strict";

const { randomUUID } = require("node:crypto");
const { Calls, isMistake } = require("./calls.js");
const { Limit } = require("./limit.js");
const { known, verdict } = require("./options.js");
const { unavailable } = require("./refusal.js");

const holdEvery = 3000; // ms; a place expires 10 s after its last hold

// After maxFailures failures in a row, no checks are sent for the time of pause. Otherwise, each request would wait
// until its deadline. If a call with several checks fails, each of these checks is a failure.
const maxFailures = 5;
const pause = 1000; // ms

// Sluice is a client of a Sluice service ("sluice serve --check"). A program needs only one, because all limits of a
// Sluice share its connections, and stop calling the service together when it is down.
class Sluice {
  #calls;
  #onError;
  #log;
  #failures = 0; // the number of failures in a row
  #pausedUntil = 0;
  #unavailable = false;
  #held = new Set(); // the places that are held
  #holding;

  constructor(options = {}) {
    const { url = "http://127.0.0.1:8081", token, tls, deadline = 500, onError = "allow", log = console.warn, ...rest } = options;
    known(rest, "Sluice");
    this.#calls = new Calls({ url, token, tls, deadline });
    this.#onError = verdict(onError);
    this.#log = log;
  }

  // check resolves to the answer of the service. If the service does not answer, onError decides. The promise is
  // rejected only if the check is invalid.
  async check(check, { onError } = {}) {
    if (onError && typeof onError !== "function") verdict(onError);
    const decide = async () => unavailable(verdict(typeof onError === "function" ? await onError() : (onError ?? this.#onError)) === "allow");
    const text = JSON.stringify({ ...check, id: check.id ?? randomUUID() });
    if (performance.now() < this.#pausedUntil) return decide();
    try {
      const answer = await this.#calls.check(text);
      this.#answered();
      return answer;
    } catch (error) {
      if (isMistake(error)) throw error;
      this.#failed(error);
      return decide();
    }
  }

  // peek resolves to the answer to a check, and charges nothing.
  async peek(check) {
    return this.#calls.post("v1/peek", check, { repeat: true });
  }

  // refund gives back the charge of a check.
  async refund(check) {
    return this.#calls.post("v1/refund", check);
  }

  // settle reports the outcome of a check. The check must have its id. at is the member "at" of its answer.
  async settle(check, outcome, at) {
    return this.#calls.post("v1/settle", { ...check, outcome, at });
  }

  // hold keeps a place in flight until it is released.
  hold(place) {
    this.#held.add(place);
    this.#holding ??= setInterval(() => {
      for (const place of this.#held) this.background(this.#calls.post("v1/hold", { place }, { repeat: true }));
    }, holdEvery).unref();
  }

  // release releases the place of a request in flight, or in a queue.
  async release(place) {
    this.#held.delete(place);
    if (this.#held.size === 0) this.#rest();
    return this.#calls.post("v1/release", { place }, { repeat: true });
  }

  // background handles the result of a call that no caller awaits. It logs errors.
  background(call) {
    call.catch((error) => (isMistake(error) || error instanceof TypeError ? this.report(error) : this.#failed(error)));
  }

  // report logs an error that is not thrown to a caller.
  report(error) {
    this.#log(`sluice: ${error?.stack ?? error}`);
  }

  // express returns middleware for Express, and for other frameworks with (req, res, next).
  express(options) {
    return new Limit(this, options).express();
  }

  // http returns a listener for node:http, which calls the handler for requests that may pass.
  http(handler, options) {
    return new Limit(this, options).http(handler);
  }

  // fastify returns a hook for Fastify.
  fastify(options) {
    return new Limit(this, options).fastify();
  }

  // close closes all connections as soon as no call is under way.
  close() {
    this.#rest();
    this.#calls.close();
  }

  #rest() {
    clearInterval(this.#holding);
    this.#holding = undefined;
  }

  #answered() {
    this.#failures = 0;
    if (!this.#unavailable) return;
    this.#unavailable = false;
    this.#log("sluice: the service answers again");
  }

  #failed(error) {
    if (error.isLarge) return;
    if (++this.#failures >= maxFailures) this.#pausedUntil = performance.now() + pause;
    if (this.#unavailable) return;
    this.#unavailable = true;
    this.#log(`sluice: the service does not answer, onError decides: ${error.message || error.code}`);
  }
}

module.exports = { Sluice };
