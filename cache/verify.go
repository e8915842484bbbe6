package cache

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

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
	before, err := b.state()
	if err != nil {
		b.endVerify()
		return
	}
	got, err := b.hash(c.ctx.Err)
	if err == nil && got == ct.id {
		b.verified(before)
	}
	b.endVerify()
	if err == nil && got != ct.id {
		c.corrupt(ct, got)
	}
}

// verified notes that the hash was right, if the data file is still in the state in which it was when the hash was begun.
func (b *diskBlob) verified(before fileState) {
	if now, err := b.state(); err != nil || now != before || b.record(record{kind: recordWhole, state: now}) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.index.whole, b.index.state = true, before
}

// state is that of the data file, which is open.
func (b *diskBlob) state() (s fileState, err error) {
	var st unix.Stat_t
	if err = unix.Fstat(int(b.data.Fd()), &st); err == nil && st.Size != b.size {
		err = fmt.Errorf("it has %d bytes", st.Size)
	}
	return fileState{st.Mtim.Nano(), st.Ctim.Nano()}, err
}

// look compares the data file of a verified blob with what it was when it was verified. One that somebody else has changed since is not
// verified any more. The caller has it pinned, so that this process changes nothing.
func (b *diskBlob) look() {
	now, err := b.state()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.index.whole = b.index.whole && err == nil && now == b.index.state
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
	if !b.full() || b.verifying || b.index.whole {
		return false
	}
	b.verifying = true
	b.pinned++
	return true
}

// full says whether this process writes the blob and all of it is there. b.mu is held.
func (b *diskBlob) full() bool {
	return b.writable() && b.data != nil && b.index.cells > 0 && b.index.cells == cellsOf(b.size)
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
		populate(b.data, first<<cellLog2, len(p))
		if slices.Contains(b.read(first, cellsIn(p)), false) {
			return sum, fmt.Errorf("a cell from %d on cannot be read", first)
		}
		h.Write(p)
	}
	h.Sum(sum[:0])
	return sum, nil
}

// populate has the kernel read a piece of 2 MiB of a data file from disk into its page cache as one folio, whatever the read-ahead of the device and
// however the piece was written. Once all of a blob is verified, readers may map those very pages (passthrough), and a whole piece takes one entry in
// their page tables instead of 512. It is advice: what goes wrong is seen when the piece is read.
func populate(f *os.File, off int64, n int) {
	fd := int(f.Fd())
	_ = unix.SyncFileRange(fd, off, int64(n), unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
	_ = unix.Fadvise(fd, off, int64(n), unix.FADV_DONTNEED)
	p, err := unix.Mmap(fd, off, n, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return
	}
	defer unix.Munmap(p)
	if unix.Madvise(p, unix.MADV_HUGEPAGE) == nil {
		_ = unix.Madvise(p, unix.MADV_POPULATE_READ)
	}
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
	if fd, done, ok = o.content.blobs[0].lend(); !ok {
		f.cache.verifyIfComplete(o.content)
	}
	return fd, done, ok
}

// lend is the data file if it is whole and was not changed since it was verified, and keeps it so until done.
func (b *diskBlob) lend() (fd uintptr, done func(), ok bool) {
	if !b.pinFull() {
		return 0, nil, false
	}
	b.look()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.index.whole {
		b.pinned--
		return 0, nil, false
	}
	return b.data.Fd(), sync.OnceFunc(b.takeBack), true
}

// takeBack ends a loan. If somebody wrote to the file meanwhile, nobody could keep that from the readers, but they can be told.
func (b *diskBlob) takeBack() {
	now, _ := b.state()
	b.mu.Lock()
	lent := b.index.state
	b.pinned--
	b.mu.Unlock()
	if now.mtime != lent.mtime && now.mtime != 0 { // 0: the cache is closed
		b.store.stats.corrupt.Add(1)
		b.store.log.Error("a complete file of the cache was written to while the kernel read it for readers of the mount: they may have read that", "key", fmt.Sprintf("%x", b.key[:6]))
	}
}

func (b *diskBlob) pinFull() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.full() {
		return false
	}
	b.pinned++
	return true
}
