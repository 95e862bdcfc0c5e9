"use strict";

const maxFields = 256; // the most header fields that the check API accepts

// describe returns the request of a check, with the method and header fields as received, and the path as the
// framework routes it. It returns null if the request has more than maxFields header fields.
function describe(req, raw, client, { attributes, body }) {
  const headers = fields(raw.rawHeaders);
  if (!headers) return null;
  const request = { method: raw.method, path: routed(req, utf8(req.originalUrl ?? raw.url)), headers, client };
  if (raw.authority) request.host = raw.authority; // HTTP/2
  if (attributes) request.attributes = texts(attributes);
  addBody(request, body);
  return request;
}

// routed returns the target, with the path in lower case if the framework routes /LOGIN like /login. Otherwise,
// clients could use a spelling that no rule matches.
function routed(req, target) {
  return ignoresCase(req) ? target.replace(/^[^?]*/, (path) => path.replace(/[A-Z]/g, (letter) => letter.toLowerCase())) : target;
}

// ignoresCase reports whether the framework ignores the case of paths. In Express, this is the case if the app, or an
// app on which it is mounted, ignores the case.
function ignoresCase(req) {
  for (let app = req.app; typeof app?.enabled === "function"; app = app.parent) {
    if (!app.enabled("case sensitive routing")) return true;
  }
  const { caseSensitive, routerOptions } = req.server?.initialConfig ?? {};
  return (routerOptions?.caseSensitive ?? caseSensitive) === false;
}

// fields returns the header fields by name, in lower case. The value of a repeated field is a list.
function fields(raw) {
  const all = Object.create(null); // a name may be __proto__
  if (raw.length / 2 > maxFields) return null;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i].toLowerCase();
    if (name.startsWith(":")) continue; // HTTP/2
    const value = utf8(raw[i + 1]);
    const before = all[name];
    all[name] = before === undefined ? value : [before, value].flat();
  }
  return all;
}

// addBody sets the body: text, bytes, or the value that a parser returned, which is sent as JSON.
function addBody(request, body) {
  if (body === undefined || body === null) return;
  if (typeof body === "string") {
    request.body = whole(body);
  } else if (body instanceof Uint8Array) {
    request.body_base64 = Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString("base64");
  } else {
    request.body = JSON.stringify(body);
    request.headers["content-type"] = "application/json";
    delete request.headers["content-encoding"];
  }
}

// texts converts values to strings, and drops those that are undefined or null.
function texts(values) {
  const all = Object.create(null);
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== null) all[name] = whole(String(value));
  }
  return all;
}

// utf8 decodes a text again that Node has decoded as Latin-1, if its bytes are valid UTF-8.
function utf8(text) {
  if (!/[\x80-\xff]/.test(text)) return text;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Buffer.from(text, "latin1"));
  } catch {
    return text;
  }
}

// whole replaces lone surrogates, which UTF-8 cannot encode.
function whole(text) {
  return text.replace(/\p{Surrogate}/gu, "\uFFFD");
}

module.exports = { describe, texts };
