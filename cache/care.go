package cache

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
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
		one, err := b.checkAll(ctx, buf, progress)
		s.release(b)
		r = DiskCheck{r.Blobs + 1, r.Cells + one.Cells, r.Bad + one.Bad, r.Wrong + one.Wrong}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// checkAll reads all that is on disk of a blob, once. If it is complete its SHA-256 is known then: one that has the right one is verified, and one that was
// verified and has another is dropped. Of any other blob the name may be something else than its SHA-256.
func (b *diskBlob) checkAll(ctx context.Context, buf []byte, progress func(bytes int64)) (r DiskCheck, err error) {
	b.mu.Lock()
	full, whole := b.full(), b.index.whole
	b.mu.Unlock()
	var before fileState
	h, sum := sha256.New(), io.Discard
	if full {
		if before, err = b.state(); err == nil {
			sum = h
		}
		full = err == nil
	}
	for _, g := range b.groups() {
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		if full {
			populate(b.data, g*pieceCells<<cellLog2, int(min(pieceCells<<cellLog2, b.size-g*pieceCells<<cellLog2)))
		}
		cells, bad, n := b.check(g, buf, sum)
		r.Cells, r.Bad = r.Cells+cells, r.Bad+bad
		progress(n)
	}
	switch all := full && r.Bad == 0 && r.Cells == cellsOf(b.size); {
	case all && sources.ID(h.Sum(nil)) == b.key:
		b.verified(before)
	case all && whole:
		r.Wrong = 1
		b.drop()
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

// check reads the cells of a group into sum and drops those that are bad.
func (b *diskBlob) check(group int64, buf []byte, sum io.Writer) (cells, bad, n int64) {
	for left := b.present(group); left != 0; left &= left - 1 {
		i := group*pieceCells + int64(bits.TrailingZeros16(left))
		p := buf[:b.cellLen(i)]
		if cells++; !b.read(i, [][]byte{p})[0] {
			bad++
			b.discard(i)
		}
		sum.Write(p)
		n += int64(len(p))
	}
	return cells, bad, n
}
