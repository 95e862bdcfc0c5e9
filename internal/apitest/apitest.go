// Package apitest holds answers to an OpenAPI document, for tests.
package apitest

import (
	"context"
	"fmt"
	"net/http"
	"slices"

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

// Load reads a document, which has to be valid.
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

// Operations returns all operations, as "GET /v1/rules".
func (d *Document) Operations() (all []string) {
	for path, item := range d.Paths.Map() {
		for method := range item.Operations() {
			all = append(all, method+" "+path)
		}
	}
	slices.Sort(all)
	return all
}

// Check says in what an answer differs from what the document has for it, or, where the document
// has no such operation, from a problem or a redirection.
func (d *Document) Check(r *http.Request, status int, header http.Header, body []byte) error {
	route, parameters, err := d.router.FindRoute(r)
	if err != nil {
		redirected := status == http.StatusMovedPermanently || status == http.StatusTemporaryRedirect
		if status < 300 || header.Get("Content-Type") != "application/problem+json" && !redirected {
			return fmt.Errorf("%s %s: %d, and the document has no such operation", r.Method, r.URL, status)
		}
		return nil
	}
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: parameters, Route: route},
		Status:                 status,
		Header:                 header,
		Options:                &openapi3filter.Options{IncludeResponseStatus: true},
	}
	in.SetBodyBytes(body)
	if err := openapi3filter.ValidateResponse(context.Background(), in); err != nil {
		return fmt.Errorf("%s %s: %d is not what the document says: %w", r.Method, r.URL, status, err)
	}
	return nil
}
