// Package hubtest is a stand-in for the Hugging Face Hub on loopback: the part of its API that readers use, and a CDN on another port
// that holds the LFS files behind signed URLs, as the real one does. It serves releases that exist only as functions, and plain
// directories. Latency and rate are simulated, every request is logged before it is answered, and a fault [Plan] makes it fail the
// way that real hubs, mirrors and CDNs were seen to fail.
package hubtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"weightfs/internal/testrel"
)

// Config says what a hub serves and how. The zero value serves nothing, at once.
type Config struct {
	Addr string // of the hub; "" is a port of the kernel's choice on 127.0.0.1
	// CDNAddr is where the CDN listens; "" is a port of the kernel's choice on the hub's address.
	CDNAddr string
	// PublicURL and PublicCDN are what replies name the hub and the CDN, where proxies stand before them; "" are their own.
	PublicURL, PublicCDN string
	// Root is a directory whose ORG/NAME are served as repositories; "" is none.
	Root string
	// Make, if set, makes a release that neither Root nor [Hub.Add] has, or returns nil. It is called once for each name.
	Make    func(name string) *testrel.Release
	Latency time.Duration // before the first byte of every reply
	Rate    int64         // bytes a second for each connection, 0 is no limit
	Log     func(Entry)   // is told of every request before its reply begins; nil is nobody
	Plan    *Plan         // faults and settings, nil is none
	Peers   bool          // also serves what other programs mount: /plain/ORG/NAME/ and Xet's store
}

// Hub is a running hub. All methods are safe for parallel use.
type Hub struct {
	URL string // of the hub, http://127.0.0.1:PORT
	CDN string // of the CDN

	cfg       Config
	plan      *Plan
	key       []byte // signs the CDN's URLs
	servers   []*http.Server
	listeners []net.Listener

	making sync.Mutex // held while a repository is looked for, so that none is made twice

	mu    sync.Mutex // guards repos, and the fields of every repo in it
	repos map[string]*repo
}

// Start opens both ports and serves until Close.
func Start(cfg Config) (*Hub, error) {
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	h := &Hub{cfg: cfg, plan: cfg.Plan, key: make([]byte, 32), repos: map[string]*repo{}}
	if h.plan == nil {
		h.plan = &Plan{}
	}
	rand.Read(h.key)
	hub, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("stand-in hub: %w", err)
	}
	host, _, _ := net.SplitHostPort(hub.Addr().String())
	if cfg.CDNAddr == "" {
		cfg.CDNAddr = net.JoinHostPort(host, "0")
	}
	cdn, err := net.Listen("tcp", cfg.CDNAddr)
	if err != nil {
		hub.Close()
		return nil, fmt.Errorf("stand-in CDN: %w", err)
	}
	h.URL, h.CDN = origin(hub), origin(cdn)
	h.listen(hub, h.handler(h.answerHub))
	h.listen(cdn, h.handler(h.answerCDN))
	return h, nil
}

// named is what replies name a server.
func (h *Hub) named(public, own string) string {
	if public != "" {
		return public
	}
	return own
}

// origin is the URL of a listener: of this machine's loopback if it listens everywhere.
func origin(l net.Listener) string {
	a := l.Addr().(*net.TCPAddr)
	if a.IP.IsUnspecified() {
		return fmt.Sprintf("http://127.0.0.1:%d", a.Port)
	}
	return "http://" + a.String()
}

func (h *Hub) listen(l net.Listener, handler http.Handler) {
	s := &http.Server{
		Handler:     handler,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	h.servers = append(h.servers, s)
	h.listeners = append(h.listeners, l)
	go s.Serve(paced{l, h.cfg.Rate})
}

// Close ends both servers and every connection. The ports are free when it returns, also if the servers have not begun yet.
func (h *Hub) Close() {
	for _, l := range h.listeners {
		l.Close()
	}
	for _, s := range h.servers {
		s.Close()
	}
}

// connKey is the context key of a request's connection.
type connKey struct{}

// handler is the life of every request: answer, faults, log, latency, reply.
func (h *Hub) handler(answer func(*request) *reply) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := newRequest(r)
		p := answer(q)
		if p.body != nil {
			defer p.body.Close()
		}
		h.plan.apply(q, p)
		if h.cfg.Log != nil {
			h.cfg.Log(p.entry(q))
		}
		if wait(r.Context(), h.cfg.Latency) {
			p.send(w, q)
		}
	})
}

// wait sleeps and reports whether the client is still there.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
