package grpclimit

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/policy"
)

// inPlainText makes the encoder write denials as plain text, without JSON.
var inPlainText = http.Header{"Accept": {"text/plain"}}

// client returns the client for which answers are encoded.
func (s *Server) client() answer.Client {
	c := answer.Client{Header: inPlainText}
	if s.engine != nil {
		c.Fields = s.engine.Policy().Fields()
	}
	return c
}

// pushback is a trailer with the time after which to repeat a call, in milliseconds, or with -1 if the call should
// not be repeated.
const pushback = "grpc-retry-pushback-ms"

// refuse returns the trailers and the error of a denied call. The response has no header metadata, because clients
// repeat a call only if its response has trailers alone.
func (s *Server) refuse(a *answer.Answer, header http.Header, d *policy.Decision) (metadata.MD, error) {
	trailer := lower(header)
	delete(trailer, "retry-after") // RetryInfo and the pushback are more exact
	message := strings.TrimSuffix(string(a.Body()), "\n")
	var details []protoadapt.MessageV1
	code := codeOf(d)
	if code == codes.ResourceExhausted {
		details = append(details, violations(d))
	}
	if code == codes.ResourceExhausted || code == codes.Unavailable {
		wait := retryDelay(d)
		trailer.Set(pushback, strconv.FormatInt(pushbackOf(wait), 10))
		if wait >= 0 {
			details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
		}
	}
	refusal := status.New(code, message)
	if detailed, err := refusal.WithDetails(details...); err == nil {
		refusal = detailed
	}
	return trailer, refusal.Err()
}

func codeOf(d *policy.Decision) codes.Code {
	switch {
	case d.Missing != "":
		return codes.InvalidArgument
	case d.Blocked != "":
		return codes.PermissionDenied
	case d.Unavailable, d.Overloaded != "":
		return codes.Unavailable
	}
	return codes.ResourceExhausted
}

// retryDelay returns the time after which to repeat a call, rounded up to whole milliseconds, or -1 for a call that
// can never fit.
func retryDelay(d *policy.Decision) time.Duration {
	if d.RetryAfter == sluice.Never {
		return -1
	}
	return max(1, (d.RetryAfter+time.Millisecond-1)/time.Millisecond) * time.Millisecond
}

// pushbackOf returns a wait in milliseconds, or -1 if it is negative or does not fit in the 32 bits of clients.
func pushbackOf(wait time.Duration) int64 {
	if wait < 0 || wait.Milliseconds() > math.MaxInt32 {
		return -1
	}
	return wait.Milliseconds()
}

// violations lists the limits that deny.
func violations(d *policy.Decision) *errdetails.QuotaFailure {
	failure := &errdetails.QuotaFailure{}
	for i := range d.Results {
		r := &d.Results[i]
		if r.Allowed || r.Shadow || r.Plan == nil {
			continue
		}
		name := strings.ToValidUTF8(cmp.Or(r.Name, r.Rule), "\uFFFD")
		failure.Violations = append(failure.Violations, &errdetails.QuotaFailure_Violation{
			Subject: name, QuotaId: name,
			QuotaValue:  cmp.Or(r.Plan.Limit.Value(r.Plan.Limit.Count), r.Plan.Capacity), // Capacity for requests in flight
			Description: "Limit " + name + ": " + r.Plan.String(),
		})
	}
	return failure
}
