package cache

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"weightfs/sources"
)

// verifyIfComplete hashes a blob in the background when it has become complete, and notes in its map if the hash is right. A blob that is
// wrong is dropped and may be fetched once more; a second time it is an error for ever.
func (c *Cache) verifyIfComplete(ct *content) {
	if !ct.sha256 || len(ct.blobs) == 0 {
		return
	}
	b := ct.blobs[0]
	if b.startVerify() && !c.goFunc(func() { c.verify(ct, b) }) {
		b.endVerify()
	}
}

func (c *Cache) verify(ct *content, b *diskBlob) {
	got, err := b.hash(c.ctx.Err)
	switch {
	case err != nil:
	case got == ct.id:
		if b.record(record{kind: recordWhole}) == nil {
			b.mu.Lock()
			b.index.whole = true
			b.mu.Unlock()
		}
	default:
		b.endVerify()
		c.corrupt(ct, got)
		return
	}
	b.endVerify()
}

func (c *Cache) corrupt(ct *content, got sources.ID) {
	c.stats.corrupt.Add(1)
	err := fmt.Errorf("%w: the SHA-256 of the whole is %x, it should be %x", sources.ErrCorrupt, got, ct.id)
	c.opt.Log.Error("a complete blob is wrong and was dropped", "err", err)
	c.mem.mu.Lock()
	if ct.dropped {
		ct.err = err
	}
	ct.dropped = true
	c.mem.mu.Unlock()
	c.dropContent(ct)
}

// startVerify pins a blob of this process that is complete and not verified, unless somebody is at it.
func (b *diskBlob) startVerify() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.writable() || b.verifying || b.index.whole || b.index.cells == 0 || b.index.cells < cellsOf(b.size) {
		return false
	}
	b.verifying = true
	b.pinned++
	return true
}

func (b *diskBlob) endVerify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.verifying = false
	b.pinned--
	b.idle.Broadcast()
}

// hash is the SHA-256 of the blob. A cell that is bad on disk is an error, and a miss from then on.
func (b *diskBlob) hash(stop func() error) (sum sources.ID, err error) {
	h, buf := sha256.New(), make([]byte, pieceCells*cellSize)
	for first := int64(0); first < cellsOf(b.size); first += pieceCells {
		if err := stop(); err != nil {
			return sum, err
		}
		p := buf[:min(int64(len(buf)), b.size-first<<cellLog2)]
		if slices.Contains(b.read(first, cellsIn(p)), false) {
			return sum, fmt.Errorf("a cell from %d on cannot be read", first)
		}
		h.Write(p)
	}
	h.Sum(sum[:0])
	return sum, nil
}

// cellsIn cuts bytes that begin with a cell into cells.
func cellsIn(p []byte) [][]byte { return slices.Collect(slices.Chunk(p, cellSize)) }

// Complete is the open descriptor of a file whose bytes all lie in one local file: that of a local source, or a blob of this cache that
// is complete and was verified against its SHA-256. Nothing of it is evicted until done is called.
func (f *Files) Complete(i int) (fd uintptr, done func(), ok bool) {
	o := f.files[i].open.Load()
	switch {
	case o == nil:
		return 0, nil, false
	case o.local != nil:
		return o.local.Fd(), func() {}, true
	case len(o.content.blobs) == 0, o.content.seal.Load() != nil: // each read of a sealed file is checked
		return 0, nil, false
	}
	return o.content.blobs[0].lend()
}

// lend is the data file if it is whole, and keeps it so until done.
func (b *diskBlob) lend() (fd uintptr, done func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.writable() || !b.index.whole || b.data == nil || b.index.cells != cellsOf(b.size) {
		return 0, nil, false
	}
	b.pinned++
	return b.data.Fd(), sync.OnceFunc(b.unpin), true
}

func (b *diskBlob) unpin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pinned--
}
