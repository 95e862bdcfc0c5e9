// Package frameworks puts limits before the handlers of chi, gin, echo and gRPC-Gateway. It is a separate module,
// so that Sluice itself does not depend on these frameworks.
package frameworks

import (
	"fmt"
	"io"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/labstack/echo/v4"

	"github.com/sluicehq/sluice/httplimit"
)

// Middleware is the type of the values that httplimit.Policy, Limit and LimitBy return.
type Middleware = func(http.Handler) http.Handler

// Chi uses the middleware unchanged, for all routes or for some.
func Chi(limit Middleware) http.Handler {
	r := chi.NewRouter()
	r.Get("/free", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "free") })
	r.With(limit).Get("/things/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s, %s", chi.URLParam(r, "id"), left(r))
	})
	r.With(limit).Post("/login", unauthorized)
	return r
}

// Echo puts the limits around echo, which is an http.Handler. To put them behind other middleware, see [EchoLimit]:
// with echo.WrapMiddleware alone, the limits would see the status 200 for each error that a handler returns,
// because echo writes the response to an error outside of the middleware.
func Echo(limit Middleware) http.Handler {
	e := echo.New()
	e.GET("/free", func(c echo.Context) error { return c.String(http.StatusOK, "free") })
	e.GET("/things/:id", func(c echo.Context) error {
		return c.String(http.StatusOK, fmt.Sprintf("%s, %s", c.Param("id"), left(c.Request())))
	})
	e.POST("/login", func(echo.Context) error { return echo.ErrUnauthorized })
	return limit(e)
}

// Gin puts the limits around gin, which is an http.Handler, too. The policy selects the paths of the limits.
func Gin(limit Middleware) http.Handler {
	g := gin.New()
	g.GET("/free", func(c *gin.Context) { c.String(http.StatusOK, "free") })
	g.GET("/things/:id", func(c *gin.Context) {
		c.String(http.StatusOK, "%s, %s", c.Param("id"), left(c.Request))
	})
	g.POST("/login", func(c *gin.Context) {
		c.Status(http.StatusUnauthorized)
		c.Stream(func(io.Writer) bool { return false })
	})
	return limit(g)
}

// Gateway puts the limits around gRPC-Gateway, which is an http.Handler, too: requests are limited before they
// become gRPC calls.
func Gateway(limit Middleware) (http.Handler, error) {
	mux := runtime.NewServeMux()
	login := func(w http.ResponseWriter, r *http.Request, _ map[string]string) { unauthorized(w, r) }
	if err := mux.HandlePath("POST", "/login", login); err != nil {
		return nil, err
	}
	err := mux.HandlePath("GET", "/free", func(w http.ResponseWriter, _ *http.Request, _ map[string]string) {
		fmt.Fprint(w, "free")
	})
	if err != nil {
		return nil, err
	}
	err = mux.HandlePath("GET", "/things/{id}", func(w http.ResponseWriter, r *http.Request, path map[string]string) {
		fmt.Fprintf(w, "%s, %s", path["id"], left(r))
	})
	return limit(mux), err
}

// unauthorized answers a login with a wrong password.
func unauthorized(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }

// left returns how many units of the request's limit remain, from the decision that httplimit.Config.KeepDecision
// keeps in the request's context.
func left(r *http.Request) string {
	d, found := httplimit.DecisionFrom(r.Context())
	if !found || len(d.Results) == 0 {
		return "no limit"
	}
	return fmt.Sprint(d.Results[0].Remaining, " left")
}
