"use strict";

const maxTimer = 2 ** 31 - 1; // ms; a longer timer would fire at once

// Exchange is a request and its response.
class Exchange {
  #sluice;
  #raw;
  #res;
  #fields;
  #closed = false;
  #onClose = () => {};
  #reported = {}; // the outcome that the handler passed to settle
  #bytes = 0; // the length of the response body so far

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

  // follow resolves to true when the request may be answered; a queued request has to wait for its turn. If the
  // client has left, follow resolves to false. After the response, follow settles the check and releases its place.
  async follow(check, answer) {
    const { delay, place } = answer;
    if (place) this.#sluice.hold(place);
    if (!(await this.#turn(delay))) {
      if (place) this.#sluice.background(this.#sluice.release(place));
      if (delay > 0) this.#sluice.background(this.#sluice.refund(charged(check)));
      return false; // only queued requests are refunded: clients must not avoid being counted by leaving early
    }
    this.#expose(answer);
    if (answer.at) this.#count();
    if (answer.at || place) this.#onClose = () => this.#end(check, answer);
    if (this.#closed) this.#onClose(); // the client has left between its turn and now
    return true;
  }

  // turn waits for the turn of the request, and resolves to false if the client leaves first.
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

  // expose sets req.sluice. If a request has passed several limits, settle of req.sluice applies to all of them.
  #expose(answer) {
    const outer = this.#raw.sluice;
    this.#raw.sluice = {
      answer,
      settle: (outcome) => {
        Object.assign(this.#reported, outcome);
        outer?.settle(outcome);
      },
    };
  }

  // count counts the bytes of the response body.
  #count() {
    const res = this.#res;
    let inside = false; // whether write is called by end, as in HTTP/2
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

  #end(check, answer) {
    if (answer.place) this.#sluice.background(this.#sluice.release(answer.place));
    if (answer.at) this.#sluice.background(this.#sluice.settle(charged(check), this.#outcome(), answer.at));
  }

  // outcome returns the outcome of the request. If there was no response, the outcome has no status, and the
  // request counts.
  #outcome() {
    const outcome = { bytes: this.#raw.method === "HEAD" ? 0 : this.#bytes, ...this.#reported };
    if (!this.#res.headersSent) return outcome;
    const headers = {};
    for (const [name, value] of Object.entries(this.#fields.all())) {
      if (value !== undefined) headers[name] = [value].flat().map(String);
    }
    return { status: this.#res.statusCode, headers, ...outcome };
  }
}

// charged returns a check without the member "place", which refund and settle do not accept.
function charged({ place: _, ...check }) {
  return check;
}

// size returns the length in bytes of the arguments of write or end.
function size(chunk, encoding) {
  if (typeof chunk === "string") return Buffer.byteLength(chunk, typeof encoding === "string" ? encoding : "utf8");
  return chunk instanceof Uint8Array ? chunk.byteLength : 0;
}

module.exports = { Exchange };
