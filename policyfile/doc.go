// Package policyfile reads and writes policies as people keep them in files, in YAML or JSON. Package
// follow and programs are above it, package policy is below.
//
//	rules, err := policyfile.Load("api.yaml")
//	engine := policy.NewEngine(memory.New(), rules)
//
// A file is a [policy.Document], whose fields it has under the names of their JSON tags:
//
//	version: 1
//	trusted_proxies: [10.0.0.0/8]
//	tiers: {subject: api_key, from: header:X-Plan, default: free}
//	answers: {429: {type: text/html, body: "<p>Come back in {{.Wait}}."}}
//	rules:
//	  - name: health
//	    match: GET /health
//	    exempt: true
//	  - name: per-key
//	    key: [api_key]
//	    missing: skip
//	    limit: 100/minute burst 20
//	    tiers: {pro: 1000/minute}
//	  - name: login
//	    match: [POST /auth/login, POST /auth/register]
//	    key: [client_ip, body:username]
//	    limit: 5/minute
//	    algorithm: sliding_window_log
//	    cost: {header: X-Cost, max: 100}
//	    on_error: deny
//	overrides:
//	  - {rule: per-key, key: {api_key: k-42}, limit: 5000/minute, until: 2027-01-31, reason: a launch}
//	  - {rule: per-key, key: {api_key: k-13}, block: true, reason: spam, by: support}
//	subjects:
//	  - {subject: k-43, tier: pro, until: 2027-01-31, reason: a trial}
//
// A date without a time is the end of that day in UTC. A document starts with its version, and has a list of rules,
// which may be empty. A single entry needs no list, and a cost without a header is a number. Names of other files
// in it are relative to its directory.
//
// Unknown keys, duplicates and invalid values are errors, reported with their line and with
// what to write instead. Anchors, aliases and tags are not supported, nor are several documents
// in a file.
package policyfile
