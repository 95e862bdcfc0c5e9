package adminapi

// Route is an operation, as "GET /v1/rules", and who may call it.
type Route struct {
	Name string
	Role Role
}

// Routes returns all operations.
func Routes() (all []Route) {
	for _, r := range routes() {
		all = append(all, Route{r.method + " " + r.path, r.role})
	}
	return all
}
