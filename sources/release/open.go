package release

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"weightfs/sources"
	"weightfs/sources/safetensors"
)

// parallel is how many headers, or regions of facts, are fetched at once.
const parallel = 16

// Open chooses one weight set from the listing, fetches its index and headers through r, and classifies the tensors. Every error
// wraps [ErrBadRelease] or an error of r; it names the shard, and the tensor and numbers where there are some. r is kept for
// [Release.Facts].
func Open(ctx context.Context, l *sources.Listing, r Reader) (*Release, error) {
	rel := &Release{Listing: l, Index: chooseIndex(l), reader: r}
	said, err := rel.headers(ctx)
	if err != nil {
		return nil, err
	}
	if rel.names, err = newNameIndex(rel.Shards); err != nil {
		return nil, err
	}
	at := len(rel.Notes)
	if err := rel.config(ctx); err != nil {
		return nil, err
	}
	var work sync.WaitGroup
	var odd []string
	if rel.Index != "" {
		work.Go(func() { odd, err = rel.compareIndex(ctx, said) })
	}
	rel.classify()
	work.Wait()
	if err != nil {
		return nil, err
	}
	rel.Notes = slices.Insert(rel.Notes, at, odd...)
	return rel, nil
}

// headers chooses the weight set and fetches its headers. It begins, while the index is read, with those that the index most likely
// names. It returns what the index says, nil if there is none.
func (rel *Release) headers(ctx context.Context) (said *content, err error) {
	set := likelySet(rel.Listing, rel.Index)
	likely := shardsOf(rel.Listing, set)
	earlyCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	early := make(chan error, 1)
	go func() { early <- fetchHeaders(earlyCtx, rel.reader, likely) }()
	said, err = rel.choose(ctx)
	found := err == nil && slices.EqualFunc(set, rel.Shards, func(file int, s Shard) bool { return file == s.File })
	if !found {
		cancel()
	}
	earlyErr := <-early
	switch {
	case err != nil:
		return nil, err
	case found:
		rel.Shards, err = likely, earlyErr
	default:
		err = fetchHeaders(ctx, rel.reader, rel.Shards)
	}
	if err != nil {
		return nil, err
	}
	var odd notes
	for _, s := range rel.Shards {
		for _, n := range s.Header.Notes() {
			odd.add("shard %s: %s", quoted(s.Path), n)
		}
	}
	rel.Notes = append(rel.Notes, odd.list("headers")...)
	return said, nil
}

// choose sets Shards (without headers) and LeftOut. It returns what the index says, nil if there is none.
func (rel *Release) choose(ctx context.Context) (said *content, err error) {
	var set []int
	var reasons map[int]string
	l := rel.Listing
	if rel.Index != "" {
		text, err := rel.readIndex(ctx)
		if err != nil {
			return nil, err
		}
		set, said, err = indexedSet(l, rel.Index, text)
		if err != nil {
			return nil, err
		}
	} else {
		set, reasons, err = rootSet(l)
	}
	if err != nil {
		return nil, err
	}
	rel.LeftOut = others(l, set, reasons, rel.Index)
	rel.Shards = shardsOf(l, set)
	return said, nil
}

func (rel *Release) readIndex(ctx context.Context) ([]byte, error) {
	text, err := rel.reader.ReadFile(ctx, rel.Index, maxIndex)
	if err != nil {
		return nil, fmt.Errorf("reading the index: %w", err)
	}
	return text, nil
}

// shardsOf are files of a listing as shards without headers.
func shardsOf(l *sources.Listing, set []int) (shards []Shard) {
	for _, i := range set {
		shards = append(shards, Shard{File: i, Path: l.Files[i].Path, Size: l.Files[i].Size})
	}
	return shards
}

// fetchHeaders fetches and parses the header of every shard.
func fetchHeaders(ctx context.Context, r Reader, shards []Shard) error {
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(parallel, len(shards)) {
		g.Go(func() error {
			var w headerWork
			for i := int(next.Add(1)) - 1; i < len(shards); i = int(next.Add(1)) - 1 {
				if err := w.open(ctx, r, &shards[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// headerWork is memory for one header after the other.
type headerWork struct {
	head   []byte
	parser safetensors.Parser
}

// open fetches and parses the header of a shard.
func (w *headerWork) open(ctx context.Context, r Reader, s *Shard) error {
	head, err := r.Header(ctx, s.Path, w.head)
	if err == nil {
		w.head = head
		s.Header, err = w.parser.Parse(head, s.Size)
	}
	if err == nil {
		return nil
	}
	if malformed(err) {
		return fmt.Errorf("%w: shard %s: %w", ErrBadRelease, quoted(s.Path), err)
	}
	return fmt.Errorf("reading the header of shard %s: %w", quoted(s.Path), err)
}

// malformed says that err is a verdict on a header, the reader's or the parser's, rather than a failure to get it.
func malformed(err error) bool {
	for _, verdict := range []error{
		sources.ErrCorrupt,
		safetensors.ErrHeaderTooSmall, safetensors.ErrHeaderTooLarge, safetensors.ErrHeaderLength, safetensors.ErrHeaderUTF8,
		safetensors.ErrHeaderJSON, safetensors.ErrDuplicate, safetensors.ErrLimit, safetensors.ErrOffset, safetensors.ErrOverflow,
		safetensors.ErrMisaligned, safetensors.ErrTensorSize, safetensors.ErrFileLength,
	} {
		if errors.Is(err, verdict) {
			return true
		}
	}
	return false
}

// compareIndex notes where headers disagree with what the index says; the headers are right. An index that names a tensor twice is an
// error. It changes nothing. The index, which is long, is read again only if there is something to note.
func (rel *Release) compareIndex(ctx context.Context, said *content) (odd []string, err error) {
	has := content{seed: said.seed}
	for _, s := range rel.Shards {
		shard := has.hash(s.Path)
		for i := range s.Header.Len() {
			has.add(has.hash(s.Header.Name(i)), shard)
		}
	}
	if has.size = rel.Bytes(); said.size < 0 {
		has.size = said.size
	}
	if has == *said {
		return nil, nil
	}
	text, err := rel.readIndex(ctx)
	if err != nil {
		return nil, err
	}
	return rel.differences(text)
}

// differences notes where the index and the headers disagree.
func (rel *Release) differences(text []byte) (odd []string, err error) {
	shardOf := map[string]int32{}
	for i, s := range rel.Shards {
		shardOf[s.Path] = int32(i)
	}
	var missing, moved, unnamed notes
	seen := make([]bool, rel.Len())
	size, err := scanIndex(text, func(tensor, shard []byte) error {
		said, known := shardOf[string(shard)]
		ref, ok := rel.Lookup(string(tensor))
		if !ok {
			missing.add("index %s names tensor %s in shard %s, whose header does not have it", rel.Index, quoted(string(tensor)), quoted(string(shard)))
			return nil
		}
		n := rel.names.number(ref)
		if seen[n] {
			return fmt.Errorf("tensor %s occurs twice", quoted(string(tensor)))
		}
		seen[n] = true
		if !known || said != ref.Shard {
			moved.add("index %s names tensor %s in shard %s, but it is in %s", rel.Index, quoted(string(tensor)), quoted(string(shard)),
				quoted(rel.Shards[ref.Shard].Path))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: index %s: %w", ErrBadRelease, rel.Index, err)
	}
	for n, ok := range seen {
		if !ok {
			t := rel.Tensor(rel.names.ref(uint32(n)))
			unnamed.add("index %s does not name tensor %s, which is in shard %s", rel.Index, quoted(t.Name), quoted(rel.Listing.Files[t.File].Path))
		}
	}
	odd = append(odd, missing.list("tensors that no header has")...)
	odd = append(odd, moved.list("tensors in another shard than the index says")...)
	odd = append(odd, unnamed.list("tensors that the index does not name")...)
	if size >= 0 && size != rel.Bytes() {
		odd = append(odd, fmt.Sprintf("index %s says total_size %d, the tensors have %d bytes", rel.Index, size, rel.Bytes()))
	}
	return odd, nil
}

// config reads config.json (params.json where there is none) and the quantization side files. A malformed one is noted; only a
// failure to read one is an error.
func (rel *Release) config(ctx context.Context) error {
	rel.Files = map[string][]byte{}
	for _, name := range append([]string{"config.json", "params.json"}, quantFiles...) {
		i := rel.Listing.Find(name)
		if i < 0 {
			continue
		}
		if size := rel.Listing.Files[i].Size; size > maxConfig {
			rel.Notes = append(rel.Notes, fmt.Sprintf("%s has %d bytes, more than %d; ignored", name, size, maxConfig))
			continue
		}
		text, err := rel.reader.ReadFile(ctx, name, maxConfig)
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		rel.Files[name] = text
	}
	rel.Config = rel.Files["config.json"]
	rel.declare()
	return nil
}

// declare fills Declared from Files.
func (rel *Release) declare() {
	name := "config.json"
	if rel.Files[name] == nil {
		name = "params.json"
	}
	if text := rel.Files[name]; text != nil {
		d, odd, err := readConfig(name, text)
		if err != nil {
			odd = []string{fmt.Sprintf("%v; the file is ignored", err)}
		}
		rel.Declared, rel.Notes = d, append(rel.Notes, odd...)
	}
	for _, name := range quantFiles {
		text := rel.Files[name]
		if text == nil {
			continue
		}
		s := scanner{b: text, lenient: true}
		err := s.object(func([]byte) error { return s.skip(1) })
		if err == nil {
			err = s.end()
		}
		if err != nil {
			rel.Notes = append(rel.Notes, fmt.Sprintf("%s %v; the file is ignored", name, err))
			continue
		}
		rel.Declared.Quantization = append(rel.Declared.Quantization, Quantization{Where: name, Raw: text})
	}
}
