package grpclimit_test

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluicehq/sluice/grpclimit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

func Example() {
	rules, err := policyfile.Parse("api.yaml", []byte(`
version: 1
rules:
  - {name: health, match: /grpc.health.v1.Health/, exempt: true}
  - {name: per-key, key: [header:X-API-Key], missing: refuse, limit: 100/minute}
  - {name: logins, match: /shop.Accounts/Login, key: [client_ip], limit: 5/minute, count: {status: [401]}}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	limits := grpclimit.Policy(policy.NewEngine(memory.New(), rules))
	server := grpc.NewServer(limits.Options()...)
	defer server.Stop()
}

func ExampleClient() {
	waits := &grpclimit.Client{}
	cc, err := grpc.NewClient("api.example.com:443",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(waits.Unary),
		grpc.WithChainStreamInterceptor(waits.Stream))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cc.Close()
}
