// Package apitest checks an API against its OpenAPI document, for tests.
package apitest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// Document is an OpenAPI document.
type Document struct {
	*openapi3.T
	router routers.Router
}

func init() {
	openapi3filter.RegisterBodyDecoder("text/event-stream", openapi3filter.PlainBodyDecoder)
}

// Load reads a document. An invalid document is an error.
func Load(data []byte) (*Document, error) {
	doc, err := openapi3.NewLoader().LoadFromData(data)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, err
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		return nil, err
	}
	return &Document{doc, router}, nil
}

// Operations returns all operations, each as in "GET /v1/rules".
func (d *Document) Operations() (all []string) {
	for path, item := range d.Paths.Map() {
		for method := range item.Operations() {
			all = append(all, method+" "+path)
		}
	}
	slices.Sort(all)
	return all
}

// Check returns an error if an exchange does not conform to the document. It checks the answer and, unless the answer
// is an error, also the request. The body of the request is given separately, because r.Body has been read. If the
// document lacks the operation, the answer must be a problem or a redirection.
func (d *Document) Check(r *http.Request, sent string, status int, header http.Header, body []byte) error {
	route, parameters, err := d.router.FindRoute(r)
	if err != nil {
		redirected := status == http.StatusMovedPermanently || status == http.StatusTemporaryRedirect
		if status < 300 || header.Get("Content-Type") != "application/problem+json" && !redirected {
			return fmt.Errorf("%s %s: status %d for an operation that the document lacks", r.Method, r.URL, status)
		}
		return nil
	}
	request := r.Clone(context.Background())
	request.Body = io.NopCloser(strings.NewReader(sent))
	options := &openapi3filter.Options{IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}
	in := &openapi3filter.RequestValidationInput{Request: request, PathParams: parameters, Route: route, Options: options}
	if status < 300 {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			return fmt.Errorf("%s %s: status %d for a request that the document does not allow: %w", r.Method, r.URL, status, err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: status, Header: header, Options: options}
	out.SetBodyBytes(body)
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		return fmt.Errorf("%s %s: the answer, with status %d, does not conform to the document: %w", r.Method, r.URL, status, err)
	}
	return nil
}
