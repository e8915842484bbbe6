package cache

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weightfs/sources"
)

// diskBlob is the cells of one blob in a store.
type diskBlob struct {
	store *store
	key   sources.ID
	refs  int // guarded by store.mu
	once  sync.Once

	mu        sync.Mutex // guards all below but the log
	idle      *sync.Cond // a reader, or a verification, has ended
	size      int64      // -1: not known
	index     index
	data      *os.File // nil: nothing on disk yet
	broken    bool     // can no longer be written
	pinned    int      // while it is not 0, nothing is evicted
	verifying bool
	used      int64 // unix time of the last use, in nanoseconds
	looked    int64 // unix time of the last refresh

	// create is held while the two files are made or looked at again, append for one append to the map, so that a failed one can be cut off. Neither
	// is taken while mu is held.
	create, append sync.Mutex
	log            *os.File
	logged         int64    // length of the map file
	past           *os.File // the data file, written past the page cache; nil: not opened. Guarded by create
}

func newDiskBlob(s *store, key sources.ID, size int64) *diskBlob {
	b := &diskBlob{store: s, key: key, size: size, index: index{groups: map[int64]*stored{}}}
	b.idle = sync.NewCond(&b.mu)
	return b
}

// writable says whether this process may write the blob.
func (b *diskBlob) writable() bool { return b.store.lock != nil }

// load reads the map. A blob that cannot be read is as good as none; if this process may, it is removed.
func (b *diskBlob) load() {
	err := b.tryLoad()
	if err == nil {
		return
	}
	b.closeFiles()
	b.index = index{groups: map[int64]*stored{}}
	if errors.Is(err, os.ErrNotExist) && !errors.Is(err, errMap) {
		return
	}
	if b.writable() && errors.Is(err, errMap) {
		name := b.store.name(b.key)
		b.store.root.Remove(name + ".map")
		b.store.root.Remove(name + ".data")
	} else {
		b.broken = true
	}
	b.store.log.Warn("a blob of the cache cannot be used", "key", fmt.Sprintf("%x", b.key[:6]), "err", err)
}

func (b *diskBlob) tryLoad() error {
	flag := os.O_RDONLY
	if b.writable() {
		flag = os.O_RDWR
	}
	name := b.store.name(b.key)
	log, info, err := b.store.openFile(name+".map", flag|os.O_APPEND)
	if err != nil {
		return err
	}
	b.log = log
	if info.Size() > maxMap {
		return fmt.Errorf("%w: it has %d bytes", errMap, info.Size())
	}
	raw := make([]byte, info.Size())
	if _, err := io.ReadFull(log, raw); err != nil {
		return err
	}
	x, good, err := parseMap(raw, mapHead{b.key, b.size})
	if err != nil {
		return err
	}
	head, _ := decodeHead(raw)
	if b.data, _, err = b.store.openFile(name+".data", flag); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: no data: %w", errMap, err)
	}
	if err != nil {
		return err
	}
	b.size, b.index, b.logged = head.size, x, int64(good)
	b.used = info.ModTime().UnixNano()
	for _, g := range x.groups {
		g.used = b.used
	}
	if !b.writable() {
		return nil
	}
	if small := x.encode(head); len(small) < good/2 {
		return b.rewrite(small)
	}
	if good < len(raw) {
		return log.Truncate(int64(good))
	}
	return nil
}

// rewrite replaces a map whose records are mostly outdated.
func (b *diskBlob) rewrite(p []byte) error {
	name := b.store.name(b.key)
	log, _, err := b.store.openFile(name+".new", os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND)
	if err != nil {
		return err
	}
	if _, err = log.Write(p); err == nil {
		err = b.store.root.Rename(name+".new", name+".map")
	}
	if err != nil {
		log.Close()
		return err
	}
	b.log.Close()
	b.log, b.logged = log, int64(len(p))
	return nil
}

// refresh reads what another process has added to the map since, at most once a second.
func (b *diskBlob) refresh() {
	now := b.store.now().Unix()
	b.mu.Lock()
	recent := b.looked == now
	b.looked = now
	b.mu.Unlock()
	if recent || b.writable() {
		return
	}
	b.create.Lock()
	defer b.create.Unlock()
	if b.log == nil {
		b.loadLate()
		return
	}
	info, err := b.log.Stat()
	if err != nil || info.Size() <= b.logged {
		return
	}
	p := make([]byte, info.Size()-b.logged)
	n, _ := b.log.ReadAt(p, b.logged)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logged += int64(b.index.replay(p[:n], cellsOf(b.size)))
}

// loadLate loads a blob that was not there before.
func (b *diskBlob) loadLate() {
	fresh := newDiskBlob(b.store, b.key, b.size)
	if fresh.tryLoad() != nil {
		fresh.closeFiles()
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data, b.log, b.logged, b.index, b.used = fresh.data, fresh.log, fresh.logged, fresh.index, fresh.used
}

// openFile opens a regular file of the store. Whatever else has its name, a link for one, is none of ours.
func (s *store) openFile(name string, flag int) (*os.File, os.FileInfo, error) {
	if info, err := s.root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%w: %s is not a regular file", errMap, name)
	}
	f, err := s.root.OpenFile(name, flag|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// sized says whether the blob has the size, which it takes if it has none yet.
func (b *diskBlob) sized(size int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size < 0 {
		b.size = size
	}
	return b.size == size
}

func (b *diskBlob) cellLen(i int64) int64 { return min(cellSize, b.size-i<<cellLog2) }

// present is the cells of a group that are there.
func (b *diskBlob) present(group int64) uint16 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.index.groups[group]; g != nil {
		return g.have
	}
	return 0
}

// empty says whether it is sure that no cell is there.
func (b *diskBlob) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.broken && b.index.cells == 0
}

// complete says whether every cell is there.
func (b *diskBlob) complete() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size > 0 && b.index.cells == cellsOf(b.size)
}

// read fills buffers, each as long as its cell, from cells that follow each other, and says which of them are right. A cell whose checksum
// is wrong is forgotten.
func (b *diskBlob) read(first int64, bufs [][]byte) (good []bool) {
	good = make([]bool, len(bufs))
	sums := make([]uint32, len(bufs))
	if !b.hold(first, good, sums) {
		return good
	}
	n := preadv(b.data, bufs, first<<cellLog2)
	for i, p := range bufs {
		had := good[i]
		n -= len(p)
		good[i] = had && n >= 0 && checksum(p) == sums[i]
		if had && !good[i] {
			b.store.stats.badCells.Add(1)
			b.forget(first+int64(i), sums[i])
		}
	}
	b.unhold(first, len(bufs))
	return good
}

// hold keeps the groups of cells from being punched while they are read, and notes which cells are there.
func (b *diskBlob) hold(first int64, there []bool, sums []uint32) (any bool) {
	now := b.store.now().UnixNano()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range there {
		c := first + int64(i)
		g := b.index.groups[c/pieceCells]
		if g == nil {
			continue
		}
		g.pins++
		if g.have>>(c%pieceCells)&1 != 0 {
			there[i], sums[i], any = true, g.sums[c%pieceCells], true
			g.used, b.used = now, now
		}
	}
	if !any {
		b.unpinGroups(first, len(there))
	}
	return any
}

func (b *diskBlob) unhold(first int64, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unpinGroups(first, n)
}

// unpinGroups undoes the pins of hold: one a cell. Groups are never taken out of the index. b.mu is held.
func (b *diskBlob) unpinGroups(first int64, n int) {
	for i := range int64(n) {
		if g := b.index.groups[(first+i)/pieceCells]; g != nil {
			g.pins--
		}
	}
	b.idle.Broadcast()
}

// forget drops a cell that turned out to be bad, unless it was written again meanwhile.
func (b *diskBlob) forget(i int64, sum uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g, bit := b.index.groups[i/pieceCells], uint16(1)<<(i%pieceCells)
	if g.have&bit != 0 && g.sums[i%pieceCells] == sum {
		b.index.clear(i, 1)
	}
}

// preadv reads as much as it can and returns how many bytes that is.
func preadv(f *os.File, bufs [][]byte, off int64) (total int) {
	for len(bufs) > 0 {
		k := min(len(bufs), 512)
		n, err := unix.Preadv(int(f.Fd()), bufs[:k], off)
		if err == unix.EINTR {
			continue
		}
		want := 0
		for _, p := range bufs[:k] {
			want += len(p)
		}
		total += max(0, n)
		if err != nil || n < want {
			return total
		}
		off, bufs = off+int64(n), bufs[k:]
	}
	return total
}

// write keeps cells that follow each other and lie in one group. Cells that are there, or that somebody else is writing, are left out.
func (b *diskBlob) write(first int64, bufs [][]byte, w writing) {
	mask := b.own(first, len(bufs))
	for mask != 0 {
		at := bits.TrailingZeros16(mask)
		n := bits.TrailingZeros16(^(mask >> at))
		part := bufs[int64(at)-first%pieceCells:][:n]
		cell := first - first%pieceCells + int64(at)
		sums, err := b.put(cell, part, w)
		if err != nil {
			b.disown(first/pieceCells, mask)
			if !errors.Is(err, errNoRoom) {
				b.store.stop(err)
			}
			return
		}
		b.have(cell, sums)
		done := uint16((1<<n - 1) << at)
		b.disown(first/pieceCells, done)
		mask &^= done
	}
}

// own claims cells of one group for writing: those neither there nor claimed. The bits are the cells' places in the group.
func (b *diskBlob) own(first int64, n int) uint16 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken || !b.writable() {
		return 0
	}
	g := b.index.groups[first/pieceCells]
	if g == nil {
		g = &stored{}
		b.index.groups[first/pieceCells] = g
	}
	mask := uint16((1<<n-1)<<(first%pieceCells)) &^ (g.have | g.busy)
	g.busy |= mask
	return mask
}

// disown ends a claim.
func (b *diskBlob) disown(group int64, mask uint16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.index.groups[group].busy &^= mask
}

// have notes cells of one group that are there from now on.
func (b *diskBlob) have(first int64, sums []uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, s := range sums {
		b.index.set(first+int64(i), s)
	}
	b.used = b.store.now().UnixNano()
	b.index.groups[first/pieceCells].used = b.used
}

var errNoRoom = errors.New("no room in the cache")

// put writes cells that this writer owns: the data, then the record.
func (b *diskBlob) put(first int64, bufs [][]byte, w writing) (sums []uint32, err error) {
	var total int64
	for _, p := range bufs {
		total += int64(len(p))
		sums = append(sums, checksum(p))
	}
	if !b.store.room(total) {
		return nil, errNoRoom
	}
	if err = b.files(); err == nil {
		err = b.pwrite(bufs, first<<cellLog2, w)
	}
	if err == nil {
		err = b.record(record{kind: recordFill, first: first, count: uint32(len(sums)), sums: sums})
	}
	b.store.done(total, err)
	if err != nil {
		return nil, err
	}
	b.store.stats.stored.Add(total)
	return sums, nil
}

// writing is the way of bytes to the data file.
type writing bool

const (
	buffered writing = false // through the page cache of the disk's file system
	direct   writing = true  // past it, where it can be: memory of the arena and whole cells
)

// pwrite writes all of bufs.
func (b *diskBlob) pwrite(bufs [][]byte, off int64, w writing) error {
	if w == direct && wholeCells(bufs) {
		if f := b.directFile(); f != nil {
			err := pwritev(f, bufs, off)
			if !noDirect(err) {
				return err
			}
			b.store.indirect.Store(true)
		}
	}
	return pwritev(b.data, bufs, off)
}

// noDirect says that a file system does not write past its page cache, or not cells: its blocks may be larger.
func noDirect(err error) bool { return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) }

func wholeCells(bufs [][]byte) bool { return len(bufs[len(bufs)-1]) == cellSize }

// directFile is the data file opened with O_DIRECT, which only blobs have that are written; nil where the file system has no such thing.
func (b *diskBlob) directFile() *os.File {
	b.create.Lock()
	defer b.create.Unlock()
	if b.past == nil && !b.store.indirect.Load() {
		f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", b.data.Fd()), os.O_WRONLY|unix.O_DIRECT, 0) // the same file, wherever its name leads by now
		if err != nil {
			b.store.indirect.Store(noDirect(err))
			return nil
		}
		b.past = f
	}
	return b.past
}

func pwritev(f *os.File, bufs [][]byte, off int64) error {
	want := 0
	for _, p := range bufs {
		want += len(p)
	}
	for {
		n, err := unix.Pwritev(int(f.Fd()), bufs, off)
		if err == unix.EINTR {
			continue
		}
		if err == nil && n < want {
			err = unix.ENOSPC
		}
		return err
	}
}

// files makes the two files of a blob that has none yet.
func (b *diskBlob) files() error {
	b.create.Lock()
	defer b.create.Unlock()
	if b.log != nil {
		return nil
	}
	root, name := b.store.root, b.store.name(b.key)
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	data, _, err := b.store.openFile(name+".data", os.O_CREATE|os.O_TRUNC|os.O_RDWR)
	if err != nil {
		return err
	}
	log, _, err := b.store.openFile(name+".map", os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND)
	if err == nil {
		_, err = log.Write(mapHead{b.key, b.size}.encode())
	}
	if err = errors.Join(err, data.Truncate(b.size)); err != nil {
		data.Close()
		if log != nil {
			log.Close()
		}
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data, b.log, b.logged = data, log, mapHeader
	return nil
}

// record appends to the map; what a failed append left is cut off.
func (b *diskBlob) record(r record) error {
	p := r.append(nil)
	b.append.Lock()
	defer b.append.Unlock()
	_, err := b.log.Write(p)
	if err == nil {
		b.logged += int64(len(p))
		return nil
	}
	if cut := b.log.Truncate(b.logged); cut != nil {
		b.mu.Lock()
		b.broken = true
		b.mu.Unlock()
	}
	return err
}

// victims appends the groups that may be evicted.
func (b *diskBlob) victims(out []victim) []victim {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pinned > 0 {
		return out
	}
	for k, g := range b.index.groups {
		if g.have != 0 {
			out = append(out, victim{used: g.used, key: b.key, blob: b, group: k})
		}
	}
	return out
}

// groups is the numbers of the groups that have cells.
func (b *diskBlob) groups() (out []int64) {
	for _, v := range b.victims(nil) {
		out = append(out, v.group)
	}
	slices.Sort(out)
	return out
}

// evict frees the cells of a group: it says so in the map, waits for those who read them, and punches them out of the data file. It returns
// the bytes freed.
func (b *diskBlob) evict(group int64) (freed int64) {
	mask := b.unhave(group)
	for left := mask; left != 0; {
		at := bits.TrailingZeros16(left)
		n := bits.TrailingZeros16(^(left >> at))
		left &^= (1<<n - 1) << at
		first := group*pieceCells + int64(at)
		if err := b.record(record{kind: recordTomb, first: first, count: uint32(n)}); err != nil {
			b.store.stop(err) // the checksums still tell that the cells are gone
		}
		freed += b.punch(group, first, int64(n))
	}
	b.mu.Lock()
	b.index.groups[group].busy &^= mask
	b.mu.Unlock()
	b.store.freed(freed)
	return freed
}

// discard frees a cell that was forgotten because it is bad.
func (b *diskBlob) discard(i int64) {
	if err := b.record(record{kind: recordTomb, first: i, count: 1}); err != nil {
		b.store.stop(err)
		return
	}
	b.store.freed(b.punch(i/pieceCells, i, 1))
}

// unhave takes the cells of a group away from readers and keeps writers off them.
func (b *diskBlob) unhave(group int64) uint16 {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.index.groups[group]
	if b.pinned > 0 || g == nil {
		return 0
	}
	mask := g.have &^ g.busy
	g.busy |= mask
	for m := mask; m != 0; m &= m - 1 {
		b.index.clear(group*pieceCells+int64(bits.TrailingZeros16(m)), 1)
	}
	return mask
}

// punch frees the blocks of cells once nobody reads them.
func (b *diskBlob) punch(group, first, n int64) int64 {
	b.mu.Lock()
	for b.index.groups[group].pins > 0 {
		b.idle.Wait()
	}
	b.mu.Unlock()
	bytes := min((first+n)<<cellLog2, b.size) - first<<cellLog2
	err := unix.Fallocate(int(b.data.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, first<<cellLog2, bytes)
	if err != nil {
		b.store.stop(err)
		return 0
	}
	return bytes
}

// drop frees everything, because it is wrong.
func (b *diskBlob) drop() {
	if !b.writable() {
		b.mu.Lock()
		b.index.clear(0, cellsOf(b.size))
		b.mu.Unlock()
		return
	}
	b.mu.Lock()
	for b.verifying { // it has the blob pinned, and nothing of a pinned blob goes
		b.idle.Wait()
	}
	b.mu.Unlock()
	for _, g := range b.groups() {
		b.evict(g)
	}
}

// rest is when the blob was last used and how many bytes of it are on disk.
func (b *diskBlob) rest() (used, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, min(b.index.cells<<cellLog2, max(0, b.size))
}

// close notes on the map file when the blob was last used, and closes both.
func (b *diskBlob) close() {
	b.mu.Lock()
	used := b.used
	b.mu.Unlock()
	if b.writable() && b.log != nil && used > 0 {
		t := time.Unix(0, used)
		b.store.root.Chtimes(b.store.name(b.key)+".map", t, t)
	}
	b.closeFiles()
}

func (b *diskBlob) closeFiles() {
	for _, f := range []*os.File{b.data, b.log, b.past} {
		if f != nil {
			f.Close()
		}
	}
	b.data, b.log, b.past = nil, nil, nil
}
