// Command outgoing calls an API that has limits, and waits as long as the API requires.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/sluicehq/sluice/client"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: outgoing URL...")
	}
	api := &http.Client{Transport: &client.Transport{}, Timeout: time.Minute}
	for _, url := range os.Args[1:] {
		response, err := api.Get(url)
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %s", response.Status, body)
	}
}
