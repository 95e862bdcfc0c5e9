"use strict";

// refusal returns an answer that denies a request without the service, in the format of the API.
function refusal(status, type, title, detail, more) {
  return {
    allowed: false,
    status,
    delay: 0,
    results: [],
    headers: { "Content-Type": "application/problem+json", "Cache-Control": "no-store" },
    body: `${JSON.stringify({ type, title, status, detail, ...more })}\n`,
  };
}

// unavailable returns the answer to a check that the service has not answered.
function unavailable(allow) {
  if (allow) return { allowed: true, status: 200, delay: 0, degraded: true, results: [], headers: {} };
  const type = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
  const detail = "The request cannot be taken at the moment. Retry in 1 s.";
  const more = { error: "temporary_reduced_capacity", retry_after: 1 };
  const answer = refusal(503, type, "Service Unavailable", detail, more);
  answer.headers["Retry-After"] = "1";
  return { ...answer, retry_after: 1, degraded: true, unavailable: true };
}

// tooManyFields returns the answer to a request with more header fields than a check may have.
function tooManyFields() {
  return refusal(431, "about:blank", "Request Header Fields Too Large", "The request has too many header fields.");
}

// tooLarge returns the answer to a request with a body that makes its check too large.
function tooLarge() {
  return refusal(413, "about:blank", "Request Entity Too Large", "The body cannot be read here: it is too large.", { error: "body_too_large" });
}

module.exports = { unavailable, tooManyFields, tooLarge };
