package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// unitText is the first max units of a plan, one a line with the spans that a store is told of.
func unitText(p *Plan, max int) string {
	var b strings.Builder
	n := 0
	for u := range p.Units() {
		if n++; n > max {
			fmt.Fprintln(&b, "  …")
			break
		}
		whole := ""
		if u.Whole {
			whole = " whole"
		}
		fmt.Fprintf(&b, "  [%d,%d)%s", u.Start, u.End, whole)
		for _, s := range p.ahead(u.Start, u.End-u.Start) {
			b.WriteString(" " + spanText(s))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestUnits: how plans of every shape are cut.
func TestUnits(t *testing.T) {
	bigBlock := func(i int64) *Plan {
		return New(Copy{Span{0, i * 100 * mib, i*100*mib + 70*mib}}, Copy{Span{1, i * 30 * mib, (i + 1) * 30 * mib}})
	}
	packed := sumCodec{rows: 1, row: 400 * mib, tile: 100 * mib}
	var b strings.Builder
	for _, x := range []struct {
		name string
		p    *Plan
		max  int
	}{
		{"a plain file", New(Copy{Span{0, 0, 70 * mib}}), 20},
		{"a small plain file", New(Copy{Span{0, 0, 1000}}), 20},
		{"a release file with hints", shard(), 20},
		{"a block", expertPlan(3), 20},
		{"expert blocks", expertBlocks(), 2},
		{"blocks beyond 64 MiB", New(Repeat{Name: "big", N: 2, Stride: 100 * mib, At: bigBlock}), 20},
		{"decoded tensors", dequantized(), 6},
		{"tiles with more than 16 MiB of source", New(Decode{Codec: packed, Inputs: []Span{{0, 0, 200 * mib}, {1, 0, 1}}, Off: 30 * mib, Size: 270 * mib}), 20},
		{"rows near each other", New(Rows{First: Span{0, 50, 4146}, Stride: 8192, Count: 20_000}), 3},
		{"literals and zeros", New(Literal{Name: "a", Size: 10}, Zero{6}, Literal{Name: "b", Size: 5}, Copy{Span{0, 5, 10}}, Zero{3}, Copy{Span{0, 20, 30}}), 20},
	} {
		fmt.Fprintf(&b, "%s\n%s", x.name, unitText(x.p, x.max))
	}
	golden(t, "units.txt", b.String())
}

// TestUnitsAreRemembered: a unit is asked for once, and again when more than forgetUnit bytes of others came after it.
func TestUnitsAreRemembered(t *testing.T) {
	n := 9 * mib
	p := New(Repeat{Name: "r", N: 1000, Stride: n, At: expertPlan})
	var g progress
	touch := func(i int64) int { return len(g.note(p, i*n+n/2, 1000, nil)) }
	if a, b := touch(0), touch(0); a != 1 || b != 0 {
		t.Fatalf("the first touch asks for %d units, the second for %d", a, b)
	}
	others := forgetUnit / n
	for i := range others {
		touch(2 + 2*i)
	}
	if touch(0) != 1 {
		t.Error("the unit is never forgotten")
	}
	if touch(2*others) != 0 {
		t.Error("the latest unit is forgotten")
	}
}

// TestProgressIsBounded: however much is read, streams and units remembered stay few.
func TestProgressIsBounded(t *testing.T) {
	var g progress
	for i := range 3 * int64(maxAsked) {
		p := New(Copy{Span{0, 0, 100 * mib}})
		g.note(p, 0, 4096, nil)
		g.note(p, i*4096, 4096, nil)
	}
	if len(g.streams) > maxStreams || len(g.asked) > maxAsked || len(g.order) > maxAsked {
		t.Errorf("%d streams, %d units", len(g.streams), len(g.asked))
	}
}

// TestStopsEarly: who stops reading has fetched no more than 32 times what was read beyond it, and one unit.
func TestStopsEarly(t *testing.T) {
	for _, x := range []struct {
		name string
		p    *Plan
		unit int64
	}{
		{"plain file", New(Copy{Span{0, 0, 4000 * mib}}), unitStep},
		{"expert blocks", expertBlocks(), 9 * mib},
	} {
		for _, from := range []int64{0, 1000*mib + 5*kib} {
			var g progress
			end, n, asked := from, 128*kib, int64(0)
			for ; end < from+80*mib; end += n {
				for _, u := range g.note(x.p, end, n, nil) {
					asked = max(asked, u.End)
				}
				if read := end + n - from; asked > from+(1+aheadTimes)*read+2*x.unit {
					t.Fatalf("%s from %d: %d bytes were read, and all up to %d further asked for", x.name, from, read, asked-from-read)
				}
			}
			if asked < end+maxWindow-x.unit {
				t.Errorf("%s from %d: after %d bytes only %d are asked for ahead", x.name, from, end-from, asked-end)
			}
		}
	}
}

// note is a kernel's read that takes no time.
func (g *progress) note(p *Plan, off, n int64, ask []Unit) []Unit {
	ask, s := g.begin(p, access{off, off + n, true}, ask)
	g.end(s)
	return ask
}

// TestStreamsAreGivenUp: when a plan is read elsewhere, and a stream has not been read for a while, what it asked for beyond its unit is given up; it asks
// again if it goes on.
func TestStreamsAreGivenUp(t *testing.T) {
	for _, x := range []struct {
		name string
		p    *Plan
		unit int64
	}{
		{"plain file", New(Copy{Span{0, 0, 4000 * mib}}), unitStep},
		{"expert blocks", expertBlocks(), 9 * mib},
	} {
		var dropped [][]Span
		now := time.Unix(0, 0)
		g := progress{drop: func(s []Span) { dropped = append(dropped, s) }, now: func() time.Time { return now }}
		pos := int64(0)
		var asked []Span
		read := func() {
			for _, u := range g.note(x.p, pos, 128*kib, nil) {
				asked = append(asked, x.p.ahead(u.Start, u.End-u.Start)...)
			}
			pos += 128 * kib
		}
		for pos < 50*mib {
			read()
		}
		before := join(asked, unitCell)
		elsewhere := int64(1000 * mib)
		jump := func() { elsewhere += 20 * mib; g.note(x.p, elsewhere, 4096, nil) }
		for range 20 {
			for range 5 {
				jump()
			}
			now = now.Add(leftFor - 1)
			read()
		}
		_, waiting := g.begin(x.p, access{pos, pos + 128*kib, true}, nil)
		now = now.Add(time.Minute)
		jump()
		g.end(waiting)
		jump()
		if len(dropped) > 0 {
			t.Fatalf("%s: a reader elsewhere ended a stream that goes on: %v", x.name, dropped)
		}
		asked = nil
		now = now.Add(leftFor)
		other := New(Copy{Span{0, 0, mib}})
		g.note(other, 0, 4096, nil)
		if len(dropped) > 0 {
			t.Fatalf("%s: a reader of another file ended a stream: %v", x.name, dropped)
		}
		jump()
		if len(dropped) != 1 {
			t.Fatalf("%s: dropped %v", x.name, dropped)
		}
		_, unit, _ := x.p.Unit(pos - 1)
		rest := x.p.ahead(unit, x.p.Size-unit)
		for i, s := range dropped[0] {
			if s.Start != rest[i].Start || s.End < before[i].End {
				t.Errorf("%s: dropped %v, not from %d to %d at least", x.name, s, rest[i].Start, before[i].End)
			}
		}
		now = now.Add(time.Minute)
		jump()
		if len(dropped) != 1 {
			t.Errorf("%s: dropped once more: %v", x.name, dropped[1:])
		}
		g.leave(x.p)
		if len(dropped) != 1 {
			t.Errorf("%s: dropped once more: %v", x.name, dropped[1:])
		}
		wantBooks(t, &g)
		for pos < unit+128*kib {
			read()
		}
		for i, s := range join(asked, unitCell) {
			if at := dropped[0][i]; s.Start > at.Start || s.End < at.End {
				t.Errorf("%s: asked for %v again of %v", x.name, s, at)
			}
		}
		_, waiting = g.begin(x.p, access{pos, pos + 128*kib, true}, nil)
		g.leave(x.p)
		if len(dropped) != 1 {
			t.Errorf("%s: what is being read is given up: %v", x.name, dropped[1:])
		}
		g.end(waiting)
		g.leave(other)
		g.leave(x.p)
		if len(dropped) != 2 {
			t.Errorf("%s: closed, and dropped %v", x.name, dropped)
		}
	}
}

// wantBooks fails unless what progress remembers of units adds up.
func wantBooks(t *testing.T, g *progress) {
	t.Helper()
	total := int64(0)
	for _, k := range g.order {
		total += g.asked[k]
	}
	if total != g.total || len(g.order) != len(g.asked) {
		t.Errorf("%d units of %d bytes are remembered, %d in their order, of %d", len(g.asked), g.total, len(g.order), total)
	}
}

// TestFollowersAskAgain: when a stream is given up, another one behind it asks for what it had left to the first.
func TestFollowersAskAgain(t *testing.T) {
	p := New(Copy{Span{0, 0, 4000 * mib}})
	var dropped []Span
	now := time.Unix(0, 0)
	g := progress{drop: func(s []Span) { dropped = append(dropped, s...) }, now: func() time.Time { return now }}
	asked := int64(0)
	read := func(from, end int64) {
		for off := from; off < end; off += mib {
			for _, u := range g.note(p, off, mib, nil) {
				asked = max(asked, u.End)
			}
		}
	}
	read(0, 200*mib)
	read(0, 100*mib) // follows
	asked, now = 0, now.Add(leftFor)
	read(100*mib, 104*mib)
	if len(dropped) != 1 {
		t.Fatalf("dropped %v", dropped)
	}
	wantBooks(t, &g)
	if asked < 100*mib+maxWindow {
		t.Errorf("the follower at 104 MiB asked again up to %d only", asked)
	}
}

// TestReadAroundIsNoTouch: one block read by offset, with what kernels read around and ahead of it, asks for that block alone, and what fills the kernel's
// last read of it; who reads on asks for the next.
func TestReadAroundIsNoTouch(t *testing.T) {
	n := 9 * mib
	p := New(Repeat{Name: "r", N: 1000, Stride: n, At: expertPlan})
	for _, ahead := range []int64{128 * kib, mib} {
		var g progress
		var asked []Unit
		read := func(off, end int64) {
			for ; off < end; off += ahead {
				asked = g.note(p, off, ahead, asked)
			}
		}
		base := 500 * n
		read(base-ahead/2+4096, base+n+ahead) // around its first page, and ahead of its last
		if len(asked) != 1 || asked[0].Start != base || asked[0].End != base+n+ahead {
			t.Errorf("read-ahead %d: one block read asks for %v", ahead, asked)
		}
		read(base+n+ahead, base+3*n)
		if len(asked) < 3 || asked[1].Start != base+n || asked[len(asked)-1].End < base+10*n {
			t.Errorf("read-ahead %d: three blocks read ask for %v", ahead, asked)
		}
	}
}

// TestExactReads: without a kernel's page cache every byte that is read was wanted: a block is asked for when its first byte is read, and nothing beyond it.
func TestExactReads(t *testing.T) {
	n := 9 * mib
	p := New(Repeat{Name: "r", N: 1000, Stride: n, At: expertPlan})
	var g progress
	var asked []Unit
	read := func(off, end int64) {
		var s *stream
		asked, s = g.begin(p, access{off: off, end: end}, asked)
		g.end(s)
	}
	for _, block := range []int64{0, 500} {
		for off := block * n; off < (block+1)*n; off += mib {
			read(off, off+mib)
		}
	}
	read(501*n, 501*n+4096)
	want := []Unit{{0, n, true}, {500 * n, 501 * n, true}, {501 * n, 502 * n, true}}
	if !slices.Equal(asked, want) {
		t.Errorf("asked for %v, not %v", asked, want)
	}
}
