package release

import (
	"fmt"
	"hash/maphash"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weightfs/sources"
)

const (
	shardExt = ".safetensors"
	indexExt = ".safetensors.index.json"
)

// weightExts are the endings of weight files that are not safetensors.
var weightExts = []string{".bin", ".pt", ".pth", ".gguf", ".onnx", ".onnx_data", ".h5", ".msgpack"}

// numbered is the name of one shard of several: stem, number, count.
var numbered = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.safetensors$`)

// chooseIndex is the index at the root that names the weight set, "" if there is none: model.safetensors.index.json, else the first
// by name that is not of a consolidated copy, else the first.
func chooseIndex(l *sources.Listing) string {
	var all []string
	for _, e := range l.Files {
		if strings.HasSuffix(e.Path, indexExt) && !strings.Contains(e.Path, "/") {
			all = append(all, e.Path)
		}
	}
	for _, p := range all {
		if p == "model"+indexExt {
			return p
		}
	}
	for _, p := range all {
		if !consolidated(p) {
			return p
		}
	}
	if len(all) > 0 {
		return all[0]
	}
	return ""
}

func consolidated(p string) bool { return strings.HasPrefix(p, "consolidated") }

// indexedSet is the positions in the listing of the shards that an index names, sorted by path. A shard's name is a path of the
// listing, as it stands. said is what the index says, in short.
func indexedSet(l *sources.Listing, index string, text []byte) (set []int, said *content, err error) {
	said = &content{seed: maphash.MakeSeed()}
	named := map[string]uint64{} // to their hashes
	said.size, err = scanIndex(text, func(tensor, shard []byte) error {
		hash, known := named[string(shard)]
		if !known {
			hash = said.hash(string(shard))
			named[string(shard)] = hash
		}
		said.add(maphash.Bytes(said.seed, tensor), hash)
		if known {
			return nil
		}
		s := string(shard)
		if !strings.HasSuffix(s, shardExt) {
			return fmt.Errorf("tensor %s is said to be in %s, which is not the name of a safetensors file", quoted(string(tensor)), quoted(s))
		}
		if l.Find(s) < 0 {
			return fmt.Errorf("tensor %s is said to be in shard %s, which the release does not have", quoted(string(tensor)), quoted(s))
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%w: index %s: %w", ErrBadRelease, index, err)
	}
	for i, e := range l.Files {
		if _, ok := named[e.Path]; ok {
			set = append(set, i)
		}
	}
	if len(set) == 0 {
		return nil, nil, fmt.Errorf("%w: index %s names no shard", ErrBadRelease, index)
	}
	return set, said, nil
}

// likelySet is the positions of the shards that an index of that path names in nearly every release, sorted: the numbered ones beside it with
// its stem.
func likelySet(l *sources.Listing, index string) (set []int) {
	for i, e := range l.Files {
		if m := numbered.FindStringSubmatch(e.Path); m != nil && m[1]+indexExt == index {
			set = append(set, i)
		}
	}
	return set
}

// rootSet is the positions of the safetensors files at the root that make one set where no index names one, and the reasons why
// others are left out. Of consolidated.safetensors and other files it takes the others, and of model.safetensors and a variant as
// transformers names it, model.fp16.safetensors, the former.
func rootSet(l *sources.Listing) (set []int, leftOut map[int]string, err error) {
	stems := map[string][]int{}
	for i, e := range l.Files {
		if strings.HasSuffix(e.Path, shardExt) && !strings.Contains(e.Path, "/") {
			stems[stem(e.Path)] = append(stems[stem(e.Path)], i)
		}
	}
	leftOut = map[int]string{}
	for s, files := range stems {
		reason := otherCopy(s, stems)
		for _, i := range files {
			if reason != "" {
				leftOut[i] = reason
				continue
			}
			set = append(set, i)
		}
	}
	slices.Sort(set)
	if len(set) == 0 {
		return nil, nil, fmt.Errorf("%w: there is no %s file at the root of %s", ErrBadRelease, shardExt, l.Name)
	}
	return set, leftOut, missingShard(l, set)
}

// stem is a shard's name without number and ending.
func stem(p string) string {
	if m := numbered.FindStringSubmatch(p); m != nil {
		return m[1]
	}
	return strings.TrimSuffix(p, shardExt)
}

// otherCopy says why the files of a stem are another copy of the weights, "" if they are not.
func otherCopy(s string, stems map[string][]int) string {
	if consolidated(s) {
		for other := range stems {
			if !consolidated(other) {
				return "another copy of the weights: consolidated, beside files of the usual layout"
			}
		}
		return ""
	}
	if dot := strings.LastIndexByte(s, '.'); dot > 0 && stems[s[:dot]] != nil {
		return "a variant of " + s[:dot] + shardExt
	}
	return ""
}

// missingShard fails if the names of a set count to a shard that is not there.
func missingShard(l *sources.Listing, set []int) error {
	done := map[string]bool{}
	for _, i := range set {
		m := numbered.FindStringSubmatch(l.Files[i].Path)
		if m == nil || done[m[1]+m[3]] {
			continue
		}
		done[m[1]+m[3]] = true
		count, _ := strconv.Atoi(m[3])
		first := 1
		if l.Find(shardName(m[1], 0, m[3])) >= 0 {
			first = 0
		}
		for n := first; n < first+count; n++ {
			if want := shardName(m[1], n, m[3]); l.Find(want) < 0 {
				return fmt.Errorf("%w: shard %s is missing beside %s", ErrBadRelease, quoted(want), quoted(l.Files[i].Path))
			}
		}
	}
	return nil
}

func shardName(stem string, n int, count string) string {
	return fmt.Sprintf("%s-%05d-of-%s%s", stem, n, count, shardExt)
}

// others lists every weight file that is not in the set, with the reason.
func others(l *sources.Listing, set []int, reasons map[int]string, index string) (out []sources.Hidden) {
	for i, e := range l.Files {
		if _, found := slices.BinarySearch(set, i); found {
			continue
		}
		reason := reasons[i]
		switch {
		case strings.HasSuffix(e.Path, shardExt):
			if strings.Contains(e.Path, "/") {
				reason = "another copy or part: in the folder " + path.Dir(e.Path) + ", beside the set at the root"
			} else if index != "" {
				reason = "not named by " + index
				if consolidated(e.Path) {
					reason = "another copy of the weights: consolidated, " + reason
				}
			}
		case slices.Contains(weightExts, path.Ext(e.Path)):
			reason = "not a safetensors file"
		default:
			continue
		}
		out = append(out, sources.Hidden{Path: e.Path, Reason: reason})
	}
	return out
}
