package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
)

//go:embed assets
var assetFiles embed.FS

// assets are the files by their names, with a hash of each, which is part of its URL: so a browser
// may keep them for good.
var assets = func() map[string]asset {
	all := map[string]asset{}
	err := fs.WalkDir(assetFiles, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := assetFiles.ReadFile(name)
		sum := sha256.Sum256(content)
		all[name[len("assets/"):]] = asset{content, hex.EncodeToString(sum[:8])}
		return err
	})
	if err != nil {
		panic(err) // what is embedded can be read
	}
	return all
}()

type asset struct {
	content []byte
	hash    string
}

// assetURL returns where a file of assets is.
func assetURL(name string) string { return "/assets/" + assets[name].hash + "/" + name }

func serveAsset(w http.ResponseWriter, r *http.Request) {
	a, found := assets[r.PathValue("file")]
	if !found || a.hash != r.PathValue("hash") {
		http.NotFound(w, r)
		return
	}
	a.serve(w, r)
}

func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("ETag", `"`+a.hash+`"`)
	kind := "text/plain; charset=utf-8"
	switch path.Ext(r.URL.Path) { // not by tables of the system
	case ".css":
		kind = "text/css; charset=utf-8"
	case ".js":
		kind = "text/javascript; charset=utf-8"
	case ".svg":
		kind = "image/svg+xml"
	}
	h.Set("Content-Type", kind)
	if r.Header.Get("If-None-Match") == `"`+a.hash+`"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(a.content)
}

// favicon is for browsers that ask without being told.
func favicon(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, assetURL("icon.svg"), http.StatusFound)
}
