package console

import (
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// The budgets page follows the costs, keeps the focus, and reports a server that does not answer.
func TestBudgetsLive(t *testing.T) {
	t.Parallel()
	p := serve(t, "--policy", testkit.File(t, "policy.yaml", `
version: 1
rules: [{name: tokens, match: POST /v1/, key: [api_key], limit: 100000/day, algorithm: fixed_window, cost: {tokens: total}}]
`))
	g := open(t, p, desktop)
	g.Visit("/budgets")
	js[bool](g, "window.same = true") // is lost if the page is loaded again
	for i, key := range []string{"k-1", "k-2"} {
		spent := p.send("POST", "/v1/chat/completions", `{"model":"sample-fast","messages":[{"role":"user","content":"Write 90 words"}]}`,
			"Content-Type: application/json", "X-Api-Key: "+key)
		if spent != 200 {
			t.Fatalf("status %d", spent)
		}
		testkit.Await(t, "the page shows the subject", func() bool {
			return js[int](g, "document.querySelectorAll('#budgets [data-subject]').length") == i+1
		})
		if i == 0 {
			js[bool](g, "document.querySelector('#budgets [data-subject]').focus(), true")
		}
	}
	if !js[bool](g, "window.same && !!document.activeElement.dataset.subject && document.getElementById('lost').hidden") {
		t.Errorf("the page was loaded again, lost the focus, or reports that the server does not answer: %s", js[string](g, "document.activeElement.outerHTML"))
	}
	js[bool](g, "window.fetch = () => Promise.reject(new TypeError('no answer')), true")
	testkit.Await(t, "the page reports that the server does not answer", func() bool { return js[bool](g, "!document.getElementById('lost').hidden") })
}
