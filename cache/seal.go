package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"weightfs/fs/plan"
	"weightfs/sources"
)

// A seal is the SHA-256 of every cell of a blob, taken in one pass over all of it in which the whole had the hash that its listing has. From
// then on every cell is compared with it, whether it comes from the source or from disk: the hash of the whole, which is all that a
// source gives, becomes one of each part. It is kept in <key>.seal beside the map, is never evicted, and its file is
//
//	8 bytes "WFSSEAL1", the key, 8 bytes size (little-endian), 32 bytes a cell, the SHA-256 of all before
type seal []sources.ID

const sealMagic = "WFSSEAL1"

// ErrUnsealed is wrapped by the error of a file that is to be sealed and is not.
var ErrUnsealed = errors.New("not sealed")

// sealTries is how often a cell that is not the sealed one is fetched before that is an error.
const sealTries = 3

// right says whether p is cell i as it was sealed; without a seal every cell is.
func (ct *content) right(i int64, p []byte) bool {
	s := ct.seal.Load()
	return s == nil || sha256.Sum256(p) == (*s)[i]
}

func (s seal) encode(key sources.ID, size int64) []byte {
	p := append([]byte(sealMagic), key[:]...)
	p = binary.LittleEndian.AppendUint64(p, uint64(size))
	for _, sum := range s {
		p = append(p, sum[:]...)
	}
	sum := sha256.Sum256(p)
	return append(p, sum[:]...)
}

// sealLen is the length of the seal of a blob of that size.
func sealLen(size int64) int64 {
	return int64(len(sealMagic)+len(sources.ID{})+8) + (cellsOf(size)+1)*sha256.Size
}

// decodeSeal reads what encode wrote for the same key and size, or fails: a file that is damaged is no seal.
func decodeSeal(p []byte, key sources.ID, size int64) (seal, bool) {
	n := int(cellsOf(size))
	head := seal(nil).encode(key, size)[:len(sealMagic)+len(key)+8]
	if int64(len(p)) != sealLen(size) || !bytes.HasPrefix(p, head) {
		return nil, false
	}
	end := len(p) - sha256.Size
	if sum := sha256.Sum256(p[:end]); !bytes.Equal(sum[:], p[end:]) {
		return nil, false
	}
	s := make(seal, n)
	for i := range s {
		copy(s[i][:], p[len(head)+i*sha256.Size:])
	}
	return s, true
}

// loadSeal is the seal of a blob, or nil.
func (d *disk) loadSeal(key sources.ID, size int64) *seal {
	if d == nil {
		return nil
	}
	for _, s := range []*store{d.own, d.shared} {
		if s == nil {
			continue
		}
		p, err := s.readBeside(key, ".seal", sealLen(size))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if x, ok := decodeSeal(p, key, size); ok {
			return &x
		}
		s.log.Warn("a seal in the cache is damaged and not used: seal the release again", "key", hex.EncodeToString(key[:6]))
	}
	return nil
}

// readBeside is a small file beside the map of a blob. One that is longer than limit, and what is no file, is an error.
func (s *store) readBeside(key sources.ID, ending string, limit int64) ([]byte, error) {
	f, info, err := s.openFile(s.name(key)+ending, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", f.Name(), info.Size(), limit)
	}
	p := make([]byte, info.Size())
	_, err = io.ReadFull(f, p)
	return p, err
}

// writeBeside writes a small file beside the map of a blob, or replaces it, at once. What another run left half written is replaced too.
func (s *store) writeBeside(key sources.ID, ending string, p []byte) error {
	s.beside.Lock()
	defer s.beside.Unlock()
	name := s.name(key) + ending
	err := s.root.MkdirAll(path.Dir(name), 0o700)
	if err == nil {
		s.root.Remove(name + ".new")
		err = s.writeNew(name+".new", p)
	}
	if err == nil {
		err = s.root.Rename(name+".new", name)
	}
	return err
}

// writeNew writes a file that is not there yet.
func (s *store) writeNew(name string, p []byte) error {
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(p)
	return errors.Join(err, f.Close())
}

// Seal reads all of file i, compares it with the hash that its listing has, and seals it. A file that is wrong is dropped and fetched once
// more before that is an error. One that is sealed already is left as it is.
func (f *Files) Seal(ctx context.Context, i int) error {
	x := &f.files[i]
	store, err := f.cache.ownDirectory()
	if err != nil {
		return err
	}
	o, err := x.get(ctx)
	switch {
	case err != nil:
		return err
	case o.content == nil:
		return x.fault("seal", 0, 0, errors.New("it is read in place from a local file, which is not kept in the cache"))
	case o.content.seal.Load() != nil:
		return nil
	}
	s, err := x.digests(ctx)
	for try := 0; errors.Is(err, sources.ErrCorrupt); try++ {
		f.cache.dropContent(o.content) // what is wrong must not stay
		if try > 0 {
			return err
		}
		s, err = x.digests(ctx)
	}
	if err != nil {
		return err
	}
	if err := store.writeBeside(o.content.id, ".seal", s.encode(o.content.id, x.entry.Size)); err != nil {
		return x.fault("seal", 0, 0, err)
	}
	o.content.seal.Store(&s)
	return nil
}

// digests reads the whole file and hashes its cells, and all of it.
func (x *file) digests(ctx context.Context) (seal, error) {
	h, want := hashOf(x.entry)
	if h == nil {
		return nil, x.fault("seal", 0, 0, errors.New("its source has no hash to compare it with"))
	}
	s, buf := make(seal, 0, cellsOf(x.entry.Size)), make([]byte, pieceCells*cellSize)
	for off := int64(0); off < x.entry.Size; off += int64(len(buf)) {
		p := buf[:min(int64(len(buf)), x.entry.Size-off)]
		read := plan.Read{Span: plan.Span{File: x.index, Start: off, End: off + int64(len(p))}, Dst: p}
		ahead := plan.Span{File: x.index, Start: read.Span.End, End: min(x.entry.Size, read.Span.End+32<<20)}
		if err := x.owner.Gather(ctx, []plan.Read{read}, []plan.Span{ahead}); err != nil {
			return nil, err
		}
		h.Write(p)
		for _, cell := range cellsIn(p) {
			s = append(s, sha256.Sum256(cell))
		}
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return nil, x.fault("seal", 0, 0, fmt.Errorf("%w: its hash is %s, the listing says %s", sources.ErrCorrupt, got, want))
	}
	return s, nil
}

// OpenAll opens every file of the release, and fails if one cannot be: with [Options.Sealed], if one is not sealed.
func (f *Files) OpenAll(ctx context.Context) error {
	for i := range f.files {
		if _, err := f.files[i].get(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sealed refuses an open file that is to be sealed and is not. A file without bytes needs no seal.
func (x *file) sealed(o *opened) error {
	if !x.owner.cache.opt.Sealed || x.entry.Size == 0 || o.content != nil && o.content.seal.Load() != nil {
		return nil
	}
	return x.fault("open", 0, 0, fmt.Errorf("%w: %w", ErrUnsealed, os.ErrPermission))
}

// unsealed is the error of a cell that came from the source and is not the sealed one.
func (r *run) unsealed(c *cell) error {
	kind := sources.ErrTemporary
	if r.wrong++; r.wrong >= sealTries {
		kind = sources.ErrCorrupt
	}
	return r.file.fault("read", c.index<<cellLog2, int64(len(c.buf)), fmt.Errorf("%w: the source sent other bytes than were sealed", kind))
}
