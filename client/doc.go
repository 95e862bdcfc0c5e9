// Package client is a [net/http.RoundTripper] that obeys the limits of servers, with Sluice or another limiter. Use
// it in an http.Client:
//
//	api := &http.Client{Transport: &client.Transport{}, Timeout: time.Minute}
//	response, err := api.Get("https://api.example.com/orders")
//
// # Before a request
//
// A [Transport] reads the limits of servers from these response fields:
//
//   - RateLimit and RateLimit-Policy, in the forms of draft 7 and later of the standard
//     (draft-ietf-httpapi-ratelimit-headers)
//   - RateLimit-Limit, -Remaining and -Reset, as in drafts 3 to 6
//   - fields such as X-RateLimit-Remaining and X-Rate-Limit-Reset; the reset may be in seconds from now, in seconds or
//     milliseconds since 1970, a duration or a date
//
// If nothing remains of a limit, requests wait until the reset. After that, one request is sent in each window/quota of
// time, until a response shows that all waiting requests fit.
//
// A limit applies to a route (a method and a path) if the route's responses report it, and to a new route if every
// response so far has reported it. So the limit of a path delays no other path, and the limit of an API key
// (Authorization, X-API-Key) delays no other key. For servers that divide requests differently, set Partition of
// [Transport].
//
// # After a refusal
//
// A denial is a response with status 429, with status 503 and Retry-After, or with status 403 and Retry-After or
// nothing remaining, as GitHub sends it. The request is repeated after the time in Retry-After, in seconds or as a
// date by the server's clock, or else after the reset of the limit with nothing remaining. It is never repeated
// earlier. A random delay is added, so that clients that were denied together do not return together. The delay is
// up to a second, or up to half of the wait if that is more, and this bound doubles each time. If the server
// reports no time, the random delay is the whole wait: exponential backoff with full jitter.
//
// A request is repeatable if its method is GET, HEAD, OPTIONS, TRACE, PUT or DELETE, or if it has an
// Idempotency-Key. If it has a body, it also needs a GetBody, which [net/http.NewRequest] sets for bytes and
// strings. The program gets the denial as the response if the request is not repeatable, and in these cases:
//
//   - The request has been repeated MaxRetries times.
//   - The reported time is longer than MaxWait.
//   - The reported time, and another attempt as long as the last, would end after the deadline of the context. The
//     Timeout of an http.Client is such a deadline.
//   - The budget of retries is used up: there are fifty, and another one for each ten requests. So a server that denies
//     everything gets a tenth more requests in the long run, and not five times as many.
//
// Network errors and other statuses are returned to the program.
package client
