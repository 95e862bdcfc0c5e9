package proxy

import (
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"net/http"
)

// errSwitch is the error of an upstream that switches protocols without being asked.
var errSwitch = errors.New("switched to a protocol that was not asked for")

// checkSwitch returns an error for a 101 that does not prove that the upstream has accepted the key of the
// WebSocket's handshake. Any other 101, for example from a server that lets clients choose the status, would open a
// tunnel for requests that are not counted.
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

// acceptKey is the answer to a Sec-WebSocket-Key (RFC 6455, section 4.2.2).
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}
