package hubtest

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// Entry is one request as the log has it.
type Entry struct {
	Path   string `json:"path"`   // of the file in its release for resolve and data, else of the URL
	Start  int64  `json:"start"`  // of the range that was asked for; 0 without one
	End    int64  `json:"end"`    // exclusive; the file's size without a range, 0 if there is no file
	Status int    `json:"status"` // of the reply, 0 if none is sent
	Bytes  int64  `json:"bytes"`  // of the body that is sent
	Auth   bool   `json:"auth"`   // the request had an Authorization header
	Kind   string `json:"kind"`   // api, resolve, or data: a request to the CDN

	Method string `json:"-"`
	Repo   string `json:"-"`
}

// FileLog appends one JSON line for each request to the file at path, each in one write, so that others may truncate the file
// meanwhile. The log function panics if the file cannot be written: a log with holes would be evidence of nothing.
func FileLog(path string) (log func(Entry), close func() error, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, nil, fmt.Errorf("request log: %w", err)
	}
	return func(e Entry) {
		b, err := json.Marshal(e)
		if err == nil {
			_, err = f.Write(append(b, '\n'))
		}
		if err != nil {
			panic(fmt.Sprintf("hubtest: request log %s: %v", path, err))
		}
	}, f.Close, nil
}

// Ledger keeps every request in memory: Config.Log is its Add.
type Ledger struct {
	mu      sync.Mutex // guards entries
	entries []Entry
}

// Add appends one entry.
func (l *Ledger) Add(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, e)
}

// Take returns the entries since the last Take and forgets them.
func (l *Ledger) Take() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.entries
	l.entries = nil
	return out
}

// Of is the entries of one kind.
func Of(kind string, entries []Entry) []Entry {
	var out []Entry
	for _, e := range entries {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// BytesOf is the bytes of the bodies of these entries.
func BytesOf(entries []Entry) int64 {
	var n int64
	for _, e := range entries {
		n += e.Bytes
	}
	return n
}
