"use strict";

const maxTimer = 2 ** 31 - 1; // ms; timers for longer fire at once

// Exchange is a request and its response, from the check until the response has ended.
class Exchange {
  check; // undefined until the service is asked
  #sluice;
  #raw;
  #res;
  #fields;
  #closed = false;
  #onClose = () => {};
  #said = {}; // by the handler
  #bytes = 0; // of the body of the response

  constructor(sluice, raw, res, fields) {
    this.#sluice = sluice;
    this.#raw = raw;
    this.#res = res;
    this.#fields = fields;
    res.once("close", () => {
      this.#closed = true;
      this.#onClose();
    });
  }

  // follow resolves to true when the answer can be acted on: at the turn of a queued request. It resolves to false
  // if the client has left. After the response it settles.
  async follow(answer) {
    const { delay, place } = answer;
    if (place) this.#sluice.hold(place);
    if (!(await this.#turn(delay))) {
      if (place) this.#sluice.background(this.#sluice.release(place));
      if (delay > 0) this.#sluice.background(this.#sluice.refund(this.#charged()));
      return false; // leaving early is no way to avoid being counted
    }
    this.#expose(answer);
    if (answer.at) this.#count();
    if (answer.at || place) this.#onClose = () => this.#end(answer);
    if (this.#closed) this.#onClose(); // just now
    return true;
  }

  // turn waits, and resolves to false if the client leaves before its turn.
  #turn(delay) {
    if (this.#closed || delay === 0) return !this.#closed;
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, Math.min(delay * 1000, maxTimer), true);
      this.#onClose = () => {
        clearTimeout(timer);
        resolve(false);
      };
    });
  }

  // expose lets handlers see the answer and settle. Those behind several limits settle all of them.
  #expose(answer) {
    const outer = this.#raw.sluice;
    this.#raw.sluice = {
      answer,
      settle: (outcome) => {
        Object.assign(this.#said, outcome);
        outer?.settle(outcome);
      },
    };
  }

  // count counts the bytes that the handler writes.
  #count() {
    const res = this.#res;
    let inside = false; // end of HTTP/2 calls write
    for (const method of ["write", "end"]) {
      const write = res[method];
      res[method] = (...args) => {
        if (inside) return write.apply(res, args);
        this.#bytes += size(...args);
        inside = true;
        try {
          return write.apply(res, args);
        } finally {
          inside = false;
        }
      };
    }
  }

  #end(answer) {
    if (answer.place) this.#sluice.background(this.#sluice.release(answer.place));
    if (answer.at) this.#sluice.background(this.#sluice.settle(this.#charged(), this.#outcome(), answer.at));
  }

  // charged returns the check as refund and settle take it.
  #charged() {
    const { place: _, ...check } = this.check;
    return check;
  }

  // outcome returns the outcome of the request. Without a response it has no status, and the request counts.
  #outcome() {
    const outcome = { bytes: this.#raw.method === "HEAD" ? 0 : this.#bytes, ...this.#said };
    if (!this.#res.headersSent) return outcome;
    const headers = {};
    for (const [name, value] of Object.entries(this.#fields.all())) {
      if (value !== undefined) headers[name] = [value].flat().map(String);
    }
    return { status: this.#res.statusCode, headers, ...outcome };
  }
}

// size returns the bytes of what write or end gets.
function size(chunk, encoding) {
  if (typeof chunk === "string") return Buffer.byteLength(chunk, typeof encoding === "string" ? encoding : "utf8");
  return chunk instanceof Uint8Array ? chunk.byteLength : 0;
}

module.exports = { Exchange };
