// Package histories plays histories of requests through every layer: the engine, over one store and
// another, and every integration. A history is a text file in testdata, and what it expects is worked
// out from the documentation, so that it holds whatever the layer is. All of it happens in virtual time.
//
// A history is a paragraph that says what it shows, lines that name the layers that cannot play it,
// and sections:
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
// A request is a method and a path ("GET /" if both are left out), and then, in any order:
//
//	X-User=alice        a header
//	client=192.0.2.1    the address of the client (192.0.2.1 if left out)
//	cost=3              its cost: integrations of HTTP send it as the header X-Cost, of which the policy has to know
//	id=a                the ID of the request
//	body={"a":1}        its body, JSON without spaces
//	answers 401 X-Cost=30 bytes=100
//	                    the response behind the limit, by which outcomes go: last, before the arrow
//
// Before it may be "3 times", "peek", "refund" (give back), or "begin NAME": a request that is under way
// until a step "end NAME". If it answers, it does so at its end.
//
// # Verdicts
//
// A verdict begins with "pass" or the status of the refusal, and goes on with any of these:
//
//	2 left                  what remains of the only limit
//	api-1s 2 left           what remains of a limit, by the name that clients see; then all limits must be there
//	shadow api 2 left       the same of a rule in shadow mode
//	retry 10s, retry never  when the request fits
//	delay 2s                how long it waits for its turn in a queue
//	exempt                  no limit counts it
//	repeated                its ID has passed before
//	blocked by api          the rule that blocks it
//	missing header:X-Key    what it lacks
//
// What a verdict does not mention is not compared. A layer compares what it can see.
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
//	policy NAME             another section "-- policy NAME --" is in force
//
// # Layers
//
// The layers are a table in layers_test.go: a name, the store, and a function that sends a request and fills in
// its verdict. To add one, add a row and its function.
// A layer that cannot express a step fails, and names the line "without …" that the history needs.
package histories
