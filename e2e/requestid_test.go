package e2e

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/sluicehq/sluice/internal/redistest"
)

// Every refusal carries an ID, by which each gateway that shares the store finds it, whichever has refused it.
func TestRequestIDs(t *testing.T) {
	t.Parallel()
	args := append([]string{"--policy", write(t, "policy.yaml", "version: 1\nrules: [{name: all, limit: 1/day}]"), "--upstream", "sample", "--store", redistest.Start(t).URL()}, patientStore...)
	g, other := serve(t, args...), serve(t, args...)
	refuse := func(g *gateway, id string) string {
		t.Helper()
		r, err := http.NewRequest("GET", g.url+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if id != "" {
			r.Header.Set("X-Request-Id", id)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("status %d", response.StatusCode)
		}
		return response.Header.Get("X-Request-Id")
	}
	if status, _ := get(t, g.url); status == http.StatusTooManyRequests {
		t.Fatalf("premise: %d", status)
	}
	made, brought := refuse(g, ""), refuse(other, "ticket-7")
	if len(made) != 16 || brought != "ticket-7" || made == refuse(g, "") {
		t.Errorf("refused as %q and %q", made, brought)
	}
	for _, id := range []string{made, brought} {
		for _, at := range []*gateway{g, other} {
			redistest.Eventually(t, id+" is found", func() bool {
				_, body := get(t, at.admin+"/v1/refusals?"+url.Values{"id": {id}}.Encode())
				var found struct {
					Refusals []struct {
						Rule     string
						Instance string
					}
				}
				if err := json.Unmarshal([]byte(body), &found); err != nil {
					t.Fatal(err, body)
				}
				return len(found.Refusals) == 1 && found.Refusals[0].Rule == "all" && found.Refusals[0].Instance != ""
			})
		}
	}
}
