package plan

import "context"

// Vector is the bytes of a read in order: parts of its destination, and memory that the store lends until Release.
type Vector struct {
	Parts   [][]byte
	release func()
}

// Len is the number of bytes.
func (v *Vector) Len() int {
	n := 0
	for _, p := range v.Parts {
		n += len(p)
	}
	return n
}

// Release gives back what is lent. The parts must not be used any more.
func (v *Vector) Release() {
	if v.release != nil {
		v.release()
	}
	*v = Vector{}
}

// ReadVector is ReadAt for those who can use bytes where they are: what the store has in its memory is not copied into dst. The caller releases
// the vector, unless there is an error other than [io.EOF].
func (r *Reader) ReadVector(ctx context.Context, p *Plan, dst []byte, off int64) (v Vector, err error) {
	n, eof := clamp(p.Size, off, len(dst))
	store, ok := r.Store.(Holder)
	if !ok || n == 0 || n > r.step() {
		n, err := r.ReadAt(ctx, p, dst, off)
		return Vector{Parts: [][]byte{dst[:n]}}, err
	}
	err = r.read(ctx, p, dst[:n], off, func(ctx context.Context, reads []Read, ahead []Span) (err error) {
		if total(reads) > r.step() {
			v.Parts = [][]byte{dst[:n]}
			return r.gather(ctx, reads, ahead)
		}
		v.release, err = store.Hold(ctx, reads, ahead)
		v.Parts = parts(dst[:n], off, reads)
		return err
	})
	if err != nil {
		v.Release()
		return Vector{}, err
	}
	return v, eof
}

func total(reads []Read) (n int64) {
	for _, r := range reads {
		n += r.Span.Len()
	}
	return n
}

// parts puts what is held in place of the parts of dst, which is at off in the file, that it stands for.
func parts(dst []byte, off int64, reads []Read) [][]byte {
	var out [][]byte
	end := int64(0) // of dst so far
	for _, r := range reads {
		for _, h := range r.Held {
			if at := r.at - off + h.At; at > end {
				out = append(out, dst[end:at])
			}
			out = append(out, h.Bytes)
			end = r.at - off + h.At + int64(len(h.Bytes))
		}
	}
	if end < int64(len(dst)) {
		out = append(out, dst[end:])
	}
	return out
}
