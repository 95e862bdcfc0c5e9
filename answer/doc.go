// Package answer turns decisions into statuses, header fields and bodies, for any protocol, and delays queued
// requests. Middleware and integrations import it. It imports package policy, and does not use connections. An
// integration takes these steps:
//
//	engine.Decide(ctx, request)                 // or answer.Take, for a single limiter
//	answer.Settle(ctx, &decision, nil, giveBack) // waits for a turn in a queue
//	outage.Note(&decision)                       // logs the start and the end of an outage
//	encoder.Encode(&a, header, &decision, client) // sets fields; then send a.Status, a.Body()
//
// # Fields
//
// Every answer to a request that was counted has these fields:
//
//	RateLimit-Policy: "per-ip";q=100;w=60, "user-day";q=5000;w=86400
//	RateLimit: "per-ip";r=42;t=26, "user-day";r=4100;t=70848
//	X-RateLimit-Limit: 100
//	X-RateLimit-Remaining: 42
//	X-RateLimit-Reset: 1795219270
//
// A policy may leave out the first two or the last three (see [policy.Fields]), and an [Encoder] may send older forms.
//
// RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-11) list the limits that applied, or the 16 most
// restrictive of them: q requests per w seconds, with r guaranteed in the next t seconds, unless other requests use the
// same count. More may become available during these t seconds. X-RateLimit describes one limit: on a denial the one
// with the longest wait, otherwise the one with the smallest fraction left. Its Limit is the burst if that is larger
// than the count, and its Reset is t from now.
//
// A limit of requests in flight has no window, and therefore no w, no t and no X-RateLimit-Reset. It has the draft's
// unit for such limits:
//
//	RateLimit-Policy: "search";q=10;qu="concurrent-requests"
//	RateLimit: "search";r=3
//
// Older dialects require a reset, which is one second for such a limit; their RateLimit-Policy omits the limit.
//
// A limit in USD has the unit "micro-usd", and all its numbers in any field are millionths of a USD:
//
//	RateLimit-Policy: "team-usd";q=50000000;qu="micro-usd";w=86400
//
// A limit with a period that is not a whole number of seconds is reported with a period that is, at the same rate:
// 3/250ms as q=12;w=1. Characters in a name other than printable ASCII are written as %XX. Rules in shadow mode are
// not reported, because they deny nothing. If the store does not answer, the fields are missing.
//
// # Denials
//
// A denial has status 429; 503 if the store does not answer or the upstream is overloaded; 400 if the request is
// malformed or lacks a key part; 413 if its body is too large; or 403 if the client is blocked. A denial must not
// be cached (Cache-Control: no-store). X-Request-Id has the ID of the denial, if denials have one: see
// [policy.Engine.NameRefusals]. Retry-After is the time until the request will fit, in seconds and rounded up; for
// requests in flight it is a second. It is missing if the request can never fit. The body is a problem of RFC 9457
// by default, and plain JSON or text if the client's Accept prefers that:
//
//	{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
//	 "title":"Too Many Requests","status":429,
//	 "detail":"Limit per-ip: 100 per 60s. Retry in 17 s.","violated-policies":["per-ip"],
//	 "error":"rate_limit_exceeded","retry_after":17}
//
// If too many requests are in flight, the detail is "Too many requests at once: limit search is 10. Retry in 1 s."
//
// If the policy has answers of its own ([policy.Answer], passed in [Client]), they determine the status, the body and
// additional fields. Content-Length and Vary are set for such a body. All other fields are as described above.
package answer
