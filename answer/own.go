package answer

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// ownBody is the media of an answer with a body of the policy, which has been rendered.
const ownBody = -1

// own replaces a denial by the policy's own answer, unless the denial has the form of another API. The built-in
// body stays if the client prefers it, or if the policy's body cannot be rendered for this denial.
func (a *Answer) own(h http.Header, c Client) {
	if c.Answers == nil || a.decision.Allowed || a.form != policy.Plain {
		return
	}
	own := c.Answers.For(a.Status)
	if own == nil {
		return
	}
	f := newFields(h, &a.arena)
	a.Status = cmp.Or(own.Status, a.Status)
	for name, value := range own.Headers {
		f.set(name, value)
	}
	if own.Exposed != "" && h["Access-Control-Allow-Origin"] != nil {
		f.join("Access-Control-Expose-Headers", own.Exposed)
	}
	if len(own.Types) == 0 {
		return
	}
	f.join("Vary", "Accept")
	i := negotiateOwn(c.Header["Accept"], own)
	if i < 0 {
		return
	}
	values := a.values()
	body, err := own.Append(a.text[:0], i, &values)
	if err != nil {
		return
	}
	a.text, a.media = body, ownBody
	f.set("Content-Type", own.ContentType(i))
	f.set("Content-Length", strconv.Itoa(len(body)))
}

// sentProblem returns the problem with the status that is sent.
func (a *Answer) sentProblem() *problem {
	if a.problem.status == a.Status {
		return a.problem
	}
	return newProblem(a.Status, a.problem.kind, a.problem.name)
}

// values returns the values of the denial for a template.
func (a *Answer) values() policy.AnswerValues {
	p, retry := a.sentProblem(), a.retryAfter()
	v := policy.AnswerValues{
		Type: p.kind, Title: p.title, Status: p.status, Error: p.name, RetryAfter: retry, Detail: a.detail(),
		Rule: cmp.Or(a.decision.Blocked, a.decision.Overloaded), Wait: time.Duration(min(retry, maxWait)) * time.Second,
	}
	if retry > 0 {
		v.Reset = time.Now().Add(v.Wait + time.Second - 1).Truncate(time.Second).UTC()
	}
	if a.most < 0 {
		return v
	}
	r := &a.results[a.most]
	if v.Rule = r.Rule; p.name != quotaExceeded.name {
		return v
	}
	for i, seen := 0, 0; i < len(a.results); i++ {
		if a.results[i].Shadow {
			continue
		}
		if !a.results[i].Allowed {
			v.ViolatedPolicies = append(v.ViolatedPolicies, a.header.labels[seen].wire)
		}
		seen++
	}
	if now := a.decision.Now; now != 0 {
		v.Limit, v.Remaining = a.mostLabel().most, clamp(r.Plan.Limit.Value(r.Remaining))
		v.Reset = time.Unix(seconds(now+effectiveWindow(r, now)), 0).UTC()
	}
	return v
}

// maxWait is the longest wait, in seconds, that fits a [time.Duration].
const maxWait = int64(1<<63-1) / int64(time.Second)

// detail returns the sentence for people, without escapes.
func (a *Answer) detail() string {
	media := a.media
	a.media = plainText
	text := string(a.appendDetail(a.text[:0]))
	a.media = media
	return text
}
