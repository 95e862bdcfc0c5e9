package client_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/sluicehq/sluice/client"
)

// The first request is denied, and the Transport repeats it. The program gets only the second response.
func ExampleTransport() {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()

	api := &http.Client{Transport: &client.Transport{}, Timeout: time.Minute}
	request, err := http.NewRequest("POST", server.URL+"/orders", strings.NewReader(`{"item": 7}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	request.Header.Set("Idempotency-Key", "3f2c") // allows the Transport to repeat a POST
	response, err := api.Do(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	fmt.Println(response.Status, "after", asked, "requests")
	// Output: 200 OK after 2 requests
}
