package cache

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"weightfs/fs/plan"
	"weightfs/sources"
)

// maxHeader is the longest safetensors header that is read, the format's own limit.
const maxHeader = 100_000_000

// Files is the files of one release, read through the cache. Blobs are opened when they are first needed, each once.
type Files struct {
	cache   *Cache
	source  sources.Source
	listing *sources.Listing
	files   []file
	opening singleflight.Group
	runs    runs

	deferred []extent // to be fetched ahead, when memory was short; guarded by memory.mu
}

var (
	_ plan.Holder  = (*Files)(nil)
	_ plan.Dropper = (*Files)(nil)
)

// file is one file of a listing.
type file struct {
	owner *Files
	index int
	entry *sources.Entry
	open  atomic.Pointer[opened]

	mu     sync.Mutex // guards the fields below, and setting open
	failed failure
	later  [][]plan.Span // what gathers want ahead, to be fetched as soon as the file is open
}

// opened is a file whose blob is open. Either local or content is set.
type opened struct {
	blob    sources.Blob
	local   sources.Local
	content *content
}

// failure is an error that is answered until a time.
type failure struct {
	err   error
	until time.Time
}

// Release reads the files of a listing through the cache; the listing is that of src.
func (c *Cache) Release(src sources.Source, l *sources.Listing) *Files {
	f := &Files{cache: c, source: src, listing: l, files: make([]file, len(l.Files))}
	f.runs.init(c)
	for i := range f.files {
		f.files[i].owner, f.files[i].index, f.files[i].entry = f, i, &l.Files[i]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files = append(c.files, f)
	return f
}

// MaxGather is the largest total that one Gather should ask for.
func (f *Files) MaxGather() int64 { return f.cache.MaxGather() }

func (f *Files) close() error {
	var errs []error
	for i := range f.files {
		if o := f.files[i].open.Load(); o != nil {
			errs = append(errs, o.blob.Close())
		}
	}
	return errors.Join(errs...)
}

// get is the open file; it opens it if need be and waits for that as long as ctx lasts.
func (x *file) get(ctx context.Context) (*opened, error) {
	if o := x.open.Load(); o != nil {
		return o, nil
	}
	if err := x.recent(); err != nil {
		return nil, err
	}
	c := x.owner.cache
	ch := x.owner.opening.DoChan(strconv.Itoa(x.index), func() (any, error) {
		if o := x.open.Load(); o != nil {
			return o, nil
		}
		if err := c.enter(); err != nil {
			return nil, err
		}
		defer c.leave()
		o, err := x.openNow(context.WithoutCancel(ctx))
		if err == nil {
			if err = x.sealed(o); err != nil {
				o.blob.Close()
			}
		}
		if err != nil {
			x.mu.Lock()
			x.failed = failure{err, c.opt.Now().Add(c.opt.Bad)}
			x.later = nil
			x.mu.Unlock()
			return nil, err
		}
		x.opened(context.WithoutCancel(ctx), o)
		return o, nil
	})
	select {
	case r := <-ch:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*opened), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// opened makes o the open file, and fetches what was postponed before anybody who waits for the file goes on: what is sent does not
// depend on who is first.
func (x *file) opened(ctx context.Context, o *opened) {
	x.mu.Lock()
	x.open.Store(o)
	later := x.later
	x.later = nil
	x.mu.Unlock()
	for _, spans := range later {
		if o.local == nil {
			x.owner.fetchAhead(ctx, spans)
		}
	}
}

// postpone keeps spans until the file is open; it is open already if not ok.
func (x *file) postpone(spans []plan.Span) (ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.open.Load() != nil {
		return false
	}
	x.later = append(x.later, spans)
	return true
}

// recent is the error of an open that failed a moment ago.
func (x *file) recent() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failed.err != nil && x.owner.cache.opt.Now().Before(x.failed.until) {
		return x.failed.err
	}
	return nil
}

func (x *file) openNow(ctx context.Context) (*opened, error) {
	c := x.owner.cache
	if local := sources.OpenHubCache(c.opt.Hub, x.owner.listing, x.entry); local != nil && !c.opt.Sealed {
		return &opened{blob: local, local: local}, nil
	} else if local != nil {
		local.Close()
	}
	ctx, b := c.bound(ctx)
	defer b.stop()
	var blob sources.Blob
	err := sources.Retry(ctx, func(ctx context.Context) (err error) {
		blob, err = x.owner.source.Open(ctx, x.entry.Path)
		return err
	})
	if err != nil {
		return nil, b.explain(ctx, err)
	}
	if blob.Size() != x.entry.Size {
		defer blob.Close()
		return nil, x.fault("open", 0, 0, fmt.Errorf("%w: it has %d bytes, its listing says %d", sources.ErrChanged, blob.Size(), x.entry.Size))
	}
	if local, ok := blob.(sources.Local); ok {
		return &opened{blob: blob, local: local}, nil
	}
	return &opened{blob: blob, content: c.contentOf(blob.ID(), x.entry)}, nil
}

func (x *file) fault(op string, off, n int64, err error) error {
	return &sources.Error{Op: op, Path: x.entry.Path, Off: off, Len: n, Err: err}
}

// openAll opens the files that reads are about, several at once.
func (f *Files) openAll(ctx context.Context, reads []plan.Read) error {
	var missing map[int]bool
	for _, r := range reads {
		if f.files[r.Span.File].open.Load() == nil {
			if missing == nil {
				missing = map[int]bool{}
			}
			missing[r.Span.File] = true
		}
	}
	var g errgroup.Group
	for i := range missing {
		g.Go(func() error {
			_, err := f.files[i].get(ctx)
			return err
		})
	}
	return g.Wait()
}

// find is the file at a path of the listing.
func (f *Files) find(path string) (*file, error) {
	if i := f.listing.Find(path); i >= 0 {
		return &f.files[i], nil
	}
	return nil, &sources.Error{Op: "open", Path: path, Err: sources.ErrNotFound}
}

// ReadAt fills p from off, or fails.
func (f *Files) ReadAt(ctx context.Context, path string, p []byte, off int64) error {
	x, err := f.find(path)
	if err != nil {
		return err
	}
	return f.Gather(ctx, []plan.Read{{Span: plan.Span{File: x.index, Start: off, End: off + int64(len(p))}, Dst: p}}, nil)
}

// ReadFile is a whole file of at most limit bytes, checked against the hash that the listing has for it. Content that does not match
// is dropped and fetched once more before that is an error.
func (f *Files) ReadFile(ctx context.Context, path string, limit int64) ([]byte, error) {
	x, err := f.find(path)
	if err != nil {
		return nil, err
	}
	if x.entry.Size > limit {
		return nil, x.fault("read", 0, 0, fmt.Errorf("it has %d bytes, the limit for such a file is %d", x.entry.Size, limit))
	}
	p := make([]byte, x.entry.Size)
	for try := 0; ; try++ {
		if err := f.ReadAt(ctx, path, p, 0); err != nil {
			return nil, err
		}
		err := check(x.entry, p)
		if err == nil {
			return p, nil
		}
		o := x.open.Load()
		if try > 0 || o == nil || o.content == nil {
			return nil, x.fault("read", 0, int64(len(p)), err)
		}
		f.cache.dropContent(o.content)
	}
}

// Header is the first 8+N bytes of a safetensors file, N being the length of its header. It comes from the disk cache, where it is an object of its own or
// in cells, or with two requests for exactly these bytes. It is in the memory of buf where that is enough.
func (f *Files) Header(ctx context.Context, path string, buf []byte) ([]byte, error) {
	if err := f.cache.enter(); err != nil {
		return nil, err
	}
	defer f.cache.leave()
	x, err := f.find(path)
	if err != nil {
		return nil, err
	}
	o, err := x.get(ctx)
	if err != nil {
		return nil, err
	}
	if o.content != nil && o.content.seal.Load() != nil { // cells are what is sealed
		return x.header(buf, func(p []byte, off int64) error { return f.ReadAt(ctx, path, p, off) })
	}
	key := headerKey(o.blob.ID())
	if b := f.cache.disk.loadObject(key, 8+maxHeader, buf); b != nil && headerFits(b) {
		return b, nil
	}
	b, err := x.header(buf, func(p []byte, off int64) error {
		if x.onDisk(o, off, off+int64(len(p))) {
			return f.ReadAt(ctx, path, p, off)
		}
		return x.readExact(ctx, o, p, off)
	})
	if err != nil {
		return nil, err
	}
	if o.local == nil {
		f.cache.disk.storeObject(key, b)
	}
	return b, nil
}

// onDisk says whether the bytes [off, end) need no request: the file is local, or all of their cells are on disk.
func (x *file) onDisk(o *opened, off, end int64) bool {
	if o.local != nil {
		return true
	}
	o.content.refresh()
	for i := off >> cellLog2; i<<cellLog2 < end; i++ {
		if o.content.onDisk(i/pieceCells)>>(i%pieceCells)&1 == 0 {
			return false
		}
	}
	return true
}

// OnDisk is how many bytes of spans need no request: they are in local files, or in cells on disk. What was fetched a moment ago may still be on its way
// there; then [Stats] has cells that are pinned. Files that are not open count as if they had none.
func (f *Files) OnDisk(spans []plan.Span) (n int64) {
	for _, s := range spans {
		x := &f.files[s.File]
		o := x.open.Load()
		for off := s.Start; o != nil && off < s.End; {
			end := min((off>>cellLog2+1)<<cellLog2, s.End)
			if x.onDisk(o, off, end) {
				n += end - off
			}
			off = end
		}
	}
	return n
}

func headerFits(b []byte) bool {
	return len(b) >= 8 && binary.LittleEndian.Uint64(b) == uint64(len(b)-8)
}

// headerKey names the header of a blob on disk; zero if the blob has no name.
func headerKey(id sources.ID) sources.ID {
	if id == (sources.ID{}) {
		return id
	}
	return sha256.Sum256(append([]byte("header:"), id[:]...))
}

func (x *file) header(buf []byte, read func(p []byte, off int64) error) ([]byte, error) {
	if x.entry.Size < 8 {
		return nil, x.fault("read", 0, 0, fmt.Errorf("%w: too small for a safetensors header: %d bytes", sources.ErrCorrupt, x.entry.Size))
	}
	first := make([]byte, 8)
	if err := read(first, 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(first)
	if n > maxHeader || n > uint64(x.entry.Size-8) {
		return nil, x.fault("read", 0, 8, fmt.Errorf("%w: header of 8+%d bytes, file of %d, limit %d", sources.ErrCorrupt, n, x.entry.Size, maxHeader))
	}
	b := sized(buf, int64(8+n))
	copy(b, first)
	if n == 0 {
		return b, nil
	}
	return b, read(b[8:], 8)
}

// readExact fills p from the blob itself: one request, repeated while it fails for the moment.
func (x *file) readExact(ctx context.Context, o *opened, p []byte, off int64) error {
	if o.local != nil {
		return o.local.ReadAt(ctx, p, off)
	}
	c := x.owner.cache
	ctx, b := c.bound(ctx)
	defer b.stop()
	tries := 0
	return b.explain(ctx, sources.Retry(ctx, func(ctx context.Context) error {
		c.stats.request(tries)
		tries++
		err := sources.ReadAt(ctx, o.blob, p, off)
		if err == nil {
			c.stats.fetched.Add(int64(len(p)))
		}
		return err
	}))
}

// hashOf is the hash that the listing has of a whole file, and what it must be; nil if it has none.
func hashOf(e *sources.Entry) (h hash.Hash, want string) {
	switch {
	case e.SHA256 != "":
		return sha256.New(), e.SHA256
	case e.GitOID != "":
		h = sha1.New()
		fmt.Fprintf(h, "blob %d\x00", e.Size)
		return h, e.GitOID
	}
	return nil, ""
}

// check compares the content of a file with the hash that its listing has.
func check(e *sources.Entry, p []byte) error {
	h, want := hashOf(e)
	if h == nil {
		return nil
	}
	h.Write(p)
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%w: its hash is %s, the listing says %s", sources.ErrCorrupt, got, want)
	}
	return nil
}
