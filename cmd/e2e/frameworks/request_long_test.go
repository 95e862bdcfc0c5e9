//go:build long

package frameworks

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Requests are raw text. These stand for names that nobody has had before; fresh puts in
// others of the same length.
const (
	decoyA = "decoy000000a"
	decoyB = "decoy000000b"
	trial  = "trial0000000"
)

// fresh returns the request with new decoys, under a number of its own.
func fresh(raw string, n int) string {
	a, b := fmt.Sprintf("a%011x", rand.Uint64()>>20), fmt.Sprintf("b%011x", rand.Uint64()>>20)
	return strings.NewReplacer(decoyA, a, decoyB, b, trial, fmt.Sprintf("trial%07d", n)).Replace(raw)
}

// compose returns the head of a request, up to and with the empty line. The length of the
// body is to be put in by sized.
func compose(line string, fields ...string) string {
	return line + " HTTP/1.1\r\nHost: login.test\r\nContent-Length: \r\nX-Trial: " + trial + "\r\n" +
		strings.Join(append(fields, "", ""), "\r\n")
}

// sized returns the request with the length of its body, where there is none.
func sized(raw string) string {
	head, body, _ := strings.Cut(raw, "\r\n\r\n")
	return strings.Replace(head+"\r\n", "Content-Length: \r\n", "Content-Length: "+strconv.Itoa(len(body))+"\r\n", 1) + "\r\n" + body
}

// plain returns a well-formed login.
func plain(kind, part, form, name string) string {
	target, pair := "POST /"+kind+"/login", "user_name="+url.QueryEscape(name)
	if name == "" {
		pair = ""
	}
	switch {
	case part == "query":
		return sized(compose(target + "?" + pair))
	case part == "cookie" && name != "":
		return sized(compose(target, "Cookie: user_name="+name))
	case part == "header" && name != "":
		return sized(compose(target, "X-User-Name: "+name))
	case part == "body" && form == "json":
		return sized(compose(target, "Content-Type: application/json") + fmt.Sprintf(`{"user_name":%q}`, name))
	case part == "body" && form == "multipart":
		return sized(compose(target, "Content-Type: multipart/form-data; boundary=b") +
			"--b\r\nContent-Disposition: form-data; name=\"user_name\"\r\n\r\n" + name + "\r\n--b--\r\n")
	case part == "body" && form == "query":
		return sized(compose(target + "?" + pair))
	}
	return sized(compose(target, "Content-Type: application/x-www-form-urlencoded") + pair)
}

// send sends a request as it is, and returns the status of the answer, or 0 where there is
// none in time. What follows in the connection is read for as long as there is something.
func send(addr, raw string, wait time.Duration) int {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return 0
	}
	defer c.Close()
	head, after, _ := strings.Cut(raw, tunnel)
	_ = c.SetDeadline(time.Now().Add(wait))
	if _, err := io.WriteString(c, head); err != nil {
		return 0
	}
	answers := bufio.NewReader(c)
	method, _, _ := strings.Cut(raw, " ")
	first := 0
	for {
		resp, err := http.ReadResponse(answers, &http.Request{Method: method})
		if err != nil {
			return first
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			_, _ = io.WriteString(c, after)
			_, _ = io.Copy(io.Discard, answers)
			return resp.StatusCode
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if first == 0 && resp.StatusCode >= 200 {
			first = resp.StatusCode
		}
		if first != 0 && strings.Count(raw, "HTTP/1.") < 2 {
			return first
		}
		_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
	}
}

// hurry is how long the answer to an odd request is waited for. Some have none.
const hurry = 400 * time.Millisecond

// tunnel stands between a request that upgrades its connection and what is sent after that.
const tunnel = "\x00upgraded\x00"
