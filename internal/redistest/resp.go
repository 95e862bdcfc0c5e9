package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// roundTrip sends one command and reads its reply.
func roundTrip(conn net.Conn, args []string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return "", err
	}
	return readReply(bufio.NewReader(conn))
}

func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, text := line[0], strings.TrimRight(line[1:], "\r\n")
	n, _ := strconv.Atoi(text)
	switch kind {
	case '-':
		return "", errors.New(text)
	case '$':
		return readBulk(r, n)
	case '*':
		var lines []string
		for range max(n, 0) {
			element, err := readReply(r)
			if err != nil {
				return "", err
			}
			lines = append(lines, element)
		}
		return strings.Join(lines, "\n"), nil
	}
	return text, nil
}

func readBulk(r *bufio.Reader, n int) (string, error) {
	if n < 0 {
		return "", nil
	}
	b := make([]byte, n+2)
	_, err := io.ReadFull(r, b)
	return string(b[:n]), err
}
