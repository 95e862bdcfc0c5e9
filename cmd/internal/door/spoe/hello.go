package spoe

import "strings"

// hello is HAProxy's first message.
type hello struct {
	size        int // the maximum size of a frame that HAProxy accepts
	healthcheck bool
}

func decodeHello(frame []byte) (h hello, err error) {
	d := decoder{rest: string(frame)}
	if d.head().kind != haproxyHello {
		return h, &fault{codeInvalid, "the first frame is not HAPROXY-HELLO: only HAProxy's SPOE can use this address"}
	}
	var versions string
	for d.rest != "" {
		switch name, v := d.text(), d.value(); {
		case name == "supported-versions" && v.kind == typeString:
			versions = v.text
		case name == "max-frame-size" && v.kind == typeUint32:
			h.size = int(min(v.number, maxFrame))
		case name == "healthcheck" && v.kind == typeBool:
			h.healthcheck = v.number != 0
		}
	}
	switch {
	case d.broken:
		return h, errBroken
	case versions == "":
		return h, &fault{codeNoVersion, "HAPROXY-HELLO has no supported-versions"}
	case !speaks2(versions):
		return h, &fault{codeUnsupported, "HAPROXY-HELLO does not offer version 2 of the protocol"}
	case h.size == 0:
		return h, &fault{codeNoMaxSize, "HAPROXY-HELLO has no max-frame-size"}
	case h.size < minFrame:
		return h, &fault{codeBadMaxSize, "max-frame-size is below 256"}
	}
	return h, nil
}

// speaks2 reports whether one of the versions is 2.0 or a compatible later version.
func speaks2(versions string) bool {
	for v := range strings.SplitSeq(versions, ",") {
		if strings.HasPrefix(strings.TrimSpace(v), "2.") {
			return true
		}
	}
	return false
}
