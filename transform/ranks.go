package transform

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"weightfs/fs/plan"
	"weightfs/sources/release"
)

// listedRanks are the numbers of ranks that ranks/ lists; every other number up to that of the experts opens by name.
var listedRanks = []int{2, 4, 8, 16, 32, 64}

const aboutRanks = "ranks/<n>/<r>/ is the model directory of expert-parallel rank r of n (r from 0): everything resident and a contiguous run of the experts, " +
	"names and config.json unchanged. Every n up to the number of experts opens by name, also <n>-nomtp without multi-token prediction's experts."

// ranksDir is ranks/: <n>/<r>/ is the model directory of expert-parallel rank r of n, <n>-nomtp/<r>/ the same without the experts of
// multi-token prediction.
func ranksDir(in *input) (plan.Dir, cost, error) {
	if err := in.laidOut(); err != nil {
		return nil, cost{}, err
	}
	d := &ranks{in: in, made: map[string]plan.Dir{}}
	var counts []plan.Node
	for _, n := range listedRanks {
		if n <= in.Experts.PerLayer {
			counts = append(counts, d.count(n, false))
		}
	}
	counts = plan.NewStatic(counts...)
	n := total(in.sums().native)
	dir := plan.Indexed{N: len(counts), At: func(i int) plan.Node { return counts[i] }, Find: d.find}
	return plus{dir, readmeFile("ranks", aboutRanks)}, cost{n, n}, nil
}

// ranks makes the model directories of ranks and keeps those that were looked at.
type ranks struct {
	in   *input
	mu   sync.Mutex
	made map[string]plan.Dir // guarded by mu; by "n/r" or "n-nomtp/r"
}

// find opens <n> and <n>-nomtp.
func (d *ranks) find(name string) (plan.Node, bool) {
	text, without := strings.CutSuffix(name, "-nomtp")
	n, ok := number(text)
	if !ok || n < 1 || n > d.in.Experts.PerLayer {
		return plan.Node{}, false
	}
	return d.count(n, without), true
}

// number parses a number as it is printed.
func number(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && strconv.Itoa(n) == text
}

// count is the directory of n ranks.
func (d *ranks) count(n int, without bool) plan.Node {
	name := strconv.Itoa(n)
	if without {
		name += "-nomtp"
	}
	rank := func(text string) plan.Node {
		r, _ := strconv.Atoi(text)
		return plan.Folder(text, d.rank(n, r, without))
	}
	texts := make([]string, n)
	for r := range texts {
		texts[r] = strconv.Itoa(r)
	}
	slices.Sort(texts)
	return plan.Folder(name, plan.Indexed{
		N:  n,
		At: func(i int) plan.Node { return rank(texts[i]) },
		Find: func(text string) (plan.Node, bool) {
			r, ok := number(text)
			if !ok || r < 0 || r >= n {
				return plan.Node{}, false
			}
			return rank(text), true
		},
	})
}

// rank is the model directory of rank r of n.
func (d *ranks) rank(n, r int, without bool) plan.Dir {
	key := fmt.Sprint(n, "/", r, "/", without)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.made[key] == nil {
		d.made[key] = newModelDir(d.in, d.in.ofRank(r, n, without), nil)
	}
	return d.made[key]
}

// share is the run of experts [lo, hi) of rank r of n: contiguous, the first E mod n ranks one more.
func share(experts, r, n int) (lo, hi int) {
	each, more := experts/n, experts%n
	lo = r*each + min(r, more)
	hi = lo + each
	if r < more {
		hi++
	}
	return lo, hi
}

// ofRank is the mapping of a rank: every resident tensor, and of the experts those of its share.
func (in *input) ofRank(r, n int, without bool) mapping {
	return func(i int32, emit func(tensor)) error {
		ref := in.ref(i)
		role := in.Role(ref)
		if role == release.Resident {
			emit(copied(in.Tensor(ref)))
			return nil
		}
		w := in.where[i]
		if w.class == resident || w.class == mtp && without {
			return nil
		}
		x := in.experts(w.class)
		lo, hi := share(x.PerLayer, r, n)
		p := &x.Parts[w.part]
		e := int(w.ref) % x.PerLayer
		switch {
		case p.Shared:
			emit(copied(in.Tensor(ref)))
		case p.Fused:
			emit(cutExperts(in.Tensor(ref), p, x.PerLayer, lo, hi))
		case lo <= e && e < hi:
			emit(copied(in.Tensor(ref)))
		}
		return nil
	}
}

// cutExperts is a fused tensor with experts [lo, hi) only.
func cutExperts(t release.Tensor, p *release.Part, experts, lo, hi int) tensor {
	out := copied(t)
	out.Shape = append([]int64{t.Shape[0] / int64(experts) * int64(hi-lo)}, t.Shape[1:]...)
	out.size = p.Bytes * int64(hi-lo)
	out.pieces = func() []plan.Piece {
		return []plan.Piece{plan.Copy{Span: span(t).Sub(p.Bytes*int64(lo), out.size)}}
	}
	return out
}

// RankFiles is what rank r of n of expert parallelism reads of a release: paths of shards, and bytes of tensors.
type RankFiles struct {
	ExpertFiles  []string // with routed experts of the rank, those of multi-token prediction included
	Files        []string // with any tensor of the rank
	ReleaseFiles []string // all
	Bytes        int64
}

// Rank says what rank r of n reads. The error is one of usage, or [*Absent] for a release without routed experts.
func Rank(rel *release.Release, r, n int) (RankFiles, error) {
	if rel.Experts == nil {
		return RankFiles{}, &Absent{View: "ranks", Reason: rel.NoExperts}
	}
	if n < 1 || n > rel.Experts.PerLayer || r < 0 || r >= n {
		return RankFiles{}, fmt.Errorf("rank %d of %d: want 0 <= rank < ranks <= %d, the number of experts", r, n, rel.Experts.PerLayer)
	}
	in := newInput(rel)
	if err := in.laidOut(); err != nil {
		return RankFiles{}, named("ranks", err)
	}
	show := in.ofRank(r, n, false)
	var out RankFiles
	for s := range rel.Shards {
		path := rel.Shards[s].Path
		out.ReleaseFiles = append(out.ReleaseFiles, path)
		some, experts := false, false
		for i := in.base[s]; i < in.base[s+1]; i++ {
			err := show(i, func(t tensor) {
				out.Bytes += t.size
				some = true
				experts = experts || in.where[i].class != resident
			})
			if err != nil {
				return RankFiles{}, err
			}
		}
		if experts {
			out.ExpertFiles = append(out.ExpertFiles, path)
		}
		if some {
			out.Files = append(out.Files, path)
		}
	}
	return out, nil
}
