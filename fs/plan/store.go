package plan

import (
	"context"
	"errors"
)

// ErrBadInput is wrapped by errors of codecs whose input bytes are impossible, so that no output exists.
var ErrBadInput = errors.New("impossible input")

// Read asks for the bytes of one span in Dst, whose length is the span's.
type Read struct {
	Span Span
	Dst  []byte
	// Lend says that a [Holder] may lend its own memory in Held in place of parts of Dst.
	Lend bool
	Held []Held
	at   int64 // where Dst is in the file, if Lend is set
}

// Held is memory of a store that stands in for Dst[At : At+len(Bytes)].
type Held struct {
	At    int64
	Bytes []byte
}

// Holder is a store that can lend its memory.
type Holder interface {
	Store
	// Hold is Gather, but may lend its memory for reads that permit it, until release is called. release is never nil.
	Hold(ctx context.Context, reads []Read, ahead []Span) (release func(), err error)
}

// Store has the bytes of the source files.
type Store interface {
	// Gather fills every read or fails as a whole. ahead names spans that will probably be read next; the spans of reads are
	// usually among them. Missing bytes of reads and ahead are fetched together, those of reads first; Gather returns as soon
	// as the reads are filled, and without waiting if there are none. ahead is advice: it costs nothing when memory is short. What
	// it starts is under way when Gather returns, so that a later call does not ask for it again. After Gather has returned, also
	// with an error, it never writes to a read's Dst.
	Gather(ctx context.Context, reads []Read, ahead []Span) error
	// MaxGather is the largest total of bytes that one Gather should ask for.
	MaxGather() int64
}

// Dropper is a store that can give up what it was asked for ahead.
type Dropper interface {
	Store
	// Drop says that nobody is about to read the spans. What of them was asked for ahead, is not under way yet and has no reader who waits for it
	// need not be fetched. It is called with a lock of the Reader held: it does not wait, and it does not read through a Reader.
	Drop(spans []Span)
}
