package hubtest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// action is one fault: it changes a reply before it is logged and sent.
type action func(q *request, p *reply)

// actions are the faults by name. Each row takes its arguments and makes the action.
var actions = map[string]func(a *args) action{
	// the connection
	"hang":    func(a *args) action { return silent(stall, a) },                                // nothing is ever sent [for=DURATION, then closed]
	"close":   func(a *args) action { return silent(drop, a) },                                 // closed instead of a reply
	"abort":   func(a *args) action { return silent(reset, a) },                                // reset instead of a reply
	"stall":   func(a *args) action { return ends(stall, a) },                                  // silence after=N bytes of the body [for=DURATION]
	"drop":    func(a *args) action { return ends(drop, a) },                                   // closed after=N bytes of the body
	"reset":   func(a *args) action { return ends(reset, a) },                                  // reset after=N bytes of the body
	"drip":    func(a *args) action { return dripping(a) },                                     // rate=N bytes a second
	"short":   func(a *args) action { return resize(a, -1) },                                   // by=N bytes less than asked, and Content-Length agrees
	"long":    func(a *args) action { return resize(a, +1) },                                   // by=N spaces more, and Content-Length agrees
	"chunked": func(a *args) action { return func(_ *request, p *reply) { p.chunked = true } }, // no Content-Length

	// the status
	"status":        func(a *args) action { return status(a) },                                    // code=N [header="K: V"]… [body=TEXT]
	"unsatisfiable": func(a *args) action { return unsatisfiable(a) },                             // 416, [total=N] if it is not the true size
	"expired":       func(a *args) action { return replace(accessDenied("Request has expired")) }, // 403 of a signed URL
	"redirect":      func(a *args) action { return redirect(a) },                                  // to=URL [code=N]; to=self is a loop

	// the headers
	"header":    func(a *args) action { return setHeader(a) },  // set="K: V" and drop=K, each any number of times
	"range":     func(a *args) action { return wrongRange(a) }, // Content-Range with start=±N, total=±N
	"weak":      func(a *args) action { return weak },          // ETag becomes weak
	"link":      func(a *args) action { return link(a) },       // the next page is at to=URL; to=self is a cycle, to=endless never ends
	"multipart": func(a *args) action { return multipart },     // 206 as multipart/byteranges

	// the body
	"full":  func(a *args) action { return full },         // 200 with the whole file in spite of Range
	"gzip":  func(a *args) action { return gzipped },      // 200 with the whole file, compressed
	"shift": func(a *args) action { return moved(a) },     // the bytes by=N further on under right headers
	"flip":  func(a *args) action { return flipped(a) },   // bit 0 of byte at=N of the file is wrong
	"body":  func(a *args) action { return otherBody(a) }, // text=TEXT, status and the rest as they were
}

func parseAction(name string, words []string) (action, error) {
	mk, ok := actions[name]
	if !ok {
		return nil, fmt.Errorf("%q is no action: %s", name, strings.Join(slices.Sorted(maps.Keys(actions)), ", "))
	}
	a, err := parseArgs(words)
	if err != nil {
		return nil, err
	}
	act := mk(a)
	return act, a.done()
}

func silent(e ending, a *args) action {
	d := a.duration("for", 0)
	return func(_ *request, p *reply) { p.silent, p.end, p.stalls = true, e, d }
}

func ends(e ending, a *args) action {
	after, d := a.number("after", 0), a.duration("for", 0)
	return func(_ *request, p *reply) {
		if p.n <= after { // the whole body would be sent: nothing is missing
			return
		}
		p.length, p.n, p.end, p.stalls = p.n, after, e, d
	}
}

func dripping(a *args) action {
	rate := a.number("rate", 1024)
	return func(_ *request, p *reply) { p.drip = rate }
}

// resize changes the body's length by ±by, and Content-Length with it.
func resize(a *args, sign int64) action {
	by := a.number("by", 1)
	return func(_ *request, p *reply) {
		if p.body == nil {
			return
		}
		if sign < 0 {
			p.n = max(p.n-by, 0)
			return
		}
		p.body, p.off, p.n = padded{p.body, p.off, p.n}, 0, p.n+by
	}
}

// padded is n bytes of a body from off, then spaces.
type padded struct {
	Body
	off, n int64
}

func (b padded) ReadAt(p []byte, off int64) (int, error) {
	k := 0
	if off < b.n {
		k = int(min(b.n-off, int64(len(p))))
		if m, err := b.Body.ReadAt(p[:k], b.off+off); m < k {
			return m, err
		}
	}
	for i := range p[k:] {
		p[k+i] = ' '
	}
	return len(p), nil
}

// replace is a reply of its own in place of the true one.
func replace(with *reply) action {
	return func(_ *request, p *reply) {
		*p = *with
		p.header = with.header.Clone()
	}
}

func status(a *args) action {
	code := int(a.number("code", 500))
	if code < 200 || code > 599 {
		a.fail("code", fmt.Sprint(code), fmt.Errorf("no status of a reply"))
	}
	with := textReply(code, "text/plain; charset=utf-8", []byte(a.text("body", http.StatusText(code))))
	addHeaders(a, "header", with.header)
	return replace(with)
}

func addHeaders(a *args, key string, h http.Header) {
	for _, s := range a.take(key) {
		k, v, ok := strings.Cut(s, ":")
		if !ok {
			a.fail(key, s, fmt.Errorf("want \"Name: value\""))
		}
		h.Set(k, strings.TrimSpace(v))
	}
}

func unsatisfiable(a *args) action {
	total := a.number("total", -1)
	return func(q *request, p *reply) {
		size := q.size
		if total >= 0 {
			size = total
		}
		p.empty(http.StatusRequestedRangeNotSatisfiable)
		p.header.Set("Content-Range", fmt.Sprintf("bytes */%d", size))
	}
}

func redirect(a *args) action {
	to, code := a.text("to", "self"), int(a.number("code", http.StatusFound))
	return func(q *request, p *reply) {
		p.empty(code)
		location := to
		if to == "self" {
			location = "http://" + q.Host + q.URL.RequestURI()
		}
		p.header.Set("Location", location)
	}
}

func setHeader(a *args) action {
	set, drops := http.Header{}, a.take("drop")
	addHeaders(a, "set", set)
	return func(_ *request, p *reply) {
		for k := range set {
			p.header[k] = set[k]
		}
		for _, k := range drops {
			p.header.Del(k)
		}
	}
}

func wrongRange(a *args) action {
	start, total := a.number("start", 0), a.number("total", 0)
	return func(q *request, p *reply) {
		if p.status == http.StatusPartialContent {
			p.header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", p.off+start, p.off+start+p.n-1, q.size+total))
		}
	}
}

func weak(_ *request, p *reply) {
	if e := p.header.Get("ETag"); e != "" && !strings.HasPrefix(e, "W/") {
		p.header.Set("ETag", "W/"+e)
	}
}

func link(a *args) action {
	to := a.text("to", "self")
	return func(q *request, p *reply) {
		next, self := to, "http://"+q.Host+q.URL.RequestURI()
		switch to {
		case "self":
			next = self
		case "endless": // another page each time, and never a last one
			v := q.URL.Query()
			n, _ := strconv.Atoi(v.Get("again"))
			v.Set("again", strconv.Itoa(n+1))
			next = "http://" + q.Host + q.URL.EscapedPath() + "?" + v.Encode()
		}
		p.header.Set("Link", "<"+next+`>; rel="next"`)
	}
}

func multipart(q *request, p *reply) {
	if p.status != http.StatusPartialContent {
		return
	}
	part := make([]byte, p.n)
	if n, err := p.body.ReadAt(part, p.off); n < len(part) {
		panic(fmt.Sprintf("hubtest: reading %s: %v", q.path, err))
	}
	head := fmt.Sprintf("--STANDIN\r\nContent-Range: %s\r\n\r\n", p.header.Get("Content-Range"))
	p.header.Del("Content-Range")
	p.header.Set("Content-Type", "multipart/byteranges; boundary=STANDIN")
	p.setBody(slices.Concat([]byte(head), part, []byte("\r\n--STANDIN--\r\n")))
}

func full(q *request, p *reply) {
	if p.status != http.StatusPartialContent {
		return
	}
	p.status = http.StatusOK
	p.header.Del("Content-Range")
	long := int64(0) // what an action before this one made it longer
	for b, ok := p.body.(padded); ok; b, ok = p.body.(padded) {
		long += p.n - b.n
		p.body, p.n = b.Body, b.n
	}
	p.off, p.n = 0, q.size
	if long > 0 {
		p.body, p.n = padded{p.body, 0, q.size}, q.size+long
	}
}

// gzipMost is how much of a file is compressed: a client must give up long before.
const gzipMost = 32 << 20

func gzipped(q *request, p *reply) {
	full(q, p)
	if p.status != http.StatusOK || p.body == nil {
		return
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.Copy(w, io.NewSectionReader(p.body, p.off, min(p.n, gzipMost)))
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(fmt.Sprintf("hubtest: compressing %s: %v", q.path, err))
	}
	p.setBody(b.Bytes())
	p.header.Set("Content-Encoding", "gzip")
}

func moved(a *args) action {
	by := a.number("by", 4)
	return func(q *request, p *reply) {
		if p.body != nil && q.size > 0 {
			p.body = shifted{p.body, by, q.size}
		}
	}
}

// shifted is a body whose byte i is the true byte i+by, around the end.
type shifted struct {
	Body
	by, size int64
}

func (b shifted) ReadAt(p []byte, off int64) (int, error) {
	for n := 0; n < len(p); {
		at := (off + int64(n) + b.by) % b.size
		k := min(int64(len(p)-n), b.size-at)
		m, err := b.Body.ReadAt(p[n:n+int(k)], at)
		if int64(m) < k {
			return n + m, err
		}
		n += m
	}
	return len(p), nil
}

func flipped(a *args) action {
	at := a.number("at", 0)
	return func(_ *request, p *reply) {
		if p.body != nil {
			p.body = flip{p.body, at}
		}
	}
}

// flip is a body with one wrong bit.
type flip struct {
	Body
	at int64
}

func (b flip) ReadAt(p []byte, off int64) (int, error) {
	n, err := b.Body.ReadAt(p, off)
	if i := b.at - off; i >= 0 && i < int64(n) {
		p[i] ^= 1
	}
	return n, err
}

func otherBody(a *args) action {
	text := a.text("text", "")
	return func(_ *request, p *reply) {
		p.setBody([]byte(text))
	}
}
