package follow_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile/follow"
)

// The engine uses the policy in the file. While the file has no valid policy, it uses the last valid one.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := &follow.File{Path: filepath.Join(dir, "api.yaml")}
	if err := os.WriteFile(file.Path, []byte("version: 1\nrules: [{name: all, limit: 100/minute}]\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	rules, err := file.Load()
	if err != nil {
		log.Fatal(err)
	}
	engine := policy.NewEngine(memory.New(), rules)
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() { defer close(watched); file.Watch(ctx, nil, engine.Swap) }()
	decision := engine.Decide(ctx, &policy.Request{Method: "GET", Path: "/"})
	fmt.Println(decision.Results[0].Rule, decision.Results[0].Remaining)
	cancel()
	<-watched
	// Output: all 99
}
