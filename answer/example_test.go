package answer_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"strings"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// An integration with another protocol, without a ResponseWriter, reads "METHOD PATH ADDRESS" and writes lines.
func Example() {
	rules, err := policyfile.Parse("api.yaml", []byte(`
version: 1
rules:
  - {name: per-address, key: [client_ip], limit: 1/hour}
`))
	if err != nil {
		log.Fatal(err)
	}
	engine := policy.NewEngine(memory.New(), rules)
	var encoder answer.Encoder
	var outage answer.Outage
	var decision policy.Decision
	var a answer.Answer
	ctx := context.Background()
	for _, line := range []string{"GET /things 192.0.2.1", "GET /things 192.0.2.1"} {
		words := strings.Fields(line)
		request := policy.Request{Method: words[0], Path: words[1], Peer: netip.MustParseAddr(words[2])}

		engine.DecideInto(ctx, &request, &decision)
		answer.Settle(ctx, &decision, nil, func(ctx context.Context) { engine.Refund(ctx, decision) })
		outage.Note(&decision)
		fields := http.Header{}
		encoder.Encode(&a, fields, &decision, answer.Client{})

		fmt.Println(a.Status, fields["Ratelimit-Policy"], fields["Retry-After"])
		fmt.Printf("%s", a.Body())
	}
	// Output:
	// 200 ["per-address";q=1;w=3600] []
	// 429 ["per-address";q=1;w=3600] [3600]
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"detail":"Limit per-address: 1 per 3600s. Retry in 3600 s.","violated-policies":["per-address"],"error":"rate_limit_exceeded","retry_after":3600}
}
