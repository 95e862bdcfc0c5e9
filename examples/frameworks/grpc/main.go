// Command grpc limits the calls to a gRPC server by the policy in api.yaml. Its only service is the health check of
// gRPC, in place of a service of your own:
//
//	go run ./examples/grpc
package main

import (
	_ "embed"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sluicehq/sluice/grpclimit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

//go:embed api.yaml
var api []byte

func main() {
	server, err := newServer()
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "localhost:50051")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(listener))
}

func newServer() (*grpc.Server, error) {
	rules, err := policyfile.Parse("api.yaml", api)
	if err != nil {
		return nil, err
	}
	limits := grpclimit.Policy(policy.NewEngine(memory.New(), rules))
	server := grpc.NewServer(limits.Options()...)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	return server, nil
}
