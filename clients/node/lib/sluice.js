"use strict";

const { randomUUID } = require("node:crypto");
const { Calls, isMistake } = require("./calls.js");
const { Limit } = require("./limit.js");
const { known, verdict } = require("./options.js");
const { unavailable } = require("./refusal.js");

const holdEvery = 3000; // ms; the service frees a place that nobody has held for 10 s

// After this many calls in a row without an answer, none is made for a while: requests do not wait for a
// deadline each.
const maxFailures = 5;
const pause = 1000; // ms

// Sluice asks a Sluice service ("sluice serve --check") whether requests may pass. Make one for the whole
// program: what it knows of its service, and its connections, are shared by all middleware.
class Sluice {
  #calls;
  #onError;
  #log;
  #failures = 0; // in a row
  #pausedUntil = 0;
  #away = false;
  #held = new Set(); // places
  #holding;

  constructor(options = {}) {
    const { url = "http://127.0.0.1:8081", token, tls, deadline = 500, onError = "allow", log = console.warn, ...rest } = options;
    known(rest, "Sluice");
    this.#calls = new Calls({ url, token, tls, deadline });
    this.#onError = verdict(onError);
    this.#log = log;
  }

  // check resolves to the answer of the service, or, if that does not answer, to one by onError. It rejects
  // only if the check itself is wrong.
  async check(check, { onError } = {}) {
    const allow = (onError ? verdict(onError) : this.#onError) === "allow";
    const text = JSON.stringify({ id: randomUUID(), ...check });
    if (performance.now() < this.#pausedUntil) return unavailable(allow);
    try {
      const answer = await this.#calls.check(text);
      this.#answered();
      return answer;
    } catch (error) {
      if (isMistake(error)) throw error;
      this.#failed(error);
      return unavailable(allow);
    }
  }

  // peek resolves to the answer that a check would get, and charges nothing.
  async peek(check) {
    return this.#calls.post("v1/peek", check, { repeat: true });
  }

  // refund gives back what a check has charged.
  async refund(check) {
    return this.#calls.post("v1/refund", check);
  }

  // settle reports what has become of a request. Its check has the id and the at of the answer.
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

  // release frees the place of a request that has ended, or gives up its turn in a queue.
  async release(place) {
    this.#held.delete(place);
    if (this.#held.size === 0) this.#rest();
    return this.#calls.post("v1/release", { place }, { repeat: true });
  }

  // background lets a call end by itself. Its error is logged.
  background(call) {
    call.catch((error) => (isMistake(error) || error instanceof TypeError ? this.report(error) : this.#failed(error)));
  }

  // report logs an error that no caller gets.
  report(error) {
    this.#log(`sluice: ${error?.stack ?? error}`);
  }

  // express returns middleware for Express, and for whatever else has (req, res, next).
  express(options) {
    return new Limit(this, options).express();
  }

  // http returns a listener for node:http that calls the handler for requests that may pass.
  http(handler, options) {
    return new Limit(this, options).http(handler);
  }

  // fastify returns a hook for Fastify.
  fastify(options) {
    return new Limit(this, options).fastify();
  }

  // close closes the connections. What is under way ends by itself.
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
    if (!this.#away) return;
    this.#away = false;
    this.#log("sluice: the service answers again");
  }

  #failed(error) {
    if (++this.#failures >= maxFailures) this.#pausedUntil = performance.now() + pause;
    if (this.#away) return;
    this.#away = true;
    this.#log(`sluice: the service does not answer, onError decides: ${error.message || error.code}`);
  }
}

module.exports = { Sluice };
