// Package door has the common parts of the integrations in the folders below it: permissions of callers, decisions
// and answers.
package door

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Bearer returns the bearer token of a request with exactly one Authorization field, or "".
func Bearer(fields []string) string {
	if len(fields) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(fields[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// AdmitCall returns an error for a gRPC call without permission. The function authorize gets the address and the
// token of the caller; it may be nil. If its error has a method RetrySeconds, AdmitCall returns RESOURCE_EXHAUSTED;
// for any other error, it returns the error refused.
func AdmitCall(ctx context.Context, authorize func(from, token string) error, refused error) error {
	if authorize == nil {
		return nil
	}
	from := ""
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	err := authorize(from, Bearer(metadata.ValueFromIncomingContext(ctx, "authorization")))
	var many interface{ RetrySeconds() int }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &many):
		return status.Error(codes.ResourceExhausted, "sluice: "+err.Error())
	}
	return refused
}

// Reason returns the text of an engine's error without the name of the package.
func Reason(err error) string { return strings.TrimPrefix(err.Error(), "policy: ") }

// Seconds returns d in seconds, rounded up.
func Seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
