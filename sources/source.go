// Package sources reads releases from where they are: a local directory, an HTTP server, the Hugging Face Hub.
//
// A [Source] is pinned: its listing never changes, and every byte a [Blob] returns is a byte of that pinned file or the read fails
// with [ErrChanged]. Every failure is an [*Error] that names the file and the range; the sentinels below say what kind it is.
//
// There are three sources, [Dir], [HTTP] and [Hub]. The remote ones share an [*Options]: settings, connections, the pauses that hosts ask
// for, counters. A range goes one way down: the blob's Stream, the file's address (a fixed URL, or one that the Hub signed), the client (gate,
// connection, redirects, watchdog), the rule that a reply must keep, and its body. Nothing below Stream is tried twice, but for an
// address that is over; [Retry] is for the caller.
package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Kinds of failure, tested with errors.Is. Anything else is permanent unless it wraps ErrTemporary.
var (
	ErrNotFound  = errors.New("not found")             // no such file, repository or revision
	ErrDenied    = errors.New("permission denied")     // gated, private, no token, token without rights
	ErrChanged   = errors.New("changed at the source") // the pinned file is no longer what it was (errno ESTALE)
	ErrCorrupt   = errors.New("corrupt")               // bytes do not match their hash
	ErrTemporary = errors.New("temporary failure")     // worth another try: 5xx, 429, reset, stall, short body
	ErrNoTurn    = errors.New("readers were first")    // what was fetched [Ahead] had no connection until its context ended
	// what no request may be sent for (Options.Offline)
	ErrOffline = errors.New("not on disk, and this is offline (--offline, HF_HUB_OFFLINE): no request is sent")
)

// Error is a failure of one operation on one file.
type Error struct {
	Op   string // "list", "open", "read"
	Path string // of the file in the release, or the source itself
	Off  int64  // of a read
	Len  int64  // of a read, 0 otherwise
	Err  error
}

func (e *Error) Error() string {
	if e.Len > 0 {
		return fmt.Sprintf("%s %s [%d, %d): %v", e.Op, e.Path, e.Off, e.Off+e.Len, e.Err)
	}
	return fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// ID names the content of a blob for the disk cache. Equal IDs mean equal bytes, for ever and from any source that gives them.
// The zero ID means that no such name exists: the blob is never written to disk.
type ID [32]byte

// Entry is one file of a listing.
type Entry struct {
	Path   string // slash-separated, relative, clean
	Size   int64
	SHA256 string // of the content in hex, "" if the source does not say (the Hub's LFS oid)
	GitOID string // of a plain git blob in hex, "" if unknown
}

// Hidden is a name of a listing that is refused, and why.
type Hidden struct{ Path, Reason string }

// Listing is the files of a release at one revision, sorted by path.
type Listing struct {
	Name     string    // what the user asked for, canonical and without secrets: hf://org/name, https://host/dir/, file:///dir
	Revision string    // commit, "" if the source has none
	Time     time.Time // the commit's date, or the newest file's
	Gated    bool      // the source needed a token: a gated or private repository
	Files    []Entry
	Hidden   []Hidden
	// Complete says that a path not in Files does not exist (false for plain HTTP, where only known names are probed).
	Complete bool
}

// Find is the position of path in Files, or -1.
func (l *Listing) Find(path string) int {
	lo, hi := 0, len(l.Files)
	for lo < hi {
		m := (lo + hi) / 2
		if l.Files[m].Path < path {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo < len(l.Files) && l.Files[lo].Path == path {
		return lo
	}
	return -1
}

// Source is one release at one place, pinned to one revision when it is listed.
type Source interface {
	// List resolves the revision, once, and lists its files. Later calls return the same listing.
	List(ctx context.Context) (*Listing, error)
	// Open pins one file. It may ask the server (resolve) or put that off to the first read.
	Open(ctx context.Context, path string) (Blob, error)
}

// Blob is one pinned file, safe for parallel use.
type Blob interface {
	Size() int64
	ID() ID
	// Stream reads exactly the bytes [off, off+n): the reader yields n bytes and then io.EOF, or an error. It retries nothing.
	// Bytes that were yielded are right, also if the stream fails later.
	Stream(ctx context.Context, off, n int64) (io.ReadCloser, error)
	Close() error
}

// Local is a blob that is a local file: it is read in place and never copied into the cache.
type Local interface {
	Blob
	// ReadAt fills p from off, or fails; also with ErrChanged if the file is no longer the one that was opened.
	ReadAt(ctx context.Context, p []byte, off int64) error
	// File is the open descriptor, for passthrough.
	Fd() uintptr
}

// ReadAt fills p with the bytes of b from off, with one Stream or a Local's own ReadAt.
func ReadAt(ctx context.Context, b Blob, p []byte, off int64) error {
	if l, ok := b.(Local); ok {
		return l.ReadAt(ctx, p, off)
	}
	r, err := b.Stream(ctx, off, int64(len(p)))
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.ReadFull(r, p)
	return err
}
