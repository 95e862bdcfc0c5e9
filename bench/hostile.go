package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	hostileCount = 2 * million
	// aSlice is the number of lines for the programs that would take minutes for all lines.
	aSlice = hostileCount / 20
)

// hostileAgents are user agents as Apache writes them.
var hostileAgents = []string{
	"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
	"Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Mobile/15E148 Safari/604.1",
	`Mozilla/5.0 (compatible; \"quoted\" \\o/)`, `() { :;}; echo \"200 1\" [20/Nov/2026:00:00:00 +0000] \"-\"`,
	"-", "", "curl/8.5.0", `\xe2\x80\xae\x1b[31mred`,
}

// hostileLines writes lines of a combined log of one day, always the same lines. They have quotes in user agents,
// IPv6 addresses, missing fields, binary request lines, lines of 100 KB, and times that are slightly out of order.
func hostileLines(w io.Writer, count int) error {
	r := rand.New(rand.NewPCG(14, 20))
	popular := rand.NewZipf(r, 1.1, 4, 60_000)
	out := bufio.NewWriterSize(w, 1<<20)
	begin := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	huge := strings.Repeat("a/", 50_000)
	var line []byte
	for i := range count {
		client := popular.Uint64()
		line = line[:0]
		if client%5 == 0 {
			line = fmt.Appendf(line, "2001:db8:%x:%x::%x", client>>8, client&0xff, client%7)
		} else {
			line = fmt.Appendf(line, "198.%d.%d.%d", 18+client>>16&1, client>>8&0xff, client&0xff)
		}
		user := "-"
		if r.IntN(50) == 0 {
			user = `al\"ice`
		}
		at := begin.Add(time.Duration(i) * (24 * time.Hour / time.Duration(count)))
		if r.IntN(20) == 0 {
			at = at.Add(-time.Duration(r.IntN(4)) * time.Second)
		}
		line = fmt.Appendf(line, " - %s ", user)
		line = at.AppendFormat(line, "[02/Jan/2006:15:04:05 -0700] ")
		switch path := r.IntN(5000); {
		case i%20_000 == 19_999:
			line = fmt.Appendf(line, `"GET /%s HTTP/1.1" 414 0 "-"`, huge)
		case path < 25:
			line = append(line, `"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" 400 226 "-"`...)
		case path < 50:
			line = append(line, `"-" 408 - "-"`...)
		case path < 500:
			line = fmt.Appendf(line, `"POST /search?q=\"%d\"&page=%d HTTP/2.0" 200 %d "https://www.example.com/a\"b"`, path, path%9, 500+path)
		default:
			line = fmt.Appendf(line, `"GET /api/users/%d/orders?page=%d HTTP/1.1" %d %d "https://www.example.com/users/%d"`, path*7, path%9, 200+path%5*50, path*3, path)
		}
		line = append(line, ` "`...)
		line = append(line, hostileAgents[r.IntN(len(hostileAgents))]...)
		line = append(line, "\"\n"...)
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// hostileLog returns the name of the file with the lines, and writes the file if it does not exist.
func hostileLog(count int, compressed bool) (string, error) {
	name := hostileName(count, compressed)
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name))
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	if compressed {
		var z *zstd.Encoder
		if z, err = zstd.NewWriter(f); err == nil {
			err = hostileLines(z, count)
			if e := z.Close(); err == nil {
				err = e
			}
		}
	} else {
		err = hostileLines(f, count)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return "", err
	}
	return name, os.Rename(f.Name(), name)
}

func hostileName(count int, compressed bool) string {
	name := fmt.Sprintf("sluice-bench-hostile-%d.log", count)
	if compressed {
		name += ".zst"
	}
	return filepath.Join(os.TempDir(), name)
}

// removeHostile removes the files.
func removeHostile() {
	for _, count := range []int{hostileCount, aSlice} {
		for _, compressed := range []bool{false, true} {
			os.Remove(hostileName(count, compressed))
		}
	}
}
