package cache

import "context"

// Lend opens file i, if it is not open yet, and lends the descriptor of the one local file that has its bytes, as [Files.Complete] does. A file
// of a local source that is not the one that was listed any more has none.
func (f *Files) Lend(ctx context.Context, i int) (fd uintptr, done func(), ok bool) {
	o, err := f.files[i].get(ctx)
	if err != nil {
		return 0, nil, false
	}
	if o.local != nil && o.local.ReadAt(ctx, nil, 0) != nil {
		return 0, nil, false
	}
	return f.Complete(i)
}

// Completes says that file i has such a local file, or will have one, when all of it was read: it is to be kept on disk and its SHA-256 is known.
func (f *Files) Completes(i int) bool {
	x := &f.files[i]
	if f.cache.disk == nil || f.cache.disk.own == nil || x.entry.SHA256 == "" {
		return false
	}
	o := x.open.Load()
	if o == nil {
		return true
	}
	return o.content != nil && o.content.seal.Load() == nil && len(o.content.blobs) > 0
}
