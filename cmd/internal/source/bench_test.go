package source_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/postgrestest"
	"github.com/sluicehq/sluice/policy"
)

// What a change of one override costs beside many others: it is written, checked with all that
// there is, committed, followed by another instance and in force there.
func BenchmarkFollow(b *testing.B) {
	run := func(b *testing.B, url string) {
		for _, n := range []int{0, 1000, 100_000} {
			b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkFollow(b, url, n) })
		}
	}
	b.Run("sqlite", func(b *testing.B) { run(b, "sqlite:"+filepath.Join(b.TempDir(), "rules.db")) })
	b.Run("postgres", func(b *testing.B) { run(b, postgrestest.Database(b)) })
}

func benchmarkFollow(b *testing.B, url string, overrides int) {
	writer := open(b, url)
	if _, err := writer.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	doc := &policy.Document{Rules: []policy.Rule{perKey}}
	for i := range overrides {
		doc.Overrides = append(doc.Overrides, policy.Override{Rule: "per-key", Key: map[string]string{"api_key": fmt.Sprint(i)}, Limit: "5/minute"})
	}
	ctx, cancel := longer(b)
	defer cancel()
	if _, err := writer.Change(ctx, "bench", func(tx *source.Tx) error { return tx.Replace(doc) }); err != nil {
		b.Fatal(err)
	}
	reader := open(b, url)
	inForce := make(chan int64, 1)
	stack := &source.Stack{Swap: func(*policy.Policy) {}}
	first, err := reader.Read(ctx)
	if err != nil {
		b.Fatal(err)
	}
	if err := stack.Contents(first); err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reader.Watch(ctx, func(c *source.Contents) {
			if err := stack.Contents(c); err != nil {
				b.Error(err)
			}
			inForce <- c.Version
		})
	}()
	b.ResetTimer()
	for i := range b.N {
		version, err := writer.Change(ctx, "bench", func(tx *source.Tx) error {
			_, err := tx.PutOverride(source.OverrideRow{Override: policy.Override{Rule: "per-key", Key: abc, Limit: fmt.Sprintf("%d/minute", i+1)}}, source.Any)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		for <-inForce < version {
		}
	}
	b.StopTimer()
	cancel()
	for {
		select {
		case <-inForce:
		case <-ended:
			return
		}
	}
}
