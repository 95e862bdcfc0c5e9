// Package client is a [net/http.RoundTripper] that obeys the limits of servers, whether they use Sluice or another
// limiter. Use it in an http.Client:
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
// If nothing remains of a limit, requests wait until the reset. After that, they are sent one at a time. The
// interval between them is the limit's window divided by its quota, or a second if the server does not report
// these. As soon as a response reports remaining requests, as many are sent at once.
//
// A limit applies to a route (a method and a path) if the latest response with limits on that route has reported
// it. It applies to a new route only if all responses with limits have reported it, and these came from at least
// two routes. So the limit of a path delays no other path, and the limit of an API key (Authorization, X-API-Key)
// delays no other key. For servers that divide requests differently, set Partition of [Transport].
//
// # After a denial
//
// A denial is one of these responses:
//
//   - a response with status 429
//   - a response with status 503 and the field Retry-After
//   - a response with status 403 and either Retry-After or a limit with nothing remaining, as GitHub sends it
//
// The request is repeated after the time in Retry-After, which is in seconds, or a date by the server's clock.
// Without that field, it is repeated after the reset of the limit that has nothing remaining. It is never repeated
// earlier. A random delay is added, so that clients that were denied together do not return together. The delay is
// up to a second, or up to half of the reported time if that is more, and this bound doubles with each repetition.
// If the server reports no time, the random delay is the whole wait: exponential backoff with full jitter.
//
// A request is repeatable if its method is GET, HEAD, OPTIONS, TRACE, PUT or DELETE, or if it has an
// Idempotency-Key. If it has a body, it also needs a GetBody, which [net/http.NewRequest] sets for bytes and
// strings. The program gets the denial as the response if the request is not repeatable, and in these cases:
//
//   - The request has been repeated MaxRetries times.
//   - The reported time is longer than MaxWait.
//   - The deadline of the context would pass during the reported time, or during the next attempt if that takes as
//     long as the last one. The Timeout of an http.Client is such a deadline.
//   - The budget of retries is used up. It has at most fifty retries, and gains one for each ten requests. So a server
//     that denies everything gets a tenth more requests in the long run, and not five times as many.
//
// Network errors and other statuses are returned to the program.
package client
