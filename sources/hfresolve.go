package sources

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	unknownLife = 10 * time.Minute   // of a signed address that does not say
	leastLife   = time.Minute        // a shorter one is asked for again no sooner than this
	mostLife    = 7 * 24 * time.Hour // what a signature can be good for
	doubtAfter  = 5 * time.Second    // the age from which an address is asked for again if nothing answers there
	patience    = 10 * time.Second   // how long a host that refuses what the Hub permits is asked again, if it gave ranges before
)

// hubFile is one file of a repository: the pinned state and the address of its bytes.
type hubFile struct {
	remote
	hub    *hub
	commit string
	addr   flight[*address]

	mu      sync.Mutex // guards the fields below
	pins    map[string]validator
	refused time.Time // since when new addresses are refused, zero if the last one was not
}

// address is where a file's bytes are.
type address struct {
	url     *url.URL
	foreign bool      // a public server redirected to it
	asked   time.Time // the Hub gave it
	renew   time.Time // ask for a new one from then on, zero for never
}

func newHubFile(s *hub, commit string, e Entry) *hubFile {
	f := &hubFile{hub: s, commit: commit, pins: map[string]validator{}}
	f.c, f.entry, f.id = s.o.net(), e, hubID(e)
	f.fetch = f.get
	return f
}

// get asks for a range at the file's address. A refusal that may mean that the signature is over makes it ask for a new address, once. So
// does an address where nothing answers: the bytes may have moved.
func (f *hubFile) get(ctx context.Context, rg ranged) (io.ReadCloser, error) {
	a, err := f.where(ctx)
	if err != nil {
		return nil, err
	}
	body, err := f.getAt(ctx, a, rg)
	if !mayBeOver(statusOf(err)) && !(unreachable(err) && time.Since(a.asked) > doubtAfter) {
		return body, vanished(err)
	}
	f.addr.forget(func(old *address) bool { return old == a })
	if a, err = f.where(ctx); err != nil {
		return nil, err
	}
	body, err = f.getAt(ctx, a, rg)
	if mayBeOver(statusOf(err)) {
		err = f.refusedAgain(a, fmt.Errorf("%w, also at a new address", err))
	}
	return body, vanished(err)
}

// refusedAgain is the error of a range that was refused at an address which the Hub gave just then. Who has no right to the file learns that
// from the Hub, which gives no address; so a host that gave ranges before and says 403 now is confused, as CDNs are at times, and the failure
// is a temporary one for a while.
func (f *hubFile) refusedAgain(a *address, err error) error {
	if !errors.Is(err, ErrDenied) || !f.c.gate(a.url).ranged.Load() {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused.IsZero() {
		f.refused = time.Now()
	}
	if time.Since(f.refused) < patience {
		return temporary("%w", err)
	}
	return err
}

// mayBeOver reports whether a status is one that the clouds give for a signature that is over.
func mayBeOver(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusGone:
		return true
	}
	return false
}

// vanished makes a missing file of one that was listed and is not there any more.
func vanished(err error) error {
	if errors.Is(err, ErrNotFound) {
		return changed("%w", err)
	}
	return err
}

func (f *hubFile) getAt(ctx context.Context, a *address, rg ranged) (io.ReadCloser, error) {
	at := origin(a.url)
	f.mu.Lock()
	rg.pin = f.pins[at]
	f.mu.Unlock()
	body, v, err := f.c.getRange(ctx, request{url: a.url, foreign: a.foreign, auth: f.hub.auth, follow: true}, rg)
	if err != nil {
		return nil, err
	}
	if err := f.pin(at, v); err != nil {
		body.Close()
		return nil, err
	}
	return body, nil
}

// pin keeps the first validator that a host gave for the file and refuses another one.
func (f *hubFile) pin(at string, v validator) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = time.Time{}
	old, ok := f.pins[at]
	if !ok {
		f.pins[at] = v
		return nil
	}
	if d := old.differs(v); d != "" {
		return changed("%s", d)
	}
	return nil
}

// where is the file's address, asked for by one goroutine however many wait for it.
func (f *hubFile) where(ctx context.Context) (*address, error) {
	f.addr.forget(func(a *address) bool { return !a.renew.IsZero() && time.Now().After(a.renew) })
	return f.addr.do(ctx, f.resolve)
}

// resolve asks the Hub where the file is: relative redirects are its own, an absolute one is a signed address, a plain reply means that
// the Hub has the bytes itself. What the replies say about the content must agree with the listing.
func (f *hubFile) resolve(ctx context.Context) (*address, error) {
	f.c.o.count(func(m *Metrics) *atomic.Int64 { return &m.Resolves }, 1)
	u, err := f.hub.at("/" + f.hub.repo + "/resolve/" + f.commit + "/" + escapePath(f.entry.Path))
	if err != nil {
		return nil, err
	}
	for range maxHops + 1 {
		rep, err := f.head(ctx, u)
		if err != nil {
			return nil, err
		}
		switch {
		case !redirects(rep.StatusCode) && rep.StatusCode >= 300:
			return nil, vanished(f.hub.refused(rep))
		case f.contradicts(rep) != "":
			return nil, changed("%s: %s", place(u), f.contradicts(rep))
		case !redirects(rep.StatusCode):
			return &address{url: u, asked: time.Now()}, nil
		}
		next, foreign, err := rep.next()
		if err != nil {
			return nil, err
		}
		if loc, err := url.Parse(rep.Header.Get("Location")); err == nil && loc.Host != "" {
			now := time.Now()
			return &address{url: next, foreign: foreign, asked: now, renew: renewAt(next, rep.Header, now)}, nil
		}
		u = next
	}
	return nil, fmt.Errorf("%s: more than %d redirects, or a circle of them", place(u), maxHops)
}

// head asks for the headers, with GET where a mirror does not know HEAD.
func (f *hubFile) head(ctx context.Context, u *url.URL) (*reply, error) {
	rep, err := f.hub.ask(ctx, request{method: http.MethodHead, url: u})
	if err != nil {
		return nil, err
	}
	rep.Body.Close()
	if rep.StatusCode != http.StatusMethodNotAllowed && rep.StatusCode != http.StatusNotImplemented {
		return rep, nil
	}
	rep, err = f.hub.ask(ctx, request{method: http.MethodGet, url: u, header: http.Header{"Range": {"bytes=0-0"}}})
	if err == nil {
		rep.Body.Close()
	}
	return rep, err
}

// contradicts says what in the Hub's reply is not as it was listed, "" if nothing is.
func (f *hubFile) contradicts(rep *reply) string {
	h := rep.Header
	if c := h.Get("X-Repo-Commit"); c != "" && !strings.EqualFold(c, f.commit) {
		return "commit " + printable(c) + " for " + f.commit
	}
	if s := h.Get("X-Linked-Size"); s != "" && s != strconv.FormatInt(f.entry.Size, 10) {
		return "size " + printable(s) + ", listed as " + strconv.FormatInt(f.entry.Size, 10)
	}
	if e := hexOf(bare(h.Get("X-Linked-ETag")), 32); e != "" && f.entry.SHA256 != "" && e != f.entry.SHA256 {
		return "sha256 " + e + ", listed as " + f.entry.SHA256
	}
	if redirects(rep.StatusCode) {
		return ""
	}
	if e := hexOf(bare(h.Get("ETag")), 20); e != "" && f.entry.GitOID != "" && e != f.entry.GitOID {
		return "git blob " + e + ", listed as " + f.entry.GitOID
	}
	if n := sizeIn(rep.Response); n >= 0 && n != f.entry.Size {
		return fmt.Sprintf("size %d, listed as %d", n, f.entry.Size)
	}
	return ""
}

// escapePath escapes each component of a path.
func escapePath(p string) string {
	parts := strings.Split(p, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// renewAt is when four fifths of a signed address's life are over. Its life is counted from the server's date, and then on this
// machine's own monotonic clock, so that a wrong clock does no harm.
func renewAt(u *url.URL, h http.Header, now time.Time) time.Time {
	life := unknownLife
	from, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		from = now
	}
	if end, ok := expiry(u.Query()); ok {
		life = min(max(end.Sub(from), leastLife), mostLife)
	}
	return now.Add(life * 4 / 5)
}

// expiry reads the end of a signed URL: Expires (CloudFront, GCS v2), X-Amz-Date and X-Amz-Expires (AWS v4), X-Goog-… (GCS v4), or a
// CloudFront Policy.
func expiry(q url.Values) (time.Time, bool) {
	if t, ok := epoch(q.Get("Expires")); ok {
		return t, true
	}
	for _, cloud := range []string{"X-Amz-", "X-Goog-"} {
		start, err := time.Parse("20060102T150405Z", q.Get(cloud+"Date"))
		if n, ok := decimal(q.Get(cloud + "Expires")); err == nil && ok {
			return start.Add(time.Duration(min(n, int64(mostLife/time.Second))) * time.Second), true
		}
	}
	return policyEnd(q.Get("Policy"))
}

func epoch(s string) (time.Time, bool) {
	n, ok := decimal(s)
	return time.Unix(n, 0), ok && n > 0 && n < 1<<40
}

// policyEnd reads DateLessThan of a CloudFront policy, whose base64 has - _ ~ for + = /.
func policyEnd(s string) (time.Time, bool) {
	b, err := base64.StdEncoding.DecodeString(strings.NewReplacer("-", "+", "_", "=", "~", "/").Replace(s))
	if err != nil {
		return time.Time{}, false
	}
	var p struct {
		Statement []struct {
			Condition struct {
				DateLessThan map[string]json.Number
			}
		}
	}
	if json.Unmarshal(b, &p) != nil || len(p.Statement) == 0 {
		return time.Time{}, false
	}
	return epoch(p.Statement[0].Condition.DateLessThan["AWS:EpochTime"].String())
}
