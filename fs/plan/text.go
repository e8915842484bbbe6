package plan

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
)

// Text writes the plan as text, one line a piece: offset, length, kind, and what the piece is made of. Copies of a Repeat stand
// one after the other as if they had been written out. names gives the path of a file of the release.
func Text(w io.Writer, p *Plan, names func(file int) string) error {
	b := bufio.NewWriter(w)
	writePlan(b, p, 0, names, func(Literal) {})
	return b.Flush()
}

// Digest is the SHA-256 of the plan's text with the content of every literal after its line. Equal digests over equal source files
// mean equal bytes. It takes little memory, and no source bytes.
func Digest(p *Plan, names func(file int) string) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	b := bufio.NewWriter(h)
	writePlan(b, p, 0, names, func(l Literal) {
		data, e := l.render()
		if e != nil {
			err = e
		}
		b.Write(data)
	})
	b.Flush()
	h.Sum(sum[:0])
	return sum, err
}

func writePlan(w *bufio.Writer, p *Plan, base int64, names func(int) string, literal func(Literal)) {
	for i, x := range p.Pieces {
		at := base + p.starts[i]
		if r, ok := x.(Repeat); ok {
			for k := range r.N {
				writePlan(w, r.At(k), at+k*r.Stride, names, literal)
			}
			continue
		}
		fmt.Fprintf(w, "%d +%d %s\n", at, x.Len(), describe(x, names))
		if l, ok := x.(Literal); ok {
			literal(l)
		}
	}
}

func describe(x Piece, names func(int) string) string {
	span := func(s Span) string { return fmt.Sprintf("%s[%d,%d)", quoted(names(s.File)), s.Start, s.End) }
	switch x := x.(type) {
	case Literal:
		return "literal " + quoted(x.Name)
	case Zero:
		return "zero"
	case Copy:
		return "copy " + span(x.Span)
	case Rows:
		return fmt.Sprintf("rows %s stride %d count %d", span(x.First), x.Stride, x.Count)
	case Decode:
		var b strings.Builder
		fmt.Fprintf(&b, "decode %s from %d of", x.Codec, x.Off)
		for _, s := range x.Inputs {
			b.WriteString(" " + span(s))
		}
		return b.String()
	}
	panic(fmt.Sprintf("plan: text of %T", x))
}

// quoted is a name as it stands, or as a Go string if it could be mistaken for something else in a line of text.
func quoted(name string) string {
	if q := fmt.Sprintf("%q", name); name == "" || q != `"`+name+`"` || strings.ContainsAny(name, " [") {
		return q
	}
	return name
}
