// Package frameworks puts limits before the handlers of chi, gin, echo and gRPC-Gateway. It is a
// module of its own, so that Sluice itself needs none of them.
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

// Middleware is what httplimit.Policy, Limit and LimitBy return.
type Middleware = func(http.Handler) http.Handler

// Chi takes the middleware as it is, for all routes or for some.
func Chi(limit Middleware) http.Handler {
	r := chi.NewRouter()
	r.Get("/free", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "free") })
	r.With(limit).Get("/things/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s, %s", chi.URLParam(r, "id"), left(r))
	})
	r.With(limit).Post("/login", unauthorized)
	return r
}

// Echo is an http.Handler, so the limits can wrap all of it. To put them behind other middleware, see [EchoLimit]:
// echo.WrapMiddleware alone takes each error that a handler returns for a 200, because echo writes the error outside it.
func Echo(limit Middleware) http.Handler {
	e := echo.New()
	e.GET("/free", func(c echo.Context) error { return c.String(http.StatusOK, "free") })
	e.GET("/things/:id", func(c echo.Context) error {
		return c.String(http.StatusOK, fmt.Sprintf("%s, %s", c.Param("id"), left(c.Request())))
	})
	e.POST("/login", func(echo.Context) error { return echo.ErrUnauthorized })
	return limit(e)
}

// Gin is an http.Handler, too. The policy selects the paths of the limits.
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

// Gateway is an http.Handler, too, and the limits are before requests become calls of gRPC.
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

// unauthorized is a login with a wrong password.
func unauthorized(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }

// left returns what remains of the limit of a request, from the decision that the middleware keeps with
// httplimit.Config.KeepDecision.
func left(r *http.Request) string {
	d, found := httplimit.DecisionFrom(r.Context())
	if !found || len(d.Results) == 0 {
		return "no limit"
	}
	return fmt.Sprint(d.Results[0].Remaining, " left")
}
