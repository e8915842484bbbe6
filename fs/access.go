package fs

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// HTTPOptions are the choices of the HTTP door.
type HTTPOptions struct {
	// Hosts are names that the server answers to beside localhost and loopback addresses. It matters on loopback listeners only: there a page
	// in a browser could otherwise reach the tree under a name of its own.
	Hosts []string
	// Origins are the origins (https://host) whose pages may read the tree, beside pages from this machine's own servers.
	Origins []string
	// Token, if set, is what every client must send: Authorization: Bearer <Token>.
	Token string
}

// admit decides whether a request is answered at all, and answers those that are not, preflights among them. It sets the headers that keep
// what is served from being run, framed or read by pages that may not.
func (d *httpDoor) admit(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	switch {
	case !d.hostAllowed(r):
		http.Error(w, "this server does not answer to the name "+strconv.Quote(r.Host), http.StatusMisdirectedRequest)
		return false
	case origin != "" && !d.originAllowed(r, origin):
		http.Error(w, "pages of "+strconv.Quote(origin)+" may not read here", http.StatusForbidden)
		return false
	case origin != "":
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", "ETag, Content-Range, Content-Length, Accept-Ranges, Last-Modified")
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	}
	switch {
	case r.Method == http.MethodOptions && origin != "":
		preflight(h, r)
		w.WriteHeader(http.StatusNoContent)
		return false
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "read only", http.StatusMethodNotAllowed)
		return false
	case !d.tokenRight(r):
		h.Set("WWW-Authenticate", "Bearer")
		http.Error(w, "this server wants its token: Authorization: Bearer …", http.StatusUnauthorized)
		return false
	}
	return true
}

// preflight tells a browser what a page of an origin that is allowed may send.
func preflight(h http.Header, r *http.Request) {
	h.Set("Access-Control-Allow-Methods", "GET, HEAD")
	h.Set("Access-Control-Allow-Headers", "Range, If-Range, If-Match, If-None-Match, Authorization")
	h.Set("Access-Control-Max-Age", "86400")
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
}

// hostAllowed refuses foreign names on loopback, against DNS rebinding.
func (d *httpDoor) hostAllowed(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if tcp, ok := local.(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return true
	}
	host := hostOf(r.Host)
	return loopback(host) || slices.Contains(d.o.Hosts, host)
}

// originAllowed says whether pages of an origin may read: pages of this server, of another on this machine, or of one that was named.
func (d *httpDoor) originAllowed(r *http.Request, origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	return slices.Contains(d.o.Origins, origin) || u.Host == r.Host || loopback(hostOf(u.Host))
}

// tokenRight compares digests, so that the time taken says nothing.
func (d *httpDoor) tokenRight(r *http.Request) bool {
	if d.o.Token == "" {
		return true
	}
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(d.o.Token))
	return ok && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// hostOf is a host without its port and brackets.
func hostOf(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.Trim(host, "[]")
}

// loopback says whether a host is this machine by any of its names for itself.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
