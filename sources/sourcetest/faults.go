package sourcetest

import (
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// Doer is the Do of a Fault.
type Doer = func(w http.ResponseWriter, r *http.Request, right http.Handler)

// Status answers with a status and headers, given as "Name: value".
func Status(status int, headers ...string) Doer {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			w.Header().Add(name, value)
		}
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			io.WriteString(w, "the reason")
		}
	}
}

// Change gives the right reply changed by edit, which may also change its status and body. The Content-Length is what edit leaves it:
// "" for a chunked body.
func Change(edit func(rec *httptest.ResponseRecorder)) Doer {
	return func(w http.ResponseWriter, r *http.Request, right http.Handler) {
		rec := httptest.NewRecorder()
		right.ServeHTTP(rec, r)
		edit(rec)
		maps.Copy(w.Header(), rec.Header())
		w.WriteHeader(rec.Code)
		w.Write(rec.Body.Bytes())
		if n, err := strconv.Atoi(rec.Header().Get("Content-Length")); err == nil && n > rec.Body.Len() && r.Method != http.MethodHead {
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler) // the connection ends in the middle of the body
		}
	}
}

// Header sets one header of the right reply, or deletes it with "".
func Header(name, value string) Doer {
	return Change(func(rec *httptest.ResponseRecorder) {
		if rec.Header().Del(name); value != "" {
			rec.Header().Set(name, value)
		}
	})
}

// Cut ends the body after n bytes: with the right Content-Length, or with no Content-Length and a proper end.
func Cut(n int, chunked bool) Doer {
	return Change(func(rec *httptest.ResponseRecorder) {
		rec.Body.Truncate(min(n, rec.Body.Len()))
		if chunked {
			rec.Header().Del("Content-Length")
		}
	})
}

// Longer adds bytes to the body: with a Content-Length that counts them, or with none.
func Longer(extra string, chunked bool) Doer {
	return Change(func(rec *httptest.ResponseRecorder) {
		rec.Body.WriteString(extra)
		rec.Header().Set("Content-Length", strconv.Itoa(rec.Body.Len()))
		if chunked {
			rec.Header().Del("Content-Length")
		}
	})
}

// Whole answers with the whole file and 200, as if there were no Range.
func Whole(w http.ResponseWriter, r *http.Request, right http.Handler) {
	r.Header.Del("Range")
	right.ServeHTTP(w, r)
}

// Reset closes the connection without a reply.
func Reset(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// Stall sends the right reply up to n bytes of the body and then nothing for d, or until the client goes.
func Stall(n int, d time.Duration) Doer {
	return drip(func(w http.ResponseWriter, body []byte, wait func(time.Duration) bool) {
		w.Write(body[:min(n, len(body))])
		http.NewResponseController(w).Flush()
		if wait(d) {
			w.Write(body[min(n, len(body)):])
		}
	})
}

// Drip sends the body of the right reply in pieces of n bytes, each after d.
func Drip(n int, d time.Duration) Doer {
	return drip(func(w http.ResponseWriter, body []byte, wait func(time.Duration) bool) {
		for len(body) > 0 && wait(d) {
			k := min(n, len(body))
			w.Write(body[:k])
			http.NewResponseController(w).Flush()
			body = body[k:]
		}
	})
}

func drip(write func(w http.ResponseWriter, body []byte, wait func(time.Duration) bool)) Doer {
	return func(w http.ResponseWriter, r *http.Request, right http.Handler) {
		rec := httptest.NewRecorder()
		right.ServeHTTP(rec, r)
		maps.Copy(w.Header(), rec.Header())
		w.WriteHeader(rec.Code)
		write(w, rec.Body.Bytes(), func(d time.Duration) bool {
			select {
			case <-time.After(d):
				return true
			case <-r.Context().Done():
				return false
			}
		})
	}
}
