"use strict";

// verdict returns onError if it is one.
function verdict(onError) {
  if (onError === "allow" || onError === "deny") return onError;
  throw new TypeError(`sluice: onError is ${onError}: it must be "allow" or "deny"`);
}

// known throws for an option with an unknown name, which would silently limit nothing.
function known(rest, what) {
  const [name] = Object.keys(rest);
  if (name) throw new TypeError(`sluice: ${what} has no option ${name}`);
}

module.exports = { known, verdict };
