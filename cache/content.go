package cache

import (
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"weightfs/sources"
)

// content is the bytes of a blob, shared by all files that have its ID.
type content struct {
	id     sources.ID
	size   int64
	sha256 bool // the ID is the SHA-256 of the bytes
	load   sync.Once
	blobs  []*diskBlob // where its cells are on disk; the first is the one that is written
	seal   atomic.Pointer[seal]

	// Guarded by memory.mu.
	cells   table
	bad     map[int64]failure // cells that failed a moment ago
	err     error             // for ever: the source changed or is corrupt
	dropped bool              // was found corrupt once
}

// contentOf finds or makes the content of an ID. One without a name is never shared.
func (c *Cache) contentOf(id sources.ID, e *sources.Entry) *content {
	fresh := &content{id: id, size: e.Size, sha256: e.SHA256 != "" && hex.EncodeToString(id[:]) == e.SHA256, cells: table{}}
	if id == (sources.ID{}) {
		return fresh
	}
	c.mu.Lock()
	ct := c.contents[id]
	if ct == nil || ct.size != e.Size {
		ct = fresh
		c.contents[id] = ct
	}
	c.mu.Unlock()
	ct.load.Do(func() {
		ct.seal.Store(c.disk.loadSeal(id, e.Size))
		ct.blobs = c.disk.open(id, e.Size)
	})
	c.verifyIfComplete(ct)
	return ct
}

// refresh learns what another process has written since.
func (ct *content) refresh() {
	for _, b := range ct.blobs {
		if !b.writable() {
			b.refresh()
		}
	}
}

// cellLen is the number of bytes of a cell.
func (ct *content) cellLen(i int64) int { return int(min(cellSize, ct.size-i<<cellLog2)) }

// onDisk is the cells of a group that are on disk somewhere.
func (ct *content) onDisk(group int64) uint16 {
	var m uint16
	for _, b := range ct.blobs {
		m |= b.present(group)
	}
	return m
}

// recent is the error of a cell that failed a moment ago, or of the content for ever. memory.mu is held.
func (ct *content) recent(i int64, now func() time.Time) error {
	if ct.err != nil {
		return ct.err
	}
	if len(ct.bad) == 0 {
		return nil
	}
	f, ok := ct.bad[i]
	if !ok {
		return nil
	}
	if now().Before(f.until) {
		return f.err
	}
	delete(ct.bad, i)
	return nil
}

// remember keeps the error of cells that failed. memory.mu is held.
func (ct *content) remember(cells []*cell, err error, now, until time.Time) {
	if ct.bad == nil {
		ct.bad = map[int64]failure{}
	}
	for i, f := range ct.bad {
		if !now.Before(f.until) {
			delete(ct.bad, i)
		}
	}
	for _, c := range cells {
		ct.bad[c.index] = failure{err, until}
	}
}

// dropContent forgets every cell of a content, in memory and on disk.
func (c *Cache) dropContent(ct *content) {
	c.mem.mu.Lock()
	ct.cells.all(func(x *cell) { c.mem.drop(x) })
	c.mem.grant()
	c.mem.mu.Unlock()
	for _, b := range ct.blobs {
		b.drop()
	}
}

// readDisk fills cells that follow each other from disk and returns those that could not be: bad ones are misses.
func (c *Cache) readDisk(ct *content, cells []*cell) (bad []*cell) {
	for i, good := range ct.readCells(cells[0].index, buffers(cells)) {
		if !good {
			bad = append(bad, cells[i])
		}
	}
	return bad
}

// readCells fills buffers from cells on disk that follow each other, and says which are right.
func (ct *content) readCells(first int64, bufs [][]byte) (good []bool) {
	good = ct.blobs[0].read(first, bufs)
	for _, b := range ct.blobs[1:] {
		for i := 0; i < len(bufs); i++ {
			if !good[i] {
				copy(good[i:], b.read(first+int64(i), bufs[i:i+1]))
			}
		}
	}
	for i, p := range bufs {
		switch {
		case !good[i]:
		case ct.right(first+int64(i), p):
			ct.blobs[0].store.stats.diskBytes.Add(int64(len(p)))
		default:
			good[i] = false
			ct.forget(first+int64(i), p)
		}
	}
	return good
}

// forget drops a cell that has its checksum on disk but is not the sealed one.
func (ct *content) forget(i int64, p []byte) {
	for _, b := range ct.blobs {
		b.store.stats.badCells.Add(1)
		b.forget(i, checksum(p))
	}
}

func buffers(cells []*cell) [][]byte {
	out := make([][]byte, len(cells))
	for i, c := range cells {
		out[i] = c.buf
	}
	return out
}

// store writes cells of one group, which follow each other, to disk if they may be kept there.
func (c *Cache) store(ct *content, cells []*cell, w writing) {
	if len(ct.blobs) == 0 || len(cells) == 0 {
		return
	}
	ct.blobs[0].write(cells[0].index, buffers(cells), w)
	c.verifyIfComplete(ct)
}
