package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"time"
)

//go:embed assets
var assetFiles embed.FS

// assets has the files by name. The hash of a file is part of its URL, so a browser may cache the file forever.
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
		panic(err) // cannot happen: the files are embedded
	}
	return all
}()

type asset struct {
	content []byte
	hash    string
}

// assetURL returns the URL path of a file in assets.
func assetURL(name string) string { return "/assets/" + assets[name].hash + "/" + name }

// assetTypes has the media types of files by extension. The operating system's table may have other types.
var assetTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".md": "text/plain; charset=utf-8", ".txt": "text/plain; charset=utf-8",
}

func serveAsset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	a, found := assets[name]
	if !found || a.hash != r.PathValue("hash") {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("ETag", `"`+a.hash+`"`)
	h.Set("Content-Type", assetTypes[path.Ext(name)])
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(a.content))
}
