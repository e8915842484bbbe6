package hubtest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

const hubTime = "2006-01-02T15:04:05.000Z"

// problem is an error as the Hub words it.
func problem(status int, code, message string) *reply {
	b, _ := json.Marshal(map[string]string{"error": message})
	p := textReply(status, "application/json; charset=utf-8", b)
	if code != "" {
		p.header.Set("X-Error-Code", code)
	}
	p.header.Set("X-Error-Message", message)
	return p
}

// failed is the reply when content cannot be had: it was there when its directory was scanned, or something else is wrong.
func failed(err error) *reply {
	if errors.Is(err, fs.ErrNotExist) {
		return problem(http.StatusNotFound, "EntryNotFound", "Entry not found")
	}
	return problem(http.StatusInternalServerError, "", err.Error())
}

func jsonReply(v any) *reply {
	b, err := json.Marshal(v)
	if err != nil {
		return problem(http.StatusInternalServerError, "", err.Error())
	}
	return textReply(http.StatusOK, "application/json; charset=utf-8", b)
}

// answerHub is the hub's answer to any request.
func (h *Hub) answerHub(q *request) *reply {
	p := h.route(q)
	limit, quota := "api", 3000
	if q.kind == kindResolve {
		limit, quota = "resolvers", 5000
	}
	p.header.Set("RateLimit", fmt.Sprintf("%q;r=%d;t=180", limit, quota-1))
	p.header.Set("RateLimit-Policy", fmt.Sprintf(`"fixed window";%q;q=%d;w=300`, limit, quota))
	p.header.Set("X-Request-Id", "Root=1-stand-in")
	p.header.Set("Access-Control-Expose-Headers", "X-Repo-Commit,X-Error-Code,X-Error-Message,ETag,Link,Accept-Ranges,Content-Range,X-Linked-Size,X-Linked-ETag")
	return p
}

func (h *Hub) route(q *request) *reply {
	s := q.segments
	switch {
	case h.cfg.Peers && s[0] == "plain":
		return h.answerPlain(q)
	case s[0] != "api":
		return h.answerFile(q)
	case len(s) > 5 && s[1] == "resolve-cache" && s[2] == "models":
		return h.answerResolveCache(q)
	case len(s) == 2 && s[1] == "whoami-v2":
		return whoami(q)
	case len(s) > 2 && (s[1] == "datasets" || s[1] == "spaces"):
		return notFoundRepo(q)
	case len(s) > 2 && s[1] == "models":
		return h.answerModel(q)
	}
	return problem(http.StatusNotFound, "", "Not Found")
}

func whoami(q *request) *reply {
	if q.token() == "" {
		return problem(http.StatusUnauthorized, "", "Invalid username or password.")
	}
	return jsonReply(map[string]any{"type": "user", "id": "1", "name": "demo", "fullname": "Demo", "orgs": []any{},
		"auth": map[string]any{"type": "access_token", "accessToken": map[string]any{"displayName": "demo", "role": "read"}}})
}

// splitID parts the segments after /api/models or before /resolve into a repository's name, of one or two segments, and the rest, whose
// first is one of verbs if it is not empty.
func splitID(s []string, verbs ...string) (id string, rest []string) {
	if len(s) == 1 || slices.Contains(verbs, s[1]) {
		return s[0], s[1:]
	}
	return s[0] + "/" + s[1], s[2:]
}

// answerModel is everything below /api/models/ID.
func (h *Hub) answerModel(q *request) *reply {
	id, rest := splitID(q.segments[2:], "revision", "tree", "paths-info", "refs", "xet-read-token")
	repo := h.lookup(id)
	q.repo = id
	if p := deny(q, repo, false); p != nil {
		return p
	}
	if len(rest) == 1 && rest[0] == "refs" {
		return h.refs(q, repo)
	}
	rev := "main"
	if len(rest) > 1 {
		rev = rest[1]
	}
	c, p := h.at(repo, rev)
	switch {
	case p != nil:
		return p
	case len(rest) == 0, len(rest) == 2 && rest[0] == "revision":
		return h.info(q, repo, c)
	case h.cfg.Peers && len(rest) == 2 && rest[0] == "xet-read-token":
		return h.xetToken()
	case len(rest) > 1 && rest[0] == "tree":
		return h.tree(q, c, strings.Join(rest[2:], "/"))
	case len(rest) == 2 && rest[0] == "paths-info" && q.Method == http.MethodPost:
		return pathsInfo(q, c)
	}
	return problem(http.StatusNotFound, "", "Not Found")
}

func notFoundRepo(q *request) *reply {
	if q.token() == "" {
		return problem(http.StatusUnauthorized, "RepoNotFound", "Invalid username or password.")
	}
	return problem(http.StatusNotFound, "RepoNotFound", "Repository not found")
}

// deny is the refusal of a request for a repository, or nil. files says that it is for a file's content.
func deny(q *request, r *repo, files bool) *reply {
	granted := r != nil && r.token != "" && q.token() == r.token
	switch {
	case r == nil, r.access == Private && !granted:
		return notFoundRepo(q)
	case r.access == Disabled:
		return problem(http.StatusForbidden, "", "Access to this resource is disabled.")
	case r.access == Gated && files && q.token() == "":
		return problem(http.StatusUnauthorized, "GatedRepo", "Access to model "+r.name+" is restricted. You must have access to it and be authenticated to access it. Please log in.")
	case r.access == Gated && files && !granted:
		return problem(http.StatusForbidden, "GatedRepo", "Access to model "+r.name+" is restricted and you are not in the authorized list. Visit its page to ask for access.")
	}
	return nil
}

// at is the commit of a revision, or the refusal.
func (h *Hub) at(r *repo, rev string) (*commit, *reply) {
	c, err := h.revision(r, rev)
	if err != nil {
		return nil, failed(err)
	}
	if c == nil {
		return nil, problem(http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+rev)
	}
	return c, nil
}

func (h *Hub) info(q *request, r *repo, c *commit) *reply {
	out := map[string]any{
		"_id": c.id[:24], "id": r.name, "modelId": r.name, "sha": c.id, "lastModified": c.date.UTC().Format(hubTime),
		"createdAt": c.date.UTC().Format(hubTime), "private": r.access == Private, "gated": false, "disabled": r.access == Disabled,
		"tags": []string{"safetensors"}, "downloads": 0, "likes": 0, "library_name": "transformers",
	}
	if org, _, ok := strings.Cut(r.name, "/"); ok {
		out["author"] = org
	}
	if r.access == Gated {
		out["gated"] = "auto"
	}
	var siblings []map[string]any
	for _, b := range c.blobs {
		s := map[string]any{"rfilename": b.Path}
		if isTrue(q.URL.Query().Get("blobs")) {
			e, err := b.entry(false, c)
			if err != nil {
				return failed(err)
			}
			s["size"], s["blobId"] = e.Size, e.OID
			if e.LFS != nil {
				s["lfs"] = map[string]any{"sha256": e.LFS.OID, "size": e.LFS.Size, "pointerSize": e.LFS.PointerSize}
			}
		}
		siblings = append(siblings, s)
	}
	out["siblings"] = siblings
	if fields := q.URL.Query()["expand"]; len(fields) > 0 {
		for k := range out {
			if k != "_id" && k != "id" && k != "modelId" && !slices.Contains(fields, k) {
				delete(out, k)
			}
		}
	}
	return jsonReply(out)
}

func isTrue(s string) bool { return s == "true" || s == "True" || s == "1" }

// treeEntry is one entry of a listing.
type treeEntry struct {
	Type string `json:"type"`
	OID  string `json:"oid"`
	Size int64  `json:"size"`
	LFS  *struct {
		OID         string `json:"oid"`
		Size        int64  `json:"size"`
		PointerSize int    `json:"pointerSize"`
	} `json:"lfs,omitempty"`
	XetHash    string `json:"xetHash,omitempty"`
	Path       string `json:"path"`
	LastCommit any    `json:"lastCommit,omitempty"`
	Security   any    `json:"securityFileStatus,omitempty"`
}

func (b *blob) entry(expand bool, c *commit) (treeEntry, error) {
	h := b.hashes()
	if h.err != nil {
		return treeEntry{}, h.err
	}
	e := treeEntry{Type: "file", OID: h.git, Size: b.Size, Path: b.Path}
	if b.lfs() {
		e.LFS = &struct {
			OID         string `json:"oid"`
			Size        int64  `json:"size"`
			PointerSize int    `json:"pointerSize"`
		}{h.sha256, b.Size, len(pointer(h.sha256, b.Size))}
	}
	if expand {
		e.expand(c)
		e.Security = map[string]any{"status": "safe", "jFrogScan": nil, "protectAiScan": nil, "avScan": nil, "pickleImportScan": nil, "virusTotalScan": nil}
	}
	return e, nil
}

func (e *treeEntry) expand(c *commit) {
	e.LastCommit = map[string]string{"id": c.id, "title": "Upload", "date": c.date.UTC().Format(time.RFC3339)}
}

// tree lists a folder, or everything below it, in pages. A directory stands before what is in it.
func (h *Hub) tree(q *request, c *commit, dir string) *reply {
	query := q.URL.Query()
	expand := isTrue(query.Get("expand"))
	entries, err := c.list(dir, isTrue(query.Get("recursive")), expand)
	if err != nil {
		return failed(err)
	}
	if len(entries) == 0 && dir != "" {
		return problem(http.StatusNotFound, "EntryNotFound", dir+" does not exist on \""+c.id+"\"")
	}
	for i := range entries {
		if e := &entries[i]; h.cfg.Peers && e.LFS != nil {
			e.XetHash = e.LFS.OID
		}
	}
	page := 1000
	if expand {
		page = 50
	}
	if n, err := strconv.Atoi(query.Get("limit")); err == nil && n > 0 {
		page = min(page, n)
	}
	if n := h.plan.pageSize; n > 0 {
		page = min(page, n)
	}
	from := 0
	if cursor := query.Get("cursor"); cursor != "" {
		b, err := base64.URLEncoding.DecodeString(cursor)
		if err == nil {
			from, err = strconv.Atoi(string(b))
		}
		if err != nil || from < 0 || from > len(entries) {
			return problem(http.StatusBadRequest, "", "Invalid cursor")
		}
	}
	to := min(from+page, len(entries))
	p := jsonReply(entries[from:to])
	if to < len(entries) {
		query.Set("cursor", base64.URLEncoding.EncodeToString([]byte(strconv.Itoa(to))))
		p.header.Set("Link", "<"+h.named(h.cfg.PublicURL, h.URL)+q.URL.EscapedPath()+"?"+query.Encode()+`>; rel="next"`)
	}
	return p
}

func (c *commit) list(dir string, recursive, expand bool) ([]treeEntry, error) {
	prefix := dir
	if prefix != "" {
		prefix += "/"
	}
	entries := []treeEntry{}
	seen := map[string]bool{}
	for _, b := range c.blobs {
		rest, ok := strings.CutPrefix(b.Path, prefix)
		if !ok {
			continue
		}
		for i := range rest {
			if rest[i] == '/' && !seen[rest[:i]] && (recursive || !strings.Contains(rest[:i], "/")) {
				seen[rest[:i]] = true
				e := treeEntry{Type: "directory", OID: gitHash([]byte(c.id + prefix + rest[:i])), Path: prefix + rest[:i]}
				if expand {
					e.expand(c)
				}
				entries = append(entries, e)
			}
		}
		if !recursive && strings.Contains(rest, "/") {
			continue
		}
		e, err := b.entry(expand, c)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// pathsInfo answers for the paths of a form or of a JSON body; paths that do not exist are left out.
func pathsInfo(q *request, c *commit) *reply {
	var ask struct {
		Paths  []string `json:"paths"`
		Expand bool     `json:"expand"`
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, q.Body, 8<<20))
	if err == nil && strings.HasPrefix(q.Header.Get("Content-Type"), "application/json") {
		err = json.Unmarshal(body, &ask)
	} else if err == nil {
		var form url.Values
		form, err = url.ParseQuery(string(body))
		ask.Paths, ask.Expand = form["paths"], isTrue(form.Get("expand"))
	}
	if err != nil {
		return problem(http.StatusBadRequest, "", err.Error())
	}
	entries := []treeEntry{}
	for _, path := range ask.Paths {
		path = strings.Trim(path, "/")
		if b := c.find(path); b != nil {
			e, err := b.entry(ask.Expand, c)
			if err != nil {
				return failed(err)
			}
			entries = append(entries, e)
		} else if below, _ := c.list(path, true, false); len(below) > 0 {
			entries = append(entries, treeEntry{Type: "directory", OID: gitHash([]byte(c.id + path)), Path: path})
		}
	}
	return jsonReply(entries)
}

func (h *Hub) refs(q *request, r *repo) *reply {
	type ref struct {
		Name   string `json:"name"`
		Ref    string `json:"ref"`
		Target string `json:"targetCommit"`
	}
	c, p := h.at(r, "main")
	if p != nil {
		return p
	}
	branches, tags, pulls := []ref{{"main", "refs/heads/main", c.id}}, []ref{}, []ref{}
	h.mu.Lock()
	names := make([]string, 0, len(r.branches))
	for name := range r.branches {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if pr, ok := strings.CutPrefix(name, "refs/pr/"); ok {
			pulls = append(pulls, ref{pr, name, r.branches[name]})
		} else {
			tags = append(tags, ref{name, "refs/tags/" + name, r.branches[name]})
		}
	}
	h.mu.Unlock()
	out := map[string]any{"branches": branches, "converts": []ref{}, "tags": tags}
	if isTrue(q.URL.Query().Get("include_prs")) {
		out["pullRequests"] = pulls
	}
	return jsonReply(out)
}
