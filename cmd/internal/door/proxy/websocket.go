package proxy

import (
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"net/http"
)

// errSwitch is the error if an upstream switches to a protocol that was not requested.
var errSwitch = errors.New("switched to a protocol that was not requested")

// checkSwitch returns an error for a 101 unless the response proves that the upstream has accepted the key of the
// WebSocket's handshake. Any other 101 would open a tunnel for requests that are not counted. Such a 101 could come
// from a server that lets clients choose the status.
func checkSwitch(resp *http.Response) error {
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil
	}
	key, accept := resp.Request.Header.Get("Sec-Websocket-Key"), resp.Header["Sec-Websocket-Accept"]
	if resp.Request.Header.Get("Upgrade") == "" || len(accept) != 1 || accept[0] != acceptKey(key) {
		return errSwitch
	}
	return nil
}

// acceptKey returns the Sec-WebSocket-Accept for a Sec-WebSocket-Key (RFC 6455, section 4.2.2).
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}
