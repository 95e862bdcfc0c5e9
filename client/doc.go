// Package client is a [net/http.RoundTripper] that keeps to the limits of servers, whether they run Sluice
// or another limiter. It goes into the http.Client of any program:
//
//	api := &http.Client{Transport: &client.Transport{}, Timeout: time.Minute}
//	response, err := api.Get("https://api.example.com/orders")
//
// # Before a request
//
// Servers tell what is left: in RateLimit and RateLimit-Policy as the drafts of the standard have
// them from 7 on (draft-ietf-httpapi-ratelimit-headers), in RateLimit-Limit, -Remaining and -Reset
// as in drafts 3 to 6, or in fields such as X-RateLimit-Remaining and X-Rate-Limit-Reset, with
// seconds from now, seconds or milliseconds since 1970, durations or dates. Where nothing is left a
// request waits until there will be. Then one goes ahead for each part of the window that is one
// request's, until an answer tells that there is room for all.
//
// A limit holds for the routes, a method and a path, whose answers have told of it, and for new
// ones if every answer so far has told of it. So one path's limit holds up no other, and what an
// API key has used up holds up no other key (Authorization, X-API-Key). Set Partition of
// [Transport] where limits hold for other parts of a server.
//
// # After a refusal
//
// A refusal is a 429; a 503 with Retry-After; or a 403 with Retry-After or with nothing left, as
// GitHub says it. Such a request is sent again after what Retry-After promises, in seconds or as a
// date by the server's own clock, or else the end of the limit that has nothing left. It is never
// sent earlier. A random delay of up to a second or half as much again, whichever is more, is added,
// and doubles each time, so that clients refused together do not come back together. If nothing is
// promised, that is all of the wait: exponential backoff with full jitter.
//
// Only what may be repeated is sent again: GET, HEAD, OPTIONS, TRACE, PUT and DELETE, and other methods with
// an Idempotency-Key; without a body, or with one that the request's GetBody makes anew, as
// [net/http.NewRequest] sets it for bytes and strings. The program gets the refusal as the response
// where the request is not sent again:
//
//   - It has been sent again MaxRetries times.
//   - The promise is longer than MaxWait. It is not asked again any earlier.
//   - The promise, and another attempt as long as the last, would not end before the deadline of the
//     context, of which the Timeout of an http.Client is one.
//   - The budget is used up: fifty retries, and one for each ten requests. A server that refuses
//     everything gets a tenth more requests in the long run, and not five times as many.
//
// Network errors and other statuses are left to the program.
package client
