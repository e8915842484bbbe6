package hubtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// escapePath escapes each element of a path and keeps the slashes.
func escapePath(path string) string {
	s := strings.Split(path, "/")
	for i := range s {
		s[i] = url.PathEscape(s[i])
	}
	return strings.Join(s, "/")
}

// answerFile is everything outside /api: /ID/resolve/REV/PATH and /ID/raw/REV/PATH.
func (h *Hub) answerFile(q *request) *reply {
	id, rest := splitID(q.segments, "resolve", "raw")
	if len(rest) < 3 || rest[0] != "resolve" && rest[0] != "raw" || q.Method != http.MethodGet && q.Method != http.MethodHead {
		return problem(http.StatusNotFound, "", "Not Found")
	}
	path := strings.Join(rest[2:], "/")
	q.file(kindResolve, id, path)
	b, p := h.open(q, h.lookup(id), rest[1], path)
	if p != nil {
		return p
	}
	q.size = b.Size
	hash := b.hashes()
	if hash.err != nil {
		return failed(hash.err)
	}
	switch {
	case rest[0] == "raw" && b.lfs():
		p = textReply(http.StatusOK, "text/plain; charset=utf-8", []byte(pointer(hash.sha256, b.Size)))
		p.header.Set("ETag", strconv.Quote(hash.git))
	case b.lfs():
		p = h.redirectLFS(id, b, hash)
	case rest[0] == "resolve" && h.plan.plain307:
		p = redirectPlain(q, id, b, hash)
	default:
		return h.plain(q, b, hash)
	}
	p.header.Set("X-Repo-Commit", b.commit)
	return p
}

// open is the blob that a request names, or the refusal.
func (h *Hub) open(q *request, r *repo, rev, path string) (*blob, *reply) {
	if p := deny(q, r, true); p != nil {
		return nil, p
	}
	c, p := h.at(r, rev)
	if p != nil {
		return nil, p
	}
	b := c.find(path)
	if b == nil {
		p := problem(http.StatusNotFound, "EntryNotFound", "Entry not found")
		p.header.Set("X-Repo-Commit", c.id)
		return nil, p
	}
	return b, nil
}

// redirectLFS sends the client to the CDN. The ETag is the pointer's; what counts is X-Linked-ETag.
func (h *Hub) redirectLFS(id string, b *blob, hash hashes) *reply {
	location := h.sign(id, b, hash.sha256)
	p := textReply(http.StatusFound, "text/plain; charset=utf-8", []byte("Found. Redirecting to "+location))
	p.header.Set("Location", location)
	p.header.Set("ETag", strconv.Quote(hash.git))
	p.header.Set("Accept-Ranges", "bytes")
	p.header.Set("X-Linked-Size", strconv.FormatInt(b.Size, 10))
	p.header.Set("X-Linked-ETag", strconv.Quote(hash.sha256))
	if h.cfg.Peers {
		p.header.Set("X-Xet-Hash", hash.sha256)
	}
	return p
}

// redirectPlain is the relative redirect that the Hub sends for plain files since July 2025.
func redirectPlain(q *request, id string, b *blob, hash hashes) *reply {
	location := fmt.Sprintf("/api/resolve-cache/models/%s/%s/%s?%s=&etag=%s", escapePath(id), b.commit, escapePath(b.Path),
		url.QueryEscape(q.URL.Path), url.QueryEscape(strconv.Quote(hash.git)))
	p := textReply(http.StatusTemporaryRedirect, "text/plain; charset=utf-8", []byte("Temporary Redirect. Redirecting to "+location))
	p.header.Set("Location", location)
	return p
}

// answerResolveCache is /api/resolve-cache/models/ID/COMMIT/PATH: a plain file, where [redirectPlain] leads.
func (h *Hub) answerResolveCache(q *request) *reply {
	s := q.segments[3:]
	id := s[0] + "/" + s[1]
	if len(s[1]) == 40 { // a repository without organisation
		id, s = s[0], s[1:]
	} else {
		s = s[2:]
	}
	path := strings.Join(s[1:], "/")
	q.file(kindResolve, id, path)
	b, p := h.open(q, h.lookup(id), s[0], path)
	if p != nil {
		return p
	}
	q.size = b.Size
	hash := b.hashes()
	if hash.err != nil || b.lfs() {
		return problem(http.StatusNotFound, "EntryNotFound", "Entry not found")
	}
	return h.plain(q, b, hash)
}

// plain is the content of a file that is not LFS.
func (h *Hub) plain(q *request, b *blob, hash hashes) *reply {
	body, err := b.Open()
	if err != nil {
		return failed(err)
	}
	header := http.Header{"X-Repo-Commit": {b.commit}, "Content-Type": {"text/plain; charset=utf-8"},
		"Content-Disposition": {fmt.Sprintf("inline; filename*=UTF-8''%s", url.PathEscape(b.Path))}}
	return content(q, header, strconv.Quote(hash.git), body, b.Size)
}

// policy is what a signed URL grants; the signature covers it and the method GET.
type policy struct {
	Repo, Commit, Path string
	Expires            int64 // unix seconds
}

const signedFor = time.Hour

// sign makes a URL of the CDN in the manner of a signed CloudFront URL.
func (h *Hub) sign(repo string, b *blob, oid string) string {
	life := signedFor
	if h.plan.signedFor > 0 {
		life = h.plan.signedFor
	}
	// rounded up, so that a URL never lives shorter than it should
	x := policy{Repo: repo, Commit: b.commit, Path: b.Path, Expires: time.Now().Add(life + time.Second - 1).Unix()}
	doc, _ := json.Marshal(x)
	v := url.Values{}
	v.Set("Expires", strconv.FormatInt(x.Expires, 10))
	v.Set("Policy", base64.RawURLEncoding.EncodeToString(doc))
	v.Set("Signature", h.signature(http.MethodGet, doc))
	v.Set("Key-Pair-Id", "K2STANDIN")
	v.Set("response-content-disposition", fmt.Sprintf("inline; filename*=UTF-8''%s;", url.PathEscape(b.Path)))
	return h.named(h.cfg.PublicCDN, h.CDN) + "/lfs/" + oid[:2] + "/" + oid + "?" + v.Encode()
}

func (h *Hub) signature(method string, doc []byte) string {
	m := hmac.New(sha256.New, h.key)
	m.Write([]byte(method))
	m.Write(doc)
	return hex.EncodeToString(m.Sum(nil))
}

// accessDenied is a refusal as object stores word it.
func accessDenied(message string) *reply {
	return textReply(http.StatusForbidden, "application/xml", []byte(`<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code><Message>`+message+`</Message></Error>`))
}

func noSuchKey() *reply {
	return textReply(http.StatusNotFound, "application/xml", []byte("<Error><Code>NoSuchKey</Code></Error>"))
}

// answerCDN is the CDN's answer to any request. It knows nothing of tokens. Its ETag is its own, unrelated to the hub's.
func (h *Hub) answerCDN(q *request) *reply {
	q.kind = kindData
	if h.cfg.Peers && q.segments[0] == "xet" {
		return h.answerXet(q)
	}
	v := q.URL.Query()
	doc, err := base64.RawURLEncoding.DecodeString(v.Get("Policy"))
	var x policy
	if err != nil || json.Unmarshal(doc, &x) != nil {
		return accessDenied("Missing Key-Pair-Id query parameter or cookie value")
	}
	q.file(kindData, x.Repo, x.Path)
	r := h.lookup(x.Repo)
	if r == nil || !hmac.Equal([]byte(h.signature(q.Method, doc)), []byte(v.Get("Signature"))) {
		return accessDenied("Access denied")
	}
	if time.Now().Unix() > x.Expires {
		return accessDenied("Request has expired")
	}
	c, p := h.at(r, x.Commit)
	if p != nil || c.find(x.Path) == nil {
		return noSuchKey()
	}
	b := c.find(x.Path)
	q.size = b.Size
	body, err := b.Open()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return noSuchKey()
	case err != nil:
		return textReply(http.StatusInternalServerError, "application/xml", []byte("<Error><Code>InternalError</Code></Error>"))
	}
	etag := sha256.Sum256([]byte(b.commit + b.Path))
	return content(q, http.Header{"Content-Type": {"binary/octet-stream"}, "Access-Control-Allow-Origin": {"*"}}, strconv.Quote(hex.EncodeToString(etag[:16])), body, b.Size)
}
