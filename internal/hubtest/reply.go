package hubtest

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// Body is the content of a file.
type Body interface {
	io.ReaderAt
	io.Closer
}

// memory is a body without a file behind it.
type memory struct{ io.ReaderAt }

func (memory) Close() error { return nil }

// How a reply ends after its last byte.
type ending int

const (
	whole ending = iota
	stall        // the connection stays open and silent
	drop         // the connection is closed
	reset        // the connection is reset
)

// reply is an answer, and how it is sent. Faults change it before it goes out.
type reply struct {
	status int
	header http.Header
	body   Body  // nil is none
	off, n int64 // the part of body that is sent

	silent  bool          // nothing is sent, not even a status: only the ending happens
	length  int64         // Content-Length, -1 is n
	end     ending        // after the first n bytes
	stalls  time.Duration // how long a stall lasts, 0 is until the client leaves
	drip    int64         // bytes a second, 0 is at once
	chunked bool          // no Content-Length
}

func newReply(status int, header http.Header) *reply {
	if header == nil {
		header = http.Header{}
	}
	return &reply{status: status, header: header, length: -1}
}

// text is a reply with a body of its own.
func textReply(status int, contentType string, body []byte) *reply {
	p := newReply(status, nil)
	p.header.Set("Content-Type", contentType)
	p.setBody(body)
	return p
}

func (p *reply) setBody(b []byte) {
	p.body, p.off, p.n = memory{bytes.NewReader(b)}, 0, int64(len(b))
}

// content is the reply to a request for a file, by the rules of RFC 9110: conditions, then one range or the whole.
func content(q *request, header http.Header, etag string, body Body, size int64) *reply {
	p := newReply(http.StatusOK, header)
	p.body, p.n = body, size
	p.header.Set("ETag", etag)
	p.header.Set("Accept-Ranges", "bytes")
	if p.header.Get("Content-Type") == "" {
		p.header.Set("Content-Type", "application/octet-stream")
	}
	if m := q.Header.Get("If-Match"); m != "" && m != "*" && m != etag {
		p.empty(http.StatusPreconditionFailed)
		return p
	}
	if m := q.Header.Get("If-None-Match"); m != "" && (m == "*" || m == etag || m == "W/"+etag) {
		p.empty(http.StatusNotModified)
		return p
	}
	start, end, ranged := span(q.Header.Get("Range"), size)
	if m := q.Header.Get("If-Range"); !ranged || m != "" && m != etag {
		return p
	}
	if start >= size {
		p.empty(http.StatusRequestedRangeNotSatisfiable)
		p.header.Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		return p
	}
	p.status, p.off, p.n = http.StatusPartialContent, start, end-start
	p.header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, end-1, size))
	return p
}

// empty makes a reply without body of p.
func (p *reply) empty(status int) { p.status, p.off, p.n = status, 0, 0 }

// entry is the request's line in the log.
func (p *reply) entry(q *request) Entry {
	start, end, _ := span(q.Header.Get("Range"), q.size)
	e := Entry{Path: q.path, Start: start, End: end, Status: p.status, Bytes: p.n, Kind: q.kind, Method: q.Method, Repo: q.repo}
	e.Auth = q.Header.Get("Authorization") != ""
	if q.Method == http.MethodHead || p.silent {
		e.Bytes = 0
	}
	if p.silent {
		e.Status = 0
	}
	return e
}

// send writes the reply. It panics with [http.ErrAbortHandler] where the connection must not be used again.
func (p *reply) send(w http.ResponseWriter, q *request) {
	if p.silent {
		p.finish(q)
		return
	}
	maps.Copy(w.Header(), p.header)
	if !p.chunked {
		n := p.n
		if p.length >= 0 {
			n = p.length
		}
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	}
	if p.status == http.StatusNotModified {
		w.Header().Del("Content-Length")
	}
	w.WriteHeader(p.status)
	if p.chunked && http.NewResponseController(w).Flush() != nil { // else the server counts a small body
		panic(http.ErrAbortHandler)
	}
	if q.Method != http.MethodHead && p.body != nil && !p.write(w, q) {
		panic(http.ErrAbortHandler)
	}
	p.finish(q)
}

// write sends the body and reports whether all of it went out.
func (p *reply) write(w http.ResponseWriter, q *request) bool {
	if f, ok := p.body.(*os.File); ok && p.drip == 0 { // lets the kernel copy
		if _, err := f.Seek(p.off, io.SeekStart); err != nil {
			return false
		}
		n, err := io.Copy(w, io.LimitReader(f, p.n))
		return err == nil && n == p.n && p.flush(w)
	}
	buf := make([]byte, min(p.n, 256<<10))
	for sent := int64(0); sent < p.n; {
		step := buf[:min(p.n-sent, int64(len(buf)))]
		if p.drip > 0 {
			step = step[:min(int64(len(step)), max(p.drip/10, 1))]
			if !p.flush(w) || !wait(q.Context(), time.Duration(float64(len(step))/float64(p.drip)*float64(time.Second))) {
				return false
			}
		}
		if n, err := p.body.ReadAt(step, p.off+sent); n < len(step) {
			_ = err // a file that shrank: the body ends early, as on a real server
			return false
		}
		if _, err := w.Write(step); err != nil {
			return false
		}
		sent += int64(len(step))
	}
	return p.flush(w)
}

// flush pushes out what was written if something other than the end of the reply follows.
func (p *reply) flush(w http.ResponseWriter) bool {
	if p.end == whole && p.drip == 0 {
		return true
	}
	return http.NewResponseController(w).Flush() == nil
}

// finish does what follows the last byte.
func (p *reply) finish(q *request) {
	switch p.end {
	case whole:
		return
	case stall:
		if p.stalls > 0 {
			wait(q.Context(), p.stalls)
		} else {
			<-q.Context().Done()
		}
	case reset:
		c := q.Context().Value(connKey{})
		if pc, ok := c.(*pacedConn); ok {
			c = pc.Conn
		}
		if tc, ok := c.(*net.TCPConn); ok {
			tc.SetLinger(0)
		}
	}
	panic(http.ErrAbortHandler)
}
