// Package histories is a test: it plays histories of requests through every layer, that is, through the engine over
// several stores, and through every integration. A history is a text file in testdata. Its expected answers are
// derived from the documentation, so they are the same for every layer. Histories are played in virtual time.
//
// A history is a paragraph that describes it, lines that name the layers that cannot play it, and sections:
//
//	A token bucket admits its burst at once, and then a unit each time one has drained.
//	without resp, check-rule, rls: they send no path
//
//	-- policy --
//	version: 1
//	rules:
//	  - {name: api, key: ["header:X-User"], limit: 6/minute burst 3, cost: {header: X-Cost, max: 10}}
//
//	-- steps --
//	X-User=alice                  -> pass, 2 left
//	X-User=alice cost=2           -> pass, 0 left
//	X-User=alice                  -> 429, 0 left, retry 10s
//	wait 10s
//	POST /login X-User=alice      -> pass, 0 left
//
// # Requests
//
// A request is a method and a path, or nothing for "GET /", followed by any of these fields in any order:
//
//	X-User=alice        a header
//	client=192.0.2.1    the address of the client (default: 192.0.2.1)
//	cost=3              the cost; HTTP integrations send it as the header X-Cost, which the policy must read as the cost
//	id=a                the ID of the request
//	body={"a":1}        the body: JSON without spaces
//	answers 401 X-Cost=30 bytes=100
//	                    the upstream's response, which determines the outcome; it is the last field before the arrow
//
// These words may precede a request: "3 times", "peek", "refund", or "begin NAME". A request after "begin NAME" is in
// flight until the step "end NAME". If it has a response, the response arrives at this step.
//
// # Verdicts
//
// A verdict starts with "pass" or the status of the denial, followed by any of these:
//
//	2 left                  the remaining units of the only limit
//	api-1s 2 left           the remaining units of the limit with this name in the response; then the verdict must list
//	                        all limits
//	shadow api 2 left       the remaining units of a rule in shadow mode
//	retry 10s, retry never  the time until the request fits
//	delay 2s                the time that the request waits in a queue
//	exempt                  no limit counts the request
//	repeated                a request with this ID has passed before
//	blocked by api          the rule under which the subject is blocked
//	missing header:X-Key    the key part that the request lacks
//
// Values that a verdict omits are not compared. A layer compares only the values that it returns.
//
// # Other steps
//
//	wait 30s
//	end NAME
//	reset RULE PART=VALUE …
//	block RULE PART=VALUE … [until 1h]
//	unblock RULE PART=VALUE …
//	override {rule: api, key: {"header:X-User": alice}, limit: 100/minute}
//	subject {subject: k-42, tier: pro}
//	policy NAME             put the policy in the section "-- policy NAME --" into force
//
// # Layers
//
// The table of layers is in layers_test.go. A layer has a name, a store, and a function that sends a request and fills
// in the verdict. A new layer needs a row and such a function. If a layer cannot express a step, the test fails, and
// names the line "without …" that the history needs.
package histories
