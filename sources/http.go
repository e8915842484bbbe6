package sources

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	indexName    = "model.safetensors.index.json"
	maxIndexSize = 256 << 20
	maxShards    = 10_000
)

// knownNames are the files besides the shards of an index that a directory URL is asked for, since plain HTTP has no listing.
func knownNames() []string {
	return []string{
		".gitattributes", "LICENSE", "LICENSE.md", "LICENSE.txt", "README.md", "added_tokens.json", "chat_template.jinja",
		"chat_template.json", "config.json", "consolidated.safetensors", "generation_config.json", "hf_quant_config.json", "merges.txt",
		"model.safetensors", indexName, "modules.json", "params.json", "preprocessor_config.json", "processor_config.json",
		"quant_config.json", "quantize_config.json", "sentence_bert_config.json", "special_tokens_map.json", "spiece.model", "tekken.json",
		"tiktoken.model", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "video_preprocessor_config.json", "vocab.json",
		"vocab.txt",
	}
}

// HTTP is a release on any server that knows ranges: a directory URL, of which model.safetensors.index.json names the shards and a
// fixed table the other files; or the URL of one .safetensors file. Each file is pinned by its ETag, else by Last-Modified and size.
func HTTP(rawURL string, o *Options) (Source, error) {
	u, err := url.Parse(rawURL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, &Error{Op: "open", Path: printable(strings.SplitN(rawURL, "?", 2)[0]), Err: errors.New("not an http or https URL")}
	case u.User != nil:
		return nil, &Error{Op: "open", Path: place(u), Err: errors.New("user names and passwords in URLs are not supported")}
	}
	s := &httpSource{o: orDefaults(o), base: u, one: strings.HasSuffix(u.Path, ".safetensors")}
	s.base.Fragment = ""
	if s.one {
		return s, nil
	}
	if u.RawQuery != "" {
		return nil, &Error{Op: "open", Path: place(u), Err: errors.New("a directory URL has no query; files below it could not be named")}
	}
	if !strings.HasSuffix(u.Path, "/") {
		s.base = u.JoinPath("/")
	}
	return s, nil
}

type httpSource struct {
	o    *Options
	base *url.URL // ends in a slash, or is the one file
	one  bool
	list flight[*httpListing]
}

type httpListing struct {
	Listing
	files map[string]*remote
}

func (s *httpSource) List(ctx context.Context) (*Listing, error) {
	l, err := s.list.do(ctx, s.lookUp)
	if err != nil {
		return nil, &Error{Op: "list", Path: place(s.base), Err: err}
	}
	return &l.Listing, nil
}

func (s *httpSource) Open(ctx context.Context, path string) (Blob, error) {
	if _, err := s.List(ctx); err != nil {
		return nil, err
	}
	l, _ := s.list.do(ctx, s.lookUp)
	if l.Find(path) < 0 {
		return nil, &Error{Op: "open", Path: printable(path), Err: ErrNotFound}
	}
	return remoteBlob{l.files[path]}, nil
}

// found is what the header request of one name brought.
type found struct {
	path string
	url  *url.URL
	probe
	hidden string // why it is refused, "" if it is not
}

// lookUp is the listing of what the server has; offline, of what it had the last time.
func (s *httpSource) lookUp(ctx context.Context) (*httpListing, error) {
	if s.o.Offline {
		all, err := s.keptFiles()
		if err != nil {
			return nil, err
		}
		return s.build(all)
	}
	all, err := s.askEverything(ctx)
	if err != nil {
		return nil, err
	}
	l, err := s.build(all)
	if err == nil {
		s.keepFiles(all)
	}
	return l, err
}

// askEverything asks for every name that may exist.
func (s *httpSource) askEverything(ctx context.Context) ([]found, error) {
	if s.one {
		return s.askAll(ctx, []string{path.Base(s.base.Path)})
	}
	all, err := s.askAll(ctx, knownNames())
	if err != nil {
		return nil, err
	}
	shards, err := s.shards(ctx, all)
	if err != nil {
		return nil, err
	}
	more, err := s.askAll(ctx, shards)
	if err != nil {
		return nil, err
	}
	for i := range more {
		if absent(more[i].status) {
			more[i].hidden = "named by " + indexName + ", but " + more[i].text
		}
	}
	return append(all, more...), nil
}

// fileURL is where a file of the release is.
func (s *httpSource) fileURL(name string) *url.URL {
	if s.one {
		return s.base
	}
	return s.base.ResolveReference(&url.URL{Path: "./" + name})
}

// askAll sends the header requests of names, several at a time.
func (s *httpSource) askAll(ctx context.Context, names []string) ([]found, error) {
	all := make([]found, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(s.o.conns())
	for i, name := range names {
		g.Go(func() (err error) {
			all[i], err = s.ask(ctx, name, s.fileURL(name))
			return err
		})
	}
	return all, g.Wait()
}

// errNoSize is a file whose size the server does not say, as caches do that are still getting it themselves.
var errNoSize = temporary("the server does not say its size")

// ask sends the header request of one name. A name that is missing or refused is no error.
func (s *httpSource) ask(ctx context.Context, name string, u *url.URL) (found, error) {
	f := found{path: name, url: u}
	err := s.o.retry(ctx, func(ctx context.Context) (err error) {
		f.probe, err = s.o.net().probe(ctx, request{url: u, follow: true})
		if err == nil && f.status < 400 && f.size < 0 && !f.html {
			err = errNoSize
		}
		return err
	})
	switch {
	case errors.Is(err, errNoSize):
		f.hidden = "the server does not say its size"
	case err != nil:
		return f, err
	case f.status >= 400:
		if !absent(f.status) {
			f.hidden = f.text
		}
	case f.html:
		f.hidden = "the server answers with a web page"
	}
	return f, nil
}

// absent reports whether a status says that there is no such file, or not for us.
func absent(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return true
	}
	return false
}

// shards reads the names of the shards from the index, if the server has one.
func (s *httpSource) shards(ctx context.Context, all []found) ([]string, error) {
	known := map[string]bool{}
	var index *found
	for i, f := range all {
		known[f.path] = true
		if f.path == indexName && f.hidden == "" && f.status < 400 {
			index = &all[i]
		}
	}
	if index == nil {
		return nil, nil
	}
	if index.size > maxIndexSize {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", indexName, index.size, maxIndexSize)
	}
	var names []string
	err := s.o.retry(ctx, func(ctx context.Context) (err error) {
		body, err := remoteBlob{s.file(*index)}.Stream(ctx, 0, index.size)
		if err != nil {
			return err
		}
		defer body.Close()
		names, err = indexShards(body, known)
		return err
	})
	return names, err
}

// indexShards reads the file names of a weight_map, each once, sorted, without those that are known.
func indexShards(r io.Reader, known map[string]bool) ([]string, error) {
	in := &firstError{r: r}
	dec := json.NewDecoder(in)
	seen := map[string]bool{}
	err := eachField(dec, func(key string) error {
		if key != "weight_map" {
			return dec.Decode(&json.RawMessage{})
		}
		return eachField(dec, func(string) error {
			var file string
			if err := dec.Decode(&file); err != nil {
				return err
			}
			seen[file] = true
			if len(seen) > maxShards {
				return fmt.Errorf("more than %d shards", maxShards)
			}
			return nil
		})
	})
	if in.err != nil {
		return nil, in.err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", indexName, err)
	}
	var names []string
	for n := range seen {
		if err := checkPath(n); err != nil {
			return nil, fmt.Errorf("%s names the file %s: %w", indexName, printable(n), err)
		}
		if !known[n] {
			names = append(names, n)
		}
	}
	sort.Strings(names)
	return names, nil
}

// eachField calls value for every key of the object that follows; value consumes what belongs to the key.
func eachField(dec *json.Decoder, value func(key string) error) error {
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errors.Join(err, errors.New("not a JSON object where one is expected"))
	}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		key, _ := t.(string)
		if err := value(key); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return err
}

// firstError remembers an error of the reader below, which tells a broken transfer from broken JSON. It fills what it is given, because
// a JSON decoder goes over white space again with every read.
type firstError struct {
	r   io.Reader
	err error
}

func (f *firstError) Read(p []byte) (int, error) {
	n, err := io.ReadFull(f.r, p)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	if err != nil && err != io.EOF {
		f.err = err
	}
	return n, err
}

// build makes the listing of what was found.
func (s *httpSource) build(all []found) (*httpListing, error) {
	l := &httpListing{Listing: Listing{Name: place(s.base)}, files: map[string]*remote{}}
	var entries []Entry
	var refused []Hidden
	denied := ""
	for _, f := range all {
		switch {
		case f.hidden != "":
			refused = append(refused, Hidden{Path: printable(f.path), Reason: f.hidden})
		case f.status == http.StatusUnauthorized, f.status == http.StatusForbidden:
			denied = f.text // some servers say so of every name that does not exist
		case f.status < 400:
			entries = append(entries, Entry{Path: f.path, Size: f.size})
			l.files[f.path] = s.file(f)
			l.Time = later(l.Time, f.pin.modified)
		}
	}
	l.Files, l.Hidden = sift(entries)
	l.Hidden = append(l.Hidden, refused...)
	switch {
	case len(l.Files) > 0:
		return l, nil
	case denied != "":
		return nil, fmt.Errorf("%w: %s", ErrDenied, denied)
	case s.one:
		return nil, fmt.Errorf("%w: %s", ErrNotFound, all[0].text)
	}
	why := ""
	if len(refused) > 0 {
		why = fmt.Sprintf(" (%s: %s)", refused[0].Path, refused[0].Reason)
	}
	return nil, fmt.Errorf("%w: the server has none of the files of a release here, such as config.json or %s%s", ErrNotFound, indexName, why)
}

// file is the pinned state of a file that was found.
func (s *httpSource) file(f found) *remote {
	r := &remote{c: s.o.net(), entry: Entry{Path: f.path, Size: f.size}, id: httpID(f.url, f.strong, f.size)}
	r.fetch = func(ctx context.Context, rg ranged) (io.ReadCloser, error) {
		rg.pin = f.pin
		body, _, err := s.o.net().getRange(ctx, request{url: f.url, header: f.pin.conditions(), follow: true}, rg)
		if errors.Is(err, ErrNotFound) {
			err = changed("%w", err)
		}
		return body, err
	}
	return r
}

// httpID names what a URL gave under a strong validator: zero without one.
func httpID(u *url.URL, strong string, size int64) ID {
	if strong == "" {
		return ID{}
	}
	h := sha256.New()
	for _, s := range []string{"http", u.Scheme, hostPort(u), u.EscapedPath(), u.RawQuery, strong, strconv.FormatInt(size, 10)} {
		fmt.Fprintf(h, "%d:%s,", len(s), s)
	}
	return ID(h.Sum(nil))
}

func later(t time.Time, httpTime string) time.Time {
	if m, err := http.ParseTime(httpTime); err == nil && m.After(t) {
		return m
	}
	return t
}

// probe is what a header request says about a file.
type probe struct {
	status int
	size   int64 // -1 if the server does not say
	pin    validator
	strong string // the pin's strong form, "" if it has none
	html   bool
	text   string // the status in words
	header http.Header
}

// probe asks for the headers of a file: with HEAD, or for its first byte where HEAD is refused or tells no size. An error status that
// another try cannot mend is not an error.
func (c *client) probe(ctx context.Context, r request) (probe, error) {
	p, err := c.probeWith(ctx, r, http.MethodHead, nil)
	if err != nil || p.status < 300 && p.size >= 0 || p.status == http.StatusNotFound || redirects(p.status) {
		return p, err
	}
	return c.probeWith(ctx, r, http.MethodGet, http.Header{"Range": {"bytes=0-0"}})
}

func (c *client) probeWith(ctx context.Context, r request, method string, h http.Header) (probe, error) {
	r.method, r.header = method, h
	rep, err := c.send(ctx, r)
	if err != nil {
		return probe{}, err
	}
	rep.Body.Close()
	p := probe{
		status: rep.StatusCode, size: sizeIn(rep.Response), pin: validatorOf(rep.Header), strong: strongIn(rep.Header),
		html: strings.HasPrefix(strings.ToLower(rep.Header.Get("Content-Type")), "text/html"),
		text: place(rep.url) + ": " + statusText(rep.Response), header: rep.Header,
	}
	if temporaryStatus(p.status) {
		return p, kindOf(p.status, p.text)
	}
	if p.status == http.StatusRequestedRangeNotSatisfiable && p.size == 0 { // a file of no bytes has no first one
		p.status = http.StatusOK
	}
	return p, nil
}

// sizeIn is the file's size that a reply to a header request tells, -1 if none.
func sizeIn(resp *http.Response) int64 {
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, identityEncoding) {
		return -1
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return resp.ContentLength
	case http.StatusPartialContent:
		if _, _, total, ok := parseContentRange(resp.Header.Get("Content-Range")); ok {
			return total
		}
	case http.StatusRequestedRangeNotSatisfiable:
		if resp.Header.Get("Content-Range") == "bytes */0" {
			return 0
		}
	}
	return -1
}

// strongIn is the strong ETag of a reply, or its Last-Modified if that was at least a second old when the reply was made (RFC 9110
// §8.8.2.2): only then another content would have another date.
func strongIn(h http.Header) string {
	v := validatorOf(h)
	if e := v.strongETag(); e != "" {
		return e
	}
	modified, err1 := http.ParseTime(v.modified)
	date, err2 := http.ParseTime(h.Get("Date"))
	if err1 != nil || err2 != nil || date.Sub(modified) < time.Second {
		return ""
	}
	return v.modified
}
