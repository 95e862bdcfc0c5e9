// Package policyfile reads and writes policies in files, in YAML or JSON. Package follow and programs import it. It
// imports package policy.
//
//	rules, err := policyfile.Load("api.yaml")
//	engine := policy.NewEngine(memory.New(), rules)
//
// A file contains a [policy.Document]. The names of its fields are the JSON tags:
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
// A date without a time is the end of that day in UTC. A document must have a version and a list of rules, which may
// be empty. A list of texts with a single entry may be written as the entry, and a fixed cost as a number. Names of
// other files in a document are relative to the directory of the document.
//
// Unknown keys, duplicates and invalid values are errors. An error contains the line and, in most cases, a
// correction. Anchors, aliases and tags are not supported, nor are several documents in a file.
package policyfile
