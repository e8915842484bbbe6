package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxHops          = 5
	maxResponseHead  = 64 << 10
	idleConnTimeout  = 90 * time.Second
	identityEncoding = "identity"
)

var errStall = errors.New("the transfer stalled")

// client sends requests for all sources of one Options. It follows redirects itself, because net/http keeps the Authorization header
// for other ports, subdomains and plain http.
type client struct {
	o        *Options
	open     *http.Transport // for addresses that the user named
	guarded  *http.Transport // for those that a public server redirects to: no private addresses
	isHidden func(netip.Addr) bool

	mu    sync.Mutex // guards gates
	gates map[string]*gate
}

func newClient(o *Options) *client {
	c := &client{o: o, isHidden: o.private, gates: map[string]*gate{}}
	if c.isHidden == nil {
		c.isHidden = privateAddr
	}
	c.open = newTransport(o, &net.Dialer{Timeout: o.stall()})
	c.guarded = newTransport(o, &net.Dialer{Timeout: o.stall(), Control: refusePrivate(c.isHidden)})
	return c
}

// newTransport speaks HTTP/1.1 only: one connection for each parallel range is faster than streams in one.
func newTransport(o *Options, d *net.Dialer) *http.Transport {
	dial := d.DialContext
	if o.dial != nil {
		dial = o.dial
	}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dial, DisableCompression: true, Protocols: new(http.Protocols),
		MaxIdleConnsPerHost: o.conns(), IdleConnTimeout: idleConnTimeout, MaxResponseHeaderBytes: maxResponseHead,
		ResponseHeaderTimeout: o.stall(), TLSHandshakeTimeout: o.stall(),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// closeIdle closes connections that nobody uses. When one goes silent, the network below may have gone and with it all that were idle.
func (c *client) closeIdle() {
	c.open.CloseIdleConnections()
	c.guarded.CloseIdleConnections()
}

// paused are the hosts that asked for a pause that is not over.
func (c *client) paused() []Pause {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Pause
	for host, g := range c.gates {
		if left := g.rest(); left > 0 {
			all = append(all, Pause{Host: host, Until: time.Now().Add(left)})
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Host < all[j].Host })
	return all
}

func (c *client) gate(u *url.URL) *gate {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := origin(u)
	if c.gates[key] == nil {
		c.gates[key] = newGate(c.o.conns())
	}
	return c.gates[key]
}

// request is one thing to ask.
type request struct {
	method  string
	url     *url.URL
	header  http.Header           // sent on every hop
	auth    func(*url.URL) string // Authorization for a URL, "" for none; nil for never
	foreign bool                  // the URL is one that a public server redirected to
	follow  bool                  // follow redirects; else a redirect is the reply
}

// reply is the answer to a request and the hop that gave it. Its body counts against the host's slots until it is closed.
type reply struct {
	*http.Response
	url     *url.URL
	foreign bool // as in request
	public  bool // the host that answered is on the public internet
}

// send asks and follows redirects. The caller closes the reply's body, whatever its status.
func (c *client) send(ctx context.Context, r request) (*reply, error) {
	seen := map[string]bool{r.url.String(): true}
	for hop := 0; ; hop++ {
		rep, err := c.hop(ctx, r)
		if err != nil || !redirects(rep.StatusCode) || !r.follow {
			return rep, err
		}
		drain(rep.Response)
		next, foreign, err := rep.next()
		switch {
		case err != nil:
			return nil, err
		case seen[next.String()]:
			return nil, fmt.Errorf("%s redirects in a circle", place(r.url))
		case hop == maxHops:
			return nil, fmt.Errorf("%s: more than %d redirects", place(r.url), maxHops)
		}
		seen[next.String()] = true
		r.url, r.foreign = next, foreign
	}
}

func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// next is where a redirect leads and whether that is a place that a public server chose. From https to http, and to anything that
// is neither, is refused.
func (r *reply) next() (*url.URL, bool, error) {
	loc, err := url.Parse(r.Header.Get("Location"))
	if err != nil || r.Header.Get("Location") == "" {
		return nil, false, broken("%s: redirect without a usable Location", place(r.url))
	}
	next := r.url.ResolveReference(loc)
	next.Fragment = ""
	switch {
	case next.Host == "" || next.Scheme != "http" && next.Scheme != "https":
		return nil, false, fmt.Errorf("%s: redirect to a %s: address refused", place(r.url), printable(next.Scheme))
	case r.url.Scheme == "https" && next.Scheme == "http":
		return nil, false, fmt.Errorf("%s: redirect from https to http (%s) refused", place(r.url), printable(next.Host))
	case next.User != nil:
		return nil, false, fmt.Errorf("%s: redirect to an address with a user name refused", place(r.url))
	}
	return next, r.foreign || r.public && origin(next) != origin(r.url), nil
}

// hop sends one request, once the host's gate lets it.
func (c *client) hop(ctx context.Context, r request) (*reply, error) {
	if c.o.Offline {
		return nil, ErrOffline
	}
	g := c.gate(r.url)
	if err := g.enter(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", place(r.url), err)
	}
	rep, err := c.roundTrip(ctx, r, g)
	if err != nil {
		g.leave()
		return nil, err
	}
	if pause, longer := g.note(rep.StatusCode, rep.Header); longer {
		c.o.count(func(m *Metrics) *atomic.Int64 { return &m.Pauses }, 1)
		c.o.log().Warn("the host asks for a pause", "host", rep.url.Host, "pause", pause, "status", rep.StatusCode)
	}
	if w := rep.Header.Get("X-HF-Warning"); w != "" && g.newWarning(w) {
		c.o.log().Warn("the host warns", "host", rep.url.Host, "warning", printable(w))
	}
	return rep, nil
}

// roundTrip sends the request and dresses the reply's body with the watchdog. Closing it leaves the gate.
func (c *client) roundTrip(ctx context.Context, r request, g *gate) (*reply, error) {
	tr, err := c.transport(r)
	if err != nil {
		return nil, err
	}
	inner, cancel := context.WithCancelCause(ctx)
	rep := &reply{url: r.url, foreign: r.foreign, public: true}
	trace := httptrace.WithClientTrace(inner, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		rep.public = !c.local(i.Conn.RemoteAddr())
	}})
	req, err := http.NewRequestWithContext(trace, r.method, r.url.String(), nil)
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("%s: not an address that can be asked", place(r.url))
	}
	c.dress(req, r)
	c.o.count(func(m *Metrics) *atomic.Int64 { return &m.Requests }, 1)
	rep.Response, err = tr.RoundTrip(req)
	if err != nil {
		cancel(nil)
		if slow := net.Error(nil); errors.As(err, &slow) && slow.Timeout() {
			c.closeIdle()
		}
		return nil, transportError(ctx, r.url, g.answered.Load(), err)
	}
	g.answered.Store(true)
	rep.Body = &watched{body: rep.Body, ctx: ctx, url: r.url, inner: inner, cancel: cancel, o: c.o, left: c.o.stall(), gate: g, began: time.Now(), rest: -1}
	return rep, nil
}

// dress sets the headers of every request.
func (c *client) dress(req *http.Request, r request) {
	for k, v := range r.header {
		req.Header[k] = v
	}
	req.Header.Set("Accept-Encoding", identityEncoding)
	req.Header.Set("User-Agent", c.o.UserAgent)
	if c.o.UserAgent == "" {
		req.Header.Set("User-Agent", "weightfs")
	}
	if r.auth != nil {
		if a := r.auth(r.url); a != "" {
			req.Header.Set("Authorization", a)
		}
	}
}

// transport is the guarded one for a foreign URL, unless a proxy makes the connection: then only addresses in digits can be checked.
func (c *client) transport(r request) (*http.Transport, error) {
	if !r.foreign || c.o.AllowPrivateRedirects {
		return c.open, nil
	}
	if a, err := netip.ParseAddr(r.url.Hostname()); err == nil && c.isHidden(a) {
		return nil, fmt.Errorf("%s: %w", place(r.url), errRefusedAddress)
	}
	if p, err := http.ProxyFromEnvironment(&http.Request{URL: r.url}); err == nil && p != nil {
		return c.open, nil
	}
	return c.guarded, nil
}

// local reports whether the other end of a connection is a private address.
func (c *client) local(a net.Addr) bool {
	ap, err := netip.ParseAddrPort(a.String())
	return err == nil && c.isHidden(ap.Addr())
}

// watched is a body that must bring stallBytes in every stall time that its reader spends waiting for it.
type watched struct {
	body   io.ReadCloser
	url    *url.URL
	ctx    context.Context // the caller's
	inner  context.Context // the request's
	cancel context.CancelCauseFunc
	o      *Options
	gate   *gate
	gave   bool      // the slot is a reader's
	began  time.Time // when the reply came
	had    int64     // bytes that were read
	rest   int64     // those to come, less than 0 if they cannot be asked for by themselves
	closed bool
	left   time.Duration // of the stall time
	got    int           // bytes since it was last full
	timer  *time.Timer
}

func (w *watched) Read(p []byte) (int, error) {
	if w.gate.full.Load() && w.mayGive() && w.gate.give() {
		w.gave = true
		return 0, ErrNoTurn
	}
	start := time.Now()
	if w.timer == nil {
		w.timer = time.AfterFunc(w.left, func() { w.cancel(errStall) })
	} else {
		w.timer.Reset(w.left)
	}
	n, err := w.body.Read(p)
	w.timer.Stop()
	w.left -= time.Since(start)
	w.had, w.rest = w.had+int64(n), w.rest-int64(n)
	if w.got += n; w.got >= stallBytes {
		w.left, w.got = w.o.stall(), 0
	}
	if err != nil && err != io.EOF {
		err = w.why(err)
	}
	return n, err
}

// A body gives its slot to a reader if it is ahead of all, has had its share, and would need the slot for longer than another connection costs.
const (
	givesAfter = 128 << 10
	givesAbove = 250 * time.Millisecond
)

func (w *watched) mayGive() bool {
	if _, ahead := turn(w.ctx); !ahead || w.gave || w.had < givesAfter || w.rest < 0 {
		return false
	}
	return time.Duration(float64(time.Since(w.began))*float64(w.rest)/float64(w.had)) > givesAbove
}

func (w *watched) why(err error) error {
	if context.Cause(w.inner) == errStall && w.ctx.Err() == nil {
		w.o.count(func(m *Metrics) *atomic.Int64 { return &m.Stalls }, 1)
		w.o.net().closeIdle()
		err = temporary("%w: less than %d bytes in %s", errStall, stallBytes, w.o.stall())
	}
	return transportError(w.ctx, w.url, true, err)
}

func (w *watched) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	err := w.body.Close()
	w.cancel(nil)
	w.gate.left(w.gave)
	return err
}
