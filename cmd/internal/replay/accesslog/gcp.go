package accesslog

// gcp reads the log of Google Cloud's load balancers, as Cloud Logging exports it.
func gcp(o Options) *Format {
	log := jsonLog{
		fields: []string{
			whatClient: "httpRequest.remoteIp", whatMethod: "httpRequest.requestMethod", whatTarget: "httpRequest.requestUrl",
			whatStatus: "httpRequest.status", whatSent: "httpRequest.responseSize", whatAgent: "httpRequest.userAgent",
			whatReferer: "httpRequest.referer", whatSeconds: "httpRequest.latency", whatBegan: "timestamp", whatID: "insertId",
		},
		when: timeIn(o.Zone),
		begin: func(e *Entry) error {
			if !e.has(whatMethod) && !e.has(whatTarget) && !e.has(whatStatus) {
				return ErrSkip // another log of the project
			}
			return nil
		},
		finish: (*Entry).someClient,
	}
	return &Format{
		Name: "gcp",
		Tells: Tells{
			Client: true, Host: true, Query: true, Referer: true, UserAgent: true,
			Began: true, Sent: true, Fine: true, Sampled: true,
		},
		line: log.reader(),
	}
}
