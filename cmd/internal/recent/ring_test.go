package recent

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/sluicehq/sluice/policy"
)

const typical = `
rules:
  - {name: per-address, key: [client_ip], limit: 1000000/minute}
  - {name: per-key, match: [/api/], key: [api_key], missing: skip, limit: 1000000/hour}
  - {name: login, match: [POST /login], key: [client_ip, "body:username"], limit: 10/hour}
`

// some returns a request of an API, from one of 20,000 clients, a tenth of which have keys, for one of 5,000 paths.
func some(r *rand.Rand) policy.Request {
	client := r.IntN(20_000)
	q := policy.Request{
		Method: "GET", Host: "api.example.com", Path: paths[r.IntN(len(paths))], Door: "gateway",
		Peer: netip.AddrFrom4([4]byte{10, byte(client >> 16), byte(client >> 8), byte(client)}), Header: header,
	}
	if client%10 == 0 {
		q.Header = headers[client/10]
	}
	return q
}

var (
	paths   = make([]string, 5000)
	header  = http.Header{"User-Agent": {"curl/8"}}
	headers = make([]http.Header, 2000)
)

func init() {
	for i := range paths {
		paths[i] = fmt.Sprintf("/api/users/%d/orders", 1000+i)
	}
	for i := range headers {
		headers[i] = http.Header{"User-Agent": {"curl/8"}, "X-Api-Key": {fmt.Sprintf("sk_live_%024d", i)}}
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, size := range []int64{0, 64 << 20} {
		b.Run(fmt.Sprintf("ring=%dMB", size>>20), func(b *testing.B) {
			engine := engineOf(b, decode(b, typical))
			if size > 0 {
				Watch(engine, size)
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r := rand.New(rand.NewPCG(1, 2))
				var d policy.Decision
				for pb.Next() {
					q := some(r)
					engine.DecideInto(b.Context(), &q, &d)
				}
			})
		})
	}
}

// BenchmarkTry measures a trial of a full ring.
func BenchmarkTry(b *testing.B) {
	now := decode(b, typical)
	engine := engineOf(b, now)
	ring := Watch(engine, 64<<20)
	r := rand.New(rand.NewPCG(1, 2))
	for range 2_000_000 {
		q := some(r)
		engine.Decide(b.Context(), &q)
	}
	would := decode(b, strings.ReplaceAll(typical, "1000000/minute", "1/minute"))
	before := heap()
	b.ResetTimer()
	for b.Loop() {
		if _, err := ring.Try(b.Context(), now, would); err != nil {
			b.Fatal(err)
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(int64(m.HeapAlloc)-before)/(1<<20), "MiB")
}

// Recording of requests and trials of changes run at the same time.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	doc := decode(t, typical)
	engine := engineOf(t, doc)
	ring := Watch(engine, LeastBytes)
	var asking sync.WaitGroup
	const each = 500
	for i := range uint64(8) {
		asking.Go(func() {
			r := rand.New(rand.NewPCG(i, 3))
			for range each {
				q := some(r)
				engine.Decide(t.Context(), &q)
			}
		})
	}
	for range 3 {
		if _, err := ring.Try(t.Context(), doc, doc); err != nil {
			t.Fatal(err)
		}
	}
	asking.Wait()
	if got, err := ring.Try(t.Context(), doc, doc); err != nil || got.Requests != 8*each || got.Differs != 0 {
		t.Errorf("%v, %s", err, encoded(t, got))
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
