package fs

import (
	"bytes"
	"io"
	"log/slog"
	"regexp"
	"sync"
)

// Log is where messages go: to a writer, and to a ring in memory whose content can be read through the mount. Secrets are taken out of every
// line first.
type Log struct {
	to     io.Writer
	redact []redaction
	level  slog.Level

	mu   sync.Mutex // guards ring and to
	ring []byte
	max  int
}

type redaction struct {
	pattern *regexp.Regexp
	with    string
}

// NewLog makes a log that keeps the last max bytes, 256 KiB if 0, and writes every line to w, which may be nil.
func NewLog(w io.Writer, level slog.Level, max int) *Log {
	if max <= 0 {
		max = 256 << 10
	}
	return &Log{to: w, level: level, max: max, redact: []redaction{
		// Queries of URLs hold signatures, and user information passwords.
		{regexp.MustCompile(`(https?://[^\s?"'<>\\]*)\?[^\s"'<>\\]*`), "$1?[redacted]"},
		{regexp.MustCompile(`(\w+://)[^/\s@"']+@`), "$1[redacted]@"},
		{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]+`), "$1 [redacted]"},
		{regexp.MustCompile(`\bhf_[A-Za-z0-9]{6,}`), "hf_[redacted]"},
		{regexp.MustCompile(`(?i)\b(x-amz-[a-z-]+|signature|policy|key-pair-id|token|authorization)=[^\s&"'\\]+`), "$1=[redacted]"},
	}}
}

// Logger writes to the log, one line a message.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: l.level}))
}

// Write adds whole lines.
func (l *Log) Write(p []byte) (int, error) {
	line := l.clean(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring = append(l.ring, line...)
	if cut := len(l.ring) - l.max; cut > 0 {
		if i := bytes.IndexByte(l.ring[cut:], '\n'); i >= 0 {
			cut += i + 1
		}
		l.ring = append(l.ring[:0], l.ring[cut:]...)
	}
	if l.to != nil {
		if _, err := l.to.Write(line); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (l *Log) clean(line []byte) []byte {
	for _, r := range l.redact {
		line = r.pattern.ReplaceAll(line, []byte(r.with))
	}
	return line
}

// Bytes is what the ring holds, oldest line first.
func (l *Log) Bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.ring)
}
