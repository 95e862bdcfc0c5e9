package accesslog

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hostile writes n lines of nginx's combined log with what clients put into real ones: quotes in user
// agents, addresses of IPv6, absent fields, bytes of TLS for a request, and lines of 100 KB.
func hostile(n int) [][]byte {
	rng := rand.New(rand.NewPCG(14, 2026))
	agents := []string{
		"Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36",
		"curl/8.5.0", "okhttp/4.12.0", "", "evil \"quoted\" \\ agent", "\xd0\x9f\x1b[31m", "() { :; }; echo \"x\"",
	}
	lines := make([][]byte, n)
	t := time.Date(2026, 11, 20, 0, 0, 0, 0, time.FixedZone("", 3600))
	for i := range lines {
		var b []byte
		if rng.IntN(4) == 0 {
			b = fmt.Appendf(b, "2001:db8:%x::%x - ", rng.IntN(65536), rng.IntN(65536))
		} else {
			b = fmt.Appendf(b, "203.0.%d.%d - ", rng.IntN(256), rng.IntN(256))
		}
		user := "-"
		if rng.IntN(50) == 0 {
			user = "al [ice"
		}
		b = fmt.Appendf(b, "%s [%s] \"", user, t.Add(time.Duration(i)*time.Millisecond).Format("02/Jan/2006:15:04:05 -0700"))
		request, code := fmt.Sprintf("GET /api/users/%d?fields=name&page=%d HTTP/1.1", rng.IntN(100_000), rng.IntN(20)), 200
		switch k := rng.IntN(100_000); {
		case k < 1000:
			request, code = "\x16\x03\x01\x02\x00\x01\x00\xfc\x03", 400
		case k < 2000:
			request, code = "", 400
		case k < 5000:
			request, code = "POST /a\"b\\c HTTP/2.0", 404
		case k < 5002:
			request, code = "GET /"+strings.Repeat("a/", 50_000)+" HTTP/1.1", 414
		}
		b = append(nginxEscape(b, request), "\" "...)
		referer := "-"
		if rng.IntN(2) == 0 {
			referer = fmt.Sprintf("https://app.example.com/page/%d", rng.IntN(1000))
		}
		b = fmt.Appendf(b, "%d %d \"%s\" \"", code, rng.IntN(100_000), referer)
		lines[i] = append(nginxEscape(b, agents[rng.IntN(len(agents))]), '"')
	}
	return lines
}

// nginxEscape writes s as nginx does by default: quotes, backslashes, control characters and all beyond
// ASCII are \xXX.
func nginxEscape(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c == '"' || c == '\\' || c < 32 || c > 126 {
			b = fmt.Appendf(b, "\\x%02X", c)
		} else {
			b = append(b, c)
		}
	}
	return b
}

// cpu is the processor time that the process has used, which holds on a busy machine too.
func cpu() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func BenchmarkParse(b *testing.B) {
	lines := hostile(50_000)
	for _, c := range []struct{ name, spec, prefix, suffix string }{
		{"combined", "combined", "", ""},
		{"upstream", `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" $request_time "$http_x_forwarded_for" $host $upstream_response_time`,
			"", ` 0.034 "198.51.100.4, 10.0.0.2" api.example.com 0.031, 0.002`},
		{"doubt", `$http_x_api_key $remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`, "key ", ""},
	} {
		b.Run(c.name, func(b *testing.B) {
			f, err := Lookup(c.spec, Options{})
			if err != nil {
				b.Fatal(err)
			}
			// One behind the other, as in a block of a file.
			var block []byte
			all := make([][]byte, len(lines))
			for i := range all {
				begin := len(block)
				block = append(append(append(block, c.prefix...), lines[i]...), c.suffix...)
				all[i] = block[begin:]
			}
			var e Entry
			b.ReportAllocs()
			i, size := 0, 0
			begin := cpu()
			for b.Loop() {
				if err := f.Parse(all[i], &e); err != nil {
					b.Fatalf("%q: %v", all[i], err)
				}
				size += len(all[i])
				if i++; i == len(all) {
					i = 0
				}
			}
			b.ReportMetric(float64(b.N)/(cpu()-begin).Seconds()/1e6, "Mlines/cpu-s")
			b.ReportMetric(float64(size)/float64(b.N), "bytes/line")
		})
	}
}
