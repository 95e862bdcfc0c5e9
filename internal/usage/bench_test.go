package usage_test

import (
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/usage"
)

// The throughput for a stream of events and for one document.
func BenchmarkScanner(b *testing.B) {
	p := compile(b, allPaths...)
	stream := func(content int) string {
		event := `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1755624318,"model":"gpt-5","choices":[{"index":0,"delta":{"content":"` +
			strings.Repeat("wörds and ", content/10) + `"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n"
		return strings.Repeat(event, 1<<20/len(event))
	}
	prose := strings.Repeat(`A line of text, with \"quotes\" and a break.\n`, 30_000)
	for _, c := range []struct {
		name, mediaType, body string
		size                  int
	}{
		{"events of 200 B in chunks of 100 B", "text/event-stream", stream(20), 100},
		{"events of 200 B in chunks of 1 KB", "text/event-stream", stream(20), 1 << 10},
		{"events of 4 KB in chunks of 4 KB", "text/event-stream", stream(4000), 4 << 10},
		{"a document of plain text", "application/json", `{"content":"` + strings.Repeat("words ", 180_000) + `"}`, 32 << 10},
		{"a document of escaped text", "application/json", `{"content":"` + prose[:1<<20] + `"}`, 32 << 10},
		{"a document of embeddings", "application/json", `{"data":[{"embedding":[` + strings.Repeat("-0.0123456789,", 75_000) + `0]}]}`, 32 << 10},
		{"a document of small members", "application/json", `{"data":[` + strings.Repeat(`{"a":1,"b":"x"},`, 65_000) + `0]}`, 32 << 10},
		{"the slowest", "application/json", `{"data":[` + strings.Repeat(`1,`, 500_000) + `0]}`, 32 << 10},
	} {
		all := pieces(c.body, c.size)
		chunks := make([][]byte, len(all))
		for i := range all {
			chunks[i] = []byte(all[i])
		}
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			var s usage.Scanner
			for b.Loop() {
				s.Reset(p, c.mediaType, "")
				for _, chunk := range chunks {
					s.Write(chunk)
				}
				s.End()
				if s.Unread() != "" || s.Events() == 0 {
					b.Fatal(s.Unread(), s.Events())
				}
			}
		})
	}
}
