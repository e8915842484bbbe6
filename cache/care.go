package cache

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"weightfs/sources"
)

// ErrInUse is wrapped by the error of what needs the cache directory to itself.
var ErrInUse = errors.New("another weightfs process uses the cache directory")

// Prune drops what was used least recently until the disk cache holds no more than keep bytes, and returns how many it freed.
func (c *Cache) Prune(keep int64) (freed int64, err error) {
	s, err := c.ownDirectory()
	if err != nil {
		return 0, err
	}
	before := s.held()
	for s.held() > keep && s.evict(s.held()-keep) {
	}
	return before - s.held(), nil
}

// DiskCheck is what CheckDisk found.
type DiskCheck struct {
	Blobs, Cells, Bad int64 // Bad of the Cells did not have their checksum, and were dropped
	Wrong             int64 // complete Blobs that are right cell by cell, but do not have the SHA-256 that they are named after
}

// CheckDisk reads every cell on disk and compares it with its checksum. A blob whose map says that it was verified is compared with its
// SHA-256 as well. What is wrong is dropped.
func (c *Cache) CheckDisk(ctx context.Context, progress func(bytes int64)) (r DiskCheck, err error) {
	s, err := c.ownDirectory()
	if err != nil {
		return r, err
	}
	buf := make([]byte, pieceCells*cellSize)
	for _, key := range s.keys() {
		b := s.open(key, -1)
		for _, g := range b.groups() {
			if err := ctx.Err(); err != nil {
				s.release(b)
				return r, context.Cause(ctx)
			}
			cells, bad, n := b.check(g, buf)
			r.Cells, r.Bad = r.Cells+cells, r.Bad+bad
			progress(n)
		}
		if b.wrong(ctx) {
			r.Wrong++
			b.drop()
		}
		r.Blobs++
		s.release(b)
	}
	return r, nil
}

// ownDirectory is the store of the cache directory, if this process is the one that writes there.
func (c *Cache) ownDirectory() (*store, error) {
	switch {
	case c.disk == nil:
		return nil, errors.New("there is no disk cache: --cache-dir none, or a local source, which is read in place")
	case c.disk.shared != nil:
		return nil, fmt.Errorf("%w %s: unmount it first", ErrInUse, c.disk.dir)
	}
	return c.disk.own, nil
}

func (s *store) held() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// keys is the names of all blobs, open or not.
func (s *store) keys() (out []sources.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.rest {
		out = append(out, k)
	}
	for k := range s.blobs {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b sources.ID) int { return slices.Compare(a[:], b[:]) })
	return out
}

// check reads the cells of a group and drops those that are bad.
func (b *diskBlob) check(group int64, buf []byte) (cells, bad, n int64) {
	for left := b.present(group); left != 0; left &= left - 1 {
		i := group*pieceCells + int64(bits.TrailingZeros16(left))
		p := buf[:b.cellLen(i)]
		if cells++; !b.read(i, [][]byte{p})[0] {
			bad++
			b.discard(i)
		}
		n += int64(len(p))
	}
	return cells, bad, n
}

// wrong says whether a blob that was verified once is not what it is named after any more. A complete one that was not, and is right, is verified
// now. Of any other the name may be something else than its SHA-256.
func (b *diskBlob) wrong(ctx context.Context) bool {
	b.mu.Lock()
	full, whole := b.full(), b.index.whole
	b.mu.Unlock()
	if !full {
		return false
	}
	before, err := b.state()
	if err != nil {
		return false
	}
	sum, err := b.hash(ctx.Err)
	if err == nil && sum == b.key {
		b.verified(before)
	}
	return whole && err == nil && sum != b.key
}
