package cache

import (
	"cmp"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weightfs/sources"
)

const (
	version   = "v1"
	pause     = 30 * time.Second // without writes after one failed
	keepFree  = 10               // per cent of the file system
	evictPart = 32               // an eviction frees at least this part of what is there, so that not every write waits for one
)

// store is one directory of blobs: v1/<2 hex>/<64 hex of key>.data and .map.
type store struct {
	root      *os.Root
	lock      *os.File // nil: another process writes here
	limit     int64
	now       func() time.Time
	log       *slog.Logger
	stats     *counters
	temporary func() error  // removes the directory when the store closes
	evictor   chan struct{} // holds one token: one eviction at a time

	indirect atomic.Bool // the file system does not write past its page cache
	beside   sync.Mutex  // held while a file beside a map is written, so that two do not write the same one

	mu     sync.Mutex // guards all below
	blobs  map[sources.ID]*diskBlob
	rest   map[sources.ID]atRest // the blobs on disk that are not open
	used   int64                 // bytes on disk, and those being written; where another process writes, as of when it was opened
	active int64                 // bytes being written
	paused time.Time             // no writes before that
}

// atRest is a blob on disk that is not open.
type atRest struct{ used, bytes int64 }

func newStore(root *os.Root, lock *os.File, o Options, stats *counters) (*store, error) {
	s := &store{root: root, lock: lock, now: o.Now, log: o.Log, stats: stats, evictor: make(chan struct{}, 1)}
	s.blobs, s.rest = map[sources.ID]*diskBlob{}, map[sources.ID]atRest{}
	s.scan()
	if s.limit = o.Size; s.limit == 0 {
		free, _ := s.space()
		s.limit = (free + s.used) / 2
	}
	return s, nil
}

// scan notes the blobs that are there. What is empty or half there is removed, unless another process writes here.
func (s *store) scan() {
	remove := func(name string) {
		if s.lock != nil {
			s.root.Remove(name)
		}
	}
	fs.WalkDir(s.root.FS(), version, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		base, ext := name[:len(name)-len(path.Ext(name))], path.Ext(name)
		if key, _, _ := strings.Cut(path.Base(name), "."); !isKey(key) {
			return nil // somebody else's
		}
		switch ext {
		case ".data":
			if !s.note(base) {
				remove(name)
				remove(base + ".map")
			}
		case ".map":
			if _, err := s.root.Lstat(base + ".data"); errors.Is(err, os.ErrNotExist) {
				remove(name)
			}
		case ".new":
			remove(name) // a rewrite that was cut off
		}
		return nil
	})
}

// note counts the blob at rest whose files have this name. It is false if there is no such blob, or nothing of it.
func (s *store) note(base string) bool {
	key, ok := keyOf(path.Base(base))
	if !ok {
		return false
	}
	data, err := s.root.Lstat(base + ".data")
	if err != nil {
		return true
	}
	m, err := s.root.Lstat(base + ".map")
	bytes := min(data.Size(), data.Sys().(*syscall.Stat_t).Blocks*512) // cells are counted as long as they are
	if err != nil || bytes == 0 {
		return false
	}
	s.rest[key] = atRest{m.ModTime().UnixNano(), bytes}
	s.used += bytes
	return true
}

func keyOf(name string) (id sources.ID, ok bool) {
	b, err := hex.DecodeString(name)
	return id, err == nil && copy(id[:], b) == len(id) && len(b) == len(id)
}

func isKey(name string) bool {
	_, ok := keyOf(name)
	return ok
}

// name is the path of a blob's files without the ending.
func (s *store) name(key sources.ID) string {
	h := hex.EncodeToString(key[:])
	return path.Join(version, h[:2], h)
}

// space is what is free on the file system, and how much of that may be used.
func (s *store) space() (free, usable int64) {
	f, err := s.root.Open(".")
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil {
		return 0, 0
	}
	free = int64(st.Bavail) * st.Bsize
	return free, free - int64(st.Blocks)*st.Bsize/100*keepFree
}

// open is the blob with a key, loaded; size -1 takes what is there. It is nil if another size is. The caller releases it.
func (s *store) open(key sources.ID, size int64) *diskBlob {
	s.mu.Lock()
	b := s.blobs[key]
	if b == nil {
		b = newDiskBlob(s, key, size)
		s.blobs[key] = b
		delete(s.rest, key)
	}
	b.refs++
	s.mu.Unlock()
	b.once.Do(b.load)
	if size >= 0 && !b.sized(size) {
		s.release(b)
		return nil
	}
	return b
}

// release ends a use of a blob; the last one closes its files.
func (s *store) release(b *diskBlob) {
	s.mu.Lock()
	b.refs--
	last := b.refs == 0
	if last {
		delete(s.blobs, b.key)
		if used, bytes := b.rest(); bytes > 0 && s.lock != nil {
			s.rest[b.key] = atRest{used, bytes}
		}
	}
	s.mu.Unlock()
	if last {
		b.close()
	}
	if last && s.lock != nil && b.empty() {
		s.remove(b.key)
	}
}

// remove removes the files of a blob that has no cells. Its seal stays. (Who opens the blob at this moment may write to files that have no name
// any more: that is as good as not to be kept.)
func (s *store) remove(key sources.ID) {
	name := s.name(key)
	s.root.Remove(name + ".map")
	s.root.Remove(name + ".data")
}

// load is all bytes of a blob that is complete and no longer than limit, or nil; they are in the memory of buf where that is enough.
func (s *store) load(key sources.ID, limit int64, buf []byte) []byte {
	b := s.open(key, -1)
	defer s.release(b)
	if b.size < 0 || b.size > limit || !b.complete() {
		return nil
	}
	p := sized(buf, b.size)
	if slices.Contains(b.read(0, cellsIn(p)), false) {
		return nil
	}
	return p
}

// sized is n bytes of memory, that of buf if it has so many.
func sized(buf []byte, n int64) []byte {
	if int64(cap(buf)) < n {
		return make([]byte, n)
	}
	return buf[:n]
}

// room makes room for n bytes that the caller is going to write; done says how that went. It may evict.
func (s *store) room(n int64) bool {
	for try := 0; ; try++ {
		_, usable := s.space()
		s.mu.Lock()
		if s.now().Before(s.paused) {
			s.mu.Unlock()
			return false
		}
		need := max(s.used+n-s.limit, s.active+n-usable)
		if need <= 0 {
			s.used += n
			s.active += n
			s.mu.Unlock()
			return true
		}
		part := s.used / evictPart
		s.mu.Unlock()
		if try == 2 || n > s.limit || !s.evict(max(need, part)) {
			return false
		}
	}
}

// done ends a write of n bytes that there was room for.
func (s *store) done(n int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active -= n
	if err != nil {
		s.used -= n
	}
}

// freed takes bytes off the books.
func (s *store) freed(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
}

// stop ends writing for a while: the disk is full, read-only or broken, or the directory is gone. Reads go on.
func (s *store) stop(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now().Before(s.paused) {
		return
	}
	s.paused = s.now().Add(pause)
	s.log.Warn("cannot write to the cache: nothing is kept for a while", "for", pause, "err", err)
}

// victim is what may be evicted: cells of one group, or all of a blob at rest.
type victim struct {
	used, bytes int64
	key         sources.ID
	blob        *diskBlob // nil: at rest
	group       int64
}

// evict frees about that many bytes, least recently used first, and reports whether it freed any.
func (s *store) evict(need int64) bool {
	s.evictor <- struct{}{}
	defer func() { <-s.evictor }()
	victims, open := s.victims()
	defer func() {
		for _, b := range open {
			s.release(b)
		}
	}()
	var freed int64
	for _, v := range victims {
		if freed >= need {
			break
		}
		if v.blob != nil {
			freed += v.blob.evict(v.group)
			continue
		}
		freed += s.evictRest(v, need-freed)
	}
	s.stats.evicted.Add(freed)
	return freed > 0
}

// evictRest frees about so many bytes of a blob at rest. If no cell is left of it, all that was counted for it is free.
func (s *store) evictRest(v victim, need int64) (freed int64) {
	b := s.open(v.key, -1)
	defer s.release(b)
	for _, g := range b.groups() {
		if freed < need {
			freed += b.evict(g)
		}
	}
	if b.empty() && v.bytes > freed {
		s.freed(v.bytes - freed)
		freed = v.bytes
	}
	return freed
}

// victims is everything that may be evicted, in the order in which it should be, and the open blobs, each with one more use.
func (s *store) victims() (out []victim, open []*diskBlob) {
	s.mu.Lock()
	for key, r := range s.rest {
		out = append(out, victim{used: r.used, bytes: r.bytes, key: key})
	}
	for _, b := range s.blobs {
		b.refs++
		open = append(open, b)
	}
	s.mu.Unlock()
	for _, b := range open {
		b.once.Do(b.load)
		out = b.victims(out)
	}
	slices.SortFunc(out, func(a, b victim) int {
		return cmp.Or(cmp.Compare(a.used, b.used), slices.Compare(a.key[:], b.key[:]), cmp.Compare(a.group, b.group))
	})
	return out, open
}

func (s *store) close() error {
	s.mu.Lock()
	open := make([]*diskBlob, 0, len(s.blobs))
	for _, b := range s.blobs {
		open = append(open, b)
	}
	s.mu.Unlock()
	for _, b := range open {
		b.close()
	}
	var errs []error
	if s.temporary != nil {
		errs = append(errs, s.temporary())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(append(errs, s.root.Close())...)
}
