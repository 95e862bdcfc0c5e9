package main

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// constantAnswer is the body of an answer of the JSON API, and constantFields has the header fields of that answer.
const constantAnswer = `{"allowed":true,"status":200,"delay":0,"results":[{"rule":"per-key","name":"per-key","from":"rule","allowed":true,"shadow":false,"cost":1,"limit":1000000000,"remaining":999999999,"reset":1795392000}],"headers":{"Ratelimit":"\"per-key\";r=999999999;t=41597","Ratelimit-Policy":"\"per-key\";q=1000000000;w=86400","X-Ratelimit-Limit":"1000000000","X-Ratelimit-Remaining":"999999999","X-Ratelimit-Reset":"1795392000"}}
`

var constantFields = http.Header{
	"Cache-Control": {"no-store"}, "Content-Type": {"application/json"},
	"Ratelimit": {`"per-key";r=999999999;t=41597`}, "Ratelimit-Policy": {`"per-key";q=1000000000;w=86400`},
	"X-Ratelimit-Limit": {"1000000000"}, "X-Ratelimit-Remaining": {"999999999"}, "X-Ratelimit-Reset": {"1795392000"},
}

// constant is the floor of the JSON API: a net/http server that reads the body of a request and answers with a
// constant.
func constant(listen string) error {
	answer := []byte(constantAnswer)
	return http.ListenAndServe(listen, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		maps.Copy(w.Header(), constantFields)
		_, _ = w.Write(answer)
	}))
}

// okService is the floor of Envoy's rate limit service: it always answers OK.
type okService struct {
	rls.UnimplementedRateLimitServiceServer
}

func (okService) ShouldRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, nil
}

func answerOK(listen string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(s, okService{})
	return s.Serve(l)
}
