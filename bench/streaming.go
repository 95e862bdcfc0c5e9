package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// A completion is a stream of server-sent events like those of OpenAI's Chat Completions. The last event has the
// usage.
const (
	completions     = "/v1/chat/completions"
	completionAsk   = `{"model":"gpt-5","max_completion_tokens":300,"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Count to a hundred."}]}`
	completionChunk = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1755624318,"model":"gpt-5","choices":[{"index":0,"delta":{"content":" words"},"logprobs":null,"finish_reason":null}],"usage":null,"sent":%019d}` + "\n\n"
	completionUsage = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"gpt-5","choices":[],"usage":{"prompt_tokens":50,"completion_tokens":100,"total_tokens":150,"prompt_tokens_details":{"cached_tokens":0}}}` + "\n\ndata: [DONE]\n\n"
	chunksEach      = 100
	tokensEach      = 150
	tokenLimit      = 1_000_000_000
)

// tokenPolicy returns a policy of one rule with the given cost.
func tokenPolicy(cost string) string {
	return fmt.Sprintf("version: 1\nrules:\n  - {name: tokens, match: [POST %s], key: [api_key], limit: %d/day, algorithm: fixed_window, cost: %s}\n", completions, tokenLimit, cost)
}

const (
	tokensByBody = "{tokens: total, estimate: {bytes: 3, output: 2000}}"
	tokensFixed  = "{tokens: total, estimate: 700}"
	costByHeader = "{response_header: X-Cost, estimate: 700, max: 10000}"

	tokenGateway  = "sluice serve, tokens that the response reports"
	headerGateway = "sluice serve, a cost in a header"
	oneStream     = "gateway: 1 stream"
	manyStreams   = "gateway: 50 streams"

	tokenPolicies  = "sluice/httplimit, tokens, an estimate of the body"
	fixedPolicies  = "sluice/httplimit, tokens, a fixed estimate"
	headerPolicies = "sluice/httplimit, a cost in a header"
	streamed       = "middleware: a stream"
)

func streamWorks() []work {
	gateways := []contender{
		{bareProxy, floor, inBetween(standardProxy("pooled"))},
		{tokenGateway, ours, tokenGate(tokensByBody)},
		{headerGateway, other, tokenGate(costByHeader)},
	}
	middleware := []contender{
		{tokenPolicies, ours, tokensByBody},
		{fixedPolicies, other, tokensFixed},
		{headerPolicies, other, costByHeader},
	}
	about := fmt.Sprintf("Streams of %d events of %d bytes, from the write of an event by the upstream to its arrival at the client. Added times are in comparison with another bare reverse proxy, measured in turn", chunksEach, len(fmt.Sprintf(completionChunk, 0)))
	cols := []string{"added p50 µs", "p50 µs", "p99 µs", "proxy CPU µs an event"}
	return []work{
		{oneStream, about + "; 1,000 events a second", gateways, streaming(1, time.Millisecond, 30), cols},
		{manyStreams, about + "; 100 events a second on each", gateways, streaming(50, 10*time.Millisecond, 4), cols},
		{streamed, fmt.Sprintf("The cost that is added to a bare handler that writes and flushes %d events", chunksEach), middleware, handlingStream, []string{"added CPU ns", "CPU ns", "added allocs"}},
	}
}

func streamTargets() []target {
	return []target{
		{"gateway: p50 µs that it adds to an event, 1 stream", 5, false, figure(oneStream, "added p50 µs", tokenGateway)},
		{"gateway: p50 µs that it adds to an event, 50 streams", 5, false, figure(manyStreams, "added p50 µs", tokenGateway)},
		{"httplimit: allocations that reading a response adds", 5, false, func(rs results) []float64 {
			return each(difference, rs.values(streamed, fixedPolicies, "added allocs"), rs.values(streamed, headerPolicies, "added allocs"))
		}},
	}
}

// tokenGate starts the gateway with a rule of the given cost.
func tokenGate(cost string) inBetween {
	return func(dir, listen, upstream string) *exec.Cmd {
		return serveGateway(tokenPolicy(cost), dir, listen, upstream)
	}
}

// complete answers with a stream that sends an event at each interval.
func complete(interval time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w).Flush
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for range chunksEach {
			<-tick.C
			fmt.Fprintf(w, completionChunk, time.Now().UnixNano())
			if flush() != nil {
				return
			}
		}
		_, _ = io.WriteString(w, completionUsage)
	}
}

// streaming measures a proxy, alternating with the floor.
func streaming(streams int, interval time.Duration, turns int) func(contender) (sample, error) {
	return func(c contender) (sample, error) {
		upstream := httptest.NewServer(complete(interval))
		defer upstream.Close()
		bare, err := startProxy(standardProxy("pooled"), upstream.URL)
		if err != nil {
			return nil, err
		}
		defer bare.stop()
		mine, err := startProxy(c.start.(inBetween), upstream.URL)
		if err != nil {
			return nil, err
		}
		defer mine.stop()
		var added, took []float64
		events, used := 0, time.Duration(0)
		for turn := range turns + 1 {
			floor, err := stream(bare.addr, streams, interval)
			if err != nil {
				return nil, err
			}
			before := mine.cpu()
			delays, err := stream(mine.addr, streams, interval)
			if err != nil {
				return nil, err
			}
			if turn == 0 {
				continue
			}
			used += mine.cpu() - before
			events += len(delays)
			took = append(took, delays...)
			p50, _ := middle(delays)
			of, _ := middle(floor)
			added = append(added, p50-of)
		}
		if c.name == tokenGateway {
			if err := charged(mine.addr, streams, took); err != nil {
				return nil, err
			}
		}
		slices.Sort(took)
		median, _ := middle(added)
		return sample{
			"added p50 µs":          median,
			"p50 µs":                took[len(took)/2],
			"p99 µs":                took[len(took)*99/100],
			"proxy CPU µs an event": float64(used) / 1000 / float64(events),
		}, nil
	}
}

// stream reads a number of streams, and returns the delays of all events in microseconds. The streams start one
// after the other within an interval of their events; otherwise, the events of all streams would come at the same
// time.
func stream(addr string, streams int, interval time.Duration) (delays []float64, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range streams {
		wg.Go(func() {
			time.Sleep(interval * time.Duration(i) / time.Duration(streams))
			mine, one := listen(addr)
			mu.Lock()
			defer mu.Unlock()
			delays, err = append(delays, mine...), errors.Join(err, one)
		})
	}
	wg.Wait()
	return delays, err
}

// listen reads one stream.
func listen(addr string) (delays []float64, err error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_, err = completion(c, bufio.NewReader(c), func(sent int64) {
		delays = append(delays, float64(time.Now().UnixNano()-sent)/1000)
	})
	return delays, err
}

// completion requests a stream and reads it.
func completion(c net.Conn, r *bufio.Reader, event func(sent int64)) (http.Header, error) {
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: sluice\r\nX-API-Key: k1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", completions, len(completionAsk), completionAsk); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, errors.New(res.Status)
	}
	events, done := 0, false
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		line := lines.Bytes()
		if at := bytes.LastIndex(line, []byte(`"sent":`)); at >= 0 {
			sent, err := strconv.ParseInt(string(line[at+len(`"sent":`):len(line)-1]), 10, 64)
			if err != nil {
				return nil, err
			}
			event(sent)
			events++
		}
		done = done || string(line) == "data: [DONE]"
	}
	if events != chunksEach || !done {
		return nil, fmt.Errorf("the stream broke off after %d events: %w", events, errors.Join(lines.Err(), io.ErrUnexpectedEOF))
	}
	return res.Header, nil
}

// charged asserts that all streams were charged the cost that they reported. The first turn is charged, too, but
// not measured.
func charged(addr string, streams int, measured []float64) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	head, err := completion(c, bufio.NewReader(c), func(int64) {})
	if err != nil {
		return err
	}
	left, err := strconv.ParseInt(head.Get("X-RateLimit-Remaining"), 10, 64)
	if err != nil {
		return err
	}
	const reserved = (len(completionAsk)+2)/3 + 300
	least := int64(len(measured)/chunksEach+streams)*tokensEach + int64(reserved)
	if spent := int64(tokenLimit) - left; spent < least || (spent-int64(reserved))%tokensEach != 0 {
		return fmt.Errorf("%d tokens were charged, want at least %d", spent, least)
	}
	return nil
}

func difference(v ...float64) float64 { return v[0] - v[1] }

// flusher is a writer with a Flush method, so that handlers can write a stream to it.
type flusher struct{ writer }

func (*flusher) Flush() {}

var completionChunks = func() (all [][]byte) {
	for i := range chunksEach {
		all = append(all, fmt.Appendf(nil, completionChunk, i))
	}
	return append(all, []byte(completionUsage))
}()

// write writes a whole stream without pauses. Its header has the cost, too.
func write(w http.ResponseWriter, _ *http.Request) {
	w.Header()["Content-Type"] = []string{"text/event-stream"}
	w.Header()["X-Cost"] = []string{strconv.Itoa(tokensEach)}
	flush := w.(http.Flusher)
	for _, chunk := range completionChunks {
		_, _ = w.Write(chunk)
		flush.Flush()
	}
}

// handlingStream measures the cost that a policy adds to a call of the bare handler.
func handlingStream(c contender) (sample, error) {
	p, err := policyfile.Parse("bench.yaml", []byte(tokenPolicy(c.start.(string))))
	if err != nil {
		return nil, err
	}
	bare := http.HandlerFunc(write)
	h := httplimit.Policy(policy.NewEngine(memory.New(), p))(bare)
	body := strings.NewReader("")
	r := &http.Request{
		Method: "POST", URL: &url.URL{Path: completions}, Host: "sluice", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: "203.0.113.9:40000",
		Header: http.Header{"X-Api-Key": {"k1"}, "Content-Type": {"application/json"}},
	}
	serve := func(h http.Handler) http.Header {
		body.Reset(completionAsk)
		r.Body, r.ContentLength = io.NopCloser(body), int64(len(completionAsk))
		w := &flusher{writer{header: make(http.Header)}}
		h.ServeHTTP(w, r)
		return w.header
	}
	before := serve(h)
	if after := serve(h); !hasFields(after) || spent(after)-spent(before) != tokensEach {
		return nil, fmt.Errorf("a stream was charged %d tokens", spent(after)-spent(before))
	}
	return addedTo(bare, h, func(h http.Handler) bool {
		serve(h)
		return true
	}), nil
}

// spent returns how many tokens were charged, from the fields of a response.
func spent(h http.Header) int64 {
	left, err := strconv.ParseInt(h.Get("X-RateLimit-Remaining"), 10, 64)
	must(err)
	return tokenLimit - left
}
