package checkgrpc

import (
	"fmt"
	"testing"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// BenchmarkDoor is a decision by calls of 64 callers, and by 4 streams with batches of 16: client and
// server in one process.
func BenchmarkDoor(b *testing.B) {
	p := parse(b, "version: 1\nrules: [{name: per-key, key: [api_key], limit: 1000000/second}]")
	client := serve(b, Config{Engine: policy.NewEngine(memory.New(), p)})
	b.Run("calls", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			one := subject("per-key", "api_key", "k")
			for pb.Next() {
				if got, err := client.Check(b.Context(), one); err != nil || !got.Allowed {
					b.Error(got, err)
				}
			}
		})
	})
	b.Run("batches of 16", func(b *testing.B) {
		b.SetParallelism(2)
		b.RunParallel(func(pb *testing.PB) {
			stream, err := client.CheckStream(b.Context())
			if err != nil {
				b.Error(err)
				return
			}
			batch := &CheckBatch{}
			for i := range 16 {
				batch.Checks = append(batch.Checks, subject("per-key", "api_key", fmt.Sprint(i)))
			}
			for n := 0; pb.Next(); n++ {
				if n%16 > 0 {
					continue
				}
				if err := stream.Send(batch); err != nil {
					b.Error(err)
					return
				}
				if got, err := stream.Recv(); err != nil || len(got.Answers) != 16 || !got.Answers[15].Allowed {
					b.Error(got, err)
					return
				}
			}
		})
	})
}
