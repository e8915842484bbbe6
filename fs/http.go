package fs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
)

// Handler serves the tree over HTTP: files with HEAD, one range a request and strong ETags; directories as plain text, one escaped name
// a line, or as JSON to those who accept it.
func (f *FS) Handler(o HTTPOptions) http.Handler {
	return &httpDoor{f, o, takeWithin}
}

type httpDoor struct {
	fs   *FS
	o    HTTPOptions
	take time.Duration // how long a client may take for each piece of a body
}

// takeWithin is how long a client may take for each sendStep of a body. One that takes longer holds memory and a connection for nothing.
const takeWithin = time.Minute

func (d *httpDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !d.admit(w, r) {
		return
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), d.fs.deadline, errDeadline)
	defer cancel()
	p, err := d.fs.find(ctx, r.URL.Path)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	if p.isDir() {
		d.list(ctx, w, r, p)
		return
	}
	d.file(ctx, w, r, p)
}

// fail answers with the error's status and its text. Errors name files and ranges, never secrets: those are kept out of them, and the
// log takes out what may come from elsewhere.
func (d *httpDoor) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := answerTo(err).status
	if status != http.StatusNotFound {
		d.fs.failed(fmt.Errorf("http %s %s: %w", r.Method, r.URL.Path, err))
	}
	http.Error(w, string(d.fs.ring.clean([]byte(err.Error()))), status)
}

// entry is one line of a directory in JSON.
type entry struct {
	Name string `json:"name"`
	Dir  bool   `json:"dir,omitempty"`
	Size int64  `json:"size"`
}

func (d *httpDoor) list(ctx context.Context, w http.ResponseWriter, r *http.Request, p *place) {
	if !strings.HasSuffix(r.URL.Path, "/") {
		http.Redirect(w, r, (&url.URL{Path: path.Base(r.URL.Path) + "/"}).String(), http.StatusMovedPermanently)
		return
	}
	places, err := p.list(ctx)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	w.Header().Add("Vary", "Accept")
	if accepts(r, "application/json") {
		out := make([]entry, len(places))
		for i, x := range places {
			out[i] = entry{x.node.Name, x.isDir(), newInfo(x).Size()}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // only the client's going away can fail
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for _, x := range places {
		name := url.PathEscape(x.node.Name)
		if x.isDir() {
			name += "/"
		}
		fmt.Fprintln(w, name)
	}
}

func accepts(r *http.Request, kind string) bool {
	for _, part := range strings.Split(r.Header.Get("Accept"), ",") {
		if t, _, _ := strings.Cut(part, ";"); strings.TrimSpace(t) == kind {
			return true
		}
	}
	return false
}

// describe sets the headers that say what a file is. It has no tag if its content changes.
func (p *place) describe(h http.Header, tag string) {
	h.Set("Content-Type", contentType(p.node.Name))
	if tag == "" {
		h.Set("Cache-Control", "no-store")
		return
	}
	h.Set("ETag", tag)
	h.Set("Accept-Ranges", "bytes")
	h.Set("Last-Modified", p.time().UTC().Format(http.TimeFormat))
}

func (d *httpDoor) file(ctx context.Context, w http.ResponseWriter, r *http.Request, p *place) {
	if p.node.Private {
		http.Error(w, "for the owner of the mount only", http.StatusForbidden)
		return
	}
	file, err := d.fs.openPlace(ctx, p)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	tag, err := file.ETag()
	if err != nil {
		d.fail(w, r, err)
		return
	}
	if tag != "" {
		tag = strconv.Quote(tag)
	}
	h := w.Header()
	p.describe(h, tag)
	if status := precondition(r, tag); status != 0 {
		w.WriteHeader(status)
		return
	}
	start, n, status := int64(0), file.Size, http.StatusOK
	// A range unit that nobody knows is ignored (RFC 9110, 14.2).
	if value := r.Header.Get("Range"); strings.HasPrefix(value, "bytes=") && tag != "" && ifRange(r, tag) {
		start, n, err = parseRange(value, file.Size)
		if err != nil {
			h.Set("Content-Range", fmt.Sprintf("bytes */%d", file.Size))
			http.Error(w, err.Error(), http.StatusRequestedRangeNotSatisfiable)
			return
		}
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, start+n-1, file.Size))
		status = http.StatusPartialContent
	}
	h.Set("Content-Length", strconv.FormatInt(n, 10))
	d.send(w, r, file, start, n, status)
}

// sendStep is how much of a body is read at once.
const sendStep = 1 << 20

// send writes the head once the first bytes are there, so that a file that cannot be read has an error's status. Later failures break
// the connection: the client must not take what it got for the whole.
func (d *httpDoor) send(w http.ResponseWriter, r *http.Request, file File, off, n int64, status int) {
	if r.Method == http.MethodHead || n == 0 {
		w.WriteHeader(status)
		return
	}
	buf := make([]byte, min(n, sendStep))
	client := http.NewResponseController(w)
	for end, first := off+n, true; off < end; first = false {
		part := buf[:min(int64(len(buf)), end-off)]
		if _, err := file.ReadAt(r.Context(), part, off); err != nil && err != io.EOF {
			if first {
				h := w.Header()
				for _, name := range []string{"Content-Length", "Content-Range", "ETag", "Last-Modified", "Accept-Ranges"} {
					h.Del(name)
				}
				d.fail(w, r, err)
				return
			}
			panic(http.ErrAbortHandler)
		}
		if first {
			w.WriteHeader(status)
		}
		_ = client.SetWriteDeadline(time.Now().Add(d.take)) // recorders of tests have none
		if _, err := w.Write(part); err != nil {
			return
		}
		off += int64(len(part))
	}
}

// contentType goes by the name's ending and is never one that a browser runs.
func contentType(name string) string {
	switch t, _, _ := strings.Cut(mime.TypeByExtension(path.Ext(name)), ";"); t {
	case "application/json", "image/png", "image/jpeg":
		return t
	}
	switch path.Ext(name) {
	case ".md", ".txt", ".jinja", ".py", ".yaml", ".yml", ".jsonl":
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}

// precondition is the status that If-Match and If-None-Match call for, 0 for none.
func precondition(r *http.Request, tag string) int {
	if v := r.Header.Get("If-Match"); v != "" && !hasTag(v, tag) {
		return http.StatusPreconditionFailed
	}
	if v := r.Header.Get("If-None-Match"); v != "" && hasTag(v, tag) {
		return http.StatusNotModified
	}
	return 0
}

// hasTag says whether a list of tags has the file's; "*" has every file's.
func hasTag(list, tag string) bool {
	for _, x := range strings.Split(list, ",") {
		x = strings.TrimPrefix(strings.TrimSpace(x), "W/")
		if x == "*" || tag != "" && x == tag {
			return true
		}
	}
	return false
}

// ifRange says whether a range is still wanted: If-Range has the file's tag, or is not there.
func ifRange(r *http.Request, tag string) bool {
	v := r.Header.Get("If-Range")
	return v == "" || v == tag
}

var errRange = errors.New("one range of bytes a request: bytes=START-END, bytes=START- or bytes=-LENGTH, beginning inside the file")

// parseRange is the part of a file of the given size that a Range header with one range asks for.
func parseRange(value string, size int64) (start, n int64, err error) {
	spec, ok := strings.CutPrefix(value, "bytes=")
	first, last, dash := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok || !dash {
		return 0, 0, errRange
	}
	if first == "" {
		n, err := parseOffset(last)
		if err != nil || n == 0 || size == 0 {
			return 0, 0, errRange
		}
		n = min(n, size)
		return size - n, n, nil
	}
	start, err = parseOffset(first)
	if err != nil || start >= size {
		return 0, 0, errRange
	}
	end := size - 1
	if last != "" {
		if end, err = parseOffset(last); err != nil || end < start {
			return 0, 0, errRange
		}
	}
	return start, min(end, size-1) - start + 1, nil
}

// parseOffset reads decimal digits and nothing else.
func parseOffset(s string) (int64, error) {
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, errRange
		}
	}
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err
}
