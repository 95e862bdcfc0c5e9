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

// Requests are raw text. These names stand for new names of the same length, which fresh inserts.
const (
	decoyA = "decoy000000a"
	decoyB = "decoy000000b"
	trial  = "trial0000000"
)

// fresh returns the request with new decoys and with the number n.
func fresh(raw string, n int) string {
	a, b := fmt.Sprintf("a%011x", rand.Uint64()>>20), fmt.Sprintf("b%011x", rand.Uint64()>>20)
	return strings.NewReplacer(decoyA, a, decoyB, b, trial, fmt.Sprintf("trial%07d", n)).Replace(raw)
}

// compose returns the head of a request, including the empty line. sized inserts the length of the body.
func compose(line string, fields ...string) string {
	return line + " HTTP/1.1\r\nHost: login.test\r\nContent-Length: \r\nX-Trial: " + trial + "\r\n" +
		strings.Join(append(fields, "", ""), "\r\n")
}

// sized inserts the length of the body into a request, unless it already has a length.
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

// send sends a request unchanged, and returns the status of the response, or 0 if none arrives in time. It also reads
// all later responses on the connection.
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

// hurry is how long to wait for the response to an odd request. Some requests get no response.
const hurry = 400 * time.Millisecond

// tunnel separates a request that upgrades its connection from the text to send after the upgrade.
const tunnel = "\x00upgraded\x00"
