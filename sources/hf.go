package sources

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits of the Hub's replies.
const (
	maxPage      = 64 << 20
	maxListing   = 256 << 20
	maxPages     = 1000
	maxRevision  = 255
	maxRepoID    = 96
	mainRevision = "main"
)

// Hub is a model repository of the Hugging Face Hub, or of a server that speaks its protocol (Options.Endpoint, HF_ENDPOINT). The
// revision, a branch, tag or commit, "" for main, is resolved to a commit by the first List. Files are found by the tree API; each is
// resolved once to a signed address, which is kept for most of its life; ranges go there, without the token.
func Hub(repo, revision string, o *Options) (Source, error) {
	o = orDefaults(o)
	s := &hub{o: o, repo: repo, name: "hf://" + repo, revision: revision, files: map[string]*hubFile{}, pageLimit: maxPage}
	s.offline = o.Offline || offlineEnv(o.getenv)
	if revision != "" {
		s.name += "@" + revision
	} else {
		s.revision = mainRevision
	}
	fail := func(err error) (Source, error) {
		return nil, &Error{Op: "open", Path: printable(s.name), Err: err}
	}
	if err := errors.Join(checkRepo(repo), checkRevision(s.revision)); err != nil {
		return fail(err)
	}
	var err error
	if s.endpoint, err = endpoint(o); err != nil {
		return fail(err)
	}
	if s.token, err = findToken(o); err != nil {
		return fail(err)
	}
	if s.token.bearer() != "" && s.endpoint.Scheme == "http" && !loopback(s.endpoint) && !o.InsecureToken {
		return fail(fmt.Errorf("%w: %s would get the token over plain http; use https, or leave out the token, or --insecure-token",
			ErrDenied, origin(s.endpoint)))
	}
	return s, nil
}

type hub struct {
	o              *Options
	endpoint       *url.URL // without a slash at the end
	repo, revision string
	name           string
	token          *token
	pageLimit      int64 // bytes of one reply
	offline        bool  // nothing is asked
	list           flight[*Listing]

	mu    sync.Mutex // guards files
	files map[string]*hubFile
}

// checkRepo is huggingface_hub's rule for repository names: [org/]name of [A-Za-z0-9._-], at most 96 characters.
func checkRepo(id string) error {
	parts := strings.Split(id, "/")
	bad := len(id) > maxRepoID || len(parts) > 2 || strings.Contains(id, "--") || strings.Contains(id, "..") || strings.HasSuffix(id, ".git")
	for _, p := range parts {
		bad = bad || p == "" || strings.Trim(p, ".-") != p || strings.ContainsFunc(p, func(r rune) bool {
			return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", r)
		})
	}
	if bad {
		return fmt.Errorf("%s is not the name of a repository: [org/]name of letters, digits, '.', '_' and '-'", printable(id))
	}
	return nil
}

func checkRevision(rev string) error {
	if len(rev) > maxRevision {
		return fmt.Errorf("revision longer than %d bytes", maxRevision)
	}
	if err := checkPath(rev); err != nil {
		return fmt.Errorf("revision %s: %w", printable(rev), err)
	}
	return nil
}

func endpoint(o *Options) (*url.URL, error) {
	text := o.Endpoint
	if text == "" {
		text = o.getenv("HF_ENDPOINT")
	}
	if text == "" {
		text = defaultEndpoint
	}
	u, err := url.Parse(strings.TrimRight(text, "/"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the endpoint (HF_ENDPOINT) is %q: not an http or https URL without user name and query", withoutSecrets(text))
	}
	return u, nil
}

// withoutSecrets is a text that should be a URL, with dots for what would be its user, and its query and fragment.
func withoutSecrets(text string) string {
	if i := strings.IndexAny(text, "?#"); i >= 0 {
		text = text[:i+1] + "…"
	}
	if i := strings.LastIndex(text, "@"); i >= 0 {
		text = "…" + text[i:]
	}
	return text
}

// at is the URL of an escaped path below the endpoint.
func (s *hub) at(path string) (*url.URL, error) {
	return url.Parse(s.endpoint.String() + path)
}

// auth is the token, for the endpoint's own scheme, host and port only.
func (s *hub) auth(u *url.URL) string {
	if origin(u) != origin(s.endpoint) {
		return ""
	}
	return s.token.bearer()
}

func (s *hub) List(ctx context.Context) (*Listing, error) {
	l, err := s.list.do(ctx, s.readListing)
	if err != nil {
		return nil, &Error{Op: "list", Path: s.name, Err: err}
	}
	return l, nil
}

func (s *hub) Open(ctx context.Context, path string) (Blob, error) {
	l, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	i := l.Find(path)
	if i < 0 {
		return nil, &Error{Op: "open", Path: printable(path), Err: ErrNotFound}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[path] == nil {
		s.files[path] = newHubFile(s, l.Revision, l.Files[i])
	}
	return remoteBlob{&s.files[path].remote}, nil
}

// hubID is the content's own name: the sha256 of an LFS file, or a hash of the git blob's.
func hubID(e Entry) ID {
	if b, err := hex.DecodeString(e.SHA256); err == nil && len(b) == len(ID{}) {
		return ID(b)
	}
	if e.GitOID != "" {
		return sha256.Sum256([]byte("git:" + e.GitOID))
	}
	return ID{}
}

// revisionInfo is what a reader needs of the Hub's description of a repository at a revision.
type revisionInfo struct {
	SHA          string          `json:"sha"`
	LastModified time.Time       `json:"lastModified"`
	Gated        json.RawMessage `json:"gated"` // false, "auto" or "manual"
	Private      bool            `json:"private"`
	Disabled     bool            `json:"disabled"`
}

func (i *revisionInfo) gated() bool {
	switch string(i.Gated) {
	case "", "null", "false", `""`:
		return false
	}
	return true
}

// readListing resolves the revision, reads the tree of its commit page by page unless it is on disk, and makes sure that a gated
// repository's files can be read before anyone mounts it. Offline it takes what is on disk.
func (s *hub) readListing(ctx context.Context) (*Listing, error) {
	if s.offline {
		return s.listingOnDisk()
	}
	info, err := s.readInfo(ctx)
	if err != nil {
		return nil, err
	}
	k := knownCommit{Commit: info.SHA, Time: info.LastModified, Gated: info.gated() || info.Private, Seen: time.Now()}
	t := s.treeOnDisk(info.SHA)
	if t == nil {
		t = &tree{}
		if err := s.readTree(ctx, info.SHA, t); err != nil {
			return nil, err
		}
		s.keepTree(info.SHA, t)
	}
	l := s.listing(k, t)
	if info.gated() && len(l.Files) > 0 {
		weights := slices.MaxFunc(l.Files, func(a, b Entry) int { return cmp.Compare(a.Size, b.Size) }) // the model card is for everyone
		f := newHubFile(s, info.SHA, weights)
		if err := s.o.retry(ctx, func(ctx context.Context) error { _, err := f.resolve(ctx); return err }); err != nil {
			return nil, err
		}
	}
	s.keepCommit(k)
	return l, nil
}

// listing is the listing of a commit whose files are those of t.
func (s *hub) listing(k knownCommit, t *tree) *Listing {
	l := &Listing{Name: s.name, Revision: k.Commit, Time: k.Time, Gated: k.Gated, Complete: !t.part}
	if l.Time.IsZero() {
		l.Time = t.time
	}
	l.Files, l.Hidden = sift(t.entries, t.dirs...)
	l.Hidden = append(l.Hidden, t.hidden...)
	return l
}

func (s *hub) readInfo(ctx context.Context) (*revisionInfo, error) {
	fields := "?expand=sha&expand=lastModified&expand=gated&expand=private&expand=disabled"
	u, err := s.at("/api/models/" + s.repo + "/revision/" + url.PathEscape(s.revision) + fields)
	if err != nil {
		return nil, err
	}
	info := &revisionInfo{}
	_, _, err = s.getJSON(ctx, u, s.pageLimit, func(r io.Reader) error { return json.NewDecoder(r).Decode(info) })
	switch {
	case err != nil:
		return nil, err
	case info.Disabled:
		return nil, fmt.Errorf("%w: %s is disabled by the Hub", ErrDenied, s.repo)
	case hexOf(info.SHA, 20) != info.SHA || info.SHA == "":
		return nil, fmt.Errorf("%s: the reply names no commit", place(u))
	}
	return info, nil
}

// tree collects the entries of the tree pages.
type tree struct {
	entries []Entry
	dirs    []string
	hidden  []Hidden
	count   int
	part    bool      // there may be more files
	time    time.Time // of what it was read from, zero if that says nothing
}

// readTree follows the pages of the recursive tree. A page's successor must be at the same server and new.
func (s *hub) readTree(ctx context.Context, sha string, t *tree) error {
	u, err := s.at("/api/models/" + s.repo + "/tree/" + sha + "?recursive=true")
	seen := map[string]bool{}
	left := int64(maxListing)
	for pages := 1; err == nil && u != nil; pages++ {
		if seen[u.String()] {
			return fmt.Errorf("%s: the pages of the listing go in a circle", place(u))
		}
		if pages > maxPages {
			return fmt.Errorf("%s: the listing has more than %d pages", place(u), maxPages)
		}
		seen[u.String()] = true
		before := *t
		var h http.Header
		var n int64
		h, n, err = s.getJSON(ctx, u, min(left, s.pageLimit), func(r io.Reader) error {
			*t = before
			return t.page(r)
		})
		if err != nil {
			return err
		}
		left -= n
		u, err = nextPage(u, h)
	}
	return err
}

// treeEntry is one entry of a tree page. Numbers stay text, so that one bad entry hides only itself.
type treeEntry struct {
	Type string      `json:"type"`
	Path string      `json:"path"`
	OID  string      `json:"oid"`
	Size json.Number `json:"size"`
	LFS  *lfsPointer `json:"lfs"`
}

type lfsPointer struct {
	OID  string      `json:"oid"`
	Size json.Number `json:"size"`
}

// page reads one JSON array of entries.
func (t *tree) page(r io.Reader) error {
	dec := json.NewDecoder(r)
	if d, err := dec.Token(); err != nil || d != json.Delim('[') {
		return errors.Join(errors.New("a page of the listing is not a JSON array"), err)
	}
	for dec.More() {
		var e treeEntry
		err := dec.Decode(&e)
		var wrongType *json.UnmarshalTypeError
		if err != nil && !errors.As(err, &wrongType) {
			return fmt.Errorf("a page of the listing: %w", err)
		}
		if t.count++; t.count > maxEntries {
			return errTooManyEntries
		}
		t.add(e, err)
	}
	_, err := dec.Token()
	return err
}

// add sorts one entry into files, directories and what is hidden.
func (t *tree) add(e treeEntry, bad error) {
	hide := func(reason string) { t.hidden = append(t.hidden, Hidden{Path: printable(e.Path), Reason: reason}) }
	size, ok := decimal(e.Size.String())
	if !ok {
		size = -1
	}
	f := Entry{Path: e.Path, Size: size, GitOID: e.OID}
	switch {
	case bad != nil:
		hide("the entry is malformed")
		return
	case e.Type == "directory":
		t.dirs = append(t.dirs, e.Path)
		return
	case e.Type != "file":
		hide("not a file but " + printable(e.Type))
		return
	case e.LFS != nil:
		if lfs, ok := decimal(e.LFS.Size.String()); !ok || lfs != size {
			hide("two sizes: " + printable(e.Size.String()) + " and " + printable(e.LFS.Size.String()))
			return
		}
		f.SHA256, f.GitOID = e.LFS.OID, ""
	}
	t.entries = append(t.entries, f)
}

// nextPage is the URL of the Link header with rel="next", nil if there is none.
func nextPage(at *url.URL, h http.Header) (*url.URL, error) {
	for _, line := range h.Values("Link") {
		for link := range strings.SplitSeq(line, ",") {
			target, params, _ := strings.Cut(strings.TrimSpace(link), ">")
			if !isNext(params) || !strings.HasPrefix(target, "<") {
				continue
			}
			next, err := at.Parse(target[1:])
			if err != nil {
				return nil, fmt.Errorf("%s: the next page of the listing has no usable address", place(at))
			}
			if origin(next) != origin(at) || next.User != nil {
				return nil, fmt.Errorf("%s: the next page of the listing is at another server, %s: refused", place(at), printable(next.Host))
			}
			return next, nil
		}
	}
	return nil, nil
}

func isNext(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(p), "rel="); ok && strings.Trim(v, `"`) == "next" {
			return true
		}
	}
	return false
}

// getJSON asks the API, with a few tries, and gives the body to read, which may be called again for another try. It returns the headers and how
// many bytes were read.
func (s *hub) getJSON(ctx context.Context, u *url.URL, most int64, read func(io.Reader) error) (h http.Header, n int64, err error) {
	err = s.o.retry(ctx, func(ctx context.Context) error {
		rep, err := s.ask(ctx, request{method: http.MethodGet, url: u, follow: true})
		if err != nil {
			return err
		}
		defer rep.Body.Close()
		if rep.StatusCode != http.StatusOK {
			return s.refused(rep)
		}
		if enc := rep.Header.Get("Content-Encoding"); enc != "" && enc != identityEncoding {
			return broken("%s: Content-Encoding %s, which was not asked for", place(u), printable(enc))
		}
		limited := &io.LimitedReader{R: rep.Body, N: most + 1}
		in := &firstError{r: limited}
		err = read(in)
		h, n = rep.Header, most+1-limited.N
		switch {
		case in.err != nil:
			return in.err
		case limited.N <= 0:
			return fmt.Errorf("%s: the reply is longer than %d bytes", place(u), most)
		case err != nil:
			return fmt.Errorf("%s: %w", place(u), err)
		}
		return nil
	})
	return h, n, err
}

// ask sends a request with the token. A 401 makes it read the token file again, once, in case the token was rotated. All that is asked of
// the Hub is asked here, and other hosts only once it has named them: offline nothing is.
func (s *hub) ask(ctx context.Context, r request) (*reply, error) {
	if s.offline {
		return nil, ErrOffline
	}
	r.auth = s.auth
	sent := s.token.bearer()
	rep, err := s.o.net().send(ctx, r)
	if err == nil && rep.StatusCode == http.StatusUnauthorized && s.token.reread(sent) {
		drain(rep.Response)
		return s.o.net().send(ctx, r)
	}
	return rep, err
}

// refused puts into words why the Hub refuses, and what can be done.
func (s *hub) refused(rep *reply) error {
	code, known := rep.Header.Get("X-Error-Code"), s.token.bearer() != ""
	page := s.endpoint.String() + "/" + s.repo
	say := func(kind error, format string, a ...any) error {
		return &refusal{status: rep.StatusCode, kind: kind, text: fmt.Sprintf(format, a...) + ": " + statusText(rep.Response)}
	}
	message := strings.ToLower(rep.Header.Get("X-Error-Message"))
	switch {
	case code == "RepoNotFound" && known:
		return say(ErrNotFound, "there is no repository %s at %s, or the token has no right to see it", s.repo, s.endpoint.Host)
	case code == "RepoNotFound":
		return say(ErrNotFound, "there is no repository %s at %s; if it is private, set HF_TOKEN or use --token-file", s.repo, s.endpoint.Host)
	case code == "RevisionNotFound":
		return say(ErrNotFound, "the repository %s has no revision %s", s.repo, s.revision)
	case code == "EntryNotFound":
		return say(ErrNotFound, "no such file in %s", s.repo)
	case code == "GatedRepo" && known:
		return say(ErrDenied, "%s is gated and the token's account has no access: ask for it at %s", s.repo, page)
	case code == "GatedRepo":
		return say(ErrDenied, "%s is gated: accept its terms at %s, then set HF_TOKEN or use --token-file", s.repo, page)
	case strings.Contains(message, "disabled"):
		return say(ErrDenied, "%s is disabled by the Hub", s.repo)
	case rep.StatusCode == http.StatusUnauthorized && known:
		return say(ErrDenied, "the Hub does not accept the token: make a new one at %s/settings/tokens", s.endpoint.String())
	case rep.StatusCode == http.StatusUnauthorized:
		return say(ErrDenied, "the Hub wants a token: set HF_TOKEN or use --token-file")
	case rep.StatusCode == http.StatusForbidden && known:
		return say(ErrDenied, "the token has no right to read %s", s.repo)
	}
	return kindOf(rep.StatusCode, place(rep.url)+": "+statusText(rep.Response))
}
