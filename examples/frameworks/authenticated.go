package frameworks

import (
	"context"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/policy"
)

// Limits behind authentication: a middleware of the framework identifies the user, and a rule with key: [attr:user]
// counts by the user. A request without valid credentials is answered before it reaches the limit, and not counted.
// To limit guesses, put a rule by client_ip in front of the authentication.

type userKey struct{}

// withUser returns the request with the user in its context.
func withUser(r *http.Request, user string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), userKey{}, user))
}

// ByUser limits by the user in the context of a request.
func ByUser(engine *policy.Engine) Middleware {
	return httplimit.Config{
		KeepDecision: true,
		Attributes: func(r *http.Request, attributes map[string]string) {
			attributes["user"], _ = r.Context().Value(userKey{}).(string)
		},
	}.Policy(engine)
}

// ChiAuthenticated puts the limit behind the middleware that authenticates.
func ChiAuthenticated(limit Middleware, check func(user, password string) bool) http.Handler {
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			if !check(user, password) {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, withUser(r, user))
		})
	}
	r := chi.NewRouter()
	r.Use(authenticate, limit)
	r.Get("/things/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s, %s", chi.URLParam(r, "id"), left(r))
	})
	r.Get("/secret", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	return r
}

// EchoLimit returns the limit as echo middleware. Middleware before it must set "user". If a handler returns an
// error, echo writes the response inside the limit, so that the limit sees its status.
func EchoLimit(limit Middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		limited := echo.WrapMiddleware(limit)(func(c echo.Context) error {
			if err := next(c); err != nil {
				c.Error(err)
			}
			return nil
		})
		return func(c echo.Context) error {
			user, _ := c.Get("user").(string)
			c.SetRequest(withUser(c.Request(), user))
			return limited(c)
		}
	}
}

// EchoAuthenticated puts the limit behind a middleware that authenticates.
func EchoAuthenticated(limit Middleware, check func(user, password string) bool) http.Handler {
	authenticate := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			user, password, _ := c.Request().BasicAuth()
			if !check(user, password) {
				return echo.ErrUnauthorized
			}
			c.Set("user", user)
			return next(c)
		}
	}
	e := echo.New()
	e.Use(authenticate, EchoLimit(limit))
	e.GET("/things/:id", func(c echo.Context) error {
		return c.String(http.StatusOK, fmt.Sprintf("%s, %s", c.Param("id"), left(c.Request())))
	})
	e.GET("/secret", func(echo.Context) error { return echo.ErrForbidden })
	return e
}

// GinLimit returns the limit as gin middleware. Middleware before it must set gin.AuthUserKey.
func GinLimit(limit Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		allowed := false
		limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			allowed = true
			answer := ginWriter{c.Writer, w}
			c.Request, c.Writer = r, answer
			c.Next()
			answer.WriteHeaderNow()
		})).ServeHTTP(c.Writer, withUser(c.Request, c.GetString(gin.AuthUserKey)))
		if !allowed {
			c.Abort()
		}
	}
}

// ginWriter writes the responses of gin's handlers through a limit, for rules that count by the response.
type ginWriter struct {
	gin.ResponseWriter
	limited http.ResponseWriter
}

func (w ginWriter) WriteHeaderNow() {
	if !w.Written() {
		w.limited.WriteHeader(w.Status())
	}
}

func (w ginWriter) Write(data []byte) (int, error) {
	w.WriteHeaderNow()
	return w.limited.Write(data)
}

func (w ginWriter) WriteString(text string) (int, error) { return w.Write([]byte(text)) }

func (w ginWriter) Flush() {
	w.WriteHeaderNow()
	_ = http.NewResponseController(w.limited).Flush() // gin ignores the error, too
}

// GinAuthenticated puts the limit behind gin's own authentication.
func GinAuthenticated(limit Middleware, accounts gin.Accounts) http.Handler {
	g := gin.New()
	g.Use(gin.BasicAuth(accounts), GinLimit(limit))
	g.GET("/things/:id", func(c *gin.Context) {
		c.String(http.StatusOK, "%s, %s", c.Param("id"), left(c.Request))
	})
	g.GET("/secret", func(c *gin.Context) { c.Status(http.StatusForbidden) })
	return g
}
