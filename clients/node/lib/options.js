"use strict";

// verdict returns onError, and throws if it is invalid.
function verdict(onError) {
  if (onError === "allow" || onError === "deny") return onError;
  throw new TypeError(`sluice: onError is ${onError}: it must be "allow" or "deny"`);
}

// known throws if rest is not empty, because a misspelled option must not turn off a limit.
function known(rest, what) {
  const [name] = Object.keys(rest);
  if (name) throw new TypeError(`sluice: ${what} has no option ${name}`);
}

module.exports = { known, verdict };
