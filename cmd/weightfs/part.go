package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"weightfs/internal/crc32c"
)

// partFile is a file that is being copied: its bytes in NAME.weightfs-part, and in NAME.weightfs-state one line for every segment that
// is there, with its checksum:
//
//	weightfs 1 <key> <size>
//	<segment number> <crc32c>
//
// A finished file has its own name; the state file stays until the whole copy is finished, so that a copy that is taken up again knows
// which files it has.
type partFile struct {
	name string
	size int64
	data *os.File // nil once finished
	have []bool

	mu    sync.Mutex // guards appends to state
	state *os.File
}

func partName(name string) string  { return name + ".weightfs-part" }
func stateName(name string) string { return name + ".weightfs-state" }

// openPart opens or makes the part file of name. What an earlier copy with the same key left is checked and kept, all else dropped.
func openPart(name string, key [32]byte, size int64) (*partFile, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return nil, err
	}
	p := &partFile{name: name, size: size, have: make([]bool, (size+segment-1)/segment)}
	head := fmt.Sprintf("weightfs 1 %x %d\n", key, size)
	if err := p.resume(head); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// resume opens both files and reads what is there.
func (p *partFile) resume(head string) (err error) {
	sums, ok := readState(stateName(p.name), head, len(p.have))
	from := partName(p.name)
	if info, err := os.Stat(p.name); ok && err == nil && info.Size() == p.size && !exists(from) {
		// The file was finished. It is checked like a part, in place.
		from = p.name
	}
	if p.data, err = os.OpenFile(from, os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return err
	}
	if err := p.data.Truncate(p.size); err != nil {
		return err
	}
	var buf []byte
	for i, sum := range sums {
		if buf == nil {
			buf = make([]byte, min(segment, p.size))
		}
		b := buf[:p.len(i)]
		if _, err := p.data.ReadAt(b, i*segment); err == nil && crc32c.Checksum(b) == sum {
			p.have[i] = true
		}
	}
	if from == p.name && slices.Contains(p.have, false) {
		if err := os.Rename(p.name, partName(p.name)); err != nil {
			return err
		}
	}
	return p.rewriteState(head, sums)
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// readState is the segments that a state file with this head names; ok is false if there is no such file.
func readState(name, head string, segments int) (sums map[int64]uint32, ok bool) {
	f, err := os.Open(name)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	r := bufio.NewReader(f)
	if line, err := r.ReadString('\n'); err != nil || line != head {
		return nil, false
	}
	sums = map[int64]uint32{}
	for {
		line, err := r.ReadString('\n')
		if err != nil { // the end, or a line that was cut short
			return sums, true
		}
		var i int64
		var sum uint32
		if n, _ := fmt.Sscanf(line, "%d %x\n", &i, &sum); n == 2 && i >= 0 && i < int64(segments) {
			sums[i] = sum
		}
	}
}

// rewriteState starts the state file anew with the segments that were right.
func (p *partFile) rewriteState(head string, sums map[int64]uint32) (err error) {
	if p.state, err = os.OpenFile(stateName(p.name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o666); err != nil {
		return err
	}
	text := []byte(head)
	for i, ok := range p.have {
		if ok {
			text = fmt.Appendf(text, "%d %08x\n", i, sums[int64(i)])
		}
	}
	_, err = p.state.Write(text)
	return err
}

// missing is the numbers of the segments that are not there.
func (p *partFile) missing() (out []int64) {
	for i, ok := range p.have {
		if !ok {
			out = append(out, int64(i))
		}
	}
	return out
}

// len is the length of segment i.
func (p *partFile) len(i int64) int64 { return min(segment, p.size-i*segment) }

// write stores segment i and records it.
func (p *partFile) write(i int64, b []byte) error {
	if _, err := p.data.WriteAt(b, i*segment); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := fmt.Fprintf(p.state, "%d %08x\n", i, crc32c.Checksum(b))
	return err
}

// finish gives the file its name once all segments are there.
func (p *partFile) finish() error {
	if err := p.close(); err != nil {
		return err
	}
	if from := partName(p.name); exists(from) {
		return os.Rename(from, p.name)
	}
	return nil
}

func (p *partFile) close() (err error) {
	for _, f := range []*os.File{p.data, p.state} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// forget removes the state of a finished file.
func (p *partFile) forget() error { return os.Remove(stateName(p.name)) }
