package accesslog

// The log of Google Cloud's load balancers, as Cloud Logging exports it.
func gcp(o Options) *Format {
	const (
		client = iota
		method
		url
		status
		sent
		agent
		referer
		latency
		at
		id
	)
	wanted := []string{
		client: "httpRequest.remoteIp", method: "httpRequest.requestMethod", url: "httpRequest.requestUrl",
		status: "httpRequest.status", sent: "httpRequest.responseSize", agent: "httpRequest.userAgent",
		referer: "httpRequest.referer", latency: "httpRequest.latency", at: "timestamp", id: "insertId",
	}
	return &Format{
		Name: "gcp",
		Tells: Tells{
			Client: true, Host: true, Query: true, Referer: true, UserAgent: true,
			Began: true, Sent: true, Fine: true, Sampled: true,
		},
		line: jsonFormat(wanted, func(e *Entry) error {
			if e.values[method].raw == nil && e.values[url].raw == nil && e.values[status].raw == nil {
				return ErrSkip // another log of the project
			}
			var err error
			if e.Time, err = e.when(at, o.Zone); err != nil {
				return err
			}
			if err := e.status(status); err != nil {
				return err
			}
			e.took(latency, 6)
			e.sent(sent)
			e.Method = e.told(method)
			e.absolute(e.told(url))
			e.UserAgent, e.Referer, e.ID = e.told(agent), e.told(referer), e.told(id)
			if e.Client = withoutPort(e.told(client)); len(e.Client) == 0 {
				return errClient
			}
			return nil
		}),
	}
}
