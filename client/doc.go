// Package client is a [net/http.RoundTripper] that obeys the limits of servers, with Sluice or another limiter. Use
// it in an http.Client:
//
//	api := &http.Client{Transport: &client.Transport{}, Timeout: time.Minute}
//	response, err := api.Get("https://api.example.com/orders")
//
// # Before a request
//
// Servers report what remains in RateLimit and RateLimit-Policy, as the drafts of the standard define them from
// draft 7 on (draft-ietf-httpapi-ratelimit-headers), in RateLimit-Limit, -Remaining and -Reset as in drafts 3 to 6,
// or in fields such as X-RateLimit-Remaining and X-Rate-Limit-Reset, with seconds from now, seconds or milliseconds
// since 1970, durations or dates. If nothing remains, requests wait until the reset. Then one request is sent in
// each window/quota, until an answer shows that all fit.
//
// A limit applies to the routes (a method and a path) with answers that report it, and to new routes if every
// answer so far has reported it. So the limit of a path delays no other path, and the limit of an API key no other
// key (Authorization, X-API-Key). Set Partition of [Transport] for servers with another division.
//
// # After a refusal
//
// A denial is a 429; a 503 with Retry-After; or a 403 with Retry-After or with nothing remaining, as GitHub sends
// it. The request is sent again after the time of Retry-After, in seconds or as a date by the server's clock, or
// else after the reset of the limit with nothing remaining, and never earlier. A random delay of up to a second, or
// half of the wait if that is more, is added and doubles each time, so that clients that were denied together do
// not return together. Without a promised time this delay is the whole wait: exponential backoff with full jitter.
//
// Only repeatable requests are sent again: GET, HEAD, OPTIONS, TRACE, PUT and DELETE, and other methods with an
// Idempotency-Key; without a body, or with a GetBody, which [net/http.NewRequest] sets for bytes and strings. The
// program gets the denial as the response if the request is not sent again:
//
//   - It has been sent again MaxRetries times.
//   - The promised time is longer than MaxWait.
//   - The promised time, and another attempt as long as the last, would end after the deadline of the context, which
//     includes the Timeout of an http.Client.
//   - The budget is used up: fifty retries, and one for each ten requests. A server that denies
//     everything gets a tenth more requests in the long run, and not five times as many.
//
// Network errors and other statuses are returned to the program.
package client
