package plan

import (
	"context"
	"fmt"
	"sync"
	"time"
	"weak"
)

// Reader reads plans through a store: the one way from a plan to its bytes. It is safe for parallel use, and there is one for all
// files of a store. The zero value of the unexported fields is ready.
type Reader struct {
	Store Store
	jobs  sync.Pool // of *job
	seen  progress
	kept  memo
}

// NewReader makes a reader that keeps up to kept bytes of decoded tiles (of codecs that decode nothing smaller at a fair price) and
// rendered literals; the newest of them is kept whatever its size.
func NewReader(store Store, kept int64) *Reader {
	r := &Reader{Store: store, kept: memo{max: kept}}
	if d, ok := store.(Dropper); ok {
		r.seen.drop = d.Drop
		r.seen.after = func(d time.Duration, fn func()) { time.AfterFunc(d, fn) }
	}
	return r
}

// Leave says that somebody has closed the file: what was asked for ahead for its streams, but for those that are being read, is given up. A stream that
// goes on asks again.
func (r *Reader) Leave(p *Plan) { r.seen.leave(p) }

// Kept is the number of bytes of decoded tiles and rendered literals in memory.
func (r *Reader) Kept() int64 {
	r.kept.mu.Lock()
	defer r.kept.mu.Unlock()
	return r.kept.size
}

type kernelKey struct{}

// ByKernel is a context for reads that a kernel sends for its page cache: they have bytes around and ahead of what somebody reads. Others ask for what they
// need.
func ByKernel(ctx context.Context) context.Context { return context.WithValue(ctx, kernelKey{}, true) }

// maxStep is the largest part of a request that is resolved and gathered at once.
const maxStep = 16 << 20

// ReadAt fills dst with the bytes of p from off. It returns what [io.ReaderAt] returns at the end of the file: the bytes there are, and
// io.EOF if those are fewer than asked for. Any other error comes with 0 bytes: dst then holds nothing of use.
func (r *Reader) ReadAt(ctx context.Context, p *Plan, dst []byte, off int64) (int, error) {
	n, eof := clamp(p.Size, off, len(dst))
	if n == 0 {
		return 0, eof
	}
	step := r.step()
	for done := int64(0); done < n; {
		k := min(step, n-done)
		if err := r.read(ctx, p, dst[done:done+k], off+done, r.gather); err != nil {
			return 0, err
		}
		done += k
	}
	return int(n), eof
}

// step is how much of a request is resolved and gathered at once.
func (r *Reader) step() int64 {
	if m := r.Store.MaxGather(); m > 0 {
		return min(maxStep, m)
	}
	return maxStep
}

// gatherer has the bytes of reads, and asks for ahead.
type gatherer func(ctx context.Context, reads []Read, ahead []Span) error

// read fills dst, which lies inside the file: resolve, gather, fill.
func (r *Reader) read(ctx context.Context, p *Plan, dst []byte, off int64, gather gatherer) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	ahead, stream := r.askAhead(ctx, p, off, int64(len(dst)))
	defer r.seen.end(stream)
	j := r.job()
	defer r.putJob(j)
	j.resolve(p, 0, off, dst)
	j.place()
	if err := gather(ctx, j.reads, ahead); err != nil {
		return err
	}
	if err := j.fill(); err != nil {
		return err
	}
	return r.fillKept(ctx, p, j)
}

// askAhead asks for the units that the read makes worth having, each in a gather of its own and in the file's order, so that what goes
// over the wire is the same however a file is read. If it is one unit only, as when a block is touched, its spans are returned instead: the
// read's own gather names them, and its cells come first. It fails nobody's read.
func (r *Reader) askAhead(ctx context.Context, p *Plan, off, n int64) ([]Span, *stream) {
	var buf [4]Unit
	_, kernel := ctx.Value(kernelKey{}).(bool)
	units, stream := r.seen.begin(p, access{off, off + n, kernel}, buf[:0])
	if len(units) == 1 {
		return p.ahead(units[0].Start, units[0].End-units[0].Start), stream
	}
	for _, u := range units {
		if spans := p.ahead(u.Start, u.End-u.Start); len(spans) > 0 {
			_ = r.Store.Gather(ctx, nil, spans) // what cannot be had is the failure of the read that needs it
		}
	}
	return nil, stream
}

// gather reads everything, in as many calls as the store's limit makes necessary; ahead goes with the first.
func (r *Reader) gather(ctx context.Context, reads []Read, ahead []Span) error {
	limit := r.Store.MaxGather()
	if limit <= 0 {
		limit = 1 << 62
	}
	for len(reads) > 0 || len(ahead) > 0 {
		batch, rest := split(reads, limit)
		if err := r.Store.Gather(ctx, batch, ahead); err != nil {
			return err
		}
		reads, ahead = rest, nil
	}
	return nil
}

// split takes reads of at most limit bytes from the front, cutting the read that passes the limit in two.
func split(reads []Read, limit int64) (batch, rest []Read) {
	var total int64
	for i, x := range reads {
		n := x.Span.Len()
		if total+n <= limit {
			total += n
			continue
		}
		k := limit - total
		if k == 0 {
			return reads[:i], reads[i:]
		}
		batch = append(append(batch, reads[:i]...), Read{Span: x.Span.Sub(0, k), Dst: x.Dst[:k]})
		rest = append(append(rest, Read{Span: x.Span.Sub(k, n-k), Dst: x.Dst[k:]}), reads[i+1:]...)
		return batch, rest
	}
	return reads, nil
}

// fillKept fills what comes out of tiles and literals that are kept.
func (r *Reader) fillKept(ctx context.Context, p *Plan, j *job) error {
	for _, t := range j.tiles {
		data, err := r.kept.get(ctx, memoKey{weak.Make(p), t.at}, func() ([]byte, error) { return r.decodeTile(ctx, t) })
		if err != nil {
			return err
		}
		copy(t.dst, data[t.skip:])
	}
	for _, l := range j.renders {
		data, err := r.kept.get(ctx, memoKey{weak.Make(p), l.at}, l.lit.render)
		if err != nil {
			return err
		}
		copy(l.dst, data[l.skip:])
	}
	return nil
}

func (l Literal) render() ([]byte, error) {
	data := l.Bytes
	if data == nil {
		data = l.Render()
	}
	if int64(len(data)) != l.Size {
		return nil, fmt.Errorf("literal %s has %d bytes, its plan says %d", l.Name, len(data), l.Size)
	}
	return data, nil
}

// decodeTile gathers the inputs of a tile and decodes all of it.
func (r *Reader) decodeTile(ctx context.Context, t tile) ([]byte, error) {
	j := r.job()
	defer r.putJob(j)
	data := make([]byte, t.size)
	j.decodeInto(Decode{Codec: t.codec, Inputs: t.inputs}, t.off, data)
	j.place()
	if err := r.gather(ctx, j.reads, nil); err != nil {
		return nil, err
	}
	return data, j.fill()
}

func (r *Reader) job() *job {
	if j, ok := r.jobs.Get().(*job); ok {
		return j
	}
	return new(job)
}

func (r *Reader) putJob(j *job) {
	j.reset()
	r.jobs.Put(j)
}
